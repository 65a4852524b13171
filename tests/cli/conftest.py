"""Owns running the command line in tests: in this process, or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tui.cli import main

ROOT = Path(__file__).resolve().parents[2]

# One step as Megatron-DeepSpeed prints it (a run of 1.3B on one H200).
STEP_LINE = (
    " iteration        1/      10 | consumed samples:            4 | consumed tokens:         8192 | elapsed time per "
    "iteration (ms): 712.3 | learning rate: 1.000E-04 | global batch size:     4 | lm loss: 1.086382E+01 | loss scale: "
    "1.0 | grad norm: 6.889 | num zeros: 0.0 | actual seqlen:  2048 | number of skipped iterations:   0 | number of "
    "nan iterations:   0 | samples per second: 5.615 | tokens per gpu per second (tgs): 11500.517 | TFLOPs: 104.35 |\n"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        data = json.loads(self.out)
        assert isinstance(data, dict)
        return data

    @property
    def error(self) -> dict[str, Any]:
        """The error object; also holds that stdout has nothing else and stderr says the same."""
        data = self.json
        assert data["schema"] == "gpt-tune/error/1"
        error: dict[str, Any] = data["error"]
        assert set(error) == {"message", "hint", "code"}
        assert error["code"] == self.code
        assert error["message"] in self.err
        return error


Run = Callable[..., Outcome]


@pytest.fixture
def gpt_tune(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a command line in this process, in an empty home and an empty working folder."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "etc"))

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def in_process(
    *arguments: str, python: tuple[str, ...] = ("-m", "tui"), **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *python, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        **more,
    )
