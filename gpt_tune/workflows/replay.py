"""Owns playing a recorded run: a position that moves with the clock, and a Watch that sees the logs up to there."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpt_tune.errors import UserError, check_given, unknown_name
from gpt_tune.ledger import RunRecord
from gpt_tune.logs.follow import FileStat
from gpt_tune.resources import data_dir, existing
from gpt_tune.schedulers import slurm_words
from gpt_tune.schedulers.base import ENDED, JobStatus
from gpt_tune.workflows import replay_format
from gpt_tune.workflows.replay_format import Recording, StateAt
from gpt_tune.workflows.watch import Watch

SHIPPED = "h200-gpt-1.3b"  # what is played when nothing is named
SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
SLOWEST, FASTEST = 0.01, 10_000.0
MOST_MOMENTS = 5000
_EPOCH = "2020-01-01T00:00:00Z"  # for recordings that do not say when they were made


# -- finding --------------------------------------------------------------------------------------
def shipped() -> dict[str, Path]:
    """Recordings that come with gpt-tune, by name."""
    return {path.stem: path for path in sorted((data_dir("profiles") / "recordings").glob("*.jsonl"))}


def find(name: str | None = None) -> Recording:
    """A recording by its file or folder, by a shipped one's name, a log file, or an ended run's id."""
    if name is None:
        return replay_format.read(shipped()[SHIPPED])
    check_given(name, "the recording")
    path = existing(name)
    if path is not None:
        if path.is_dir() or replay_format.is_recording(path):
            return replay_format.read(path)
        from gpt_tune.workflows.replay_record import of_log

        return of_log(path)
    known = shipped()
    if name in known:
        return replay_format.read(known[name])
    if "/" in name or not name[:1].isalnum():
        raise UserError(f"There is no recording {name!r}.", f"Shipped: {', '.join(known)}.")
    from gpt_tune.workflows.replay_record import of_run

    try:
        return of_run(name)
    except UserError as error:
        if error.message.startswith("There is no run"):
            raise unknown_name("recording or run", name, known) from error
        raise


# -- playing --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Mark:
    """Position `at` held at wall time `since`; it moves by `speed` seconds a second."""

    at: float
    since: float
    speed: float


class Tape:
    """A recording being played. `position` runs from 0 to `seconds`; keys and threads may change it at any time."""

    def __init__(
        self, recording: Recording, speed: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        check_speed(speed)
        self.recording = recording
        self.facts = recording.facts
        self.seconds = recording.facts.seconds
        self.speed = speed
        self.paused = False
        self._clock = clock
        self._mark = _Mark(0.0, clock(), speed)
        began = self.facts.began or _EPOCH
        self._began = slurm_words.epoch(began)

    @property
    def position(self) -> float:
        """Seconds into the recording."""
        mark = self._mark
        return min(mark.at + (self._clock() - mark.since) * mark.speed, self.seconds)

    @property
    def over(self) -> bool:
        return self.position >= self.seconds

    def now(self) -> float:
        """The time of day in the recording, epoch seconds."""
        return self._began + self.position

    def pause(self, paused: bool | None = None) -> None:
        """Stop or go on; without an argument the other of both."""
        self.paused = not self.paused if paused is None else paused
        self.seek(self.position)

    def seek(self, position: float) -> None:
        """Go to a position, cut to what there is."""
        at = min(max(position, 0.0), self.seconds)
        self._mark = _Mark(at, self._clock(), 0.0 if self.paused else self.speed)

    def turn(self, direction: int) -> None:
        """The next faster (1) or slower (-1) of SPEEDS."""
        if direction > 0:
            speed = next((s for s in SPEEDS if s > self.speed), self.speed)
        else:
            speed = next((s for s in reversed(SPEEDS) if s < self.speed), self.speed)
        self.speed = speed
        self.seek(self.position)

    def state(self) -> StateAt:
        """The job's state at the position."""
        states = self.facts.states
        at = bisect_right([s.at for s in states], self.position)
        return states[at - 1] if at else StateAt(0.0, "UNKNOWN")

    def status(self) -> JobStatus:
        """The same in the scheduler's form, with the times that are known by then."""
        facts, now = self.facts, self.state()
        passed = [s for s in facts.states if s.at <= self.position]
        started = next((s.at for s in passed if s.state == "RUNNING"), None)
        ended = next((s.at for s in passed if s.state in ENDED), None)
        return JobStatus(
            job_id=facts.job_id or "",
            name=facts.name,
            state=now.state,  # type: ignore[arg-type]
            reason=now.reason,
            nodes=facts.nodes,
            node_list=facts.node_list,
            gpus=facts.gpus or None,
            partition=facts.partition,
            submitted_at=self._stamp(0.0),
            started_at=None if started is None else self._stamp(started),
            ended_at=None if ended is None else self._stamp(ended),
            exit_code=now.exit_code,
        )

    def moments(self, most: int = MOST_MOMENTS) -> list[float]:
        """Positions at which something happens, in order; of very many lines those that lie apart."""
        apart = self.seconds / most
        found: list[float] = []
        for line in self.recording.lines:
            if not found or line.at - found[-1] > apart:
                found.append(line.at)
        return sorted({0.0, self.seconds, *found, *(s.at for s in self.facts.states)})

    def _stamp(self, at: float) -> str:
        return slurm_words.rfc3339(self._began + at)


