"""Owns calibrations: the few constants of a cluster that make predictions its own."""

from gpt_tune.calibration.constants import Calibration
from gpt_tune.calibration.store import forget, load, read, save, shipped, to_toml, user_path

__all__ = ["Calibration", "forget", "load", "read", "save", "shipped", "to_toml", "user_path"]
