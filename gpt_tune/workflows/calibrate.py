"""Owns calibrating a cluster: constants fitted to its ended runs, held near the shipped ones while runs are few.

A fit must earn its place: where there are runs of two layouts or more, each layout is predicted from the others,
and constants that do not predict clearly better than the shipped ones are thrown away. The runs then still say how
far off predictions are on this cluster.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_tune import calibration, memory
from gpt_tune.calibration import Calibration
from gpt_tune.errors import UserError
from gpt_tune.layouts.layout import Trainer
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.memory.fit import error_of
from gpt_tune.memory.uncertainty import ERROR, spread, surprise_of
from gpt_tune.timing.constants import value
from gpt_tune.timing.fitting import Predictor, fit_constants, with_constants
from gpt_tune.workflows.leave_out import width_90
from gpt_tune.workflows.lessons import Lesson, lessons_of

Floats = NDArray[np.float64]
SCHEMA = "gpt-tune/calibrate/1"
# So many layouts pull as hard as the shipped constants do.
HALF_WAY_SCALE, HALF_WAY_TIME, HALF_WAY_MEMORY = 1.0, 2.0, 3.0
# A fit of one layout has to bring predictions nearer by this much (relative), of n layouts by a share
# of it, 1 over the root of n: repeats of a run differ by 2 to 5 %, and layouts by more.
NOISE = 0.06
# The shipped constants are believed while one layout is no further off than this, n layouts than this over the root
# of n: ten jobs on an H200, of whose cluster the shipped ones are, were 4 % off, and three of them 6 %.
TELLING = 0.12
# A constant that moved less than this (natural-log units) is left at the shipped value.
_WORTH_STATING = 0.002
_SMALLEST_SHIFT_GIB = 0.05


@dataclass(frozen=True, slots=True)
class Figure:
    """Mean absolute relative error of the runs: with the shipped constants, and with the new ones (blind where
    there are layouts to leave out)."""

    rows: int
    before: float
    after: float
    kept: bool  # whether the new constants are used


@dataclass(frozen=True, slots=True)
class Part:
    """What was fitted for one trainer on one GPU type."""

    trainer: str
    gpu: str
    layouts: int
    time: Figure
    memory: Figure | None
    constants: Mapping[str, float]
    memory_constants: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The outcome: the calibration to save, and how it came about."""

    cluster: str
    calibration: Calibration
    parts: tuple[Part, ...]
    run_ids: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


def calibrate(
    ledger: Ledger, cluster: str | None = None, nodes: int | None = None, today: datetime.date | None = None
) -> Calibrated:
    """Constants for a cluster from its ended runs (on `nodes` nodes only, if given). Nothing is saved."""
    name = cluster or _only_cluster(ledger)
    records = [r for r in ledger.runs() if r.cluster == name and (nodes is None or r.nodes == nodes)]
    lessons, skipped = lessons_of(records)
    if not lessons:
        raise UserError(_nothing(name, nodes, records, skipped), "Run a plan there first: `gpt-tune submit`.")
    day = today or datetime.datetime.now(datetime.timezone.utc).date()
    return calibrate_with(name, lessons, skipped, day)


def calibrate_with(
    cluster: str, lessons: Sequence[Lesson], skipped: Sequence[tuple[str, str]], today: datetime.date
) -> Calibrated:
    """Constants from these runs of a cluster."""
    groups: dict[tuple[str, Trainer | str], list[Lesson]] = {}
    for lesson in lessons:
        variant = f"{lesson.trainer.name}@{lesson.trainer.version or ''}"
        groups.setdefault((lesson.node.gpu.id, variant), []).append(lesson)
    parts = tuple(_part(cluster, group) for group in groups.values())
    mine = Calibration(
        name=cluster,
        source=f"{len(lessons)} runs of this cluster, by gpt-tune calibrate",
        fitted_at=today.isoformat(),
        memory={k: v for part in parts for k, v in part.memory_constants.items()},
        timing={k: v for part in parts for k, v in part.constants.items()},
        memory_error=_mean([p.memory for p in parts if p.memory is not None]),
        memory_rows=sum(p.memory.rows for p in parts if p.memory is not None),
        time_error=_mean([p.time for p in parts]),
        time_rows=sum(p.time.rows for p in parts),
    )
    return Calibrated(cluster, mine, parts, tuple(x.run_id for x in lessons), tuple(skipped))


