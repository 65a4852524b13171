"""Slurm 20.11 and 21.08 from recorded text (tests/data/slurm/README.md: how it was made), through all of SlurmCli."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers import columns, slurm_cli, slurm_jobs, slurm_nodes, slurm_starts, slurm_words
from gpt_tune.schedulers.base import SubmitRequest
from gpt_tune.schedulers.commands import Completed
from gpt_tune.schedulers.slurm_cli import SlurmCli
from gpt_tune.workflows import adopt

DATA = Path(__file__).resolve().parents[1] / "data" / "slurm"
VERSIONS = ("20.11", "21.08")


def records(path: Path) -> Iterator[dict[str, str]]:
    for block in path.read_text().strip().split("\n\n"):
        yield dict(line.split("=", 1) for line in block.splitlines())


def laid_out(path: Path, wanted: Sequence[columns.Column]) -> bytes:
    """Rows as `-O FIELD:WIDTH,...` prints them. A field that is asked for and not recorded fails the test."""
    return b"".join(
        b"".join(record[name].encode()[:width].ljust(width) for name, width in wanted) + b"\n"
        for record in records(path)
    )


class Recorded:
    """Slurm's commands of a version, as far as they are recorded."""

    def __init__(self, version: str) -> None:
        self.folder = DATA / version
        self.asked: list[list[str]] = []

    def run(
        self, argv: Sequence[str], timeout: float, job_variables: Mapping[str, str] | None = None
    ) -> Completed:
        self.asked.append(list(argv))
        match list(argv):
            case ["scontrol", "ping"]:
                return self._text("ping")
            case ["scontrol", "show", "config"]:
                return self._text("config")
            case ["scontrol", "show", "job", "4711"]:
                return self._text("job")
            case ["sinfo", *_]:
                return Completed(0, laid_out(self.folder / "sinfo.txt", slurm_nodes.COLUMNS), "")
            case ["squeue", *_]:
                return Completed(0, laid_out(self.folder / "squeue.txt", slurm_jobs.SQUEUE_COLUMNS), "")
            case ["sacct", *_]:
                text = (self.folder / "sacct.txt").read_text().replace("^", "\x1f")
                return Completed(0, text.encode(), "")
            case ["sbatch", "--test-only", *_]:
                return Completed(0, b"", (self.folder / "test-only.txt").read_text())
            case ["sbatch", "--parsable", *_]:
                return Completed(1, b"", (self.folder / "refused.txt").read_text())
        raise AssertionError(f"not recorded: {argv}")

    def _text(self, name: str) -> Completed:
        return Completed(0, (self.folder / f"{name}.txt").read_bytes(), "")


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, home: Path) -> SlurmCli:
    return SlurmCli(Recorded(request.param))


def test_the_cluster(old: SlurmCli) -> None:
    cluster = old.discover()
    assert cluster.name == "old"
    assert cluster.version in ("20.11.9", "21.08.8-2")
    gpu, cloud, mig, empty = cluster.partitions
    assert (gpu.name, gpu.default, gpu.state, gpu.time_limit_seconds, gpu.max_nodes) == (
        "gpu", True, "up", 86400, None,
    )  # fmt: skip
    (group,) = gpu.groups
    assert (group.gpu, group.gpus_per_node, group.features) == ("a100", 8, ("a100", "ib"))
    assert group.nodes_by_state == {"allocated": 1, "down": 1, "drained": 1, "idle": 3, "mixed": 1}
    assert group.gpus_free == 3 * 8 + 5
    assert group.names == "n[001-007]"
    (powered,) = cloud.groups
    assert (cloud.state, cloud.max_nodes, cloud.default_time_seconds) == ("inact", 4, 1800)
    assert (powered.gpu, powered.gpus_per_node, powered.gpus_free, powered.names) == (
        "",
        8,
        16,
        "gpu-a-[1-2]",
    )
    assert mig.groups[0].gpu == "1g.5gb"
    assert any("3g.20gb" in note for note in cluster.notes)
    assert (empty.groups, empty.time_limit_seconds) == ((), None)


def test_jobs(old: SlurmCli) -> None:
    found = old.statuses(["4711", "4712", "4713", "4713_1", "4720", "9999"])
    assert set(found) == {"4711", "4712", "4713", "4713_1", "4720"}
    runs = found["4711"]
    assert (runs.name, runs.state, runs.nodes, runs.gpus, runs.exit_code) == (
        "train|145b",
        "RUNNING",
        2,
        16,
        None,
    )
    assert (runs.submitted_at, runs.started_at) == ("2022-03-01T10:00:00Z", "2022-03-01T10:01:00Z")
    assert runs.comment.endswith("gpt-tune-0123456789abcdef")
    assert runs.log_paths == ("/shared/runs/r1/logs/train-%j.out",)
    waits = found["4712"]
    assert (waits.state, waits.started_at, waits.expected_start) == ("PENDING", None, "2022-03-01T11:00:00Z")
    assert waits.reason.startswith("ReqNodeNotAvail")
    assert waits.comment == ""
    task = found["4713_1"]
    assert (task.state, task.exit_code, task.ended_at) == ("FAILED", 3, "2022-03-01T10:02:30Z")
    assert found["4713"].state == "PENDING"  # of an array the liveliest task speaks


