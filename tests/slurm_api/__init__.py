"""Slurm through pyslurm: its process, and the real library where it can be imported."""
