"""Owns showing one generated file: line numbers, scrolling, a little highlighting by kind of line."""

from __future__ import annotations

import re
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.widgets.paint import Line, Painted, Span, clean

MAX_LINES = 5_000
MAX_CHARACTERS = 2_000  # of one line
_JSON_KEY = re.compile(r'^(\s*)("[^"]*")(\s*:\s*)(.*)$')
_ASSIGN = re.compile(r"^(\s*(?:export\s+)?[A-Za-z_][A-Za-z0-9_]*)(=)(.*)$")


def highlight(path: str, text: str) -> Line:
    """One line of a file as spans. Longest matched line is bounded by the caller's cut."""
    if path.endswith((".json", ".jsonl")):
        match = _JSON_KEY.match(text)
        if match:
            return [(match[1], ""), (match[2], "accent"), (match[3], "muted"), (match[4], "good")]
        return [(text, "")]
    stripped = text.lstrip()
    if path.endswith(".md"):
        return [(text, "strong" if stripped.startswith("#") else "")]
    if stripped.startswith("#SBATCH"):
        head, _, value = text.partition("=")
        return [(head, "accent"), (f"={value}" if value else "", "strong")]
    if stripped.startswith("#"):
        return [(text, "muted")]
    match = _ASSIGN.match(text)
    if match:
        return [(match[1], "accent"), (match[2], "muted"), (match[3], "good")]
    return [(text, "")]


def fold(line: Line, width: int) -> list[Line]:
    """A line cut into pieces of `width` characters, wherever that falls: files are shown as they are."""
    pieces: list[list[Span]] = [[]]
    room = width
    for text, role in line:
        while text:
            if room == 0:
                pieces.append([])
                room = width
            pieces[-1].append((text[:room], role))
            text, room = text[room:], room - min(room, len(text))
    return list(pieces)


NUMBER = 5  # cells for the line number


class FileView(Painted, ScrollView, can_focus=True):
    """The text of one file; long lines go on below, without a number."""

    DEFAULT_CSS = """
    FileView { height: 1fr; background: transparent; scrollbar-size: 1 1; overflow-x: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "screen.file(-1)", "File", key_display="←→"),
        Binding("right,tab", "screen.file(1)", "Next file", show=False),
        Binding("up", "scroll_up", "Scroll", key_display="↑↓"),
        Binding("down", "scroll_down", "Down", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._path = ""
        self._lines: list[str] = []
        self._rows: list[tuple[str, Line]] = []  # number or "", spans
        self._folded_at = 0

    @property
    def plain(self) -> str:
        return "\n".join(self._lines)

    def show_file(self, path: str, content: bytes) -> None:
        """Show another file from its top."""
        self._path = path
        self._lines = content.decode("utf-8", "replace").split("\n")[:MAX_LINES]
        self._folded_at = 0
        self._fold()
        self.scroll_to(y=0, animate=False, force=True, immediate=True)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        self._fold()

    def _fold(self) -> None:
        width = max(self.scrollable_content_region.width - NUMBER, 10)
        if width == self._folded_at:
            return
        self._folded_at = width
        self._rows = []
        for number, line in enumerate(self._lines, start=1):
            pieces = fold(highlight(self._path, clean(line[:MAX_CHARACTERS])), width)
            self._rows += [(str(number) if i == 0 else "", piece) for i, piece in enumerate(pieces)]
        self.virtual_size = Size(width + NUMBER, len(self._rows))

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        row = y + round(self.scroll_offset.y)
        if row >= len(self._rows):
            return self.paint([], width)
        number, line = self._rows[row]
        head: Span = (f"{number:>{NUMBER - 1}} ", "muted")
        return self.paint([head, *line], width)
