"""The parts of watching a run; `gpt_tune.workflows.watch` puts them together."""
