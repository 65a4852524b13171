"""Owns the grid of what is chosen and what it implies: label and words, two to four columns."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.geometry import Size
from textual.strip import Strip

from tui.widgets.paint import Line, Painted, Span, fit

COLUMN = 38  # cells a label and its words need


class Summary(Painted):
    """Label and words, row by row. Its height follows from its width."""

    DEFAULT_CSS = """
    Summary { height: auto; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._parts: tuple[tuple[str, str], ...] = ()

    @property
    def plain(self) -> str:
        return "  ".join(f"{label} {words}" for label, words in self._parts)

    def show_parts(self, parts: Sequence[tuple[str, str]]) -> None:
        if tuple(parts) != self._parts:
            self._parts = tuple(parts)
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(grid(self._parts, width))

    def on_resize(self, event: events.Resize) -> None:
        self.refresh()

    def render_line(self, y: int) -> Strip:
        rows = grid(self._parts, self.size.width)
        return self.paint(rows[y] if y < len(rows) else [], self.size.width)


def grid(parts: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """The parts as lines, in as many columns as `width` holds."""
    columns = max(1, (width + 2) // COLUMN)
    cells = (width + 2) // columns - 2
    name = max((len(label) for label, _ in parts), default=0) + 1
    rows: list[Line] = []
    for start in range(0, len(parts), columns):
        line: list[Span] = []
        for label, words in parts[start : start + columns]:
            line += [*fit([(f"{label:<{name}}", "muted"), (words, "")], cells), ("  ", "")]
        rows.append(line[:-1])
    return rows
