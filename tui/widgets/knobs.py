"""Owns the line of numbers one turns on the plan screen: left and right choose one, up and down change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from tui.widgets.paint import Painted, Span, line_width


class Knob(Protocol):
    """One number that can be turned; key is the engine's name for it (gpt_tune.workflows.whatif.Turnable)."""

    @property
    def key(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def value(self) -> str: ...


class Knobs(Painted, can_focus=True):
    """`what if  TP ‹8›  PP 2  ZeRO 1 …`; what does not fit is left and right of the view, and `‹` `›` say so."""

    DEFAULT_CSS = """
    Knobs { height: 1; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "pick(-1)", "Which", key_display="←→"),
        Binding("right", "pick(1)", "Next number", show=False),
        Binding("up", "turn(1)", "Change", key_display="↑↓"),
        Binding("down", "turn(-1)", "Smaller", show=False),
        Binding("enter", "keep", "Take it"),
        Binding("escape", "leave", "Leave"),
    ]
    at: reactive[int] = reactive(0)

    @dataclass
    class Turned(Message):
        key: str
        by: int

    class Kept(Message):
        """The layout as turned is taken."""

    class Left(Message):
        """Back to the table."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._knobs: tuple[Knob, ...] = ()

    def show_knobs(self, knobs: Sequence[Knob]) -> None:
        """Show these numbers; the one that is turned stays the one that is turned."""
        here = self._knobs[self.at].key if self._knobs else ""
        self._knobs = tuple(knobs)
        keys = [knob.key for knob in knobs]
        self.at = keys.index(here) if here in keys else min(self.at, max(len(knobs) - 1, 0))
        self.refresh()

    def action_pick(self, by: int) -> None:
        if self._knobs:
            self.at = (self.at + by) % len(self._knobs)

    def action_turn(self, by: int) -> None:
        if self._knobs:
            self.post_message(self.Turned(self._knobs[self.at].key, by))

    def action_keep(self) -> None:
        self.post_message(self.Kept())

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def _item(self, i: int) -> list[Span]:
        knob, here = self._knobs[i], i == self.at and self.has_focus
        value = f"‹{knob.value}›" if here else f" {knob.value} "
        return [(f" {knob.label} ", "muted"), (value, "cursor" if here else "strong")]

    def first_shown(self, room: int) -> int:
        """The first number in view, so that the chosen one is."""
        first = 0
        while first < self.at and sum(line_width(self._item(i)) for i in range(first, self.at + 1)) > room:
            first += 1
        return first

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        head: Span = ("what if", "head")
        first = self.first_shown(width - len(head[0]) - 3)
        line: list[Span] = [head, ("‹" if first else " ", "muted")]
        for i in range(first, len(self._knobs)):
            item = self._item(i)
            if i > first and line_width(line) + line_width(item) > width - 1:
                line += [(" " * max(width - 1 - line_width(line), 0), ""), ("›", "muted")]
                break
            line += item
        return self.paint(line, width)
