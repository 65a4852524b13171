"""Owns what Slurm's refusals mean: its words, and what to do about each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers.base import SubmitUnknown, Unreachable


@dataclass(frozen=True, slots=True)
class Refusal:
    """id: row of the failure catalogue. pattern: a regular expression on Slurm's words."""

    id: str
    pattern: str
    fix: str


# EDIT HERE to explain one more refusal. The first match wins. Words as in Slurm's slurm_errno.c and option
# parsers, versions 20.11 to 26.05.
REFUSALS = (
    Refusal(
        "F80",
        r"no partition specified",
        "This cluster has no default partition: set site.partition to one that `gpt-tune clusters` lists.",
    ),
    Refusal("F80", r"invalid partition name", "Choose a partition that `gpt-tune clusters` lists."),
    Refusal(
        "F82",
        r"must always specify a type when requesting gpu",
        "This cluster wants the GPU type in the request: set resources.gpu to the type `gpt-tune clusters` shows.",
    ),
    Refusal(
        "F82",
        r"invalid generic resource|invalid gres|cannot find gpu specification",
        "The cluster does not offer GPUs under that name: compare with `gpt-tune clusters`; without GRES there, "
        "leave resources.gpus_per_node empty.",
    ),
    Refusal(
        "F83",
        r"QOSMaxSubmitJob|AssocMaxSubmitJob|MaxSubmitJobs",
        "You have as many jobs queued as allowed: wait for one to end, or cancel one.",
    ),
    Refusal(
        "F83",
        r"MaxWallDuration|MaxWall",
        "The time limit is longer than your QOS or account allows: lower site.time_limit.",
    ),
    Refusal(
        "F83",
        r"(QOS|Assoc)\w*(Node|Cpu|CPU|GRES|Tres|TRES|Mem)\w*",
        "The job is larger than your QOS or account allows: use fewer nodes or GPUs, or another site.qos.",
    ),
    Refusal(
        "F83",
        r"violates accounting/qos policy|breached requested qos",
        "A limit of your account or QOS is exceeded: lower the time limit or the size, or use another site.qos; "
        "`sacctmgr show assoc user=$USER` lists the limits.",
    ),
    Refusal(
        "F84",
        r"invalid account|account.*(not permitted|not allowed)|user's account",
        "Set site.account to an account of yours that may use this partition (`sacctmgr show assoc user=$USER`).",
    ),
    Refusal(
        "F84",
        r"invalid qos|qos.*(not permitted|not allowed)|job.*qos.*not",
        "Set site.qos to a QOS of yours, or leave it empty.",
    ),
    Refusal(
        "F84", r"group not permitted to use this partition", "Choose a partition that your group may use."
    ),
    Refusal(
        "F84",
        r"requested time limit is invalid|time limit.*(exceed|invalid)|invalid.*time limit",
        "Lower site.time_limit to the partition's limit, which `gpt-tune clusters` shows.",
    ),
    Refusal(
        "F84", r"time limit specification required", "This cluster wants a time limit: set site.time_limit."
    ),
    Refusal(
        "F84",
        r"job size specification|cpu count specification|task count specification|task distribution",
        "The cluster wants the size of the job said otherwise: compare site.extra_sbatch with its documentation.",
    ),
    Refusal(
        "F84",
        r"invalid (license|wckey)",
        "Remove that licence or wckey from site.extra_sbatch, or correct it.",
    ),
    Refusal(
        "F84", r"invalid (--)?time|invalid time", "Write site.time_limit as 30:00, 2:00:00 or 1-00:00:00."
    ),
    Refusal(
        "F84",
        r"invalid feature|invalid (--)?constraint",
        "Remove that --constraint from site.extra_sbatch, or use a feature that `gpt-tune clusters` lists.",
    ),
    Refusal(
        "F84",
        r"nodes not in this partition",
        "The nodes asked for belong to another partition: change one of the two.",
    ),
    Refusal(
        "F84",
        r"invalid node name|invalid host",
        "A node name in site.exclude_nodes or site.extra_sbatch does not exist here.",
    ),
    Refusal(
        "F84",
        r"node count (specification )?invalid|node count exceed|too many nodes|more nodes",
        "Ask for fewer GPUs: the partition limits the number of nodes of one job.",
    ),
    Refusal(
        "F84",
        r"more processors requested than permitted|task.*exceed|more tasks than available",
        "Ask for fewer tasks or CPUs a node.",
    ),
    Refusal(
        "F81",
        r"node configuration is not available|cpu count per node|memory specification can not be satisfied"
        r"|required node not available|memory required by task is not available",
        "No node of that partition has what was asked for (GPUs, CPUs or memory a node): compare with "
        "`gpt-tune clusters`.",
    ),
    Refusal(
        "F85",
        r"mutually exclusive",
        "Start gpt-tune outside of an allocation, or `unset` the SLURM_MEM_* variables.",
    ),
    Refusal(
        "F200",
        r"partition.*(down|inactive|drain|not (up|available))|(down|inactive) partition",
        "That partition accepts no jobs now: choose another one.",
    ),
    Refusal(
        "F201",
        r"reservation",
        "Remove the reservation from site.extra_sbatch, or use one that is active and yours.",
    ),
    Refusal(
        "F202",
        r"invalid dependency|dependency problem",
        "The job it depends on does not exist any more: submit without the dependency.",
    ),
    Refusal(
        "F202",
        r"invalid job id",
        "Slurm has forgotten that job: `gpt-tune jobs` says how it ended.",
    ),
    Refusal(
        "F203",
        r"individual component of het|not whole het",
        "It is a part of a heterogeneous job: do it to the whole, by the id before the `+`.",
    ),
    Refusal(
        "F203",
        r"presently disabled",
        "The job was submitted with --no-requeue, or the cluster lets no job be requeued: cancel it and use "
        "`gpt-tune resubmit`.",
    ),
    Refusal("F203", r"pending execution", "It is in the queue already."),
    Refusal(
        "F203",
        r"can not be altered now",
        "The job does not run (any more): only a running job takes signals.",
    ),
    Refusal(
        "F203",
        r"(access|permission) denied|not permitted",
        "Slurm does not allow this to your user: ask the cluster's support.",
    ),
    Refusal(
        "F204",
        r"protocol authentication error|munge|authentication",
        "munge does not work on this machine: its daemon must run, with the cluster's key.",
    ),
    Refusal(
        "F205",
        r"protocol version|incompatible",
        "The Slurm commands here do not fit the cluster's version: use those of the cluster.",
    ),
    Refusal(
        "F206",
        r"batch script (is )?(empty|contains dos|too large)|dos line breaks",
        "The job script is damaged: render it again.",
    ),
    Refusal(
        "F207",
        r"unrecognized option|invalid option|unrecognised option|ambiguous",
        "Slurm here does not know an option of site.extra_sbatch: remove it.",
    ),
    Refusal(
        "F207",
        r"parameter too long",
        "Shorten the job's comment, name or paths: Slurm takes 1024 characters of each.",
    ),
    Refusal(
        "F208",
        r"cannot open|unable to open (file|script)|no such file",
        "Slurm cannot read the job script: the run folder must be visible where sbatch runs.",
    ),
    Refusal(
        "F209",
        r"temporarily unable to accept job|queue.*full|maximum.*jobs|maxjobcount|submissions disabled"
        r"|unable to create job record",
        "The cluster takes no more jobs now: try again later.",
    ),
)

