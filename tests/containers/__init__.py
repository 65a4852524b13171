"""Tests of the container files."""
