"""The queue screen: mine and others' jobs, folded, explained, acted on; nothing is done without a key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers.base import JobStatus
from gpt_tune.workflows.queue import Free, MyJob, Offer, QueueView, Wanted
from tests.jobs.helpers import cluster
from tests.tui.conftest import until
from tests.tui.fakes import FakeEngine, run
from tests.tui.flow import Driver
from tui.app import GptTune

FREE = (Free("long", "h100", 24, 32, 3, 8), Free("dev", "b200", 0, 64, 0, 8))


def job(job_id: str, name: str, state: str = "PENDING", reason: str = "", **more: Any) -> MyJob:
    status = JobStatus(job_id, name, state, reason, nodes=1, gpus=8, partition="dev", node_list="b200-1")  # type: ignore[arg-type]
    why = {"Resources": ("next in line", "yes"), "JobHeldUser": ("you hold it", "no")}.get(reason, ("", ""))
    return MyJob(status, more.get("run_id"), why[0], why[1], more.get("fix", ""), more.get("sweep", ""))


JOBS = (
    job("1", "ours", "RUNNING", run_id="r1"),
    job("2", "theirs", reason="Resources"),
    job("3_1", "array", "RUNNING"),
    job("3_[2-5]", "array", reason="Resources"),
    job("8", "trial", "RUNNING", sweep="s1", run_id="r8"),
    job("9", "trial", reason="Resources", sweep="s1", run_id="r9"),
    job("4", "held", reason="JobHeldUser"),
)


class Queued(FakeEngine):
    """A cluster with the jobs above; what is done to them is noted."""

    def __init__(self, jobs: Sequence[MyJob] = JOBS) -> None:
        super().__init__([run("ours", run_id="r1")])
        self.jobs_there = tuple(jobs)
        self.done: list[tuple[str, list[str]]] = []
        self.looks = 0
        self.trouble = ""
        self.names = ["dev", "local"]
        self.clusters = self
        self.ledger_runs = {"r1": self.prepared[0]}

    def available(self) -> list[str]:
        return self.names

    @property
    def ledger(self) -> Any:
        return self

    def get(self, run_id: str) -> Any:
        return self.ledger_runs[run_id]

    def queue_look(self, name: str) -> tuple[QueueView, int, str]:
        self.looks += 1
        if self.trouble:
            raise SchedulerError(self.trouble, "Try again.")
        return QueueView(cluster(name=name), self.jobs_there, FREE, "2026-11-30T00:00:00Z"), 2, "commands"

    def queue_again(self, name: str, before: QueueView) -> tuple[QueueView, int, str]:
        return self.queue_look(name)

    def cluster_look(self, name: str) -> tuple[Any, int, str]:
        return cluster(), 2, "commands"

    def queue_offers(self, view: QueueView, asked: MyJob) -> tuple[list[Offer], int]:
        wanted = Wanted("dev", 8, 8, "b200")
        return [Offer(wanted, None, False), Offer(Wanted("long", 8, 8, "h100"), None, True, "other nodes")], 5

    def control(self, action: str, cluster: str, jobs: Sequence[MyJob]) -> None:
        if self.trouble:
            raise SchedulerError(self.trouble, "Try again.")
        self.done.append((action, [j.status.job_id for j in jobs]))

    def adopt_job(self, cluster: str, job_id: str) -> Any:
        self.done.append(("adopt", [job_id]))
        return self.prepared[0]


async def opened(app: GptTune, driver: Driver) -> None:
    app.open("queue")
    await driver.see("ours")


async def test_mine_others_folded_and_explained() -> None:
    app = GptTune(Queued())
    async with app.run_test(size=(100, 30)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        for words in ("3 running, 7 waiting", "dev by commands", "5 jobs", "2 jobs", "sweep", "array"):
            assert words in driver.text
        assert int(re.search(r"(\d+) scheduler calls", driver.text)[1]) >= 2  # type: ignore[index]
        assert "0 of 64 b200 in dev" in driver.text
        assert "24 of 32 h100 in long (3 whole nodes)" in driver.text
        await driver.press("down")
        assert "next in line  [Resources]" in driver.text
        assert "a adopts it" in driver.text
        await driver.press("down", "enter")
        assert "3_[2-5]" in driver.text
        await driver.press("enter")
        assert "3_[2-5]" not in driver.text
        await driver.press("end")
        assert "u releases it" in driver.text


async def test_what_could_start_is_asked_only_by_key() -> None:
    app = GptTune(Queued())
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("s")
        await driver.see("Only a waiting job")
        await driver.press("down")
        assert "instead" in driver.text
        assert "as it is" not in driver.text
        await driver.press("s")
        await driver.see("never: 8 b200 GPUs on 1 node of dev")
        await driver.see("now: 8 h100 GPUs on 1 node of long")
        await until(pilot, lambda: int(re.search(r"(\d+) scheduler calls", driver.text)[1]) >= 7, "its calls")  # type: ignore[index]


@pytest.mark.parametrize(
    ("keys", "done"),
    [
        (("down", "h"), ("hold", ["2"])),
        (("end", "u"), ("release", ["4"])),
        (("down", "down", "h"), ("hold", ["3_[2-5]"])),
        (("c", "y"), ("cancel", ["1"])),
        (("down", "down", "c", "y"), ("cancel", ["3_1", "3_[2-5]"])),
        (("down", "down", "down", "c", "y"), ("cancel", ["8", "9"])),
        (("down", "a", "y"), ("adopt", ["2"])),
        (("down", "enter", "y"), ("adopt", ["2"])),
    ],
)
async def test_each_key_acts_on_what_is_under_the_cursor(
    keys: tuple[str, ...], done: tuple[str, list[str]]
) -> None:
    engine = Queued()
    app = GptTune(engine)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        looks = engine.looks
        await driver.press(*keys)
        await until(pilot, lambda: engine.done == [done], f"{done}, not {engine.done}")
        await until(pilot, lambda: engine.looks > looks, "another look")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("h",), "can be held"),
        (("u",), "not held"),
        (("end", "h"), "can be held"),
        (("a",), "Nothing to adopt"),
    ],
)
async def test_what_does_not_fit_is_said_and_not_done(keys: tuple[str, ...], said: str) -> None:
    engine = Queued()
    app = GptTune(engine)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press(*keys)
        await driver.see(said)
        assert engine.done == []


async def test_no_is_no() -> None:
    engine = Queued()
    app = GptTune(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("c", "n", "down", "a", "escape")
        await driver.settled()
        assert engine.done == []


async def test_trouble_is_one_sentence_and_the_old_view_stays() -> None:
    engine = Queued()
    app = GptTune(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        engine.trouble = "The controller does not answer."
        await driver.press("r")
        await driver.see("does not answer")
        assert "ours" in driver.text
        await driver.press("down", "h")
        await driver.settled()
        assert "ours" in driver.text


async def test_first_trouble_stands_on_the_screen_and_r_tries_again() -> None:
    engine = Queued()
    engine.trouble = "The controller does not answer."
    app = GptTune(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        app.open("queue")
        await driver.see("does not answer")
        engine.trouble = ""
        await driver.press("r")
        await driver.see("ours")


async def test_other_clusters_by_arrow() -> None:
    engine = Queued()
    engine.names = ["dev", "far", "local"]
    app = GptTune(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("1 of 2")
        await driver.press("right")
        await driver.see("Queue › far")
        await driver.press("right")
        await driver.see("Queue › dev")


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (80, 24), (300, 100)])
async def test_every_size_is_drawn(size: tuple[int, int]) -> None:
    app = GptTune(Queued())
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        app.open("queue")
        await driver.reach("Queue")
        await driver.settled()
        await driver.press("down", "end", "s")
        await driver.settled()
        assert driver.page == "Queue"


async def test_an_empty_queue_says_so() -> None:
    app = GptTune(Queued(()))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        app.open("queue")
        await driver.see("no job of yours is in the queue")
        await driver.press("enter", "s", "h", "c", "a")
        assert driver.page == "Queue"


async def test_from_the_clusters_enter_leads_to_the_queue_there() -> None:
    engine = Queued()
    app = GptTune(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        app.open("clusters")
        await driver.see("22.05.8 by commands")
        assert "calls in the last minute" in driver.text
        await driver.press("enter")
        await driver.see("Queue › dev")


async def test_an_answer_does_not_outlive_the_wait() -> None:
    engine = Queued()
    app = GptTune(engine)
    async with app.run_test(size=(110, 30)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("down", "s")
        await driver.see("instead")
        assert "now: 8 h100" in driver.text
        engine.jobs_there = tuple(
            replace(j, status=replace(j.status, state="RUNNING", reason="")) if j.status.job_id == "2" else j
            for j in JOBS
        )
        await driver.press("r")
        await driver.see("4 running")
        assert "instead" not in driver.text
        engine.jobs_there = JOBS  # requeued: the old answer was of another moment
        await driver.press("r")
        await driver.see("3 running")
        assert "now: 8 h100" not in driver.text
        assert "asks Slurm what could start" in driver.text