def check_speed(speed: float) -> None:
    """UserError for a speed that nothing can be played at."""
    if not SLOWEST <= speed <= FASTEST:
        nearest = SLOWEST if speed < SLOWEST else FASTEST
        raise UserError(
            f"A recording cannot be played at {speed:g} times its speed.", f"Take {nearest:g} or 1."
        )


class TapeReader:
    """The logs of a recording as files that grow: at each moment they end where the tape stands."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._times: list[list[float]] = [[] for _ in tape.facts.logs]
        self._ends: list[list[int]] = [[] for _ in tape.facts.logs]
        blocks: list[list[bytes]] = [[] for _ in tape.facts.logs]
        sizes = [0] * len(tape.facts.logs)
        for line in tape.recording.lines:
            raw = line.text.encode("utf-8", "surrogateescape") + b"\n"
            sizes[line.log] += len(raw)
            self._times[line.log].append(line.at)
            self._ends[line.log].append(sizes[line.log])
            blocks[line.log].append(raw)
        self._content = [b"".join(b) for b in blocks]

    def _size(self, log: int) -> int:
        seen = bisect_right(self._times[log], self._tape.position)
        return self._ends[log][seen - 1] if seen else 0

    def _log(self, path: str) -> int:
        return self._tape.facts.logs.index(path)

    def stat(self, path: str) -> FileStat | None:
        size = self._size(self._log(path))
        return FileStat(size, path, self._tape.now()) if size else None

    def read(self, path: str, offset: int, limit: int) -> bytes:
        log = self._log(path)
        return self._content[log][offset : min(self._size(log), offset + limit)]

    def expand(self, pattern: str) -> list[str]:
        return [pattern]

    def renamed(self, path: str, identity: str) -> str | None:
        return None


def watch_of(tape: Tape) -> Watch:
    """A monitor of a recorded run, from the tape's position on. Nothing else is read or asked, nothing is kept."""
    facts = tape.facts
    return Watch(
        facts.logs,
        reader=TapeReader(tape),
        prediction=facts.prediction,
        shape=facts.shape,
        gpus=facts.gpus or None,
        state_source=tape.status if facts.states else None,
        seq_length=facts.seq_length,
        global_batch_size=facts.global_batch_size,
        peak_tflops=facts.peak_tflops,
        clock=tape.now,
        state_seconds=0.0,
        log_says_gpus=facts.training_gpus is None,
    )


def record_of(tape: Tape) -> RunRecord:
    """The run as the monitor wants it. It is in no ledger."""
    facts, status = tape.facts, tape.status()
    return RunRecord(
        run_id=f"replay-{facts.name}",
        token="",
        cluster=facts.cluster or "recorded",
        scheduler=facts.scheduler,
        name=facts.name,
        recipe=facts.recipe,
        run_dir="",
        script="",
        created_at=status.submitted_at or _EPOCH,
        phase="ended",  # nothing will come of asking a scheduler
        state=status.state,
        job_ids=(facts.job_id,) if facts.job_id else (),
        log_paths=facts.logs,
        gpus=facts.gpus,
        nodes=facts.nodes,
        node_list=facts.node_list,
        partition=facts.partition,
    )