def test_a_heterogeneous_job_is_one_with_all_its_nodes(old: SlurmCli) -> None:
    whole = old.statuses(["4720"])["4720"]
    assert (whole.state, whole.nodes, whole.gpus) == ("RUNNING", 3, 17)
    assert whole.node_list == "n[001-002,007]"
    part = old.statuses(["4720+1"])["4720+1"]
    assert (part.nodes, part.gpus) == (2, 16)


def test_history(old: SlurmCli) -> None:
    found = old.history(["4711", "4713_1", "4715"], "2022-03-01T00:00:00Z")
    assert (found["4711"].state, found["4711"].gpus, found["4711"].name) == ("NODE_FAIL", 16, "train|145b")
    assert (found["4713_1"].state, found["4713_1"].exit_code) == ("FAILED", 3)
    cancelled = found["4715"]
    assert (cancelled.state, cancelled.started_at, cancelled.gpus) == ("CANCELLED", None, None)


@pytest.mark.parametrize("ahead", [0, 600, -600])
def test_since_when_it_runs_is_told_by_this_machines_clock(
    old: SlurmCli, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller's may be minutes off: a restart after a submission must not look like one before it."""
    asked, booted = 1646128800, 1645000000  # by the controller's clock
    monkeypatch.setattr(slurm_cli, "time", SimpleNamespace(time=lambda: float(asked + ahead)))
    assert old.running_since() == slurm_words.rfc3339(booted + ahead)


def test_when_it_could_start(old: SlurmCli) -> None:
    start = slurm_starts.test_only(old, ["--nodes=3"])
    assert (start.at, start.nodes) == ("2022-03-01T11:00:00Z", "n[001-002,007]")


def test_a_refusal(old: SlurmCli, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/bash\ntrue\n")
    with pytest.raises(SchedulerError, match="QOSMaxGRESPerUser; Job violates") as caught:
        old.submit(SubmitRequest(str(tmp_path / "job.sh"), str(tmp_path), "x", "t"))
    assert "QOS" in caught.value.hint


def test_a_job_to_adopt(old: SlurmCli) -> None:
    shown = adopt.shown(old, "4711")
    assert shown["Command"] == "/shared/own work/train.sh --lr=1"
    assert shown["Comment"] == "project 7 a=b"
    assert adopt.gpus_of(shown) == 16
    assert adopt.log_paths(old.statuses(["4711"])["4711"], shown) == ("/shared/own work/out-4711.txt",)


def test_nothing_asks_for_json(old: SlurmCli) -> None:
    old.discover()
    old.statuses(["4711"])
    old.my_jobs()
    old.history(["4711"], "2022-03-01T00:00:00Z")
    assert isinstance(old.commands, Recorded)
    assert not [argv for argv in old.commands.asked if any("json" in word for word in argv)]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("26.05.2-0pre1", (26, 5, 2)), ("slurm-wlm 22.05.8", (22, 5, 8)), ("21.08.8-2", (21, 8, 8)),
        ("24.11.5-1ubuntu3~22.04", (24, 11, 5)), ("25.11.0-rc1", (25, 11, 0)), ("", ()), ("unknown", ()),
    ],
)  # fmt: skip
def test_versions(text: str, numbers: tuple[int, ...]) -> None:
    assert slurm_words.version_tuple(text) == numbers


# Every word of node_state_string() in the tags of README.md, lower case as sinfo prints it.
_FLAGGED = ("allocated", "completing", "down", "drained", "draining", "idle", "mixed")
_ALONE = {
    "allocated+": "allocated", "mixed-": "mixed", "maint": "other", "reboot^": "other", "inval": "down",
    "fail": "down", "failing*": "down", "reserved": "other", "planned": "idle", "future": "other", "unknown*": "down",
    "power_down": "other", "powering_up": "other", "reboot_issued": "other", "cancel_reboot": "other", "?": "other",
    "resume": "other", "cloud": "other",
}  # fmt: skip


@pytest.mark.parametrize(("text", "state"), _ALONE.items())
def test_states_without_a_family(text: str, state: str) -> None:
    assert slurm_words.node_state(text) == state


@pytest.mark.parametrize("word", _FLAGGED)
@pytest.mark.parametrize("flag", ["", "*", "$", "@", "#", "%", "~", "^", "!"])
def test_states_with_flags(word: str, flag: str) -> None:
    """A flag never makes a node better than it is, and only *, $, %, @, ^ and ! take it out of use."""
    plain = slurm_words.node_state(word)
    flagged = slurm_words.node_state(word + flag)
    if flag in ("", "~", "#"):
        assert flagged == plain
    elif flag == "*":
        assert flagged == "down"
    else:
        assert flagged == (plain if plain in ("down", "drained") else "other")
