"""Owns what a last look at a job says beyond its files: findings, the earlier run beside it, when it could start."""

from __future__ import annotations

import time
from dataclasses import dataclass

from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.lint.finding import Finding
from gpt_tune.schedulers import sbatch_lines, slurm_starts, slurm_words
from gpt_tune.schedulers.slurm_cli import SlurmCli
from gpt_tune.words import seconds_words
from gpt_tune.workflows import differences, file_findings
from gpt_tune.workflows.differences import Difference
from gpt_tune.workflows.launch import Launch

# What of a job script decides when it can start.
_ASKS = (
    "partition", "account", "qos", "time", "nodes", "ntasks", "ntasks-per-node", "gres", "gpus", "gpus-per-node",
    "cpus-per-task", "mem", "exclusive", "exclude", "nodelist", "constraint", "reservation",
)  # fmt: skip
_NOW_SECONDS = 90.0  # Slurm's scheduler looks about once a minute


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in a job's files. compared: the run they stand beside, None when there is none.
    trouble: why they could not be compared, or "".
    """

    findings: tuple[Finding, ...]
    compared: RunRecord | None = None
    difference: Difference | None = None
    trouble: str = ""

    def in_file(self, path: str) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.file == path)


def check(launch: Launch, ledger: Ledger, beside: RunRecord | None = None) -> Checked:
    """Lint's findings, and the files beside those of a run: the given one, else the profile's last."""
    found = file_findings.findings(launch.spec, launch.rendered)
    record = beside or differences.last_run(ledger, launch.spec.profile)
    if record is None:
        return Checked(found)
    try:
        difference = differences.beside_run(launch.spec, launch.rendered, record)
    except UserError as error:
        return Checked(found, record, None, str(error))
    return Checked(found, record, difference)


def starts(launch: Launch) -> str:
    """When the job could start, in words: asked of Slurm with the options of its script, one call."""
    if launch.cluster.scheduler == "local":
        return "starts at once"
    if not isinstance(launch.scheduler, SlurmCli):
        return ""
    script = next((f.content for f in launch.rendered.files if f.path == launch.rendered.script), b"")
    asked = sbatch_lines.options(script)
    options = [f"--{n}={asked[n]}" if asked[n] else f"--{n}" for n in _ASKS if n in asked]
    start = slurm_starts.test_only(launch.scheduler, options)
    if start.at is None:
        return f"Slurm gives no start time: {start.refusal}" if start.refusal else ""
    return start_words(slurm_words.epoch(start.at), time.time())


def start_words(at: float, now: float) -> str:
    """When Slurm could start it: at once, in 2 h 10 min (14:05), in 3 d 4 h (Thu 14:05)."""
    wait = at - now
    if wait <= _NOW_SECONDS:
        return "Slurm could start it at once"
    clock = time.strftime("%H:%M" if wait < 12 * 3600 else "%a %H:%M", time.localtime(at))
    return f"Slurm could start it in {seconds_words(wait)} ({clock})"
