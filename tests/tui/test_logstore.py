"""The store of a log view: rows and lines agree for every width, whatever is added and dropped."""

from __future__ import annotations

import random

import pytest

from tui.widgets.logstore import MAX_CHARACTERS, LogStore, shown

STEP = " iteration      120/    6141 | consumed samples:    960 | elapsed (ms): 9.5 | lm loss: 2.1 | grad norm: 1.6 |"


def mixed(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    kinds = ["", "short", "x" * 250, "模型训练" * 40, STEP, "  indented   and   padded " * 9]
    return [rng.choice(kinds) for _ in range(count)]


@pytest.mark.parametrize("width", [0, 1, 7, 40, 80, 200])
@pytest.mark.parametrize("wrap_all", [False, True])
def test_every_row_belongs_to_one_line_in_order(width: int, wrap_all: bool) -> None:
    store = LogStore(max_lines=150)
    store.lay_out(width, wrap_all)
    for seed in range(8):
        store.add(mixed(seed, 37))
    places = [store.at(row) for row in range(store.rows)]
    assert None not in places
    assert store.at(store.rows) is None
    assert store.at(-1) is None
    firsts = [place[0] for place in places if place is not None and place[1] == 0]
    assert firsts == list(range(len(store.lines)))
    for index in (0, 70, len(store.lines) - 1):
        row = store.row_of(index + store.dropped)
        assert row is not None
        assert store.at(row) == (index, 0)


def test_a_row_of_figures_takes_one_row_and_a_message_as_many_as_it_needs() -> None:
    store = LogStore()
    store.lay_out(40, False)
    store.add([STEP, "y" * 100])
    assert store.rows == 1 + 3
    store.lay_out(40, True)
    assert store.rows > 4


def test_rows_after_a_new_width_are_those_of_a_fresh_store() -> None:
    lines = mixed(3, 400)
    old, fresh = LogStore(100), LogStore(100)
    old.lay_out(30, False)
    old.add(lines)
    assert old.lay_out(64, False)
    assert not old.lay_out(64, False)
    fresh.lay_out(64, False)
    fresh.add(lines[-100:])
    assert [old.at(r) for r in range(old.rows)] == [fresh.at(r) for r in range(fresh.rows)]


def test_dropping_says_how_many_rows_went() -> None:
    store = LogStore(max_lines=3)
    store.lay_out(10, False)
    assert store.add(["a" * 25, "b", "c"]) == 0
    assert store.add(["d"]) == 3
    assert store.add(["e", "f"]) == 2
    assert store.dropped == 3


def test_long_lines_are_cut_and_padding_squeezed_but_not_indents() -> None:
    store = LogStore()
    store.add(["z" * 1_000_000])
    assert len(store.lines[0]) == MAX_CHARACTERS + 1
    assert shown("    a   b\x1b[31m") == "    a b\N{REPLACEMENT CHARACTER}[31m"


def test_find_goes_both_ways_and_stops_at_the_ends() -> None:
    store = LogStore(max_lines=10)
    store.add([f"line {i}" for i in range(20)])
    assert store.find("line 15", 19, -1) == 15
    assert store.find("line 15", 10, 1) == 15
    assert store.find("line 3", 19, -1) is None
    assert store.count("line") == 10
