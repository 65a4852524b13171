"""The shipped smoke trainer, imported and run as the job does."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpt_tune.resources import data_dir

FOLDER = data_dir("templates") / "smoke" / "trainer"
ENTRY = str(FOLDER / "train.py")


def module(name: str) -> Any:
    """One of the trainer's modules; they find each other as siblings."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module(name)


def environment(rank: int = 0, world: int = 1, **more: str) -> dict[str, str]:
    """This process's environment as one rank of a job."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    return {**clean, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), **more}


def run(folder: Path, *arguments: str, rank: int = 0, world: int = 1) -> subprocess.CompletedProcess[str]:
    """Run one rank to its end."""
    return subprocess.run(
        [sys.executable, "-u", ENTRY, "--state-dir", str(folder / "state"), *arguments],
        cwd=folder,
        env=environment(rank, world),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def start(folder: Path, *arguments: str, rank: int = 0, world: int = 1) -> subprocess.Popen[str]:
    """Start one rank; its output is read line by line."""
    return subprocess.Popen(
        [sys.executable, "-u", ENTRY, "--state-dir", str(folder / "state"), *arguments],
        cwd=folder,
        env=environment(rank, world),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
