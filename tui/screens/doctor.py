"""Owns showing what this machine and its cluster are missing: one line a check, one suggested next step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.screens.base import Page, trail
from tui.tasks import Tasks
from tui.widgets.columns import Column
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from gpt_tune.errors import UserError

COLUMNS = (Column("", least=7), Column("what"), Column("found", grow=True, least=20))
ROLES = {"ok": "good", "info": "muted", "warning": "warn", "error": "bad"}


class Doctor(Tasks, Page):
    """The checks of `gpt-tune doctor`; what to do about the one under the cursor stands below."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "look", "Look again")]
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": ""}
    DEFAULT_CSS = """
    Doctor > #next { height: auto; max-height: 3; margin: 1 1 0 1; }
    Doctor > #checks { margin: 1 0; }
    Doctor > #fix { height: 4; margin: 0 1; }
    Doctor.-short > #next { margin: 0 1; max-height: 2; }
    Doctor.-short > #checks { margin: 0; height: 1fr; min-height: 2; }
    Doctor.-short > #fix { height: auto; max-height: 2; }
    """
    HELP_TEXT = "Nothing is changed by looking. The same as `gpt-tune doctor`."

    def __init__(self) -> None:
        super().__init__()
        self._checks: list[Any] = []

    def path(self) -> Line:
        return trail(["Check"], 0)

    def body(self) -> ComposeResult:
        yield Lines(id="next", indent=6)
        yield RowList(COLUMNS, id="checks", empty="looking…")
        yield Lines(id="fix", indent=2)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#checks").focus()
        self.action_look()

    def action_look(self) -> None:
        doctor = self.tune.engine.doctor
        self.query_one("#next", Lines).say("Looking…", "muted")
        self.run_task("look", doctor.examine, self._show)

    def _show(self, checks: list[Any]) -> None:
        self._checks = checks
        rows = [
            Row(str(i), ([(c.status, ROLES.get(c.status, ""))], c.check, [(c.text, "")]))
            for i, c in enumerate(checks)
        ]
        self.query_one("#checks", RowList).show_rows(rows)
        doctor = self.tune.engine.doctor
        worst = {c.status for c in checks}
        role = "bad" if "error" in worst else "warn" if "warning" in worst else "good"
        step = doctor.next_step(checks, "Esc, then Enter on New run: the whole path in one minute.")
        self.query_one("#next", Lines).show(
            [[("      ", ""), (doctor.in_words(checks), role)], [("Next  ", "muted"), (step, "strong")]]
        )
        bad = next((str(i) for i, c in enumerate(checks) if c.status == "error"), None)
        bad = bad or next((str(i) for i, c in enumerate(checks) if c.status == "warning"), None)
        if bad is not None:
            self.query_one("#checks", RowList).go_to(bad)
        self._explain()

    @on(RowList.Highlighted)
    def _highlighted(self, event: RowList.Highlighted) -> None:
        event.stop()
        self._explain()

    def _explain(self) -> None:
        at = self.query_one("#checks", RowList).cursor
        if at < len(self._checks):
            check = self._checks[at]
            lines: list[Line] = [[(check.text, "")]]
            lines += [[("→ ", "accent"), (check.fix, "accent")]] if check.fix else []
            self.query_one("#fix", Lines).show(lines)

    def task_failed(self, error: UserError) -> None:
        self.query_one("#next", Lines).say(str(error), "bad")
