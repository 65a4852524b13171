"""Owns testing that distinct rows are found, each once, and every row points at its own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpt_tune.timing.distinct import FEW, distinct

values = st.one_of(st.integers(0, 5), st.integers(-3, 3), st.sampled_from([1, 2**20, 2**40]))
tables = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=90)
)


@given(tables)
def test_rows_are_found_once_and_pointed_at(rows: list[list[int]]) -> None:
    table: NDArray[np.int64] = np.array(rows, dtype=np.int64)
    known, index = distinct([table[:, i] for i in range(table.shape[1])])
    unique = np.stack(known, axis=1)
    assert (unique[index] == table).all()
    assert len(unique) == (len({tuple(row) for row in rows}) if len(rows) > FEW else len(rows))


def test_many_columns_of_many_values_do_not_overflow_memory() -> None:
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, 10_000, 500) for _ in range(4)]
    known, index = distinct(columns)
    for column, found in zip(columns, known):
        assert (found[index] == column).all()
