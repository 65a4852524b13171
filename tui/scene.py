"""Owns what one poll of a run looks like on the monitor: words, lines and chart data. Built in the worker thread.

Everything in it comes from the engine's Watch; here it only becomes words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpt_tune.schedulers.base import ENDED
from gpt_tune.words import percent_words, seconds_words
from tui.states import state_role
from tui.widgets.paint import Line, Span
from tui.widgets.plot import ChartData, Series
from tui.widgets.words import clock, plural, three

if TYPE_CHECKING:
    from gpt_tune.workflows.watch import Watch, WatchUpdate

# (the engine's figure, title). Step time is drawn in seconds when steps take that long.
CHARTS = (("step_time_ms", "step time"), ("loss", "loss"), ("model_tflops", "model TFLOPS"))
LONG_STEP_MS = 1000.0
CHART_SECONDS = 1.0  # between two pictures: a chart is 2 kB to a terminal, and slow links are common


@dataclass(frozen=True, slots=True)
class Scene:
    """The words of one moment. ended: nothing more will come. excerpt: the line of the first error.
    cured: a setting is known that would have prevented it."""

    job: Sequence[Span] = ()
    note: Line = ()
    stats: Sequence[Line] = ()
    state: str = "UNKNOWN"
    ended: bool = False
    all_steps: bool = False
    cured: bool = False
    excerpt: str = ""
    finding: str = ""


@dataclass(frozen=True, slots=True)
class Shot:
    """One poll: new log lines, the scene, and the charts that changed."""

    lines: tuple[str, ...]
    scene: Scene
    charts: dict[str, ChartData] = field(default_factory=dict)


class Camera:
    """Decides which polls bring chart data: at most one a second, but none is forgotten."""

    def __init__(self) -> None:
        self._due = True
        self._ended = False
        self._drawn_at = -CHART_SECONDS

    def due(self, update: WatchUpdate, redraw: bool) -> bool:
        """redraw: a new size. The first steps and the last ones are drawn at once."""
        over = update.ended and not self._ended
        self._ended = update.ended
        self._due = self._due or redraw or update.reset or bool(update.steps) or over
        if not self._due or (monotonic() - self._drawn_at < CHART_SECONDS and not update.ended):
            return False
        self._due = False
        self._drawn_at = monotonic()
        return True


def take(watch: Watch, record: Any, columns: int, reason: str, redraw: bool, camera: Camera) -> Shot:
    """Poll once and say what came."""
    update = watch.poll()
    skipped = (f"… {update.skipped_lines:,} lines not shown …",) if update.skipped_lines else ()
    lines = (*skipped, *(line.text for line in update.lines if not line.transient))
    charts = chart_data(watch, update, columns) if camera.due(update, redraw) else {}
    return Shot(lines, scene_of(watch, update, record, reason), charts)


def chart_data(watch: Watch, update: WatchUpdate, columns: int) -> dict[str, ChartData]:
    """Every chart's data, reduced to at most `columns` points with their extremes kept."""

    from gpt_tune.logs.series import reduce

    expected = watch.prediction
    long = (update.summary.median_step_time_ms or 0.0) >= LONG_STEP_MS
    charts: dict[str, ChartData] = {}
    for name, title in CHARTS:
        x, y = watch.series(name)
        small = reduce(x, y, max(columns, 8))
        scale = 0.001 if name == "step_time_ms" and long else 1.0
        at = small.x.tolist()
        if len(at) > 1:
            at[0], at[-1] = (
                float(x[0]),
                float(x[-1]),
            )  # a column's middle would hide where the run begins and ends
        series = Series(
            at,
            [v * scale for v in small.low.tolist()],
            [v * scale for v in small.high.tolist()],
        )
        wanted: tuple[float | None, ...] = (None, None, None)
        if expected is not None and name == "step_time_ms":
            wanted = (expected.step_time_ms, expected.low_ms, expected.high_ms)
        elif expected is not None and name == "model_tflops":
            wanted = (expected.model_tflops, None, None)
        middle, low, high = (v * scale if v is not None else None for v in wanted)
        unit = {"step_time_ms": "s" if long else "ms", "model_tflops": "per GPU"}.get(name, "")
        warm_up = update.summary.warmup_steps if len(x) <= columns else 1
        empty = "no steps in this log" if update.ended else "waiting for the first step"
        charts[name] = ChartData(title, unit, series, middle, low, high, warm_up, empty)
    return charts


def first_scene(record: Any) -> Scene:
    """What the ledger says, until the files have been read."""
    job: list[Span] = [(f"{record.name}  ", "strong"), (f"job {record.job_id or '?'}  ", "muted")]
    return Scene(job=[*job, (record.state, state_role(record.state))], state=record.state)


