"""Owns the findings of a run: what broke, what only follows from it, what to do, and what the user says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpt_tune.errors import UserError
from tui.finding_lines import COLUMNS, detail_lines, finding_cells, key_of, root_lines
from tui.screens.base import Page, trail
from tui.tasks import Tasks
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from gpt_tune.diagnosis.types import Diagnosis, Finding
    from gpt_tune.workflows.resubmit import Cure
    from tui.screens.monitor import Monitor
    from tui.screens.monitor_follow import Shot


class Findings(Tasks, Page):
    """Live: the monitor's following thread brings each new diagnosis."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "R", "cure", "Resubmit with fix", tooltip="See what the fix changes, then review the new run"
        ),
        Binding(
            "d", "call_nothing", "Dismiss", tooltip="This finding is nothing; say why, and it alarms nobody"
        ),
        Binding("o", "correct", "Correct", tooltip="It really is another finding: choose which"),
        Binding("u", "restore", "Undo", tooltip="Take back what you said of this finding"),
    ]
    CSS = """
    Findings > #root { height: auto; max-height: 40%; margin: 1 1 0 1; }
    Findings > #findings { height: 1fr; min-height: 4; margin: 1 0 0 0; }
    Findings > #detail { height: auto; max-height: 50%; margin: 1 1 0 1; }
    Findings.-short > #detail { max-height: 3; margin: 0 1; }
    """
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Its line"}
    HELP_TEXT = (
        "The root cause stands on top; echoes only follow from it. Enter shows the line in the log.\n"
        "Dismissed findings stay here and alarm nobody. R shows what the fix would change before anything is made."
    )
    WANTS_JOBS = True

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self._monitor = monitor
        self._found: dict[str, Finding] = {}

    def path(self) -> Line:
        return trail(["Runs", self._monitor.record.name, "Findings"], 2)

    def body(self) -> ComposeResult:
        yield Lines([[("Reading…", "muted")]], id="root", indent=2)
        yield RowList(COLUMNS, id="findings", empty="nothing found in this log")
        yield Lines(id="detail", indent=11, focusable=True)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#findings").focus()
        self._monitor.listeners.append(self._heard)
        if self._monitor.newest is not None:
            self._show(self._monitor.newest.diagnosis)

    def on_unmount(self) -> None:
        self._monitor.listeners.remove(self._heard)

    def _heard(self, shot: Shot) -> None:
        if shot.update is not None:
            self._show(shot.update.diagnosis)

    def _show(self, diagnosis: Diagnosis) -> None:
        self._found = {key_of(f): f for f in diagnosis.findings}
        self.query_one("#root", Lines).show(root_lines(diagnosis))
        rows = [Row(key, finding_cells(f, diagnosis.root_cause)) for key, f in self._found.items()]
        self.query_one("#findings", RowList).show_rows(rows)
        self._show_detail()

    @property
    def _here(self) -> Finding | None:
        return self._found.get(self.query_one("#findings", RowList).key or "")

    @on(RowList.Highlighted)
    def _moved(self, event: RowList.Highlighted) -> None:
        event.stop()
        self._show_detail()
        self.refresh_bindings()

    def _show_detail(self) -> None:
        finding = self._here
        self.query_one("#detail", Lines).show(detail_lines(finding) if finding is not None else [])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        finding = self._here if self.is_mounted else None
        if action in ("call_nothing", "correct"):
            return finding is not None and finding.dismissed is None
        if action == "restore":
            return finding is not None and (
                finding.dismissed is not None or finding.corrected_from is not None
            )
        return super().check_action(action, parameters)

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        finding = self._here
        if finding is not None:
            self.app.pop_screen()
            self._monitor.go_to_finding(finding)

    # --- what the user says of a finding

    def action_call_nothing(self) -> None:
        from tui.screens.dialogs import Ask

        finding = self._here
        if finding is not None:
            key = finding.corrected_from or finding.id
            ask = Ask(f"{finding.id} is nothing. Why? (kept with the run; may be empty)", empty=True)
            self.app.push_screen(ask, lambda why: self._say("dismiss", key, why))

    def action_correct(self) -> None:
        from gpt_tune.diagnosis.signatures import signatures
        from tui.screens.pick_dialog import PickDialog

        finding = self._here
        if finding is None:
            return
        key = finding.corrected_from or finding.id
        words = {s.id: s.text for s in reversed(signatures()) if s.id != key and s.role != "context"}
        options = [(i, i, words[i]) for i in sorted(words, key=_order)]
        self.app.push_screen(PickDialog(options, finding.id), lambda to: self._say("correct", key, to))

    def action_restore(self) -> None:
        finding = self._here
        if finding is not None:
            self._say("restore", finding.corrected_from or finding.id, "")

    def _say(self, what: str, key: str, more: str | None) -> None:
        if more is None:
            return
        engine, record = self.tune.engine.findings, self._monitor.record
        arguments = (key, more) if what != "restore" else (key,)
        self.run_task("say", lambda: getattr(engine, what)(record, *arguments), lambda _: self._said())

    def _said(self) -> None:
        following = self._monitor.following
        if following is not None:
            following.ask(judged=following.asked.judged + 1)

    # --- the fix

    def action_cure(self) -> None:
        engine, record = self.tune.engine.resubmit, self._monitor.record
        self.query_one("#root", Lines).show([[("Looking for what cures it…", "muted")]])
        self.run_task("cure", lambda: engine.cure(record), self._preview)

    def _preview(self, cure: Cure) -> None:
        from tui.screens.cure_dialog import CureDialog

        self._show_again()
        self.app.push_screen(CureDialog(cure), self._answered)

    def _answered(self, yes: bool | None) -> None:
        if yes:
            self.tune.begin_cured(self._monitor.record)

    def _show_again(self) -> None:
        if self._monitor.newest is not None:
            self._show(self._monitor.newest.diagnosis)

    def task_failed(self, error: UserError) -> None:
        self._show_again()
        self.notify(str(error), severity="error", markup=False, timeout=10)


def _order(identity: str) -> tuple[int, str]:
    """F2 before F12, F37c after F37."""
    digits = "".join(c for c in identity if c.isdigit())
    return int(digits or 0), identity
