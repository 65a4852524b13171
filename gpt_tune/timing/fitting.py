"""Owns which constants of step time a fit may move, how far, and fitting them to measured steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpt_tune.calibration.constants import Calibration
from gpt_tune.calibration.fit import Free, Residuals, fit
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Fusions, Layout, Trainer
from gpt_tune.models.shape import ModelShape
from gpt_tune.timing.constants import value
from gpt_tune.timing.step import parts, total

Floats = NDArray[np.float64]

# name: (spread of the prior in natural-log units, least, most). The prior itself is the default.
# Rates of one GPU type differ little between clusters; latencies, hosts and networks differ a lot.
MOVABLE: Mapping[str, tuple[float, float, float]] = {
    # 1.0 is the best matrix product ever measured on that GPU.
    "gemm_fraction": (0.10, 0.3, 1.0),
    "fp8_speedup": (0.15, 1.0, 2.0),
    "attention_fraction": (0.25, 0.1, 1.2),
    "memory_fraction": (0.15, 0.3, 0.95),
    "wave_tail": (0.5, 0.01, 2.0),
    "gap_us": (0.5, 0.5, 50.0),
    "host_us": (1.0, 1.0, 1000.0),
    "tensor_us": (1.0, 1.0, 1000.0),
    "step_ms": (0.5, 0.5, 2000.0),
    "intra_fraction": (0.25, 0.05, 0.95),
    # With the default fraction, 1.33 is the wire rate: no pair is faster.
    "intra_pair": (0.7, 0.1, 1.33),
    "intra_us": (1.0, 1.0, 1000.0),
    "inter_fraction": (0.4, 0.05, 1.2),
    "overlap": (0.2, 0.01, 1.0),
    "tensor_overlap": (0.5, 0.01, 0.95),
    "jitter": (1.0, 1e-5, 0.05),
}
# A constant that moves no run's time by this much (relative) for a change of 1 % is not fitted.
_LEAST_EFFECT = 1e-5


@dataclass(frozen=True, slots=True)
class Measured:
    """A step time to fit to."""

    model: ModelShape
    node: Node
    trainer: Trainer
    layout: Layout
    seq_length: int
    seconds: float
    weight: float = 1.0


class Predictor:
    """Predicts many measured runs at once; those that share a model and trainer go as one batch."""

    def __init__(self, runs: Sequence[Measured]) -> None:
        groups: dict[tuple[ModelShape, Node, Trainer, Fusions], list[int]] = {}
        for i, run in enumerate(runs):
            # The default length plays no part: the run's own counts.
            key = (replace(run.model, seq_length=1), run.node, run.trainer, run.layout.fusions)
            groups.setdefault(key, []).append(i)
        self._groups = [
            (
                key,
                np.asarray(rows),
                LayoutBatch.of([runs[i].layout for i in rows]),
                np.array([runs[i].seq_length for i in rows], dtype=np.int64),
            )
            for key, rows in groups.items()
        ]
        self._count = len(runs)

    def seconds(self, calibration: Calibration | None) -> Floats:
        return self.seconds_and_host(calibration)[0]

    def seconds_and_host(self, calibration: Calibration | None) -> tuple[Floats, Floats]:
        """Seconds of each run, and the share of them spent waiting for the host (`other`)."""
        seconds, host = np.zeros(self._count), np.zeros(self._count)
        for (model, node, trainer, _), rows, batch, lengths in self._groups:
            columns = parts(model, node, trainer, batch, lengths, calibration)
            seconds[rows] = total(columns)
            host[rows] = columns["other"]
        return seconds, host / seconds


def fit_constants(
    runs: Sequence[Measured],
    base: Mapping[str, float] | None = None,
    start: Mapping[str, float] | None = None,
    known_before: Calibration | None = None,
) -> dict[str, float]:
    """Constants (unprefixed names) fitted to these runs of one cluster and trainer.

    start: where to begin, when most of the runs were fitted before; the priors stay what they are.
    base: constants that are known facts of the cluster and not fitted. Those without effect on these runs
    are left out. known_before: the calibration to start from and to be held near, instead of the defaults.
    """
    if not runs:
        return {}
    known = dict(base or {})
    predictor = Predictor(runs)
    measured = np.log(np.array([run.seconds for run in runs]))
    weights = np.array([run.weight for run in runs])

    def residuals(constants: Mapping[str, float]) -> Floats:
        calibration = with_constants(known_before, runs[0].trainer, {**known, **constants})
        result: Floats = np.log(predictor.seconds(calibration)) - measured
        return result

    free = [f for f in _free(runs[0], known, known_before) if _matters(f, residuals)]
    return fit(residuals, free, weights, start)


def with_constants(
    before: Calibration | None, trainer: Trainer, constants: Mapping[str, float]
) -> Calibration:
    """A calibration with these constants for this trainer (bare where there was none before)."""
    if before is None:
        return Calibration(timing=constants)
    prefix = f"{trainer.name}@{trainer.version}" if trainer.version else trainer.name
    return replace(before, timing={**before.timing, **{f"{prefix}.{n}": x for n, x in constants.items()}})


def _free(run: Measured, known: Mapping[str, float], before: Calibration | None) -> list[Free]:
    gpu, trainer = run.node.gpu, run.trainer
    priors = {name: value(name, gpu, trainer, before) for name in MOVABLE if name not in known}
    return [_held(name, prior) for name, prior in priors.items() if prior > 0]


def _held(name: str, prior: float) -> Free:
    """The constant with its spread and limits, which a calibration may already stand on or beyond."""
    spread, low, high = MOVABLE[name]
    return Free(name, prior, spread, min(low, prior), max(high, prior))


def _matters(free: Free, residuals: Residuals) -> bool:
    """Whether the constant changes any run's time noticeably."""
    low = residuals({free.name: free.prior})
    high = residuals({free.name: free.prior * 1.01})
    return bool(np.max(np.abs(high - low)) > _LEAST_EFFECT)