def to_json(result: Calibrated, path: str | None) -> dict[str, Any]:
    """The object `gpt-tune calibrate --json` prints; path: where it was saved."""

    def figure(one: Figure | None) -> dict[str, Any] | None:
        if one is None:
            return None
        return {"rows": one.rows, "before": one.before, "after": one.after, "kept": one.kept}

    return {
        "schema": SCHEMA,
        "cluster": result.cluster,
        "path": path,
        "fitted_at": result.calibration.fitted_at,
        "runs": list(result.run_ids),
        "skipped": [{"run_id": name, "reason": reason} for name, reason in result.skipped],
        "calibrate": [
            {
                "trainer": part.trainer,
                "gpu": part.gpu,
                "layouts": part.layouts,
                "time": figure(part.time),
                "memory": figure(part.memory),
                "constants": dict(part.constants),
                "memory_constants": dict(part.memory_constants),
            }
            for part in result.parts
        ],
    }


def _only_cluster(ledger: Ledger) -> str:
    names = sorted({record.cluster for record in ledger.runs() if record.phase == "ended"})
    if len(names) == 1:
        return names[0]
    if not names:
        raise UserError("No run has ended yet.", "Submit one first; `gpt-tune plan` needs no calibration.")
    raise UserError(f"There are ended runs on {', '.join(names)}.", f"Say which: --cluster {names[0]}.")


def _nothing(
    name: str, nodes: int | None, records: Sequence[RunRecord], skipped: Sequence[tuple[str, str]]
) -> str:
    where = name if nodes is None else f"{name} on {nodes} node{'s' if nodes != 1 else ''}"
    if not records:
        return f"There is no run on {where}."
    run, reason = skipped[0]
    return f"None of the {len(records)} runs on {where} can be learnt from; {run}: {reason}"


def _mean(figures: Sequence[Figure]) -> float | None:
    rows = sum(f.rows for f in figures)
    if not rows:
        return None
    return sum(f.rows * (f.after if f.kept else f.before) for f in figures) / rows


def _part(cluster: str, lessons: Sequence[Lesson]) -> Part:
    first = lessons[0]
    shipped = calibration.shipped(first.node, cluster)
    layouts = len({lesson.key for lesson in lessons})
    time, constants = _time(lessons, shipped)
    prefix = f"{first.trainer.name}@{first.trainer.version}" if first.trainer.version else first.trainer.name
    memory_figure, memory_constants = _memory(lessons, shipped)
    return Part(
        trainer=prefix,
        gpu=first.node.gpu.id,
        layouts=layouts,
        time=time,
        memory=memory_figure,
        constants={f"{prefix}.{name}": x for name, x in constants.items()},
        memory_constants=memory_constants,
    )


def _time(lessons: Sequence[Lesson], shipped: Calibration) -> tuple[Figure, dict[str, float]]:
    before = _time_errors(lessons, shipped, {})
    blind = np.zeros(len(lessons))
    keys = [lesson.key for lesson in lessons]
    several = len(set(keys)) > 1
    for key in dict.fromkeys(keys):
        others = [x for x, k in zip(lessons, keys) if k != key]
        rows = [i for i, k in enumerate(keys) if k == key]
        constants = _fit(others if several else lessons, shipped)
        blind[rows] = _time_errors([lessons[i] for i in rows], shipped, constants)
    old, new = float(np.mean(np.expm1(np.abs(before)))), float(np.mean(np.expm1(np.abs(blind))))
    kept = _clearly_better(old, new, len(set(keys)))
    found = _fit(lessons, shipped) if kept else {}
    if several and kept:
        found["width_90"] = _width(lessons, shipped, np.abs(blind))
    return Figure(len(lessons), old, new, kept), found


def _width(lessons: Sequence[Lesson], shipped: Calibration, errors: Floats) -> float:
    """The interval's width; from few runs no narrower than the shipped one."""
    width = width_90(errors)
    known = value("width_90", lessons[0].node.gpu, lessons[0].trainer, shipped)
    share = _share(lessons, HALF_WAY_TIME)
    return max(width, (1.0 - share) * known)


