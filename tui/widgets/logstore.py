"""Owns the lines of a log view, which of them are shown, and how many rows of the screen each takes. Pure, bounded.

Every line has a number that never changes: older ones that are loaded later count down from 0. Lines are hidden by a
filter, or because an earlier one says the same; the shown ones are `rows`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from gpt_tune.logs.lines import LineFacts, read_line, shown

MAX_LINES = 20_000
MAX_CHARACTERS = 4_000  # of one line; a 1 MB line would otherwise be measured at every frame
MAX_TEXT = 16_000_000  # characters held in all
TABLE_BARS = 2  # a line with so many "|" is a row of figures: one screen row each keeps the columns together


@dataclass(slots=True)
class Entry:
    """One line. cells: the width of what is shown of it. fold: which lines say the same (None: this one stands
    alone); words: how many do, so far."""

    facts: LineFacts
    cells: int
    source: str = ""
    fold: int | None = None
    words: str = ""
    wanted: bool = True

    @property
    def text(self) -> str:
        return self.facts.text


@dataclass(slots=True)
class Row:
    """A shown line: its number, and the words of those folded into it."""

    number: int
    words: str = ""
    folded: int = 0


def entry_of(text: str, source: str = "") -> Entry:
    """A line as the store holds it; one that never ends is cut."""
    text = text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"
    drawn = shown(text)
    return Entry(read_line(text), len(drawn) if drawn.isascii() else cell_len(drawn), source)


class LogStore:
    """The newest lines. `width` 0: one screen row a line."""

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self._max_lines = max_lines
        self.held: list[Entry] = []
        self.first = 0  # number of the oldest line held
        self.dropped = 0  # lines that were held once
        self.width = 0
        self.wrap_all = False
        self.folding = True
        self.folded = 0  # shown lines' repeats
        self.rows: list[Row] = []
        self._numbers: list[int] = []  # of the rows, for bisection
        self._starts: list[int] = []  # first screen row of each
        self._end = 0
        self._characters = 0
        self._by_fold: dict[int, int] = {}  # fold -> its row's number

    # --- content

    @property
    def end(self) -> int:
        """The number that the next line gets."""
        return self.first + len(self.held)

    def entry(self, number: int) -> Entry | None:
        at = number - self.first
        return self.held[at] if 0 <= at < len(self.held) else None

    def add(self, entries: Sequence[Entry]) -> int:
        """Append; the number of screen rows at the top that went out with old lines."""
        for entry in entries:
            number = self.end
            self.held.append(entry)
            self._characters += len(entry.text)
            self._show(number, entry)
        return self._trim()

    def prepend(self, entries: Sequence[Entry]) -> bool:
        """Put older lines before the oldest, as many as there is room for; whether all of them fitted."""
        room = max(self._max_lines - len(self.held), 0)
        kept = list(entries[-room:]) if room else []
        self.held[:0] = kept
        self.first -= len(kept)
        self._characters += sum(len(e.text) for e in kept)
        self.rebuild()
        return len(kept) == len(entries)

    def clear(self) -> None:
        self.first, self.dropped, self._characters = self.end, 0, 0
        self.held.clear()
        self.rebuild()

    def _trim(self) -> int:
        excess = max(len(self.held) - self._max_lines, 0)
        left = self._characters - sum(len(e.text) for e in self.held[:excess])
        while left > MAX_TEXT and excess < len(self.held) - 1:
            left -= len(self.held[excess].text)
            excess += 1
        if not excess:
            return 0
        before = self.first_row
        self._characters = left
        del self.held[:excess]
        self.first += excess
        self.dropped += excess
        gone = bisect_left(self._numbers, self.first)
        self.folded -= sum(row.folded for row in self.rows[:gone])
        del self.rows[:gone], self._numbers[:gone], self._starts[:gone]
        return self.first_row - before

    # --- what is shown

    def judge(self, wanted: Callable[[LineFacts], bool], judged: Sequence[bool] | None = None) -> None:
        """Show only lines that are wanted. judged: the answers for the oldest lines, where they are known."""
        known = len(judged) if judged is not None else 0
        for at, entry in enumerate(self.held):
            if judged is not None and at < known:
                entry.wanted = judged[at]
            else:
                entry.wanted = wanted(entry.facts)
        self.rebuild()

    def fold(self, on: bool) -> None:
        self.folding = on
        self.rebuild()

    def lay_out(self, width: int, wrap_all: bool) -> bool:
        """Count the rows anew for another width; False when nothing changed."""
        if (width, wrap_all) == (self.width, self.wrap_all):
            return False
        self.width, self.wrap_all = width, wrap_all
        self.rebuild()
        return True

    def rebuild(self) -> None:
        """Decide anew what is shown, and count its rows."""
        self.rows, self._numbers, self._starts = [], [], []
        self._end = self.folded = 0
        self._by_fold = {}
        for number, entry in enumerate(self.held, self.first):
            self._show(number, entry)

    def _show(self, number: int, entry: Entry) -> None:
        if not entry.wanted:
            return
        if self.folding and entry.fold is not None:
            into = self._by_fold.get(entry.fold)
            if into is not None and into >= self.first and self._grow(into, entry.words):
                return
            self._by_fold[entry.fold] = number
            if len(self._by_fold) > self._max_lines:
                self._by_fold = {f: n for f, n in self._by_fold.items() if n >= self.first}
        self.rows.append(Row(number))
        self._numbers.append(number)
        self._starts.append(self._end)
        self._end += self._height(entry, "")

    def _grow(self, number: int, words: str) -> bool:
        """One more line says what the row of this number says."""
        at = bisect_left(self._numbers, number)
        if at >= len(self.rows) or self._numbers[at] != number:
            return False
        row, entry = self.rows[at], self.held[number - self.first]
        more = self._height(entry, words) - self._height(entry, row.words)
        row.words = words
        row.folded += 1
        self.folded += 1
        if more:
            for later in range(at + 1, len(self._starts)):
                self._starts[later] += more
            self._end += more
        return True

    def _height(self, entry: Entry, words: str) -> int:
        cells = entry.cells + (len(words) + 3 if words else 0)
        if self.width <= 0 or cells <= self.width:
            return 1
        if not self.wrap_all and entry.text.count("|") >= TABLE_BARS:
            return 1
        return -(-cells // self.width)

    # --- places

    @property
    def first_row(self) -> int:
        return self._starts[0] if self._starts else self._end

    @property
    def height(self) -> int:
        """Screen rows of everything shown."""
        return self._end - self.first_row

    def at(self, screen_row: int) -> tuple[Row, int] | None:
        """(what is shown, which of its rows) at a row of the view; None below the end."""
        absolute = screen_row + self.first_row
        if not self._starts or absolute >= self._end or screen_row < 0:
            return None
        index = bisect_right(self._starts, absolute) - 1
        return self.rows[index], absolute - self._starts[index]

    def row_of(self, number: int) -> int | None:
        """The view's row of a line, or of the one it is folded into; None when it is not shown."""
        entry = self.entry(number)
        if entry is None or not entry.wanted:
            return None
        at = bisect_left(self._numbers, number)
        if at >= len(self.rows) or self._numbers[at] != number:
            number = self._by_fold.get(entry.fold, number) if entry.fold is not None else number
            at = bisect_left(self._numbers, number)
            if at >= len(self.rows) or self._numbers[at] != number:
                return None
        return self._starts[at] - self.first_row

    def near(self, number: int) -> int:
        """The view's row of a line, or of the next one that is shown."""
        row = self.row_of(number)
        if row is not None:
            return row
        at = bisect_left(self._numbers, number)
        return (self._starts[at] if at < len(self._starts) else self._end) - self.first_row

    def shown_entries(self, begin: int = 0, stop: int | None = None) -> list[Entry]:
        """What the view shows between two of its rows, each line once."""
        if not self._starts:
            return []
        first = max(bisect_right(self._starts, begin + self.first_row) - 1, 0)
        last = len(self.rows) if stop is None else bisect_left(self._starts, stop + self.first_row)
        return [self.held[row.number - self.first] for row in self.rows[first:last]]
