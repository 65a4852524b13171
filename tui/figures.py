"""Owns which quantities of a run can be charted, and taking them from the engine's Watch, in the follow thread."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from tui.widgets.chart_data import Curve, Figure, Mark

if TYPE_CHECKING:
    from gpt_tune.workflows.series import Drawn
    from gpt_tune.workflows.watch import Prediction, Watch, WatchUpdate

# (the engine's figure, title, unit). Step time is drawn in seconds when steps take that long.
FIGURES = (
    ("step_time_ms", "step time", "ms"),
    ("loss", "loss", ""),
    ("model_tflops", "model TFLOPS", "per GPU"),
    ("grad_norm", "grad norm", ""),
    ("tokens_per_second_per_gpu", "tokens/s", "per GPU"),
    ("memory", "memory by rank", "GiB"),
)
TITLES = {name: title for name, title, _ in FIGURES}
LONG_STEP_MS = 1000.0
CHART_SECONDS = 1.0  # between two pictures: a chart is 2 kB to a terminal, and slow links are common


class Camera:
    """Decides which polls bring chart data: at most one a second, but none is forgotten."""

    def __init__(self) -> None:
        self._due = True
        self._ended = False
        self._drawn_at = -CHART_SECONDS

    def due(self, update: WatchUpdate, redraw: bool) -> bool:
        """redraw: something else shall be shown. That, the first steps and the last ones come at once."""
        over = update.ended and not self._ended
        self._ended = update.ended
        self._due = self._due or redraw or update.reset or bool(update.steps) or over
        soon = monotonic() - self._drawn_at < CHART_SECONDS
        if not self._due or (soon and not update.ended and not redraw):
            return False
        self._due = False
        self._drawn_at = monotonic()
        return True


def figures(
    watch: Watch,
    update: WatchUpdate,
    names: Sequence[str],
    axis: str,
    waiting: str,
    others: Sequence[Drawn] = (),
) -> dict[str, Figure]:
    """These figures at full length. others: runs to draw beside this one."""
    import numpy as np

    marks = _marks(watch, axis)
    long = (update.summary.median_step_time_ms or 0.0) >= LONG_STEP_MS
    made: dict[str, Figure] = {}
    for name, title, unit in FIGURES:
        if name not in names:
            continue
        if name == "memory":
            made[name] = _memory(watch, update, title, unit, waiting)
            continue
        scale = 0.001 if name == "step_time_ms" and long else 1.0
        x, y = watch.series(name, axis)
        words = waiting if update.last_step is None or np.isfinite(y).any() else _missing(title, name, axis)
        expected, low, high = (
            v * scale if v is not None else None for v in predicted(watch.prediction, name)
        )
        made[name] = Figure(
            name,
            title,
            "s" if scale != 1.0 else unit,
            x,
            y * scale if scale != 1.0 else y,
            expected,
            low,
            high,
            update.summary.warmup_steps,
            marks,
            tuple(_curve(other, name, axis, scale) for other in others),
            words,
            axis,
            update.ended,
        )
    return made


def _missing(title: str, name: str, axis: str) -> str:
    """Why there is nothing to draw although there are steps."""
    if axis == "tokens":
        return "This log does not say how many tokens have been seen; t draws by step again."
    if name == "model_tflops":
        return "No model TFLOPS: neither the log nor the run says what the model's shape is."
    return f"This log prints no {title}."


def predicted(prediction: Prediction | None, name: str) -> tuple[float | None, float | None, float | None]:
    """(value, low, high) of a figure. What the step time is divided into has the step time's interval."""
    if prediction is None:
        return None, None, None
    step, low, high = prediction.step_time_ms, prediction.low_ms, prediction.high_ms
    if name == "step_time_ms":
        return step, low, high
    value = {
        "model_tflops": prediction.model_tflops,
        "tokens_per_second_per_gpu": prediction.tokens_per_second_per_gpu,
    }.get(name)
    if value is None or not (step and low and high):
        return value, None, None
    return value, value * step / high, value * step / low


def _memory(watch: Watch, update: WatchUpdate, title: str, unit: str, waiting: str) -> Figure:
    """The most that each rank has reserved: logs report memory by rank, not by step."""
    import numpy as np

    most: dict[float, float] = {}
    for report in update.memory:
        value = (
            report.max_reserved_gib or report.reserved_gib or report.max_allocated_gib or report.allocated_gib
        )
        rank = float(report.rank if report.rank is not None else 0)
        if value is not None:
            most[rank] = max(value, most.get(rank, 0.0))
    ranks = sorted(most)
    expected = watch.prediction.reserved_gib if watch.prediction is not None else None
    words = waiting if not update.steps and update.last_step is None else "This log reports no memory."
    x, y = np.array(ranks), np.array([most[r] for r in ranks])
    return Figure("memory", title, unit, x, y, expected, waiting=words, axis="rank")


def _marks(watch: Watch, axis: str) -> tuple[Mark, ...]:
    return tuple(Mark(m.x, m.kind, m.text) for m in watch.marks(axis))


def _curve(other: Drawn, name: str, axis: str, scale: float) -> Curve:
    from gpt_tune.workflows.series import compare

    (found,) = compare([other], name, axis)
    return Curve(found.name, found.x, found.y * scale)
