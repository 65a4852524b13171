"""Owns GPUs, nodes and links: the catalogue and how to find one in it."""
