"""Owns the parts of a sweep: what is tried, how it is submitted, how it is ranked."""
