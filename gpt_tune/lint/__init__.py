"""Owns checking job scripts, container files and configurations that people wrote by hand."""
