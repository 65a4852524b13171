"""Owns the line of numbers one turns on the plan screen: left and right choose one, up and down change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from tui.widgets.paint import Painted, Span


@dataclass(frozen=True, slots=True)
class Knob:
    """One number of a layout; key is the planner's name for it."""

    key: str
    label: str
    value: str


class Knobs(Painted, can_focus=True):
    """`what if  TP ‹8›  PP 2  ZeRO 1 …`."""

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

    def show_knobs(self, knobs: list[Knob]) -> None:
        self._knobs = tuple(knobs)
        self.at = min(self.at, max(len(knobs) - 1, 0))
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

    def render_line(self, y: int) -> Strip:
        line: list[Span] = [("what if ", "head")]
        for i, knob in enumerate(self._knobs):
            line.append((f" {knob.label} ", "muted"))
            here = i == self.at and self.has_focus
            line.append((f"‹{knob.value}›" if here else f" {knob.value} ", "cursor" if here else "strong"))
        return self.paint(line, self.size.width)
