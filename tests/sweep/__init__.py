"""Sweeps: the grid, the ranking, and real ones on Slurm and on this machine."""
