"""Owns making a recording of a run that has ended: its logs, and when each line was probably written."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from pathlib import Path

from gpt_tune import jobs
from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.logs.clean import clean_line
from gpt_tune.logs.parser import LogParser
from gpt_tune.schedulers import hostlist, slurm_words
from gpt_tune.schedulers.base import ENDED
from gpt_tune.workflows import records, remote_logs
from gpt_tune.workflows.replay_format import Facts, Recording, StateAt, TimedLine, stripped

_START_SECONDS = 20.0  # of a job whose start nobody noted, until its first step
_TAIL_SHARE, _TAIL_MOST_SECONDS = 0.1, 10.0  # of the time beside the steps, what comes after the last
_MOST_BYTES = 512 << 20


def of_run(name: str, ledger: Ledger | None = None) -> Recording:
    """A recording of an ended run by its run or job id."""
    record = jobs.find(name, ledger)
    if record.state not in ENDED:
        raise UserError(
            f"{record.name} has not ended: it is {record.state}.", "A recording is made when it has."
        )
    paths = [p for p in remote_logs.logs_here(record) if Path(p).is_file()]
    if not paths:
        raise UserError(f"The logs of {record.name} are gone.", "Only a run with its log can be recorded.")
    return of_record(record, paths)


def of_record(record: RunRecord, paths: Sequence[str]) -> Recording:
    """A recording from what the ledger says and these logs."""
    wait, ran = _phases(record)
    logs = [_lines(Path(path)) for path in paths]
    lines, seconds = timed(logs, wait, ran)
    states = [StateAt(0.0, "PENDING")] if wait > 0 else []
    states.append(StateAt(wait, "RUNNING"))
    states.append(StateAt(seconds, record.state, record.reason, record.exit_code))
    shape = records.shape_of(record)
    length = records.seq_length_of(record, shape)
    tokens = (record.prediction or {}).get("tokens_per_step")
    batch = int(tokens / length) if isinstance(tokens, (int, float)) and length else None
    facts = Facts(
        name=record.name,
        logs=tuple(_names(paths)),
        seconds=seconds,
        states=tuple(states),
        began=record.submitted_at if wait > 0 else record.started_at or record.submitted_at,
        job_id=record.job_id,
        cluster=record.cluster,
        scheduler=record.scheduler,
        recipe=record.recipe,
        partition=record.partition,
        nodes=record.nodes,
        node_list=record.node_list,
        gpus=record.gpus,
        training_gpus=records.training_gpus_of(record),
        prediction=records.prediction_of(record),
        shape=shape,
        seq_length=length,
        global_batch_size=batch,
        peak_tflops=records.peak_tflops_of(record),
    )
    return Recording(facts, lines)


def of_log(path: Path) -> Recording:
    """A recording from a log file alone: no prediction, no states."""
    text = _lines(path)
    if not any(line.strip() for line in text):
        raise UserError(f"{path} is empty: there is nothing to play.", "Name a log that has lines.")
    if any("\0" in line for line in text):
        raise UserError(f"{path} is no text: it holds zero bytes.", "Name a log file or a recording.")
    lines, seconds = timed([text], 0.0, None)
    return Recording(Facts(name=path.name, logs=(path.name,), seconds=seconds), lines)


def without_names(recording: Recording, record: RunRecord | None = None) -> Recording:
    """The recording without what tells whose it is: user, home, hosts, run folder, as far as they are known."""
    home = str(Path.home())
    words = [(home, "/home/user"), (getpass.getuser(), "user"), (socket.gethostname(), "host")]
    hosts = hostlist.expand(recording.facts.node_list)
    if record is not None:
        words.append((record.run_dir, "/run"))
    words += [(host, f"node-{i}") for i, host in enumerate(hosts, 1)]
    # A very short name stands in other words too.
    return stripped(recording, [(private, neutral) for private, neutral in words if len(private) >= 3])


def _phases(record: RunRecord) -> tuple[float, float | None]:
    """Seconds of waiting and of running; None for a run whose times nobody noted."""
    stamps = [record.submitted_at, record.started_at, record.ended_at]
    submitted, started, ended = [None if s is None else slurm_words.epoch(s) for s in stamps]
    wait = max(0.0, started - submitted) if started is not None and submitted is not None else 0.0
    ran = max(0.0, ended - started) if started is not None and ended is not None else None
    return wait, ran


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(f"{path} is over {_MOST_BYTES >> 20} MiB.", "Such a log is too long to replay.")
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}.", "Check the path.") from error
    return [line.rstrip("\r") for line in text.split("\n")[: None if not text.endswith("\n") else -1]]


def _names(paths: Sequence[str]) -> list[str]:
    """Short names, each once."""
    names = [Path(p).name for p in paths]
    return names if len(set(names)) == len(names) else [f"{i}-{name}" for i, name in enumerate(names)]


# -- when each line was written -------------------------------------------------------------------
def timed(
    logs: Sequence[Sequence[str]], wait: float, ran: float | None
) -> tuple[tuple[TimedLine, ...], float]:
    """Every line with its time, all logs together in order, and the length of the recording.

    Steps take the time that the log says; what comes before the first and after the last shares the rest. ran None:
    nobody noted how long the job took.
    """
    steps = [step_seconds(lines) for lines in logs]
    busiest = max(steps, key=lambda s: sum(s.values()), default={})
    training = sum(busiest.values())
    rest = _START_SECONDS if ran is None else max(0.0, ran - training)
    tail = min(_TAIL_SHARE * rest, _TAIL_MOST_SECONDS)
    total = ran if ran is not None else training + rest
    scale = 1.0 if training <= total or not training else total / training
    found: list[TimedLine] = []
    for log, (lines, of_log) in enumerate(zip(logs, steps, strict=True)):
        times = _spread(len(lines), {n: s * scale for n, s in of_log.items()}, rest - tail, total)
        found += [TimedLine(wait + at, log, text) for at, text in zip(times, lines, strict=True)]
    return tuple(sorted(found, key=lambda line: line.at)), wait + total


def step_seconds(lines: Sequence[str]) -> dict[int, float]:
    """Line number -> seconds of the steps that this line reports."""
    parser = LogParser()
    found: dict[int, float] = {}
    before: int | None = None
    for number, line in enumerate(lines):
        for step in parser.feed([clean_line(line)]):
            if step.step_time_ms is None or (before is not None and step.iteration == before):
                continue
            # A line every N steps gives the time of one of them.
            count = (
                step.iteration - before if before is not None and 0 < step.iteration - before <= 1000 else 1
            )
            found[number] = found.get(number, 0.0) + count * step.step_time_ms / 1000.0
            before = step.iteration
    return found


def _spread(count: int, steps: dict[int, float], head: float, total: float) -> list[float]:
    """The time of each of `count` lines: evenly up to the first step, then as the steps say, evenly to the end."""
    if not steps:
        return [total * (i + 1) / (count + 1) for i in range(count)]
    first, last = min(steps), max(steps)
    times, now = [], 0.0
    for number in range(count):
        if number < first:
            now = head * (number + 1) / (first + 1)
        elif number <= last:
            now = (head if number == first else now) + steps.get(number, 0.0)
        else:
            now += (total - now) / (count - number + 1)
        times.append(min(now, total))
    return times
