"""Owns a real pseudo-terminal with the wizard in it, and a screen that understands what it writes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pexpect
import pyte
import pytest

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 60.0
KEYS = {"enter": "\r", "escape": "\x1b", "up": "\x1b[A", "down": "\x1b[B", "ctrl+z": "\x1a", "ctrl+c": "\x03"}
# Tests that run under nohup leave hang-ups ignored to all that they start.
START = (
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    "from tui.app import run_wizard; raise SystemExit(run_wizard())"
)


class Terminal:
    """`with Terminal() as t: t.press("enter"); t.see("Where")`. received counts bytes of the program."""

    def __init__(self, columns: int = 80, rows: int = 24, **environment: str) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        env = {**os.environ, "TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none", **environment}
        self.child = pexpect.spawn(
            sys.executable, ["-c", START], dimensions=(rows, columns), env=env, cwd=str(ROOT), timeout=5
        )

    @property
    def received(self) -> int:
        return len(self.raw)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def read(self, seconds: float = 0.05) -> None:
        """Take what the program has written within so many seconds."""
        try:
            data = self.child.read_nonblocking(65536, timeout=seconds)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return
        self.raw += data
        self._stream.feed(data)

    def until(self, condition: Callable[[], object], what: str) -> None:
        stop = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > stop:
                pytest.fail(f"{what} not reached; the terminal shows:\n{self.text}")
            self.read()

    def see(self, text: str) -> None:
        self.until(lambda: text in self.text, repr(text))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.child.send(KEYS.get(key, key))

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def kill(self) -> None:
        """End the wizard as a power cut would."""
        self.child.kill(signal.SIGKILL)
        self.child.wait()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.child.close(force=True)
