"""Owns recordings of runs: one file of JSON lines, or a folder with that file in it; read, written and checked.

The first line is an object, the facts of the run (`Facts`, with "schema"); each further line is one line of a log:

    [seconds since the start, number of the log in "logs", "its text"]

in the order of time. A text may hold what the log held (colours, progress bars with \\r); it never holds a line's end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gpt_tune.errors import UserError, nearest, shown
from gpt_tune.jsonable import as_json
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.files import write_private
from gpt_tune.schedulers.base import State
from gpt_tune.strict import from_dict
from gpt_tune.workflows.watching.pace import Prediction

SCHEMA = "gpt-tune/recording/1"
FILE = "recording.jsonl"  # in a folder
LONGEST_SECONDS = 366 * 86400.0
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class StateAt:
    """The scheduler's word for the job from this moment on. at: seconds since the start of the recording."""

    at: float
    state: str
    reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the run beside its log. None and "" where it is not.

    began: when the recording starts (RFC 3339). times: how the lines got their times; "inferred" from the step
    times that the log prints, "kept" as they were written. training_gpus: what speed is divided by; None: what the
    log says. peak_tflops: dense, of one GPU in the run's precision. about: a sentence for people.
    """

    name: str
    logs: tuple[str, ...]
    seconds: float
    states: tuple[StateAt, ...] = ()
    about: str = ""
    began: str | None = None
    times: Literal["kept", "inferred"] = "inferred"
    job_id: str | None = None
    cluster: str = ""
    scheduler: str = "slurm"
    recipe: str = "custom"
    partition: str = ""
    nodes: int = 0
    node_list: str = ""
    gpus: int = 0
    training_gpus: int | None = None
    prediction: Prediction | None = None
    shape: ModelShape | None = None
    seq_length: int | None = None
    global_batch_size: int | None = None
    peak_tflops: float | None = None


@dataclass(frozen=True, slots=True)
class TimedLine:
    """One line of a log. at: seconds since the start. log: its number in Facts.logs."""

    at: float
    log: int
    text: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A run that can be played again."""

    facts: Facts
    lines: tuple[TimedLine, ...]


def is_recording(path: Path) -> bool:
    """Whether a file begins as a recording does; a log is none."""
    try:
        with file_of(path).open("rb") as file:
            return file.read(1) == b"{" and b'"schema"' in file.readline(1 << 20)
    except OSError:
        return False


def file_of(path: Path) -> Path:
    """The file of a recording that is given as a file or as its folder."""
    return path / FILE if path.is_dir() else path


def read(path: Path) -> Recording:
    """A recording from its file or folder. UserError names the line that will not do."""
    path = file_of(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(f"{path} is over 1 GiB: no recording is so large.", "Record a part of the run.")
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            return parse(file, str(path))
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}.", "Check the path.") from error


def parse(rows: Iterator[str], where: str) -> Recording:
    """A recording from its lines."""
    facts = _facts(next(iter(rows), ""), where)
    lines: list[TimedLine] = []
    for number, row in enumerate(rows, 2):
        if row.strip():
            lines.append(_line(row, number, lines[-1].at if lines else 0.0, facts, where))
    return Recording(facts, tuple(lines))


def _facts(row: str, where: str) -> Facts:
    data = _json(row, 1, where)
    if not isinstance(data, Mapping) or not str(data.get("schema", "")).startswith("gpt-tune/recording/"):
        raise UserError(f"{where} is no recording of gpt-tune.", "gpt-tune replay --record ID OUT makes one.")
    if data["schema"] != SCHEMA:
        raise UserError(
            f"{where} is a recording of another version ({shown(str(data['schema']))}).",
            f"This gpt-tune plays {SCHEMA}.",
        )
    facts = from_dict(Facts, {k: v for k, v in data.items() if k != "schema"}, f"line 1 of {where}")
    _check(facts, where)
    return facts


def _check(facts: Facts, where: str) -> None:
    if not 0 <= facts.seconds <= LONGEST_SECONDS:
        raise UserError(
            f"{where} says it lasts {facts.seconds:g} s.", f"Take 0 to {LONGEST_SECONDS:.0f} seconds."
        )
    if not facts.logs:
        raise UserError(f"{where} names no log.", 'Give "logs" at least one name.')
    before = 0.0
    for state in facts.states:
        if state.state not in get_args(State):
            close = nearest(state.state, get_args(State))
            raise UserError(
                f"{where} has an unknown state {shown(state.state)}.",
                f"Did you mean {close}?" if close else "Use the scheduler's words, such as RUNNING.",
            )
        if not before <= state.at <= facts.seconds:
            raise UserError(
                f"{where}: state {state.state} is at {state.at:g} s, out of order.",
                f"Take {before:g} to {facts.seconds:g}.",
            )
        before = state.at


def _line(row: str, number: int, before: float, facts: Facts, where: str) -> TimedLine:
    data = _json(row, number, where)
    match data:
        case [int() | float() as at, int() as log, str() as text] if not isinstance(log, bool):
            pass
        case _:
            raise UserError(
                f"Line {number} of {where} is no line of a recording.", 'Write [seconds, log number, "text"].'
            )
    if not math.isfinite(at) or not before <= at <= facts.seconds:
        raise UserError(
            f"Line {number} of {where} is at {at:g} s, out of order.",
            f"Take {before:g} to {facts.seconds:g} seconds.",
        )
    if not 0 <= log < len(facts.logs):
        raise UserError(
            f"Line {number} of {where} is of log {log}.",
            f"Take 0 to {len(facts.logs) - 1}: see logs in line 1.",
        )
    return TimedLine(float(at), log, text.replace("\n", " "))


def _json(row: str, number: int, where: str) -> Any:
    try:
        return json.loads(row)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"Line {number} of {where} is not valid JSON.",
            "gpt-tune replay --record ID OUT makes a recording.",
        ) from error


def write(recording: Recording, path: Path) -> Path:
    """Write a recording, readable by its owner only: a log may say more than one means to show."""
    return write_private(file_of(path), "".join(rows_of(recording)))


def rows_of(recording: Recording) -> Iterator[str]:
    """The lines of a recording's file."""
    facts = {k: v for k, v in as_json(recording.facts).items() if v not in (None, "", ())}
    yield json.dumps({"schema": SCHEMA, **facts}) + "\n"
    for line in recording.lines:
        yield json.dumps([round(line.at, 3), line.log, line.text]) + "\n"


def stripped(recording: Recording, words: Sequence[tuple[str, str]]) -> Recording:
    """The recording with private words (paths, host and user names) replaced wherever they stand, longest first."""
    ordered = sorted((pair for pair in words if pair[0]), key=lambda pair: -len(pair[0]))

    def clean(text: str) -> str:
        for private, neutral in ordered:
            text = text.replace(private, neutral)
        return text

    facts = recording.facts
    facts = replace(
        facts,
        name=clean(facts.name),
        node_list=clean(facts.node_list),
        cluster=clean(facts.cluster),
        logs=tuple(clean(log) for log in facts.logs),
    )
    return Recording(facts, tuple(replace(line, text=clean(line.text)) for line in recording.lines))
