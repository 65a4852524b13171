"""The look of the first screen, the queue, the check and the clusters as SVG contracts (see contract.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.ledger.record import RunRecord
from gpt_tune.schedulers.base import JobStatus
from gpt_tune.workflows.doctor import Check
from gpt_tune.workflows.queue import MyJob
from tests.jobs.helpers import cluster, group, partition
from tests.tui.contract import Show, agree
from tests.tui.flow import Driver
from tests.tui.test_queue import JOBS, Queued
from tui.app import GptTune
from tui.poller import Answer

CHECKS = [
    Check("python", "ok", "Python 3.12.3 in /opt/gpt-tune"),
    Check("ledger", "ok", "12 runs remembered"),
    Check("terminal", "ok", "xterm-256color, UTF-8"),
    Check("slurm", "ok", "dev: Slurm 24.11.5, 64 GPUs in one partition"),
    Check("accounting", "info", "No sacct: the end of old jobs is known from their own records only."),
    Check(
        "site",
        "warning",
        "The site of dev is not known yet.",
        "gpt-tune site dev --set run_root=/a/shared/folder",
    ),
]
TWO = cluster(
    partition("dev", group("b200", 8)), partition("long", group("h100", 4), default=False), name="dev"
)


class Shown(Queued):
    """A cluster, its queue and the checks as they stand in a picture."""

    def __init__(self) -> None:
        old = "2020-11-30T00:00:00Z"
        jobs = [
            replace(j, status=replace(j.status, started_at=old)) if j.status.state == "RUNNING" else j
            for j in JOBS
        ]
        jobs.append(MyJob(JobStatus("11", "later", "PENDING", "Priority", gpus=64, partition="dev"), "r11", "jobs with "
                          "higher priority are ahead of it", "yes"))  # fmt: skip
        super().__init__(jobs)
        self.doctor = self

    def ask_jobs(self, before: Sequence[RunRecord], forced: bool) -> Answer:
        """Free of charge, so that the number of calls in the picture does not hang on time."""
        return replace(super().ask_jobs(before, forced), calls=0)

    def cluster_look(self, name: str) -> Any:
        return replace(TWO, name=name), 2, "commands"

    def examine(self, cluster: str | None = None) -> list[Check]:
        return CHECKS

    def here(self) -> list[Check]:
        return CHECKS[:3]

    def needs_attention(self, checks: list[Check]) -> bool:
        return any(c.status in ("warning", "error") for c in checks)

    def in_words(self, checks: list[Check]) -> str:
        from gpt_tune.workflows import doctor

        return doctor.in_words(checks)

    def next_step(self, checks: list[Check], otherwise: str) -> str:
        from gpt_tune.workflows import doctor

        return doctor.next_step(checks, otherwise)


async def queue(driver: Driver) -> None:
    driver.app.open("queue")
    await driver.see("theirs")
    await driver.press("down", "s")
    await driver.see("instead")
    await driver.see("7 scheduler calls")


async def checks(driver: Driver) -> None:
    driver.app.open("doctor")
    await driver.see("Next  ")


async def clusters(driver: Driver) -> None:
    driver.app.open("clusters")
    await driver.see("long")


SHOTS: list[tuple[str, Show, tuple[int, int], str]] = [
    ("queue-80-dark", queue, (80, 24), "dark"),
    ("queue-120-light", queue, (120, 36), "light"),
    ("queue-200-mono", queue, (200, 60), "mono"),
    ("check-80-dark", checks, (80, 24), "dark"),
    ("check-120-mono", checks, (120, 36), "mono"),
    ("clusters-80-ansi", clusters, (80, 24), "ansi-dark"),
]


@pytest.mark.parametrize(("name", "show", "size", "theme"), SHOTS, ids=[s[0] for s in SHOTS])
async def test_it_looks_as_agreed(
    home: Path, tmp_path: Path, name: str, show: Show, size: tuple[int, int], theme: str
) -> None:
    await agree(GptTune(Shown()), name, show, size, theme, tmp_path)
