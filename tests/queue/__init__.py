"""The queue as a person asks about it, and jobs that gpt-tune did not submit."""
