"""Owns reading `scontrol show job`: what one job is, for a single request of the controller (squeue makes two)."""

from __future__ import annotations

import re

from gpt_tune.schedulers import slurm_jobs, slurm_words
from gpt_tune.schedulers.base import ENDED, JobStatus

# Free text: these stand last on their line, and hold blanks and equals signs.
_WHOLE = ("JobName", "Command", "StdOut", "StdErr", "StdIn", "WorkDir", "Comment", "AdminComment")
_LAST = re.compile(rf"(?:^|\s)({'|'.join(_WHOLE)})=(.*)$")


def arguments(job_id: str, local: bool = True) -> list[str]:
    """local: without asking about federations, which is a request more."""
    return ["scontrol", *(["--local"] if local else []), "show", "job", job_id]


def parse(text: str) -> dict[str, str]:
    """The first job by key."""
    found: dict[str, str] = {}
    for line in map(str.strip, text.splitlines()):
        if match := _LAST.search(line):
            found.setdefault(match[1], match[2].strip())
            line = line[: match.start()]
        for word in line.split():
            name, equals, value = word.partition("=")
            if equals:
                found.setdefault(name, value)
    return found


def statuses(text: str) -> list[JobStatus]:
    """All jobs shown: an array's tasks, or the parts of a heterogeneous job. With time stamps as seconds."""
    return [_status(parse(block)) for block in re.split(r"\n\s*\n", text) if "JobId=" in block]


def _status(shown: dict[str, str]) -> JobStatus:
    state = slurm_words.job_state(shown.get("JobState", ""))
    start = slurm_words.stamp(shown.get("StartTime", ""))
    nodes = slurm_jobs.number(shown.get("NumNodes", ""))
    per_node = sum(g.count for g in slurm_words.gpus(shown.get("TresPerNode", "")))
    log = shown.get("StdOut", "")
    return JobStatus(
        job_id=_job_id(shown),
        name=shown.get("JobName", ""),
        state=state,
        reason=slurm_jobs.reason_of(state, shown.get("Reason", "")),
        nodes=nodes,
        node_list=_word(shown, "NodeList"),
        gpus=per_node * nodes if per_node else None,
        partition=shown.get("Partition", ""),
        submitted_at=slurm_words.stamp(shown.get("SubmitTime", "")),
        started_at=None if state == "PENDING" else start,
        ended_at=slurm_words.stamp(shown.get("EndTime", "")) if state in ENDED else None,
        exit_code=slurm_jobs.exit_code_of(state, shown.get("ExitCode", "")),
        comment=_word(shown, "Comment"),
        log_paths=(log,) if log.startswith("/") else (),
        work_dir=shown.get("WorkDir", ""),
        expected_start=start if state == "PENDING" else None,
    )


def _job_id(shown: dict[str, str]) -> str:
    """As squeue names it: 4711, 4711_3, 4711_[4-9], 4711+1."""
    if "ArrayTaskId" in shown:
        task = shown["ArrayTaskId"]
        return f"{shown.get('ArrayJobId')}_{task if task.isdigit() else f'[{task}]'}"
    if "HetJobOffset" in shown:
        return f"{shown.get('HetJobId')}+{shown['HetJobOffset']}"
    return shown["JobId"]


def _word(shown: dict[str, str], key: str) -> str:
    value = shown.get(key, "")
    return "" if value in ("None", "(null)") else value
