"""Owns the lines of a log view, which of them are shown, and how many rows of the screen each takes. Pure, bounded.

Every line has a number that never changes: older ones that are loaded later count down from 0. Lines are hidden by a
filter, or because an earlier one says the same; the shown ones are `rows`. Old lines are let go, but warnings and
errors stay: a filter must find all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rich.cells import cell_len

from gpt_tune.logs.lines import LineFacts, read_line, shown

MAX_LINES = 20_000
MAX_ALARMS = 20_000  # warnings and errors kept of lines that were let go
MAX_CHARACTERS = 4_000  # of one line; a 1 MB line would otherwise be measured at every frame
MAX_TEXT = 16_000_000  # characters held in all
TABLE_BARS = 2  # a line with so many "|" is a row of figures: one screen row each keeps the columns together


@dataclass(slots=True)
class Entry:
    """One line. cells: the width of what is shown of it. fold: which lines say the same (None: this one stands
    alone); words: how many do, so far. line: its number in its file, told where lines before it are left out."""

    facts: LineFacts
    cells: int
    source: str = ""
    fold: int | None = None
    words: str = ""
    wanted: bool = True
    line: int | None = None

    @property
    def alarms(self) -> bool:
        """Whether it says that it is a warning or an error."""
        return self.facts.level in ("warning", "error")

    @property
    def place(self) -> str:
        """`line 12,345`; empty where nothing is left out."""
        return "" if self.line is None else f"line {self.line:,}"

    @property
    def text(self) -> str:
        return self.facts.text


@dataclass(slots=True)
class Row:
    """A shown line: its number, and the words of those folded into it."""

    number: int
    words: str = ""
    folded: int = 0


def entry_of(text: str, source: str = "", line: int | None = None) -> Entry:
    """A line as the store holds it; one that never ends is cut. line: its number, where it is to be told."""
    text = text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"
    drawn = shown(text)
    return Entry(read_line(text), len(drawn) if drawn.isascii() else cell_len(drawn), source, line=line)


class LogStore:
    """The newest lines. `width` 0: one screen row a line."""

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self._max_lines = max_lines
        self.held: list[Entry] = []
        self.numbers: list[int] = []  # of the lines held, rising
        self.end = 0  # the number that the next line gets
        self.kept = 0  # lines at the beginning that are only held because they are warnings and errors
        self.dropped = 0  # lines that were held once
        self.width = 0
        self.wrap_all = False
        self.folding = True
        self.folded = 0  # shown lines' repeats
        self.rows: list[Row] = []
        self._row_numbers: list[int] = []  # for bisection
        self._starts: list[int] = []  # first screen row of each
        self._end = 0
        self._characters = 0
        self._by_fold: dict[int, int] = {}  # fold -> its row's number

    # --- content

    @property
    def first(self) -> int:
        """The number of the oldest line held."""
        return self.numbers[0] if self.numbers else self.end

    def index_of(self, number: int) -> int | None:
        """Where a line stands among those held."""
        at = bisect_left(self.numbers, number)
        return at if at < len(self.numbers) and self.numbers[at] == number else None

    def entry(self, number: int) -> Entry | None:
        at = self.index_of(number)
        return None if at is None else self.held[at]

    def add(self, entries: Sequence[Entry]) -> int:
        """Append; the number of screen rows at the top that went out with old lines."""
        for entry in entries:
            self.held.append(entry)
            self.numbers.append(self.end)
            self._characters += len(entry.text)
            self._show(self.end, entry)
            self.end += 1
        return self._trim()

    def prepend(self, entries: Sequence[Entry]) -> bool:
        """Put older lines before the oldest, as many as there is room for; whether all of them fitted."""
        room = max(self._max_lines - len(self.held), 0)
        kept = list(entries[-room:]) if room else []
        self.numbers[:0] = range(self.first - len(kept), self.first)
        self.held[:0] = kept
        self._characters += sum(len(e.text) for e in kept)
        self.rebuild()
        return len(kept) == len(entries)

    def clear(self) -> None:
        self.dropped = self._characters = self.kept = 0
        self.held.clear()
        self.numbers.clear()
        self.rebuild()

    def _trim(self) -> int:
        """Lets old lines go, all but warnings and errors; of endless ones the first half and the newest stay."""
        excess = max(len(self.held) - self.kept - self._max_lines, 0)
        left = self._characters - sum(len(e.text) for e in self.held[self.kept : self.kept + excess])
        while left > MAX_TEXT and self.kept + excess < len(self.held) - 1:
            left -= len(self.held[self.kept + excess].text)
            excess += 1
        if not excess:
            return 0
        old = range(self.kept, self.kept + excess)
        stay = [at for at in old if self.held[at].alarms]
        most = min(MAX_ALARMS, max(self._max_lines, 1))
        too_many = max(self.kept + len(stay) - most, 0)
        staying = [*range(self.kept), *stay]
        del staying[most // 2 : most // 2 + too_many]
        while staying and left + sum(len(self.held[at].text) for at in staying) > 2 * MAX_TEXT:
            del staying[len(staying) // 2 :]
        return self._let_go(self.kept + excess, staying)

    def _let_go(self, stop: int, staying: Sequence[int]) -> int:
        """Holds, of the first `stop` lines, only those at these places; rows that went out."""
        before = self.first_row
        kept_numbers = [self.numbers[at] for at in staying]
        last = self.numbers[stop - 1]
        self._characters -= sum(len(e.text) for e in self.held[:stop])
        self.held[:stop] = [self.held[at] for at in staying]
        self.numbers[:stop] = kept_numbers
        self._characters += sum(len(e.text) for e in self.held[: len(staying)])
        self.dropped += stop - len(staying)
        self.kept = len(staying)
        old = bisect_right(self._row_numbers, last)
        there = set(kept_numbers)
        rows = [(at, row) for at, row in enumerate(self.rows[:old]) if row.number in there]
        self.folded -= sum(row.folded for row in self.rows[:old]) - sum(row.folded for _, row in rows)
        # What stays ends where the others begin, so that these keep their places.
        ends = [*self._starts[1 : old + 1], self._end][:old]
        heights = [ends[at] - self._starts[at] for at, _ in rows]
        start = (self._starts[old] if old < len(self._starts) else self._end) - sum(heights)
        starts = [start + sum_ for sum_ in accumulate(heights, initial=0)][: len(rows)]
        self.rows[:old] = [row for _, row in rows]
        self._row_numbers[:old] = [row.number for _, row in rows]
        self._starts[:old] = starts
        return self.first_row - before

    # --- what is shown

    def judge(self, wanted: Callable[[LineFacts], bool], judged: Mapping[int, bool] | None = None) -> None:
        """Show only lines that are wanted. judged: the answers for lines by their number, where they are known."""
        for number, entry in zip(self.numbers, self.held):
            known = judged.get(number) if judged is not None else None
            entry.wanted = wanted(entry.facts) if known is None else known
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
        self.rows, self._row_numbers, self._starts = [], [], []
        self._end = self.folded = 0
        self._by_fold = {}
        for number, entry in zip(self.numbers, self.held):
            self._show(number, entry)

    def _show(self, number: int, entry: Entry) -> None:
        if not entry.wanted:
            return
        if self.folding and entry.fold is not None:
            into = self._by_fold.get(entry.fold)
            if into is not None and self._grow(into, entry.words):
                return
            self._by_fold[entry.fold] = number
            if len(self._by_fold) > self._max_lines:
                self._by_fold = {f: n for f, n in self._by_fold.items() if n >= self.first}
        self.rows.append(Row(number, entry.place))
        self._row_numbers.append(number)
        self._starts.append(self._end)
        self._end += self._height(entry, entry.place)

    def _grow(self, number: int, words: str) -> bool:
        """One more line says what the row of this number says."""
        at = bisect_left(self._row_numbers, number)
        if at >= len(self.rows) or self._row_numbers[at] != number:
            return False
        row, entry = self.rows[at], self.held[bisect_left(self.numbers, number)]
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
        at = bisect_left(self._row_numbers, number)
        if at >= len(self.rows) or self._row_numbers[at] != number:
            number = self._by_fold.get(entry.fold, number) if entry.fold is not None else number
            at = bisect_left(self._row_numbers, number)
            if at >= len(self.rows) or self._row_numbers[at] != number:
                return None
        return self._starts[at] - self.first_row

    def near(self, number: int) -> int:
        """The view's row of a line, or of the next one that is shown."""
        row = self.row_of(number)
        if row is not None:
            return row
        at = bisect_left(self._row_numbers, number)
        return (self._starts[at] if at < len(self._starts) else self._end) - self.first_row

    def shown_entries(self, begin: int = 0, stop: int | None = None) -> list[Entry]:
        """What the view shows between two of its rows, each line once."""
        if not self._starts:
            return []
        first = max(bisect_right(self._starts, begin + self.first_row) - 1, 0)
        last = len(self.rows) if stop is None else bisect_left(self._starts, stop + self.first_row)
        return [self.held[bisect_left(self.numbers, row.number)] for row in self.rows[first:last]]
