"""Runs that are chains of jobs."""
