"""The doors to the engine: which clusters are asked, how chains are carried on, how runs are cancelled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import jobs
from gpt_tune.errors import UserError
from gpt_tune.jobs import chains
from gpt_tune.ledger import JobRecord, Ledger, RunRecord
from gpt_tune.workflows import chain
from tests.tui.fakes import run
from tui.engine import Engine


class Asked:
    """A module whose refresh and cancel only note that they were called."""

    def __init__(self, name: str, log: list[tuple[str, Any]]) -> None:
        self.name = name
        self.log = log

    def refresh(self, ledger: Ledger, schedulers: list[Any], *, max_age_seconds: float) -> list[RunRecord]:
        self.log.append((self.name, [s.cluster for s in schedulers]))
        return []

    def cancel(self, run_id: str, ledger: Ledger) -> RunRecord:
        self.log.append((self.name, run_id))
        return ledger.get(run_id)


class Cluster:
    kind = "slurm_cli"
    calls = 0

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster


class Connecting:
    def connect(self, name: str) -> Cluster:
        if name == "gone":
            raise UserError("There is no cluster 'gone'.", "")
        return Cluster(name)


@pytest.fixture
def engine(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, list[tuple[str, Any]]]:
    log: list[tuple[str, Any]] = []
    monkeypatch.setattr(jobs, "refresh", Asked("jobs", log).refresh)
    monkeypatch.setattr(chain, "refresh", Asked("chain", log).refresh)
    made = Engine()
    vars(made).update(jobs=Asked("jobs", log), chain=Asked("chain", log), clusters=Connecting())
    return made, log


def keep(engine: Engine, record: RunRecord) -> RunRecord:
    engine.ledger.add(replace(record, job_ids=(), token=record.run_id))
    engine.ledger.put_job(JobRecord(record.run_id, record.job_ids[0], 0, record.state))
    return record


CHAIN = (chains.tag(5),)


@pytest.mark.parametrize(
    ("records", "asked"),
    [
        ([], []),
        ([run("over", "COMPLETED")], []),
        ([run("live")], [("jobs", ["dev"])]),
        ([run("live"), run("other", cluster="far")], [("jobs", ["dev", "far"])]),
        ([run("linked", tags=CHAIN)], [("chain", ["dev"])]),
        ([run("between two jobs", "TIMEOUT", tags=CHAIN)], [("chain", ["dev"])]),
        ([run("chain over", "TIMEOUT", tags=(*CHAIN, "chain-over=done"))], []),
        ([run("live", cluster="gone"), run("other")], [("jobs", ["dev"])]),
    ],
)
def test_only_clusters_with_something_live_are_asked(
    engine: tuple[Engine, list[tuple[str, Any]]], records: list[RunRecord], asked: list[tuple[str, list[str]]]
) -> None:
    made, log = engine
    for record in records:
        keep(made, record)
    answer = made.ask_jobs([], forced=False)
    assert log == asked
    assert [r.run_id for r in answer.before] == [r.run_id for r in answer.records]
    assert ("gone" in answer.error) == any(r.cluster == "gone" for r in records)
    assert answer.ways == tuple(f"{name} by commands" for name in (asked[0][1] if asked else ()))


def test_cancelling_a_chain_takes_back_what_is_queued_behind(
    engine: tuple[Engine, list[tuple[str, Any]]],
) -> None:
    made, log = engine
    single, linked = keep(made, run("one")), keep(made, run("many", tags=CHAIN))
    made.cancel_run(single.run_id)
    made.cancel_run(linked.run_id)
    assert log == [("jobs", single.run_id), ("chain", linked.run_id)]
