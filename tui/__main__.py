"""Owns `python -m tui`: the same as the gpt-tune command."""

import sys

from tui.cli import main

sys.exit(main())
