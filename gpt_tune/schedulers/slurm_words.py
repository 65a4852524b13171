"""Owns the small notations in Slurm's text output: durations, time stamps, node and job states, GRES, versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

from gpt_tune.schedulers.base import State
from gpt_tune.schedulers.hostlist import split_outside

_UNSET = {"", "n/a", "none", "(null)", "not_set", "unknown", "invalid", "partition_limit"}
_UNLIMITED = {"infinite", "unlimited", "-1"}


def seconds(text: str) -> int | None:
    """A Slurm duration in seconds; None for unlimited, unset, or text that is none.

    `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`.
    """
    word = text.strip().lower()
    if word in _UNSET or word in _UNLIMITED:
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", word)
    if match is None:
        return None
    days, *rest = match.groups()
    numbers = [int(n) for n in rest if n is not None]
    if days is not None:
        hours, minutes, secs = [*numbers, 0, 0][:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + secs
    if len(numbers) == 3:
        return (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]
    minutes, secs = [*numbers, 0][:2]
    return minutes * 60 + secs


def is_duration(text: str) -> bool:
    """Whether Slurm accepts `text` as a time limit."""
    return text.strip().lower() in _UNLIMITED or seconds(text) is not None


def duration(n_seconds: int) -> str:
    """Seconds in Slurm's notation: `2:00:00`, `7-00:00:00`."""
    days, rest = divmod(n_seconds, 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock.removeprefix("0")


def rfc3339(epoch: float) -> str:
    """Seconds since the epoch as RFC 3339 UTC, whole seconds."""
    return datetime.fromtimestamp(int(epoch), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch(stamp: str) -> float:
    """RFC 3339 to seconds since the epoch."""
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def local_iso(stamp: str) -> str:
    """RFC 3339 as the local time that sacct's --starttime takes."""
    return datetime.fromtimestamp(epoch(stamp)).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006


def stamp(text: str) -> str | None:
    """A Slurm time stamp (seconds since the epoch, or its local ISO form) as RFC 3339 UTC; None when unset."""
    word = text.strip()
    if word.isdigit():
        return rfc3339(int(word)) if int(word) > 0 else None
    try:
        return rfc3339(datetime.fromisoformat(word).timestamp())  # without a zone: this machine's
    except ValueError:
        return None


# -- node states ----------------------------------------------------------------------------------
_NODE_WORDS = {
    "idle": "idle", "planned": "idle", "plnd": "idle",
    "mixed": "mixed", "mix": "mixed",
    "allocated": "allocated", "alloc": "allocated", "completing": "allocated", "comp": "allocated",
    "drain": "drained", "drained": "drained", "draining": "drained", "drng": "drained",
    "down": "down", "fail": "down", "failing": "down", "failg": "down", "error": "down", "inval": "down",
    "unknown": "down", "unk": "down", "no_respond": "down", "not_responding": "down", "external": "other",
}  # fmt: skip
# Slurm's flag characters: * not responding, $ maintenance, % powering down, ! pending power down, @ pending
# reboot, ^ rebooting. ~ (powered down, started on demand), # (powering up) and - (planned) change nothing.
_FLAG_STATES = {"*": "down", "$": "other", "%": "other", "!": "other", "@": "other", "^": "other"}
_WORSE = ("down", "drained", "other")


def node_state(text: str) -> str:
    """idle, mixed, allocated, drained, down or other, for any spelling: `idle*`, `mixed-`, `idle+drain`."""
    match = re.fullmatch(r"([a-z_+&]+)([^a-z]*)", text.strip().lower())
    if match is None:
        return "other"
    words, flags = match.groups()
    # `allocated+` is a node that also tidies up after a job.
    found = {_NODE_WORDS.get(w, "other") for w in words.split("+") if w}
    found |= {_FLAG_STATES[c] for c in flags if c in _FLAG_STATES}
    worse = [w for w in _WORSE if w in found]
    return worse[0] if worse else found.pop()


# -- job states -----------------------------------------------------------------------------------
_JOB_STATES: dict[str, State] = {
    "PENDING": "PENDING", "CONFIGURING": "PENDING", "REQUEUED": "PENDING", "REQUEUE_HOLD": "PENDING",
    "REQUEUE_FED": "PENDING", "SPECIAL_EXIT": "PENDING", "RESV_DEL_HOLD": "PENDING",
    "RUNNING": "RUNNING", "RESIZING": "RUNNING", "SIGNALING": "RUNNING",
    "COMPLETING": "COMPLETING", "STAGE_OUT": "COMPLETING",
    "SUSPENDED": "SUSPENDED", "STOPPED": "SUSPENDED",
    "COMPLETED": "COMPLETED", "FAILED": "FAILED", "LAUNCH_FAILED": "FAILED", "CANCELLED": "CANCELLED",
    "REVOKED": "CANCELLED", "TIMEOUT": "TIMEOUT", "DEADLINE": "TIMEOUT", "OUT_OF_MEMORY": "OUT_OF_MEMORY",
    "NODE_FAIL": "NODE_FAIL", "BOOT_FAIL": "NODE_FAIL", "PREEMPTED": "PREEMPTED",
}  # fmt: skip


def job_state(text: str) -> State:
    """One of our states for Slurm's word; `CANCELLED by 1000` and `OUT_OF_ME+` included."""
    words = text.strip().split(" ")[0].upper()
    if words.endswith("+"):  # sacct cuts words to the column
        words = next((s for s in _JOB_STATES if s.startswith(words[:-1])), words)
    return _JOB_STATES.get(words.split(",")[0], "UNKNOWN")


def exit_code(text: str) -> int | None:
    """An exit code from `3:0` (code:signal) or from the raw wait status squeue prints (768)."""
    word = text.strip()
    if re.fullmatch(r"\d+:\d+", word):
        code, number = map(int, word.split(":"))
    elif word.isdigit():
        code, number = divmod(int(word), 256)
        number &= 0x7F
    else:
        return None
    return 128 + number if number else code


# -- generic resources ----------------------------------------------------------------------------
_MIG = re.compile(r"(?<![a-z0-9])\d+[gc]\.\d+gb|(?<![a-z0-9])mig(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of one type on a node. type: the scheduler's word, "" when untyped."""

    type: str
    count: int

    @property
    def is_slice(self) -> bool:
        return bool(_MIG.search(self.type))


def gpus(text: str) -> list[Gpus]:
    """GPU entries of a GRES string: `gpu:b200:8(S:0-1)`, `gpu:1g.10gb:7`, `gpu:4`, `gres/gpu:8`; others left out."""
    found = []
    for entry in split_outside(text, "(", ")"):
        bare = re.sub(r"\(.*?\)", "", entry).strip()
        words = [w for w in re.split(r"[:=]", bare) if w != "no_consume"]
        if words[0] not in ("gpu", "gres/gpu") and words[:2] != ["gres", "gpu"]:
            continue
        words = words[2:] if words[0] == "gres" else words[1:]
        count = 1
        if words and re.fullmatch(r"\d+[kKmM]?", words[-1]):
            count = _count(words.pop())
        found.append(Gpus(":".join(words), count))
    return found


def _count(word: str) -> int:
    scale = {"k": 1024, "m": 1024**2}.get(word[-1].lower(), 1)
    return int(word.rstrip("kKmM")) * scale


# -- versions -------------------------------------------------------------------------------------
def version_tuple(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: `slurm-wlm 22.05.8` (22, 5, 8), `26.05.2-0pre1` (26, 5, 2)."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(n) for n in match.group().split(".")) if match else ()
