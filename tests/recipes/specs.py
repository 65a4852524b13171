"""Jobs for tests, and the folder they are written to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from gpt_tune import rendering
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Environment, Profile, Site
from gpt_tune.recipes.base import JobSpec, Rendered

TINY = ModelShape(
    id="tiny", layers=4, hidden=64, heads=4, kv_heads=4, ffn=256, vocab=50257, seq_length=128, head_size=16
)


class DiskFiles:
    """The two calls of a cluster's files, on this machine."""

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        Path(path).write_bytes(data)
        Path(path).chmod(mode)

    def make_dir(self, path: str, mode: int = 0o700) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)
        Path(path).chmod(mode)


def job(run_dir: Path | str, profile: Profile, **changes: Any) -> JobSpec:
    """A job of one rank on this machine, unless changed."""
    values: dict[str, Any] = {
        "run_id": "r20261130-071533-k3f9",
        "token": "tok-1234",
        "run_dir": str(run_dir),
        "scheduler": "local",
        "profile": profile,
        "site": Site(run_root=str(run_dir)),
        "model": TINY,
        "gpus": 0,
        "gpus_per_node": 0,
        "nodes": 1,
    }
    return JobSpec(**{**values, **changes})


def with_environment(spec: JobSpec, **values: Any) -> JobSpec:
    """The job with another way to find its software."""
    return dataclasses.replace(spec, site=dataclasses.replace(spec.site, environment=Environment(**values)))


def put(rendered: Rendered, run_dir: Path | str) -> Path:
    """Write a rendered run; its job script."""
    rendering.write(DiskFiles(), str(run_dir), rendered.files)
    return Path(run_dir) / rendered.script
