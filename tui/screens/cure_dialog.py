"""Owns the window that shows what a fix would change of a run's settings, before a new run is made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from tui.screens.window import BOX, Window
from tui.widgets.keybar import KeyBar
from tui.widgets.lines import Lines
from tui.widgets.paint import Line

if TYPE_CHECKING:
    from gpt_tune.workflows.resubmit import Cure


class CureDialog(Window[bool]):
    """True: go on to the review of the new run."""

    DEFAULT_CSS = "CureDialog {" + BOX + " & Lines { max-height: 16; } }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "dismiss(True)", "Review the new run"),
        Binding("escape", "dismiss(False)", "Back", key_display="Esc"),
    ]

    def __init__(self, cure: Cure) -> None:
        super().__init__()
        self._cure = cure

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines(cure_lines(self._cure), indent=2, focusable=True)
        yield KeyBar()


def cure_lines(cure: Cure) -> list[Line]:
    """`- old`, `+ new` for each setting, and what follows from them."""
    lines: list[Line] = [[(cure.root.text, "bad"), (f"  [{cure.root.id}]", "muted")], []]
    for change in cure.changes:
        lines.append([(change.key, "strong")])
        lines.append([("  - ", "bad"), (change.before if change.before is not None else "not set", "muted")])
        lines.append([("  + ", "good"), (change.after, "")])
    if not cure.changes:
        lines.append([("No setting changes: the same run again.", "")])
    lines += [[("without ", "muted"), (e.node, ""), (f": {e.why}", "muted")] for e in cure.exclusions]
    if cure.new_layout:
        lines.append([("The planner chooses a new layout for this.", "accent")])
    return [*lines, [], [("Enter shows the new run for review; nothing is submitted before that.", "muted")]]
