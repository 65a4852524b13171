"""Tests of ablation ladders."""
