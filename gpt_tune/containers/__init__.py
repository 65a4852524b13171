"""Owns container images for training jobs: pinned versions, pairs that do not work, and the files that build them."""