# The request or its answer may have got lost on the way: the job may exist.
_LOST = re.compile(
    r"unable to contact slurm controller|socket timed out|zero bytes were transmitted|transport endpoint"
    r"|connection (refused|timed out|reset)|message (receive|send) failure|communication (connection|shutdown)"
    r"|can't be reached now|insane message length|unexpected message|header lengths|standby mode|broken pipe"
    r"|no route to host",
    re.IGNORECASE,
)
# Said before anything is sent: the way to another cluster (-M) leads through slurmdbd.
_NO_DATABASE = re.compile(r"problem talking to (the )?database", re.IGNORECASE)
_NOISE = re.compile(
    r"^(sbatch|scancel|squeue|sinfo|scontrol|sacct|srun): (error: )?|^slurm_\w+( error)?: ", re.IGNORECASE
)
_TAIL = re.compile(r"^(batch job submission failed|kill job error on job id \S+): ", re.IGNORECASE)


def is_lost(words: str) -> bool:
    """Whether Slurm's words speak of the connection rather than of the request."""
    return bool(_LOST.search(words))


def fix_for(words: str) -> Refusal | None:
    """What is known about these words of Slurm, or None."""
    return next((r for r in REFUSALS if re.search(r.pattern, words, re.IGNORECASE)), None)


def sentence(words: str) -> str:
    """Slurm's complaint without the program names; the line before (which names a limit) is kept."""
    lines = [_TAIL.sub("", _NOISE.sub("", line.strip())) for line in words.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(line.rstrip(".") for line in lines[-3:])) or "no reason given"


def refused(words: str) -> SchedulerError:
    """The error for a submission that came back with `words`."""
    if _NO_DATABASE.search(words):
        return no_database()
    if is_lost(words):
        return SubmitUnknown(
            f"The connection to the Slurm controller broke during the submission: {sentence(words)}.",
            "The job may exist: do not submit again before `gpt-tune jobs` has found out.",
        )
    known = fix_for(words)
    fix = known.fix if known else "The words are Slurm's own: the cluster's support knows its limits."
    return SchedulerError(f"Slurm refused the job: {sentence(words)}.", fix)


def failed(command: str, words: str) -> SchedulerError:
    """The error for any other command that came back with `words`."""
    if is_lost(words):
        return unreachable(words)
    known = fix_for(words)
    return SchedulerError(
        f"{command} failed: {sentence(words)}.", known.fix if known else "The words are Slurm's own."
    )


def no_munge() -> Unreachable:
    return Unreachable(
        "Slurm's commands cannot prove who you are: munge does not work on this machine.",
        "Its daemon (munged) must run here, with the cluster's key: tell the cluster's support, or use another login "
        "node.",
    )


def no_database() -> Unreachable:
    return Unreachable(
        "Slurm's accounting database (slurmdbd) does not answer, and clusters other than this machine's own are "
        "reached through it.",
        "Their jobs go on. Try again when it is back; this machine's own cluster can be used meanwhile.",
    )


def unreachable(words: str = "") -> Unreachable:
    if _NO_DATABASE.search(words):
        return no_database()
    detail = f": {sentence(words)}" if words else ""
    return Unreachable(
        f"The Slurm controller does not answer{detail}.",
        "It may be restarting: try again in a minute, or tell the cluster's support.",
    )
