"""Rendered container folders, golden files, and stubs of the programs that a build runs."""

from __future__ import annotations

import os
from pathlib import Path

from gpt_tune import rendering
from gpt_tune.containers import choices, render
from gpt_tune.containers.choices import Container
from tests.recipes.specs import DiskFiles

GOLDEN = Path(__file__).parents[1] / "data" / "containers"


def container(name: str, *settings: str) -> Container:
    return choices.with_settings(choices.default(name), settings)


def put(folder: Path, name: str = "pretraining", *settings: str) -> Path:
    """A rendered build folder."""
    rendering.write(DiskFiles(), str(folder), render.files(container(name, *settings), str(folder)))
    return folder


def golden(name: str, text: str) -> str:
    """The golden file; rewritten from `text` first when GPT_TUNE_UPDATE_GOLDEN is set (look at the diff)."""
    path = GOLDEN / name
    if os.environ.get("GPT_TUNE_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path.read_text()


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path
