"""Owns the waits of the runtime that a key could feel: telling Esc from a key sequence, and the threads' turns."""

from __future__ import annotations

import os
import selectors
import sys
from types import SimpleNamespace

from textual import constants

# The following thread computes for a tenth of a second at a time; a key must not wait 5 ms for it at each step.
SWITCH_SECONDS = 0.0005
# Esc begins the sequences of other keys. They come in one piece, over ssh too; Textual waits 0.1 s for the rest.
ESCAPE_SECONDS = 0.02
LOOK_SECONDS = 0.025  # after something was typed: until it is asked whether an Esc stands alone


class PromptSelector(selectors.SelectSelector):
    """Waits as long as it is told, but only a moment after something came."""

    _typed = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(LOOK_SECONDS if self._typed else timeout)
        self._typed = bool(ready)
        return ready


def be_prompt() -> None:
    """Shorten them; before the app runs. ESCDELAY in the environment wins."""
    sys.setswitchinterval(SWITCH_SECONDS)
    if "ESCDELAY" in os.environ:
        return
    vars(constants)["ESCAPE_DELAY"] = ESCAPE_SECONDS
    try:
        from textual.drivers import linux_driver
    except ImportError:
        return  # not a Unix
    # Its thread looks every 0.1 s whether an Esc stands alone, whatever the delay is set to.
    vars(linux_driver)["selectors"] = SimpleNamespace(
        SelectSelector=PromptSelector, EVENT_READ=selectors.EVENT_READ
    )
