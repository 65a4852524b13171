"""Owns the grid of what is chosen and what it implies: label and words, two to four columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from tui.widgets.paint import Line, Painted, Span, fit

COLUMN = 38  # cells a label and its words need
GAP = 2


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
    """The parts as lines, in as many columns as `width` holds; long words take several columns."""
    columns = max(1, (width + GAP) // COLUMN)
    cells = (width + GAP) // columns
    name = max((len(label) for label, _ in parts), default=0) + 1
    rows: list[list[Span]] = []
    free = 0
    for label, words in parts:
        wanted = min(columns, -(-(name + cell_len(words) + GAP) // cells))
        if wanted > free:
            rows.append([])
            free = columns
        room = wanted * cells - GAP
        rows[-1] += [*fit([(f"{label:<{name}}", "muted"), (words, "")], room), (" " * GAP, "")]
        free -= wanted
    return [row[:-1] for row in rows]
