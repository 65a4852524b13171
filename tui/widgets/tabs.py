"""Owns a one-line row of tabs: left and right choose, the name of the chosen one is marked by brackets too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from tui.widgets.paint import Painted, Span


class TabRow(Painted):
    """`[job.sbatch] ds_config.json README.md`; scrolls sideways when there are too many."""

    DEFAULT_CSS = """
    TabRow { height: 1; background: $surface; }
    """
    at: reactive[int] = reactive(0)

    @dataclass
    class Picked(Message):
        name: str

    def __init__(self, names: Sequence[str] = (), *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._names = list(names)
        self._marks: Mapping[str, str] = {}

    @property
    def name_shown(self) -> str:
        return self._names[self.at] if self._names else ""

    def show_names(self, names: Sequence[str], marks: Mapping[str, str] | None = None) -> None:
        """Show these tabs, the chosen one staying chosen where it is still there. marks: a word behind a name."""
        chosen = self.name_shown
        self._names, self._marks = list(names), marks or {}
        with self.prevent(TabRow.Picked):
            self.at = self._names.index(chosen) if chosen in self._names else 0
        self.refresh()

    def turn(self, by: int) -> None:
        if self._names:
            self.at = (self.at + by) % len(self._names)

    def watch_at(self) -> None:
        self.refresh()
        if self._names:
            self.post_message(self.Picked(self.name_shown))

    def _parts(self) -> list[Span]:
        names = [f"{n} {self._marks[n]}" if self._marks.get(n) else n for n in self._names]
        return [
            (f"[{n}]" if i == self.at else f" {n} ", "key" if i == self.at else "muted")
            for i, n in enumerate(names)
        ]

    def _offset(self) -> int:
        """Cells to leave out on the left so that the chosen tab is in view."""
        ends = [sum(len(t) + 1 for t, _ in self._parts()[: i + 1]) for i in range(len(self._names))]
        return max(0, ends[self.at] - self.size.width) if ends else 0

    def on_click(self, event: events.Click) -> None:
        start = -self._offset()
        for i, (text, _) in enumerate(self._parts()):
            start += len(text) + 1
            if event.x < start:
                self.at = i
                return

    def render_line(self, y: int) -> Strip:
        line: list[Span] = []
        for part in self._parts():
            line += [part, (" ", "")]
        offset, width = self._offset(), self.size.width
        strip = self.paint(line, max(width + offset, width))
        return strip.crop(offset, offset + width)
