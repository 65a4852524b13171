"""Owns calibrations: the few constants of a cluster that make predictions its own."""

from gpt_tune.calibration.constants import Calibration
from gpt_tune.calibration.store import load, read, save, to_toml, user_path

__all__ = ["Calibration", "load", "read", "save", "to_toml", "user_path"]
