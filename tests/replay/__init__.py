"""Recorded runs: their format, how they are made, and how they play."""
