"""The gpt-tune engine: planning, rendering, submitting and following training jobs. No terminal code."""

__version__ = "0.1.0"
