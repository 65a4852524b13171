"""Owns turning `squeue` and `sacct` output into job states."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from gpt_tune.schedulers import columns, hostlist, slurm_words
from gpt_tune.schedulers.base import ENDED, JobStatus

SQUEUE_COLUMNS: tuple[columns.Column, ...] = (
    ("JobArrayID", 48), ("JobID", 16), ("Name", 128), ("State", 24), ("Reason", 256), ("NumNodes", 12),
    ("NodeList", 1024), ("Partition", 128), ("SubmitTime", 24), ("StartTime", 24), ("EndTime", 24),
    ("exit_code", 16), ("tres-per-node", 128), ("Comment", 1024), ("STDOUT", 1024), ("WorkDir", 1024),
)  # fmt: skip
SACCT_FIELDS = (
    "JobID", "JobName", "State", "ExitCode", "NNodes", "NodeList", "Partition", "Submit", "Start", "End",
    "AllocTRES", "WorkDir", "Comment",
)  # fmt: skip
_SEPARATOR = "\x1f"
# Slurm leaves the reason for which a job waited with it when it is cancelled.
WHY_IT_WAITED = (
    r"BeginTime|Priority|Resources|Dependency|JobArrayTaskLimit|JobHeld\w+|Reservation|Licenses|(QOS|Assoc)\w*|"
    r"ReqNodeNotAvail.*"
)


def squeue_arguments(
    user: str, job_ids: Sequence[str] = (), federated: bool = False, by_task: bool = False
) -> list[str]:
    """One call for `job_ids`, ended ones included while Slurm remembers them; without ids all of the user's.

    One user (or one id) lets squeue ask for those jobs only; several ids alone make it fetch every job of
    the cluster. federated: jobs may run on another cluster of a federation. by_task: one row for each task of an
    array, also of those that wait.
    """
    argv = ["squeue", "--noheader", "--states=all", "-O", columns.argument(SQUEUE_COLUMNS)]
    if len(job_ids) != 1:
        argv.append(f"--user={user}")
    if federated:
        argv.append("--federation")
    elif len(job_ids) == 1:
        argv.append("--local")  # for one job squeue otherwise asks about federations each time
    if by_task or any("_" in i for i in job_ids):
        argv.append("--array")  # tasks that wait would be one row for all of them
    if job_ids:
        argv.append("--jobs=" + ",".join(job_ids))
    return argv


def sacct_arguments(user: str, job_ids: Sequence[str], since: str) -> list[str]:
    """One call for `job_ids` (none: all of the user's), bounded in time: sacct otherwise scans the whole table."""
    argv = [
        "sacct", "--allocations", "--noheader", "--parsable2", f"--delimiter={_SEPARATOR}", f"--starttime={since}",
        "--format=" + ",".join(SACCT_FIELDS),
    ]  # fmt: skip
    return [*argv, "--jobs=" + ",".join(job_ids)] if job_ids else [*argv, f"--user={user}"]


def is_elsewhere(output: bytes) -> bool:
    """Whether another cluster of a federation took one of these jobs: here it only counts as revoked."""
    return b"REVOKED" in output and any(
        row["State"] == "REVOKED" for row in columns.rows(output, SQUEUE_COLUMNS)
    )


def parse_squeue(output: bytes) -> list[JobStatus]:
    return [_from_squeue(row) for row in columns.rows(output, SQUEUE_COLUMNS)]


def parse_sacct(text: str) -> list[JobStatus]:
    lines = [line.split(_SEPARATOR) for line in text.splitlines()]
    return [_from_sacct(dict(zip(SACCT_FIELDS, c))) for c in lines if len(c) == len(SACCT_FIELDS)]


# Of an array's tasks the liveliest speaks for the whole; when all have ended, the worst.
_SPEAKS_FIRST = (
    "RUNNING", "COMPLETING", "SUSPENDED", "PENDING", "UNKNOWN", "NODE_FAIL", "OUT_OF_MEMORY", "FAILED", "TIMEOUT",
    "PREEMPTED", "CANCELLED", "COMPLETED",
)  # fmt: skip


def by_id(found: Sequence[JobStatus], wanted: Collection[str]) -> dict[str, JobStatus]:
    """Jobs by the ids asked for. `4711` also stands for an array or heterogeneous job (4711_3, 4711+0)."""
    answer = {s.job_id: s for s in found if s.job_id in wanted}
    for status in sorted(found, key=lambda s: _SPEAKS_FIRST.index(s.state)):
        base = base_of(status.job_id)
        if base in wanted and base not in answer:
            answer[base] = _whole(base, status, found)
    return answer


def _whole(base: str, speaker: JobStatus, found: Sequence[JobStatus]) -> JobStatus:
    """An array or heterogeneous job as one; the latter has its parts' nodes and GPUs at the same time."""
    parts = [s for s in found if s.job_id.startswith(f"{base}+")]
    if not parts:
        return replace(speaker, job_id=base)
    nodes = hostlist.compress(n for p in parts for n in hostlist.expand(p.node_list))
    gpus = sum(p.gpus or 0 for p in parts)
    return replace(
        speaker, job_id=base, nodes=sum(p.nodes for p in parts), node_list=nodes, gpus=gpus or None
    )


def base_of(job_id: str) -> str:
    """The whole job's own id: `4711` of the tasks 4711_3 and 4711_[4-9], and of the part 4711+1."""
    return re.split(r"[_+]", job_id)[0]


def span(text: str) -> range:
    """Numbers in `4`, `2-5` or `0-10:2`."""
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", text.strip())
    if match is None:
        return range(0)  # Slurm cuts a long list
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    return range(first, last + 1, max(step, 1))


def stands_for(row: str, job_id: str) -> bool:
    """Whether a line of the queue holds that job: `4711_[4-9]` holds the task 4711_5, each line its whole job."""
    if row == job_id or base_of(row) == job_id:
        return True
    inside, task = re.search(r"_\[([^%\]]*)", row), job_id.partition("_")[2]
    if inside is None or not task.isdigit() or base_of(row) != base_of(job_id):
        return False
    return any(int(task) in span(s) for s in inside[1].split(","))


def chosen(parts: Sequence[JobStatus], job_id: str) -> list[JobStatus]:
    """Of all tasks and parts of a job those that `job_id` means: one, all, or those of a line of the queue."""
    return [s for s in parts if stands_for(s.job_id, job_id) or stands_for(job_id, s.job_id)]


def together(parts: Sequence[JobStatus]) -> str:
    """Tasks of one array as Slurm's commands take them: `4711_[3-5,8]`."""
    if len(parts) == 1:
        return parts[0].job_id
    numbers = hostlist.compress(f"t{s.job_id.partition('_')[2]}" for s in parts)
    return f"{base_of(parts[0].job_id)}_{numbers.removeprefix('t')}"


def _from_squeue(row: dict[str, str]) -> JobStatus:
    state = slurm_words.job_state(row["State"])
    nodes = number(row["NumNodes"])
    start, end = slurm_words.stamp(row["StartTime"]), slurm_words.stamp(row["EndTime"])
    per_node = sum(g.count for g in slurm_words.gpus(row["tres-per-node"]))
    return JobStatus(
        job_id=row["JobArrayID"] or row["JobID"],
        name=row["Name"],
        state=state,
        reason=reason_of(state, row["Reason"]),
        nodes=nodes,
        node_list=row["NodeList"],
        gpus=per_node * nodes if per_node else None,
        partition=row["Partition"],
        submitted_at=slurm_words.stamp(row["SubmitTime"]),
        started_at=None if state == "PENDING" else start,
        ended_at=end if state in ENDED else None,
        exit_code=exit_code_of(state, row["exit_code"]),
        comment="" if row["Comment"] == "(null)" else row["Comment"],
        log_paths=(row["STDOUT"],) if row["STDOUT"].startswith("/") else (),
        work_dir=row["WorkDir"],
        expected_start=start if state == "PENDING" else None,
    )


def _from_sacct(row: dict[str, str]) -> JobStatus:
    state = slurm_words.job_state(row["State"])
    gpu_words = [g for word in row["AllocTRES"].split(",") for g in slurm_words.gpus(word)]
    # AllocTRES lists the total and then each type of it: gres/gpu=64,gres/gpu:b200=64.
    total = max((g.count for g in gpu_words), default=0)
    return JobStatus(
        job_id=row["JobID"],
        name=row["JobName"],
        state=state,
        reason=row["State"] if " by " in row["State"] else "",
        nodes=number(row["NNodes"]),
        node_list=row["NodeList"],
        gpus=total or None,
        partition=row["Partition"],
        submitted_at=slurm_words.stamp(row["Submit"]),
        started_at=slurm_words.stamp(row["Start"]),
        ended_at=slurm_words.stamp(row["End"]) if state in ENDED else None,
        exit_code=exit_code_of(state, row["ExitCode"]),
        comment=row["Comment"],
        work_dir=row["WorkDir"],
    )


def reason_of(state: str, text: str) -> str:
    """Why a job waits, or how it ended; "" for none."""
    waited = state == "CANCELLED" and re.fullmatch(WHY_IT_WAITED, text)
    return "" if waited or text in ("None", "(null)") else text


def exit_code_of(state: str, text: str) -> int | None:
    """The exit code of an ended job. A cancelled job's 0 says nothing about the program."""
    if state not in ENDED:
        return None
    code = slurm_words.exit_code(text)
    return None if state in ("CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED") and code == 0 else code


def number(text: str) -> int:
    """A count of nodes: `4`, `4-8`."""
    digits = text.split("-")[0]
    return int(digits) if digits.isdigit() else 0
