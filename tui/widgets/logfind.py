"""Owns finding a text among the shown lines of a log: which match, and which one is next. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from gpt_tune.logs.lines import shown
from tui.widgets.logstore import LogStore


class Finder:
    """The numbers of the shown lines that contain a text, in any case, as they stand on screen."""

    def __init__(self) -> None:
        self.wanted = ""
        self.current: int | None = None
        self.matches: list[int] = []
        self._upto: int | None = None  # the last line looked at
        self._dropped = 0  # lines that the store had let go by then

    def begin(self, wanted: str, store: LogStore) -> None:
        """Look for another text."""
        self.wanted = shown(wanted).lower()
        self.current = None
        self.again(store)

    def again(self, store: LogStore) -> None:
        """Look again: other lines are shown than before."""
        self.matches, self._upto = [], None
        self.more(store)

    def more(self, store: LogStore) -> None:
        """Look at lines that have come, and forget those that went."""
        if not self.wanted:
            return
        if store.dropped != self._dropped:
            self._dropped = store.dropped
            self.matches = [number for number in self.matches if store.index_of(number) is not None]
        start = 0 if self._upto is None else bisect_right(store.rows, self._upto, key=lambda row: row.number)
        word = max(self.wanted.split(), key=len, default=self.wanted)
        for row in store.rows[start:]:
            entry = store.entry(row.number)
            text = entry.text.lower() if entry is not None else ""
            # Most lines lack even the longest word; only the others need to be made what stands on screen.
            if word in text and self.wanted in shown(text):
                self.matches.append(row.number)
        if store.rows:
            self._upto = store.rows[-1].number

    def step(self, by: int) -> int | None:
        """The next match after (by 1) or before (by -1) the current one; from the end where there is none."""
        if not self.matches:
            return None
        if self.current is None:
            at = len(self.matches) - 1 if by < 0 else 0
        elif by > 0:
            at = bisect_right(self.matches, self.current)
        else:
            at = bisect_left(self.matches, self.current) - 1
        if not 0 <= at < len(self.matches):
            return None
        self.current = self.matches[at]
        return self.current

    @property
    def words(self) -> str:
        """`3 of 17`, or how many there are."""
        if self.current is None or self.current not in self.matches:
            return f"{len(self.matches):,} found"
        return f"{bisect_left(self.matches, self.current) + 1:,} of {len(self.matches):,}"
