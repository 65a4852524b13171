"""Tests of standard output that is closed or full: one sentence on stderr, no traceback, no bug file."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT


@pytest.mark.parametrize("stream", [">&-", ">/dev/full"])
@pytest.mark.parametrize(
    "command",
    ["models", "models --json", "models nosuch --json", "--help", "--version", "lint --rules", "profiles"],
)
def test_nowhere_to_write(home: Path, stream: str, command: str) -> None:
    done = _shell(f"{command} {stream}")
    wanted = "nosuch" if "nosuch" in command else "standard output"
    assert done.returncode in (1, 2), done.stderr
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert not list(home.rglob("bugs/*"))


@pytest.mark.parametrize("streams", ["<&-", "2>&-", "<&- 2>&-"])
def test_other_streams_closed(home: Path, streams: str) -> None:
    done = _shell(f"models {streams}")
    assert (done.returncode, "gpt-1.3b" in done.stdout) == (0, True)
    assert not list(home.rglob("bugs/*"))


def _shell(words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = f"exec {shlex.quote(sys.executable)} -m tui {words}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment, timeout=120)
