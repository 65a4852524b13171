"""Owns showing one generated file: line numbers, scrolling, a little highlighting by kind of line."""

from __future__ import annotations

import re
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.widgets.paint import Line, Painted, Span

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


class FileView(Painted, ScrollView, can_focus=True):
    """The text of one file."""

    DEFAULT_CSS = """
    FileView { height: 1fr; background: transparent; scrollbar-size: 1 1; overflow-x: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_up", "Scroll", key_display="↑↓"),
        Binding("down", "scroll_down", "Down", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._path = ""
        self._lines: list[str] = []

    @property
    def plain(self) -> str:
        return "\n".join(self._lines)

    def show_file(self, path: str, content: bytes) -> None:
        """Show another file from its top."""
        self._path = path
        self._lines = [line[:2000] for line in content.decode("utf-8", "replace").split("\n")]
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._lines))
        self.scroll_to(y=0, animate=False, force=True, immediate=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        row = y + round(self.scroll_offset.y)
        if row >= len(self._lines):
            return self.paint([], width)
        number: Span = (f"{row + 1:>4} ", "muted")
        return self.paint([number, *highlight(self._path, self._lines[row])], width)
