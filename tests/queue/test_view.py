"""The queue in words: folding, counting tasks, requests and offers."""

from __future__ import annotations

import pytest

from gpt_tune.errors import UserError
from gpt_tune.schedulers.base import JobStatus
from gpt_tune.workflows import queue
from gpt_tune.workflows.queue import MyJob, Offer, Wanted
from tests.jobs.helpers import cluster, group, partition


def job(
    job_id: str, state: str = "RUNNING", sweep: str = "", gpus: int | None = 8, reason: str = ""
) -> MyJob:
    return MyJob(JobStatus(job_id, "n", state, reason, gpus=gpus), None, sweep=sweep)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job_id", "tasks"),
    [
        ("7", 1), ("7_3", 1), ("7_[2-5]", 4), ("7_[2-5%2]", 4), ("7_[0-10:2]", 6), ("7_[1,3,5-6]", 4), ("7_[4]", 1),
        ("7_[1-5,...]", 5), ("7_[]", 1), ("7_[9-2]", 1), ("7_[x]", 1), ("local-7", 1), ("7+0", 1),
        ("7_[0-99999999999999]", 1),
    ],
)  # fmt: skip
def test_tasks_that_one_line_stands_for(job_id: str, tasks: int) -> None:
    assert job(job_id).tasks == tasks


def test_sweeps_and_arrays_are_one_line_each() -> None:
    jobs = [
        job("1"),
        job("2_0"),
        job("5", sweep="s1"),
        job("2_[1-3]", "PENDING"),
        job("6", "PENDING", "s1"),
        job("9"),
    ]
    groups = queue.folded(jobs)
    assert [(g.key, len(g.jobs), g.words, g.gpus) for g in groups] == [
        ("1", 1, "1 RUNNING", 8),
        ("2", 2, "1 RUNNING, 3 PENDING", 32),
        ("s1", 2, "1 RUNNING, 1 PENDING", 16),
        ("9", 1, "1 RUNNING", 8),
    ]
    assert [j for g in groups for j in g.jobs] == [jobs[0], jobs[1], jobs[3], jobs[2], jobs[4], jobs[5]]
    assert queue.folded([]) == []


@pytest.mark.parametrize(
    ("reason", "held"), [("JobHeldUser", True), ("JobHeldAdmin", True), ("Resources", False)]
)
def test_held(reason: str, held: bool) -> None:
    assert job("1", "PENDING", reason=reason).held is held


TWO = cluster(partition("dev", group("b200", 8)), partition("long", group("h100", 4, 4), default=False))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((16,), Wanted("dev", 16, 8, "b200")),
        ((8, "h100"), Wanted("long", 8, 4, "h100")),
        ((2, "", "long", "1:00:00"), Wanted("long", 2, 4, "h100", "1:00:00")),
    ],
)
def test_a_request_in_the_clusters_terms(arguments: tuple[int, str], wanted: Wanted) -> None:
    assert queue.request(TWO, *arguments) == wanted


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((12,), "Take 8 or 16"),
        ((8, "b20"), "Did you mean 'b200'"),
        ((8, "h100", "dev"), "Partition dev has no h100"),
    ],
)
def test_a_request_that_cannot_be_names_what_can(arguments: tuple[int, str], words: str) -> None:
    with pytest.raises(UserError) as refused:
        queue.request(TWO, *arguments)
    assert words in str(refused.value)


def test_a_cluster_without_gpus_says_so() -> None:
    with pytest.raises(UserError, match="has no GPU"):
        queue.request(cluster(partition("cpu", group("", 4, 0))), 8)


def test_offers_in_words() -> None:
    wanted = Wanted("dev", 16, 8, "b200", "1:00:00")
    now = "2026-11-30T10:00:00Z"
    said = "16 b200 GPUs on 2 nodes of dev for 1:00:00"
    assert queue.offer_words(Offer(wanted, now, True, "smaller"), now) == f"now: {said} (smaller)"
    assert queue.offer_words(Offer(wanted, "2026-11-30T12:05:00Z", False), now) == f"in 2 h 05 min: {said}"
    assert (
        queue.offer_words(Offer(wanted, None, False, refusal="no such GPUs"), now)
        == f"never: {said}: no such GPUs"
    )
    assert queue.starts_in("2026-11-30T09:00:00Z", now) == "a moment"
