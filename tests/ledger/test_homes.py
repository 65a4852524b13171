"""Homes that cannot be looked into or written to: one sentence, and what needs no home goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpt_tune import resources
from gpt_tune.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("variable", "of"), [("XDG_CONFIG_HOME", "config_dir"), ("XDG_STATE_HOME", "state_dir")]
)
def test_somebody_elses_home(home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, of: str) -> None:
    def refuse(path: Path) -> os.stat_result:
        raise PermissionError(13, os.strerror(13), str(path))

    monkeypatch.setattr(Path, "lstat", refuse)
    with pytest.raises(UserError, match="may not look into") as caught:
        getattr(resources, of)()
    assert variable in caught.value.hint
    assert "-H" in caught.value.hint


@pytest.fixture
def nobody(tmp_path: Path) -> list[str]:
    """The words that make a command an ordinary user's."""
    if os.getuid() != 0:
        return []
    if subprocess.run(
        ["setpriv", "--reuid=65534", "ls", str(ROOT)], capture_output=True, check=False
    ).returncode:
        pytest.skip("an ordinary user may not read this checkout")
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.mark.parametrize(
    ("mode", "argv", "code", "words"),
    [
        (0o000, ["clusters"], 2, "may not look into"),
        (0o000, ["jobs"], 2, "may not look into"),
        (0o000, ["doctor"], 2, "may not look into"),
        (0o555, ["jobs"], 2, "Cannot create the folder"),
        (0o555, ["models"], 0, ""),
        (0o555, ["clusters", "local"], 0, ""),
        (0o555, ["submit", "smoke", "--cluster", "local", "--yes"], 2, "Permission denied"),
    ],
)
def test_by_hand(
    nobody: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    mode: int,
    argv: list[str],
    code: int,
    words: str,
) -> None:
    folder = Path("/tmp") / f"gpt-tune-home-{os.getpid()}"  # pytest's own folders are closed to others
    folder.mkdir(mode=0o755)
    try:
        (folder / "home").mkdir()
        (folder / "home").chmod(mode)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "SLURM_"))}
        environment |= {"HOME": f"{folder}/home", "SLURM_CONF": "/dev/null", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [*nobody, sys.executable, "-m", "tui", *argv], cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=60, env=environment,
        )  # fmt: skip
        assert (done.returncode, "bug" in done.stderr) == (code, False), done.stderr
        assert words in done.stderr
        assert list((folder / "home").iterdir()) == []
    finally:
        (folder / "home").chmod(0o755)
        (folder / "home").rmdir()
        folder.rmdir()
