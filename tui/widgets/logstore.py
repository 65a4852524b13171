"""Owns the lines of a log view and how many rows of the screen each takes. Bounded; pure, no widget.

Rows and line numbers are counted from the opening of the log, so they stay true when old lines are dropped.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from rich.cells import cell_len

from tui.widgets.paint import clean

# Trainers pad their figures to columns 15 wide; on 80 columns the blanks would hide the figures. Indents stay.
_BLANKS = re.compile(r"(?<=\S) {2,}")
MAX_LINES = 20_000
MAX_CHARACTERS = 4_000  # of one line; a 1 MB line would otherwise be measured at every frame
TABLE_BARS = 2  # a line with so many "|" is a row of figures: one screen row each keeps the columns together


def shown(line: str) -> str:
    """A line as it is drawn: harmless, its padding squeezed."""
    return _BLANKS.sub(" ", clean(line))


class LogStore:
    """The newest lines. `width` 0: one row a line."""

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self._max_lines = max_lines
        self.lines: list[str] = []
        self.dropped = 0  # lines no longer held
        self.width = 0
        self.wrap_all = False
        self._starts: list[int] = []  # first row of each held line
        self._end = 0

    def add(self, lines: Sequence[str]) -> int:
        """Append; the number of rows at the top that went out with old lines."""
        for line in lines:
            self.lines.append(line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + "…")
            self._starts.append(self._end)
            self._end += self._rows_of(self.lines[-1])
        first = self.first_row
        excess = len(self.lines) - self._max_lines
        if excess > 0:
            del self.lines[:excess], self._starts[:excess]
            self.dropped += excess
        return self.first_row - first

    def clear(self) -> None:
        self.lines.clear()
        self._starts.clear()
        self._end = self.dropped = 0

    def lay_out(self, width: int, wrap_all: bool) -> bool:
        """Count the rows anew for another width; False when nothing changed."""
        if (width, wrap_all) == (self.width, self.wrap_all):
            return False
        self.width, self.wrap_all = width, wrap_all
        self._end = 0
        self._starts = []
        for line in self.lines:
            self._starts.append(self._end)
            self._end += self._rows_of(line)
        return True

    def _rows_of(self, line: str) -> int:
        # Counting bytes first: most lines fit as they are, and need not be measured.
        if self.width <= 0 or (len(line) <= self.width and line.isascii()):
            return 1
        if not self.wrap_all and line.count("|") >= TABLE_BARS:
            return 1
        return max(1, -(-cell_len(shown(line)) // self.width))

    @property
    def first_row(self) -> int:
        return self._starts[0] if self._starts else self._end

    @property
    def rows(self) -> int:
        """Screen rows of everything held."""
        return self._end - self.first_row

    def at(self, row: int) -> tuple[int, int] | None:
        """(index of a held line, which of its rows) shown at a row of the view; None below the end."""
        absolute = row + self.first_row
        if not self._starts or absolute >= self._end or row < 0:
            return None
        index = bisect_right(self._starts, absolute) - 1
        return index, absolute - self._starts[index]

    def row_of(self, number: int) -> int | None:
        """The view's row of an absolute line number, None when that line is not held."""
        index = number - self.dropped
        return self._starts[index] - self.first_row if 0 <= index < len(self.lines) else None

    def find(self, wanted: str, start: int, by: int) -> int | None:
        """The next absolute line number that contains a lower-case text, from `start` on."""
        index = start - self.dropped
        while 0 <= index < len(self.lines):
            if wanted in self.lines[index].lower():
                return index + self.dropped
            index += by
        return None

    def count(self, wanted: str) -> int:
        return sum(wanted in line.lower() for line in self.lines)