def _fit(lessons: Sequence[Lesson], shipped: Calibration) -> dict[str, float]:
    """One scale first, in which clusters mostly differ, then constants between the scaled ones and their fit.

    Both go the further the more layouts there are.
    """
    gpu, trainer = lessons[0].node.gpu, lessons[0].trainer
    known = value("scale", gpu, trainer, shipped)
    off = float(np.median(_time_errors(lessons, shipped, {})))
    scale = float(f"{known * math.exp(-_share(lessons, HALF_WAY_SCALE) * off):.4g}")
    scaled = with_constants(shipped, trainer, {"scale": scale})
    found = fit_constants([lesson.measured for lesson in lessons], known_before=scaled)
    share = _share(lessons, HALF_WAY_TIME)
    held = {"scale": scale} if abs(math.log(scale / known)) > _WORTH_STATING else {}
    for name, x in found.items():
        prior = value(name, gpu, trainer, shipped)
        moved = share * math.log(x / prior)
        if abs(moved) > _WORTH_STATING:
            held[name] = float(f"{prior * math.exp(moved):.4g}")
    return held


def _share(lessons: Sequence[Lesson], half_way: float) -> float:
    layouts = len({lesson.key for lesson in lessons})
    return layouts / (layouts + half_way)


def _time_errors(lessons: Sequence[Lesson], shipped: Calibration, constants: Mapping[str, float]) -> Floats:
    """log(predicted / measured) of each run."""
    changed = with_constants(shipped, lessons[0].trainer, constants)
    seconds = Predictor([lesson.measured for lesson in lessons]).seconds(changed)
    return np.asarray(np.log(seconds / np.array([lesson.seconds for lesson in lessons])))


def _memory(lessons: Sequence[Lesson], shipped: Calibration) -> tuple[Figure | None, dict[str, float]]:
    """The additive constant and the spread, from what ranks reserved."""
    stated = [lesson for lesson in lessons if lesson.reserved_gib]
    if not stated:
        return None, {}
    trainer = stated[0].trainer.name
    found = [memory.estimate(x.model, x.node, x.trainer, x.layout, x.seq_length, shipped) for x in stated]
    measured = np.array([x.reserved_gib or 0.0 for x in stated])
    predicted = np.array([e.reserved_gib for e in found])
    surprise = np.array([surprise_of(e) for e in found])
    keys = [lesson.key for lesson in stated]
    shifts = np.zeros(len(stated))
    for i, key in enumerate(keys):
        others = [j for j, k in enumerate(keys) if k != key] or [i]
        shifts[i] = _shift(measured[others] - predicted[others], [stated[j] for j in others])
    old = float(np.mean(np.abs(predicted / measured - 1.0)))
    new = float(np.mean(np.abs((predicted + shifts) / measured - 1.0)))
    kept = _clearly_better(old, new, len(set(keys)))
    shift = _shift(measured - predicted, stated) if kept else 0.0
    constants = {}
    if abs(shift) >= _SMALLEST_SHIFT_GIB:
        # On top of what the shipped calibration of this cluster adds already.
        known = memory.constants.value(shipped, "cluster_gib", trainer)
        constants[f"{trainer}.cluster_gib"] = round(known + shift, 3)
    blind = predicted + (shifts if kept else 0.0)
    error = error_of(measured, blind, surprise)
    share = _share(stated, HALF_WAY_MEMORY)
    constants[f"{trainer}.{ERROR}"] = round(max(error, (1.0 - share) * spread(shipped, trainer)), 4)
    return Figure(len(stated), old, new, kept), constants


def _clearly_better(old: float, new: float, layouts: int) -> bool:
    """Whether the shipped constants are far enough off, and the fit near enough, to be used."""
    root = math.sqrt(layouts)
    return old > TELLING / root and old - new > NOISE / root


def _shift(residuals: Floats, lessons: Sequence[Lesson]) -> float:
    return _share(lessons, HALF_WAY_MEMORY) * float(np.median(residuals))


def changed_calibration(result: Calibrated, before: Calibration) -> Calibration:
    """The calibration as predictions will see it once saved."""
    return replace(
        before,
        timing={**before.timing, **result.calibration.timing},
        memory={**before.memory, **result.calibration.memory},
    )
