"""sacct's answers. The rows were printed by Slurm 26.05.5 with slurmdbd (SLURM_TIME_FORMAT=%s)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpt_tune.schedulers import slurm_jobs
from gpt_tune.schedulers.commands import Completed
from gpt_tune.schedulers.slurm_cli import SlurmCli

ROWS = [
    "1|a|b x|FAILED|3:0|2|b200-[1-2]|dev|1796026513|1796026513|1796026514|billing=2,cpu=2,gres/gpu=8,node=2|/run|",
    "2|job.sh|CANCELLED by 0|0:0|1|b200-1|dev|1796026513|1796026513|1796026517|billing=1,cpu=1,node=1|/run|",
    "3_1|job.sh|COMPLETED|0:0|1|b200-1|dev|1796026513|1796026513|1796026514|billing=1,cpu=1,node=1|/run|",
    "3_2|job.sh|OUT_OF_MEMORY|0:125|1|b200-1|dev|1796026513|1796026513|1796026514|cpu=1|/run|",
    "4|job.sh|RUNNING|0:0|1|b200-1|dev|1796026513|1796026513|Unknown|gres/gpu:b200=8,gres/gpu=8|/run|token-1",
]


def text() -> str:
    # A name may hold what looks like a separator: only the real one counts.
    lines = [row.replace("a|b x", "NAME").replace("|", "\x1f").replace("NAME", "a|b x") for row in ROWS]
    return "\n".join([*lines, "a line of a plugin", ""])


class Recorded:
    """Commands that answer from text and keep what they were asked."""

    def __init__(self, answers: Mapping[str, Completed]) -> None:
        self.answers, self.asked = answers, [[""]]

    def run(
        self, argv: Sequence[str], timeout: float, job_variables: Mapping[str, str] | None = None
    ) -> Completed:
        self.asked.append(list(argv))
        return self.answers[argv[0]]


def test_rows() -> None:
    jobs = {j.job_id: j for j in slurm_jobs.parse_sacct(text())}
    assert list(jobs) == ["1", "2", "3_1", "3_2", "4"]
    first = jobs["1"]
    assert (first.name, first.state, first.exit_code, first.nodes, first.gpus) == ("a|b x", "FAILED", 3, 2, 8)
    assert (first.started_at, first.ended_at) == ("2026-11-30T08:15:13Z", "2026-11-30T08:15:14Z")
    assert (jobs["2"].state, jobs["2"].exit_code, jobs["2"].reason) == ("CANCELLED", None, "CANCELLED by 0")
    assert (jobs["3_2"].state, jobs["3_2"].exit_code) == ("OUT_OF_MEMORY", 253)
    assert (jobs["4"].state, jobs["4"].ended_at, jobs["4"].gpus, jobs["4"].comment) == (
        "RUNNING",
        None,
        8,
        "token-1",
    )


def test_one_bounded_call_answers_for_arrays_too() -> None:
    config = Completed(0, b"ClusterName = t\nAccountingStorageType = accounting_storage/slurmdbd\n", "")
    commands = Recorded({"scontrol": config, "sacct": Completed(0, text().encode(), "")})
    scheduler = SlurmCli(commands)
    history = scheduler.history(["1", "3"], "2026-11-30T08:00:00Z")
    assert {k: v.state for k, v in history.items()} == {"1": "FAILED", "3": "OUT_OF_MEMORY"}
    (asked,) = [argv for argv in commands.asked if argv[0] == "sacct"]
    assert any(word.startswith("--starttime=2026-11-30T") for word in asked)
    assert "--jobs=1,3" in asked
    assert len(scheduler.history([], "2026-11-30T08:00:00Z")) == 5
    assert not any(word.startswith("--jobs") for word in commands.asked[-1])


def test_without_accounting_sacct_is_never_called() -> None:
    config = Completed(0, b"ClusterName = t\nAccountingStorageType = accounting_storage/none\n", "")
    assert SlurmCli(Recorded({"scontrol": config})).history(["1"], "2026-11-30T08:00:00Z") == {}
