"""The store of a log view: rows and lines agree for every width, filter and fold, whatever is added and dropped."""

from __future__ import annotations

import random

import pytest

from gpt_tune.logs.lines import shown
from tui.widgets import logstore
from tui.widgets.logfind import Finder
from tui.widgets.logline import marked
from tui.widgets.logstore import MAX_CHARACTERS, Entry, LogStore, entry_of

STEP = " iteration      120/    6141 | consumed samples:    960 | elapsed (ms): 9.5 | lm loss: 2.1 | grad norm: 1.6 |"


def mixed(seed: int, count: int) -> list[Entry]:
    """Lines of all kinds; some fold into one another, some are not wanted."""
    rng = random.Random(seed)
    kinds = [
        "",
        "Error: it broke",
        "[WARNING] slow " * 9,
        "short",
        "x" * 250,
        "模型训练" * 40,
        STEP,
        "  indented   and   padded " * 9,
    ]
    entries = [entry_of(rng.choice(kinds)) for _ in range(count)]
    for at, entry in enumerate(entries):
        if rng.random() < 0.3:
            entry.fold, entry.words = rng.randrange(5), f"repeated {at} times"
        entry.wanted = rng.random() < 0.8
    return entries


def entries(*lines: str) -> list[Entry]:
    return [entry_of(line) for line in lines]


