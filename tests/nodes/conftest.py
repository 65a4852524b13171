"""Owns the command line for the tests of nodes."""

from tests.cli.conftest import gpt_tune

__all__ = ["gpt_tune"]