def scene_of(watch: Watch, update: WatchUpdate, record: Any, reason: str) -> Scene:
    cause = update.diagnosis.root_cause or next(
        (f for f in update.diagnosis.findings if f.severity == "error"), None
    )
    return Scene(
        job=_job(update, record),
        note=_note(update, reason),
        stats=[_stats(watch, update, record.gpus)],
        state=update.state,
        ended=update.ended or update.state in ENDED,
        all_steps=update.pace.iteration is not None and update.pace.iteration == update.pace.total_iterations,
        cured=update.diagnosis.root_cause is not None and bool(update.diagnosis.root_cause.changes),
        excerpt=cause.excerpt if cause is not None else "",
        finding=cause.text if cause is not None else "",
    )


def _job(update: WatchUpdate, record: Any) -> list[Span]:
    pace = update.pace
    parts: list[Span] = [(f"{record.name}  ", "strong")]
    if record.job_id:
        parts.append((f"job {record.job_id}  ", "muted"))
    parts.append((update.state, state_role(update.state)))
    if pace.elapsed_seconds is not None:
        parts.append((f" {clock(pace.elapsed_seconds)}", ""))
    if record.nodes:
        parts.append((f"  {plural(record.nodes, 'node')}", "muted"))
    if record.gpus:
        parts.append((f"  {plural(record.gpus, 'GPU')}", "muted"))
    if pace.iteration is not None:
        total = f"/{pace.total_iterations:,}" if pace.total_iterations else ""
        parts.append((f"  step {pace.iteration:,}{total}", ""))
        if pace.total_iterations and pace.total_iterations >= pace.iteration:
            parts.append((f" {percent_words(pace.iteration / pace.total_iterations)}", "muted"))
    if pace.eta_seconds is not None:
        parts.append((f"  ETA {seconds_words(pace.eta_seconds)}", "accent"))
    return parts


def _note(update: WatchUpdate, reason: str) -> Line:
    """The most important sentence now: what broke, what hangs, why it waits, how it ended."""
    cause = update.diagnosis.root_cause
    if cause is not None and cause.severity != "info":
        role = "bad" if cause.severity == "error" else "warn"
        return [
            ("! ", role),
            (cause.text, role),
            (f" → {cause.fix}" if cause.fix else "", ""),
            (f"  [{cause.id}]", "muted"),
        ]
    if update.hang is not None:
        return [("! ", "bad"), (update.hang.text, "bad")]
    if reason:
        return [(reason[0].upper() + reason[1:] + ".", "warn" if update.state == "PENDING" else "muted")]
    if update.state == "COMPLETED":
        return [("Completed. Everything it wrote is in the run folder.", "good")]
    if update.waiting and update.state in ("PENDING", "UNKNOWN", "RUNNING"):
        return [("Waiting for the job to write its log.", "muted")]
    if update.history < 1.0:
        return [(f"Reading the log's past: {percent_words(update.history)}.", "muted")]
    return []


def _stats(watch: Watch, update: WatchUpdate, gpus: int) -> Line:
    pace, last, expected = update.pace, update.last_step, watch.prediction
    parts: list[tuple[str, str]] = []
    if last is not None and last.loss is not None:
        parts.append(("loss", f"{last.loss:.4g}"))
    if last is not None and last.grad_norm is not None:
        parts.append(("grad norm", three(last.grad_norm)))
    if pace.slower_than_predicted is not None:
        parts.append(("pace", _pace_words(pace.slower_than_predicted)))
    if pace.recent_model_tflops is not None:
        parts.append(("model TFLOPS", three(pace.recent_model_tflops)))
    if pace.mfu is not None:
        parts.append(("MFU", percent_words(pace.mfu)))
    if pace.max_reserved_gib is not None:
        said = f" (predicted {expected.reserved_gib:.0f})" if expected and expected.reserved_gib else ""
        parts.append(("memory", f"{pace.max_reserved_gib:.0f} GiB{said}"))
    if last is not None and last.tokens_per_second_per_gpu is not None:
        parts.append(("tokens/s", f"{last.tokens_per_second_per_gpu:,.0f}"))
    if pace.gpu_hours is not None and gpus:
        total = f" of {pace.gpu_hours_total:,.1f}" if pace.gpu_hours_total else ""
        parts.append(("GPU-hours", f"{pace.gpu_hours:,.1f}{total}"))
    line: list[Span] = []
    for label, words in parts:
        line += [(f"{label} ", "muted"), (words, ""), ("   ", "")]
    return line[:-1]


def _pace_words(slower: float) -> str:
    """`8 % slower than predicted`; within 1 % it is as predicted."""
    if abs(slower) < 0.01:
        return "as predicted"
    return f"{percent_words(abs(slower))} {'slower' if slower > 0 else 'faster'} than predicted"
