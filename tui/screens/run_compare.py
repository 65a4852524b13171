"""Owns two runs side by side: what they came to and which settings differ. The engine says what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult

from gpt_tune.words import percent_words
from gpt_tune.workflows.origins import words_of
from tui.screens.base import Page, trail
from tui.tasks import Tasks
from tui.widgets.columns import Column
from tui.widgets.lines import Lines
from tui.widgets.paint import Cell, Line
from tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from gpt_tune.errors import UserError
    from gpt_tune.ledger.record import RunRecord


def columns(a: RunRecord, b: RunRecord) -> tuple[Column, ...]:
    return (
        Column("what", least=18, most=24),
        Column(f"A {a.name}", least=10, most=20),
        Column(f"B {b.name}", least=10, most=20),
        Column("B beside A", grow=True, least=10),
    )


class RunCompare(Tasks, Page):
    """Only what differs, figures first. What is the same in both is not listed."""

    DEFAULT_CSS = """
    RunCompare > #said { height: auto; max-height: 3; margin: 1 1 0 1; }
    RunCompare > #rows { margin: 1 0; height: 1fr; }
    """
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": ""}
    HELP_TEXT = "Two runs side by side: measured figures first, then every setting that differs."

    def __init__(self, a: RunRecord, b: RunRecord) -> None:
        super().__init__()
        self._a, self._b = a, b

    def path(self) -> Line:
        return trail(["Runs", "Compare"], 1)

    def body(self) -> ComposeResult:
        yield Lines([[("Reading both logs…", "muted")]], id="said", indent=2)
        yield RowList(columns(self._a, self._b), id="rows", empty="")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#rows").focus()
        results, a, b = self.tune.engine.results, self._a, self._b
        self.run_task("compare", lambda: results.compare(a, b), self._compared)

    def _compared(self, found: list[dict[str, Any]]) -> None:
        rows = [Row(f"{i}", compare_cells(item)) for i, item in enumerate(found) if item["key"] != "run_id"]
        self.query_one("#rows", RowList).show_rows(rows)
        ids: Line = [("A ", "muted"), (self._a.run_id, ""), ("   B ", "muted"), (self._b.run_id, "")]
        same = "" if rows else "   Nothing differs."
        self.query_one("#said", Lines).show([[*ids, (same, "strong")]])

    def task_failed(self, error: UserError) -> None:
        self.query_one("#said", Lines).say(str(error), "bad")


def compare_cells(item: dict[str, Any]) -> tuple[Cell, ...]:
    """One line of a comparison; a figure's change in words."""
    ratio = item["ratio"]
    beside = "" if ratio is None else "the same" if abs(ratio - 1) < 0.0005 else change_words(ratio)
    return (
        [(item["key"].replace("_", " ") if "." not in item["key"] else item["key"], "muted")],
        value_words(item["a"]),
        value_words(item["b"]),
        [(beside, "")],
    )


def change_words(ratio: float) -> str:
    """How B stands beside A: +12 %, -3.1 %, 8.0 times."""
    if ratio >= 3:
        return f"{ratio:.1f} times"
    return f"{'+' if ratio > 1 else '-'}{percent_words(abs(ratio - 1))}"


def value_words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return words_of(value) or "-"
