"""Owns the list of runs: live ones on top, search, tags and notes, two compared, and what starts from a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from tui.screens.base import Page, trail
from tui.screens.run_rows import COLUMNS, about_lines, run_cells
from tui.tasks import Tasks
from tui.widgets.fields import Entry
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from gpt_tune.errors import UserError
    from gpt_tune.ledger.record import RunRecord
    from gpt_tune.workflows.draft import Draft


class Runs(Tasks, Page):
    """What the ledger knows; the state of live runs comes from the app's one poller."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/", tooltip="Show only runs that match"),
        Binding("c", "cancel", "Cancel job"),
        Binding("a", "again", "Run again", tooltip="Start the wizard with this run's choices"),
        Binding("m", "compare", "Compare", tooltip="Mark this run; on a second one: compare the two"),
        Binding("t", "tags", "Tags", tooltip="Your tags on this run: +x adds one, -x takes it away"),
        Binding("n", "note", "Note", tooltip="Your own words on this run"),
        Binding(
            "R",
            "resubmit",
            "Resubmit",
            show=False,
            tooltip="Go straight to the review of the same choices again",
        ),
        Binding("s", "save", "Save profile", show=False, tooltip="Save this run's choices as a profile"),
        Binding("r", "refresh", "Ask now", show=False, tooltip="Ask the scheduler now"),
        Binding("up", "move(-1)", "Up", show=False),  # from the search line too
        Binding("down", "move(1)", "Down", show=False),
    ]
    CSS = """
    Runs > #said { height: auto; max-height: 3; margin: 1 1 0 1; }
    Runs > #search { margin: 0 1; display: none; }
    Runs.-searching > #search { display: block; }
    Runs > #runs { margin: 1 0 0 0; height: 1fr; }
    Runs > #about { height: auto; max-height: 3; margin: 0 1; }
    """
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Monitor", "submit": "To the list"}
    HELP_TEXT = (
        "Every run started from here. Enter shows its log and charts, also after it has ended.\n"
        "Search: every word must match a name, model, state, tag, note or id. state:failed, tag:x, model:x and\n"
        "note:x look in one of them, -word leaves out what matches."
    )

    WANTS_JOBS = True

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, RunRecord] = {}
        self._marked: str | None = None

    def path(self) -> Line:
        return trail(["Runs"], 0)

    def body(self) -> ComposeResult:
        yield Lines([[("Reading…", "muted")]], id="said", indent=2)
        yield Entry(placeholder="words, or state:failed tag:x -word", id="search")
        yield RowList(COLUMNS, id="runs", empty="no runs yet: New run on the first screen starts one")
        yield Lines(id="about", indent=6)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#runs").focus()
        self._read()
        self.tune.refresh_jobs()

    def _read(self) -> None:
        self.run_task("read", self.tune.engine.runs, self.show_records)

    def on_screen_resume(self) -> None:
        if self._records:
            self._read()  # a note or a tag may have been changed meanwhile

    # --- the list

    def show_records(self, records: Sequence[RunRecord]) -> None:
        """Show these runs; also called by the app whenever the poller has news."""
        self._records = {r.run_id: r for r in records}
        self._show()

    def _show(self) -> None:
        history, records = self.tune.engine.history, list(self._records.values())
        reason = self.tune.engine.jobs.reason_text
        wanted = self.query_one("#search", Entry).value.strip()
        found = history.live_first(history.search(records, wanted))
        rows = self.query_one("#runs", RowList)
        rows.show_rows(
            [
                Row(r.run_id, run_cells(r, reason(r), history.tags_of(r), r.run_id == self._marked))
                for r in found
            ]
        )
        live = sum(r.active for r in records)
        said: Line = [
            (f"{live} live", "good" if live else "muted"),
            (f", {len(records) - live} ended", "muted"),
            (f"  ·  {len(found)} of {len(records)} match", "accent") if wanted else ("", ""),
        ]
        self.query_one("#said", Lines).show([[*said, ("  ·  ", "muted"), *self.tune.poll_words()]])
        self._show_about()

    @on(RowList.Highlighted)
    def _highlighted(self, event: RowList.Highlighted) -> None:
        event.stop()
        self._show_about()

    def _show_about(self) -> None:
        """Tags and note of the run under the cursor, whole: the table may have cut them."""
        self.refresh_bindings()
        record, about = self._current(), self.query_one("#about", Lines)
        if record is None:
            about.show([])
        else:
            about.show(about_lines(record, self.tune.engine.history.tags_of(record)))

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.tune.open("monitor", self._records[event.key])

    def _current(self) -> RunRecord | None:
        return self._records.get(self.query_one("#runs", RowList).key or "")

    # --- searching

    def action_search(self) -> None:
        self.add_class("-searching")
        self.query_one("#search", Entry).focus()

    @on(Input.Changed, "#search")
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._show()

    @on(Input.Submitted, "#search")
    def _searched(self, event: Input.Submitted) -> None:
        event.stop()
        self.set_class(bool(event.value.strip()), "-searching")
        self.query_one("#runs").focus()

    def action_move(self, by: int) -> None:
        self.query_one("#runs", RowList).action_move(by)

    def action_back(self) -> None:
        """Out of the search, out of the comparison, then out of the list."""
        search = self.query_one("#search", Entry)
        if self.has_class("-searching"):
            search.value = ""
            self.remove_class("-searching")
            self.query_one("#runs").focus()
        elif self._marked is not None:
            self._marked = None
            self._show()
        else:
            super().action_back()

    # --- what can be done with a run

    def action_refresh(self) -> None:
        self.tune.refresh_jobs(force=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what has not ended can be cancelled."""
        record = self._current() if action == "cancel" and self._records else None
        return False if record is not None and not record.active else super().check_action(action, parameters)

    def action_cancel(self) -> None:
        if record := self._current():
            self.tune.ask_cancel(record)

    def action_again(self) -> None:
        if record := self._current():
            self.tune.begin_from_run(record)

    def action_save(self) -> None:
        if record := self._current():
            self.run_task("draft", lambda: self.tune.engine.draft_of_run(record), self._save)

    def _save(self, draft: Draft) -> None:
        from tui.screens.save_profile import ask_profile_name

        ask_profile_name(self.tune, draft)

    def action_resubmit(self) -> None:
        """The review of the same choices, ready to submit."""
        if record := self._current():
            engine = self.tune.engine

            def review(draft: Draft) -> None:
                self.tune.set_draft(draft, fresh=True)
                self.tune.open("review", record)
                edited = "edited" in record.tags
                said = (
                    " Its files had been edited by hand, and these are generated anew: v shows it."
                    if edited
                    else ""
                )
                self.notify(f"The same choices again. Nothing is submitted yet.{said}", markup=False)

            self.run_task("resubmit", lambda: _loaded(engine, engine.draft_of_run(record)), review)

    def action_note(self) -> None:
        from tui.screens.dialogs import Ask

        if record := self._current():
            history, ledger, run_id = self.tune.engine.history, self.tune.engine.ledger, record.run_id

            def keep(text: str | None) -> None:
                if text is not None:
                    self.run_task("keep", lambda: history.set_note(ledger, run_id, text), self._kept)

            question = f"Your note on {record.name} ({record.run_id}):"
            self.app.push_screen(Ask(question, record.note, history.note_problem, empty=True), keep)

    def action_tags(self) -> None:
        from tui.screens.dialogs import Ask

        if record := self._current():
            history, ledger, run_id = self.tune.engine.history, self.tune.engine.ledger, record.run_id

            def keep(text: str | None) -> None:
                if text:
                    self.run_task(
                        "keep", lambda: history.change_tags(ledger, run_id, text.split()), self._kept
                    )

            has = " ".join(record.user_tags) or "none yet"
            question = f"Tags of {record.name}: {has}. Add or take away (+baseline -old):"
            self.app.push_screen(Ask(question, "", history.tags_problem), keep)

    def _kept(self, record: RunRecord) -> None:
        self._records[record.run_id] = record
        self._show()

    def action_compare(self) -> None:
        """Mark a run; with another one marked already, compare the two."""
        record = self._current()
        if record is None:
            return
        if self._marked is None or self._marked not in self._records:
            self._marked = record.run_id
            self.notify(f"{record.name} is marked: m on another run compares the two.", markup=False)
        elif self._marked == record.run_id:
            self._marked = None
        else:
            from tui.screens.run_compare import RunCompare

            first, self._marked = self._records[self._marked], None
            self.app.push_screen(RunCompare(first, record))
        self._show()

    def task_failed(self, error: UserError) -> None:
        self.query_one("#said", Lines).say(str(error), "bad")


def _loaded(engine: Any, draft: Draft) -> Draft:
    """A draft with its cluster looked at."""
    name = engine.choices.needs_cluster(draft)
    found: Draft = engine.choices.load_cluster(draft, name) if name else draft
    return found
