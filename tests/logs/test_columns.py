"""Packed columns give back exactly what was put in."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune.logs.columns import chunk_of, pack
from gpt_tune.logs.types import Step

PRINTED = st.one_of(
    st.none(),
    st.floats(allow_nan=True, allow_infinity=True),
    st.decimals(min_value=-10000, max_value=10**7, places=3, allow_nan=False).map(float),
    st.integers(-5, 2**40).map(float),
)


def same(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return (math.isnan(a) and math.isnan(b)) or a == b


@settings(max_examples=300, deadline=None)
@given(st.lists(PRINTED, min_size=1, max_size=60))
def test_round_trip(values: list[float | None]) -> None:
    missing = np.array([v is None for v in values])
    packed = pack(np.array([math.nan if v is None else v for v in values]), missing)
    assert packed.missing_mask().tolist() == missing.tolist()
    unpacked = packed.unpack().tolist()
    assert all(same(v, u) or v is None for v, u in zip(values, unpacked))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(PRINTED, PRINTED, st.one_of(st.none(), st.integers(0, 2**31))), min_size=1, max_size=30
    )
)
def test_steps_come_back(rows: list[tuple[float | None, float | None, int | None]]) -> None:
    steps = [
        Step(
            10 * i, loss=loss, grad_norm=norm, skipped=skipped, logged_tflops_kind="model" if i % 3 else None
        )
        for i, (loss, norm, skipped) in enumerate(rows)
    ]
    again = list(chunk_of(steps).steps(4))
    assert [s.iteration for s in again] == [s.iteration for s in steps]
    for was, now in zip(steps, again):
        assert now.segment == 4
        assert (now.skipped, now.logged_tflops_kind) == (was.skipped, was.logged_tflops_kind)
        assert same(was.loss, now.loss)
        assert same(was.grad_norm, now.grad_norm)


def test_printed_figures_take_little_room() -> None:
    count = 4096
    steps = [
        Step(
            i,
            step_time_ms=3700 + (i % 97) / 10,
            loss=round(2 + (i % 1000) / 997, 6),
            learning_rate=1e-4,
            skipped=0,
            nan=0,
        )
        for i in range(count)
    ]
    chunk = chunk_of(steps)
    packed = [*chunk.columns.values(), chunk.iterations]
    size = sum(0 if c.data is None else c.data.nbytes for c in packed)
    assert size <= 10 * count
