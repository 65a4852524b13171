"""Owns how text with a meaning becomes styled terminal cells. No markup is ever parsed here.

A line is a sequence of (text, role) spans; a role is a word ("bad", "muted") that the theme colours.
Whatever comes from a user, a log or a cluster passes `clean`, so no control sequence reaches the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from tui.keys import family, with_names
from tui.widgets.roles import role_style

Span = tuple[str, str]
Line = Sequence[Span]
Cell = str | Line

_HIDDEN = {0x00AD, 0x061C, 0xFEFF, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070)}
_TABLE: dict[int, str | None] = {
    **dict.fromkeys((*range(32), *range(127, 160)), "�"),
    0x09: "    ",
    **dict.fromkeys(_HIDDEN),
}

_PARTS = re.compile(r"[^ ]* +|[^ ]+")  # words with the blanks after them


def clean(text: str) -> str:
    """The text with control, escape and direction characters made harmless."""
    return text if text.isprintable() else text.translate(_TABLE)


def spans(cell: Cell, role: str = "") -> Line:
    """A cell as spans; a bare string takes `role`."""
    return [(cell, role)] if isinstance(cell, str) else cell


def line_width(line: Line) -> int:
    """Terminal cells a line takes."""
    return sum(cell_len(text) for text, _ in line)


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line)


def squeeze(line: Line, width: int) -> list[Span]:
    """The line without its last muted spans, as many as it takes to fit; the rest is cut."""
    kept = list(line)
    for i in range(len(kept) - 1, -1, -1):
        if line_width(kept) <= width:
            break
        if kept[i][1] == "muted":
            del kept[i]
    return kept if line_width(kept) <= width else fit(kept, width)


def fit(cell: Cell, width: int, align: str = "left", role: str = "") -> list[Span]:
    """A cell cut (with an ellipsis) or padded to exactly `width` terminal cells."""
    line = [(clean(text), span_role) for text, span_role in spans(cell, role)]
    used = line_width(line)
    if used <= width:
        pad = (" " * (width - used), role)
        return [pad, *line] if align == "right" else [*line, pad]
    line = _cut(line, width)
    return [*line, (" " * (width - line_width(line)), role)]


def _cut(line: list[Span], width: int) -> list[Span]:
    kept: list[Span] = []
    left = width - 1
    for text, role in line:
        size = cell_len(text)
        if size > left:
            return [*kept, (set_cell_size(text, max(left, 0)).rstrip() + "…", role)] if width > 0 else []
        kept.append((text, role))
        left -= size
    return kept


def wrap(line: Line, width: int, indent: int = 0) -> list[list[Span]]:
    """The line broken at blanks to fit `width`; further lines start `indent` cells in."""
    if width <= indent + 1:
        return [fit(line, max(width, 0))]
    rows: list[list[Span]] = [[]]
    used = 0
    for word in _words(line):
        size = line_width(word)
        if used + len(text_of(word).rstrip()) > width and used > indent:
            rows.append([(" " * indent, "")])
            used = indent
        while used + size > width and size > width - indent:
            head, word = _split(word, width - used)
            rows[-1] += head
            rows.append([(" " * indent, "")])
            used, size = indent, line_width(word)
        rows[-1] += word
        used += size
    return rows


def _words(line: Line) -> Iterable[list[Span]]:
    """Pieces that must not be broken, each with the blanks after it. A piece may cross spans."""
    word: list[Span] = []
    for text, role in line:
        for part in _PARTS.findall(clean(text)):
            word.append((part, role))
            if part.endswith(" "):
                yield word
                word = []
    if word:
        yield word


def _split(word: list[Span], cells: int) -> tuple[list[Span], list[Span]]:
    """A word cut after at most `cells` cells, and at least one character."""
    head: list[Span] = []
    for i, (text, role) in enumerate(word):
        size = cell_len(text)
        if size > cells:
            kept = set_cell_size(text, cells).rstrip() or ("" if head else text[0])
            return [*head, (kept, role)], [(text[len(kept) :], role), *word[i + 1 :]]
        head.append((text, role))
        cells -= size
    return head, []


class Painted(Widget):
    """A widget that draws spans itself, in the roles of `roles`. keys_name: what the user's own keys call it."""

    keys_name: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        """Each key gets a name, by which the user can move it."""
        if "BINDINGS" in cls.__dict__:
            cls.BINDINGS = with_names(cls.__dict__.get("keys_name") or family(cls), cls.BINDINGS)
        super().__init_subclass__(**more)

    _looks: dict[str, Style] | None = None

    def notify_style_update(self) -> None:
        self._looks = None
        super().notify_style_update()

    def role_style(self, role: str) -> Style:
        """The style of a role in this widget and theme; an empty role is the widget's own text."""
        if self._looks is None:
            self._looks = {"": self.rich_style}
        style = self._looks.get(role)
        if style is None:
            app = self.app
            ansi = app.current_theme.ansi
            style = role_style(role, self._looks[""], app.theme_variables, ansi, app.no_color)
            self._looks[role] = style
        return style

    def paint(self, line: Line, width: int, over: str = "") -> Strip:
        """A line as a strip exactly `width` cells wide. `over`: one role for the whole row (a cursor)."""
        base = self.role_style(over)
        segments = [
            Segment(clean(text), base if over or not role else self.role_style(role))
            for text, role in line
            if text
        ]
        return Strip(segments).adjust_cell_length(width, base).simplify()