@pytest.mark.parametrize("width", [0, 1, 7, 40, 80, 200])
@pytest.mark.parametrize("wrap_all", [False, True])
@pytest.mark.parametrize("folding", [False, True])
def test_every_row_belongs_to_one_shown_line_in_order(width: int, wrap_all: bool, folding: bool) -> None:
    store = LogStore(max_lines=150)
    store.lay_out(width, wrap_all)
    store.fold(folding)
    for seed in range(8):
        store.add(mixed(seed, 37))
    places = [store.at(row) for row in range(store.height)]
    assert None not in places
    assert store.at(store.height) is None
    assert store.at(-1) is None
    firsts = [place[0].number for place in places if place is not None and place[1] == 0]
    assert firsts == [row.number for row in store.rows]
    store.rebuild()  # repeats of a line that is no longer held are not shown until then
    wanted = sum(entry.wanted for entry in store.held)
    assert len(store.rows) + store.folded == wanted if folding else len(store.rows) == wanted
    for row in (store.rows[0], store.rows[len(store.rows) // 2], store.rows[-1]):
        place = store.row_of(row.number)
        assert place is not None
        assert store.at(place) == (row, 0)


def test_rows_that_grew_are_those_of_a_store_built_anew() -> None:
    store = LogStore(max_lines=150)
    store.lay_out(30, True)
    for seed in range(8):
        store.add(mixed(seed, 18))
    before = [(store.at(r)) for r in range(store.height)]
    folded = store.folded
    store.rebuild()
    assert [store.at(r) for r in range(store.height)] == before
    assert store.folded == folded > 0


def test_a_row_of_figures_takes_one_row_and_a_message_as_many_as_it_needs() -> None:
    store = LogStore()
    store.lay_out(40, False)
    store.add(entries(STEP, "y" * 100))
    assert store.height == 1 + 3
    store.lay_out(40, True)
    assert store.height > 4


def test_rows_after_a_new_width_are_those_of_a_fresh_store() -> None:
    old, fresh = LogStore(100), LogStore(400)
    old.lay_out(30, False)
    old.add(mixed(3, 400))
    assert old.lay_out(64, False)
    assert not old.lay_out(64, False)
    fresh.lay_out(64, False)
    fresh.add(list(old.held))
    heights = [[store.at(r)[1] for r in range(store.height)] for store in (old, fresh)]  # type: ignore[index]
    assert heights[0] == heights[1]


def test_dropping_says_how_many_rows_went() -> None:
    store = LogStore(max_lines=3)
    store.lay_out(10, False)
    assert store.add(entries("a" * 25, "b", "c")) == 0
    assert store.add(entries("d")) == 3
    assert store.add(entries("e", "f")) == 2
    assert store.dropped == 3


def test_dropped_lines_cannot_be_folded_into() -> None:
    store = LogStore(max_lines=2)
    for number in range(5):
        entry = entry_of("same")
        entry.fold, entry.words = 1, f"repeated {number + 1} times"
        store.add([entry, entry_of(f"other {number}")])
    assert [held_text(store, row.number) for row in store.rows] == ["same", "other 4"]


def test_long_lines_are_cut_and_the_whole_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    store = LogStore()
    store.add(entries("z" * 1_000_000))
    assert len(store.held[0].text) == MAX_CHARACTERS + 1
    monkeypatch.setattr(logstore, "MAX_TEXT", 20_000)
    store.add(entries(*["y" * 3000] * 50))
    assert sum(len(entry.text) for entry in store.held) <= 20_000
    assert store.dropped == 51 - len(store.held)


def test_older_lines_count_down_and_keep_the_newer_numbers() -> None:
    store = LogStore(max_lines=10)
    store.add(entries("a", "b"))
    assert store.prepend(entries("x", "y", "z"))
    assert store.first == -3
    assert store.entry(0) is not None
    assert store.entry(0).text == "a"  # type: ignore[union-attr]
    assert not store.prepend(entries(*"mnopqrst"))
    assert len(store.held) == 10
    assert [e.text for e in store.held][:5] == list("pqrst")


def test_find_goes_both_ways_and_stops_at_the_ends() -> None:
    store, finder = LogStore(max_lines=10), Finder()
    store.add(entries(*[f"line {i}" for i in range(20)]))
    finder.begin("LINE 1", store)
    assert finder.matches == list(range(10, 20))
    assert finder.step(-1) == 19
    assert finder.words == "10 of 10"
    assert finder.step(1) is None
    assert finder.step(-1) == 18
    store.add(entries("line 1 again", "other"))
    finder.more(store)
    assert finder.matches == [*range(12, 21)]
    finder.begin("nothing", store)
    assert finder.step(1) is None


def test_marks_reach_over_what_is_coloured_differently() -> None:
    spans = [("[rank1]: ", "muted"), ("error here, error there", "bad")]
    assert marked(spans, ": error") == [
        ("[rank1]", "muted"),
        (": ", "match"),
        ("", "muted"),
        ("", "bad"),
        ("error", "match"),
        (" here, error there", "bad"),
    ]
    assert "".join(t for t, r in marked(spans, "error") if r == "match") == "errorerror"
    assert marked(spans, "nowhere") == spans


def test_what_is_shown_is_harmless_and_squeezed_but_not_indents() -> None:
    assert shown("    a   b\x1b[31m") == "    a b\N{REPLACEMENT CHARACTER}[31m"


def held_text(store: LogStore, number: int) -> str:
    entry = store.entry(number)
    assert entry is not None
    return entry.text


def test_warnings_and_errors_stay_when_old_lines_go() -> None:
    store = LogStore(max_lines=100)
    for i in range(1000):
        text = f"Error: {i}" if i % 50 == 3 else f"[WARNING] {i}" if i % 70 == 5 else f"line {i}"
        store.add(entries(text))
    wanted = [i for i in range(900) if i % 50 == 3 or i % 70 == 5]
    assert store.numbers == [*wanted, *range(900, 1000)]
    assert store.dropped == 900 - len(wanted)
    assert [held_text(store, n).split()[-1] for n in store.numbers] == [str(n) for n in store.numbers]
    store.judge(lambda facts: facts.level == "error")
    assert [row.number for row in store.rows] == [i for i in range(1000) if i % 50 == 3]
    assert store.row_of(53) == 1
    store.judge(lambda facts: True, dict.fromkeys(store.numbers[:-10], False))
    assert [row.number for row in store.rows] == list(range(990, 1000))


@pytest.mark.parametrize("width", [0, 9, 40])
@pytest.mark.parametrize("narrow", [False, True])
def test_rows_keep_their_places_when_errors_stay_behind(width: int, narrow: bool) -> None:
    """What went out at the top is what the height lost, and the newest lines are where a new count puts them."""
    store = LogStore(max_lines=60)
    store.lay_out(width, True)
    rng = random.Random(5)
    for _ in range(40):
        some = mixed(rng.randrange(1000), 17)
        for entry in some:
            entry.fold = None
            entry.wanted = not narrow or entry.alarms
        end = store.first_row + store.height
        gone = store.add(some)
        added = sum(store._height(e, e.place) for e in some if e.wanted)
        assert store.first_row + store.height == end + added
        assert gone >= 0
        rows, starts = [r.number for r in store.rows], [s - store.first_row for s in store._starts]
        height = store.height
        store.rebuild()
        assert ([r.number for r in store.rows], [s - store.first_row for s in store._starts]) == (
            rows,
            starts,
        )
        assert store.height == height


def test_endless_errors_are_bounded_and_the_first_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logstore, "MAX_ALARMS", 40)
    store = LogStore(max_lines=100)
    store.add(entries(*(f"Error: {i}" for i in range(500))))
    assert len(store.held) == 140
    assert held_text(store, 0) == "Error: 0"
    assert store.entry(399) is not None
    assert store.entry(200) is None


def test_a_line_behind_a_gap_says_where_it_stands() -> None:
    store = LogStore()
    store.add([entry_of("Error: far away", "job.out", 12_345), *entries("next")])
    assert [row.words for row in store.rows] == ["line 12,345", ""]


def test_a_search_forgets_lines_that_went_and_keeps_errors() -> None:
    store, finder = LogStore(max_lines=10), Finder()
    store.add(entries("Error: wanted", "wanted", "other"))
    finder.begin("wanted", store)
    assert finder.matches == [0, 1]
    store.add(entries(*(f"line {i}" for i in range(20))))
    finder.more(store)
    assert finder.matches == [0]
