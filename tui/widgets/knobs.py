"""Owns the numbers one turns on the plan screen: left and right choose one, up and down change it, typing writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from tui.widgets.paint import Line, Painted, Span, line_width

HEAD = "what if "
MOST, ROOMY = 4, 20  # lines of numbers in view; on a lower screen only the one with the chosen number
_LONGEST = 20  # characters of a typed value


class Knob(Protocol):
    """One number that can be turned; key is the engine's name for it (gpt_tune.workflows.turnables)."""

    @property
    def key(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def means(self) -> str: ...


class Knobs(Painted, can_focus=True):
    """`what if  TP ‹8›  PP 2  ZeRO 1 …` in as many lines as that takes, and below what the chosen one means."""

    DEFAULT_CSS = """
    Knobs { height: auto; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "pick(-1)", "Which", key_display="←→", id="what-if.left", tooltip="The number before"),
        Binding("right", "pick(1)", "Next number", show=False, id="what-if.right"),
        Binding("up", "turn(1)", "Change", key_display="↑↓", id="what-if.up", tooltip="A step up, or the next word"),
        Binding("down", "turn(-1)", "Smaller", show=False, id="what-if.down"),
        Binding("enter", "keep", "Take it", id="what-if.take",
                tooltip="What was typed is estimated; then the layout becomes a row of the table"),
        Binding("escape", "leave", "Leave", id="what-if.leave"),
        Binding("delete", "anew", "Begin anew", show=False, id="what-if.anew", key_display="Del",
                tooltip="The numbers as they were before any was turned"),
        Binding("backspace", "rub_out", "Rub out", show=False, id="what-if.rub-out"),
    ]  # fmt: skip
    at: reactive[int] = reactive(0)
    typed: reactive[str] = reactive("")

    @dataclass
    class Turned(Message):
        key: str
        by: int

    @dataclass
    class Typed(Message):
        key: str
        text: str

    class Kept(Message):
        """The layout as turned is taken."""

    class Left(Message):
        """Back to the table."""

    class Anew(Message):
        """The numbers as they were at first."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._knobs: tuple[Knob, ...] = ()

    @property
    def chosen(self) -> Knob | None:
        return self._knobs[self.at] if self._knobs else None

    def show_knobs(self, knobs: Sequence[Knob]) -> None:
        """Show these numbers; the one that is turned stays the one that is turned."""
        here = self._knobs[self.at].key if self._knobs else ""
        rows = len(self._window(self.size.width)[1])
        self._knobs = tuple(knobs)
        keys = [knob.key for knob in knobs]
        self.at = keys.index(here) if here in keys else min(self.at, max(len(knobs) - 1, 0))
        self.refresh(layout=len(self._window(self.size.width)[1]) != rows)

    def watch_at(self) -> None:
        self.typed = ""

    # --- keys

    def action_pick(self, by: int) -> None:
        if self._knobs:
            self.at = (self.at + by) % len(self._knobs)

    def action_turn(self, by: int) -> None:
        if self._knobs:
            self.typed = ""
            self.post_message(self.Turned(self._knobs[self.at].key, by))

    def action_keep(self) -> None:
        if self.typed and self._knobs:
            self.post_message(self.Typed(self._knobs[self.at].key, self.typed))
            self.typed = ""
        else:
            self.post_message(self.Kept())

    def action_leave(self) -> None:
        if self.typed:
            self.typed = ""
        else:
            self.post_message(self.Left())

    def action_anew(self) -> None:
        self.typed = ""
        self.post_message(self.Anew())

    def action_rub_out(self) -> None:
        self.typed = self.typed[:-1]

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Letters and figures are what is typed, whatever they mean elsewhere on the screen."""
        return character is not None and character.isascii() and (character.isalnum() or character in ".-")

    def on_key(self, event: events.Key) -> None:
        if self.check_consume_key(event.key, event.character) and event.character is not None:
            event.stop()
            event.prevent_default()
            self.typed = (self.typed + event.character)[:_LONGEST]

    def on_click(self, event: events.Click) -> None:
        """The number under the mouse is the one to turn."""
        x, rows = len(HEAD), self._window(self.size.width)[1]
        if event.y >= len(rows):
            return
        for i in rows[event.y]:
            x += line_width(self._item(i))
            if event.x < x:
                self.at = i
                return

    # --- drawing

    def _item(self, i: int) -> list[Span]:
        knob, here = self._knobs[i], i == self.at and self.has_focus
        value = f"‹{self.typed + '_' if self.typed else knob.value}›" if here else f" {knob.value} "
        return [(f" {knob.label} ", "muted"), (value, "cursor" if here else "strong")]

    def _rows(self, width: int) -> list[list[int]]:
        """Which numbers stand in which line."""
        rows: list[list[int]] = [[]]
        used = len(HEAD)
        for i in range(len(self._knobs)):
            size = line_width(self._item(i))
            if rows[-1] and used + size > width:
                rows.append([])
                used = len(HEAD)
            rows[-1].append(i)
            used += size
        return rows

    def _window(self, width: int) -> tuple[int, list[list[int]], int]:
        """The first line in view, those in view, and how many there are: the chosen number is always among them."""
        rows = self._rows(width)
        room = MOST if self.app.size.height >= ROOMY else 1
        here = next((y for y, row in enumerate(rows) if self.at in row), 0)
        first = min(max(here - room + 1, 0), max(len(rows) - room, 0))
        return first, rows[first : first + room], len(rows)

    def _meaning(self) -> Line:
        knob = self.chosen
        if knob is None:
            return []
        if self.typed:
            return [
                (" " * len(HEAD), ""),
                (f"{knob.label} {self.typed}: Enter estimates it, Esc drops it", "accent"),
            ]
        return [(" " * len(HEAD), ""), (f"{knob.means}  (↑↓ or type)", "muted")]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._window(width)[1]) + 1

    def on_resize(self, event: events.Resize) -> None:
        self.refresh(layout=True)

    def watch_typed(self) -> None:
        self.refresh(layout=True)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        first, rows, count = self._window(width)
        if y >= len(rows):
            return self.paint(self._meaning(), width)
        above, below = y == 0 and first > 0, y == len(rows) - 1 and first + len(rows) < count
        head = ("what if" if y == 0 else "").ljust(len(HEAD) - 1) + ("↑" if above else "↓" if below else " ")
        line: list[Span] = [(head, "head")]
        for i in rows[y]:
            line += self._item(i)
        return self.paint(line, width)
