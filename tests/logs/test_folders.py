"""A folder instead of log files: which of its files are logs, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.logs import folders
from gpt_tune.logs.folders import logs_in


def made(root: Path, *names: str) -> list[str]:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n")
    return [str(root / name) for name in names]


def test_ranks_in_order_and_nothing_else(tmp_path: Path) -> None:
    wanted = made(
        tmp_path,
        *(f"none_a/attempt_{a}/{r}/std{s}.log" for a in (0, 1) for r in (2, 10) for s in ("err", "out")),
    )
    made(
        tmp_path,
        "none_a/attempt_0/2/error.json",
        ".git/x.log",
        "model.safetensors",
        "README.txt",
        "a/b/c/d/e/f.log",
    )
    assert logs_in(tmp_path) == wanted


def test_names_of_many_tools(tmp_path: Path) -> None:
    names = [
        "job.out",
        "job.err",
        "log.0",
        "out_3",
        "slurm-4711.out.gz",
        "stdout",
        "nemo_log_globalrank-0.txt",
    ]
    wanted = made(tmp_path, *names)
    assert sorted(logs_in(tmp_path)) == sorted(wanted)


@pytest.mark.parametrize("name", ["config.json", "train.py", "layout", "weights.bin", "checkout.toml"])
def test_no_logs(tmp_path: Path, name: str) -> None:
    made(tmp_path, name)
    with pytest.raises(UserError, match="is a folder without log files"):
        logs_in(tmp_path)


def test_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MAX_FOLDERS", 3)
    made(tmp_path, *(f"{i}/x.log" for i in range(4)))
    with pytest.raises(UserError, match="more than 3 folders"):
        logs_in(tmp_path)
