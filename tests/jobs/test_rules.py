"""The pure rules: why a job waits, how often to ask, and where logs are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpt_tune import jobs
from gpt_tune.jobs import polling, reasons
from gpt_tune.ledger import RunRecord

# Reason, whether it starts by itself; from Slurm's list of job reason codes.
REASONS = [
    ("Priority", "yes"), ("Resources", "yes"), ("None", "yes"), ("", "yes"), ("Dependency", "yes"),
    ("DependencyNeverSatisfied", "no"), ("BeginTime", "yes"), ("QOSGrpCpuLimit", "yes"), ("QOSGrpGRES", "yes"),
    ("QOSGrpNodeLimit", "yes"), ("AssocGrpGRES", "yes"), ("AssocGrpCpuLimit", "yes"), ("AssocGrpJobsLimit", "yes"),
    ("QOSGrpCPUMinutesLimit", "no"), ("AssocGrpCPUMinutesLimit", "no"), ("QOSGrpGRESMinutes", "no"),
    ("QOSMaxGRESPerUser", "yes"), ("QOSMaxCpuPerUserLimit", "yes"), ("QOSMaxJobsPerUserLimit", "yes"),
    ("QOSMaxNodePerUserLimit", "yes"), ("AssocMaxJobsLimit", "yes"), ("MaxJobsPerAccount", "yes"),
    ("QOSMaxCpuPerJobLimit", "no"), ("QOSMaxNodePerJobLimit", "no"), ("AssocMaxNodePerJobLimit", "no"),
    ("QOSMaxWallDurationPerJobLimit", "no"), ("AssocMaxWallDurationPerJobLimit", "no"), ("PartitionTimeLimit", "no"),
    ("PartitionNodeLimit", "no"), ("PartitionConfig", "no"), ("ReqNodeNotAvail", "maybe"),
    ("ReqNodeNotAvail, UnavailableNodes:b200-[1-4]", "maybe"), ("ReqNodeNotAvail, Reserved for maintenance", "maybe"),
    ("Reservation", "yes"), ("ReservationDeleted", "no"), ("BadConstraints", "no"), ("Constraints", "maybe"),
    ("InvalidAccount", "no"), ("InvalidQOS", "no"), ("AccountNotAllowed", "no"), ("QOSNotAllowed", "no"),
    ("JobHeldUser", "no"), ("JobHeldAdmin", "no"), ("launch failed requeued held", "no"), ("JobHoldMaxRequeue", "no"),
    ("JobArrayTaskLimit", "yes"), ("PartitionDown", "no"), ("PartitionInactive", "no"), ("NodeDown", "maybe"),
    ("Prolog", "yes"), ("Cleaning", "yes"), ("Licenses", "yes"), ("BurstBufferStageIn", "yes"),
    ("MaxPoweredUpNodes", "yes"), ("NvidiaImexChannels", "yes"), ("MpiPortsBusy", "yes"),
    ("QOSMaxGRESPerNode", "no"), ("AssocMaxCpuPerNode", "no"), ("QOSMaxMemoryPerNode", "no"), ("MaxMemPerLimit", "no"),
    ("AssocGrpGRESRunMinutes", "yes"), ("QOSGrpCPURunMinutesLimit", "yes"), ("MaxGRESRunMinsPerUser", "yes"),
    ("MaxCpuRunMinsPerAccount", "yes"), ("MaxGRESPerAccount", "yes"), ("MaxSubmitJobsPerAccount", "yes"),
    ("AccountingPolicy", "maybe"), ("PowerNotAvail", "yes"), ("PowerReserved", "yes"),
    ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "maybe"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "starts"), REASONS)
def test_every_reason_of_slurm_is_explained(reason: str, starts: str) -> None:
    found = reasons.explain(reason)
    assert found.starts == starts
    assert found.id == "P-" + (reason.split(",")[0].split(" ")[0] or "None")
    assert "Slurm says" not in found.text
    assert reasons.explain(f"({reason})") == found  # as squeue's default column shows it
    assert bool(found.fix) or starts != "no"  # what will not start by itself has a way out


def test_a_reason_of_tomorrow_comes_back_in_slurms_words() -> None:
    found = reasons.explain("QuantumFlux")
    assert (found.id, found.starts) == ("P-QuantumFlux", "maybe")
    assert "QuantumFlux" in found.text


# -- how often to ask -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("states", "rules", "expected"),
    [
        ([], {}, None),
        (["COMPLETED", "FAILED", "CANCELLED"], {}, None),
        (["RUNNING"], {"visible": False}, None),
        (["RUNNING"], {"paused": True}, None),
        (["RUNNING"], {}, 30.0),
        (["COMPLETED", "PENDING"], {}, 30.0),
        (["RUNNING"], {"unchanged_seconds": 119}, 30.0),
        (["RUNNING"], {"unchanged_seconds": 120}, 60.0),
        (["RUNNING"], {"quick_left": 3}, 2.0),
        (["RUNNING"], {"scheduler": "local", "unchanged_seconds": 500, "failures": 2}, 2.0),
        (["RUNNING"], {"scheduler": "local", "visible": False}, None),
        (["COMPLETED"], {"scheduler": "local"}, None),
        (["RUNNING"], {"quick_left": 3, "failures": 1, "jitter": 0.0}, 30.0),
        (["RUNNING"], {"failures": 2, "jitter": 0.0}, 60.0),
        (["RUNNING"], {"failures": 3, "jitter": 1.0}, 150.0),
        (["RUNNING"], {"failures": 5000, "jitter": 0.0}, 120.0),
    ],
)
def test_refresh_interval(states: list[str], rules: dict[str, float | str], expected: float | None) -> None:
    assert jobs.refresh_interval(states, **rules) == expected  # type: ignore[arg-type]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # lists of 500 on a busy machine
@given(
    st.lists(st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "UNKNOWN"]), min_size=1, max_size=500),
    st.floats(0, 1e6), st.integers(0, 10**6), st.floats(0, 1),
)  # fmt: skip
def test_never_more_than_two_polls_a_minute(
    states: list[str], unchanged: float, failures: int, jitter: float
) -> None:
    interval = polling.refresh_interval(states, unchanged_seconds=unchanged, failures=failures, jitter=jitter)
    assert interval is not None
    assert 30.0 <= interval <= 150.0


# -- logs -----------------------------------------------------------------------------------------
def run(*patterns: str, job_ids: tuple[str, ...] = ("4711",), node_list: str = "") -> RunRecord:
    plain = RunRecord("r1", "t", "testbed", "slurm", "my-run", "smoke", "/r", "/r/j", "2026-11-30T07:15:33Z")
    return replace(plain, log_paths=patterns, job_ids=job_ids, node_list=node_list)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("/r/%x-%j.out", "/r/my-run-4711.out"), ("/r/%A_%a.out", "/r/4711_4294967294.out"),
        ("/r/100%%.out", "/r/100%.out"),
        ("/r/%8j", "/r/00004711"), ("/r/%t-%4t-%n", "/r/0-0000-0"), ("/r/plain", "/r/plain"), ("/r/%q%", "/r/%q%"),
        ("/r/%N.out", "/r/*.out"), ("/r/a\\%j", "/r/a%j"), ("/r/%%j", "/r/%j"),
    ],
)  # fmt: skip
def test_patterns(pattern: str, expected: str) -> None:
    assert jobs.resolved_log_paths(run(pattern)) == [expected]


def test_the_first_nodes_name_is_filled_in_once_known() -> None:
    assert jobs.resolved_log_paths(run("/r/%N.out", node_list="b200-[3-8]")) == ["/r/b200-3.out"]


def test_an_array_task_has_its_own_log() -> None:
    assert jobs.resolved_log_paths(run("/r/%A_%a-%x", job_ids=("4711_3",))) == ["/r/4711_3-my-run"]


def test_a_chain_has_one_log_a_job() -> None:
    assert jobs.resolved_log_paths(run("/r/%j", job_ids=("1", "2"))) == ["/r/1", "/r/2"]
    assert jobs.resolved_log_paths(run("/r/log", job_ids=("1", "2"))) == ["/r/log"]
    assert jobs.resolved_log_paths(run("/r/log", job_ids=())) == []


def test_a_wildcard_becomes_the_files_that_exist(tmp_path: Path) -> None:
    folder = tmp_path / "a[b]"
    folder.mkdir()
    for name in ("log-n1.txt", "log-n2.txt", "other.txt"):
        (folder / name).touch()
    record = run(f"{folder}/log-%N.txt")
    assert jobs.resolved_log_paths(record) == [f"{folder}/log-n1.txt", f"{folder}/log-n2.txt"]
