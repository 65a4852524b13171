"""Owns the first screen: what one can do, what was found here, and one suggested next step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.screens.base import Page
from tui.tasks import Tasks
from tui.widgets.columns import Column
from tui.widgets.keybar import named_key
from tui.widgets.lines import Lines
from tui.widgets.paint import Cell, Line
from tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from gpt_tune.errors import UserError
    from gpt_tune.ledger.record import RunRecord
    from tui.look import Found

MENU = (
    ("new", "New run", "plan, check and submit a training job"),
    ("last", "Continue", "with the choices made last time"),
    ("runs", "Runs", "what runs now, and what has run"),
    ("queue", "Queue", "all jobs of yours, why they wait, and what could start now"),
    ("profiles", "Profiles", "saved and ready-made sets of choices"),
    ("clusters", "Clusters", "partitions, nodes and GPUs"),
    ("replay", "Demo", "watch a recorded run: GPT 1.3B on one H200, predicted and measured"),
    ("doctor", "Check", "what this machine and its cluster are missing, if anything"),
)


class Home(Tasks, Page):
    """The menu. Words beside each line are filled in once the engine has looked around."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "menu('new')", "New run", show=False),
        Binding("r", "menu('runs')", "Runs", show=False),
        Binding("j", "menu('queue')", "Queue", show=False),
        Binding("p", "menu('profiles')", "Profiles", show=False),
        Binding("c", "menu('clusters')", "Clusters", show=False),
        Binding("k", "menu('doctor')", "Check", show=False),
        Binding("d", "menu('replay')", "Demo", show=False),
        Binding("q", "app.quit", "Quit", id="home.quit"),
        # Pressed on the way back, often once too many: it must not end the program.
        Binding(
            "escape", "stay", "Back", show=False, id="back", tooltip="Nothing is behind this screen; q quits"
        ),
    ]
    DEFAULT_CSS = """
    Home > #hello { margin: 1 2; height: auto; }
    Home > #menu { margin: 0 1; height: auto; max-height: 9; }
    Home > #found { margin: 1 2 0 2; height: 1fr; }
    Home.-short > #hello { display: none; }
    Home.-short > #menu { height: auto; max-height: 1fr; }
    Home.-short > #found { margin: 0 2; height: auto; max-height: 3; }
    """
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Open"}
    HELP_TEXT = (
        "gpt-tune plans a parallel layout for a model on your GPUs, writes and submits the Slurm job,\n"
        "and charts what it does against what was predicted."
    )

    def __init__(self) -> None:
        super().__init__()
        self._found: Found | None = None
        self._wanted = ""

    def body(self) -> ComposeResult:
        yield Lines([[("Plan, submit and watch LLM training jobs.", "strong")]], id="hello")
        yield RowList([Column("", least=14), Column("", grow=True)], menu_rows({}), header=False, id="menu")
        yield Lines([[("Looking around…", "muted")]], id="found", indent=2)

    def path(self) -> Line:
        return [("gpt-tune", "strong")]

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self._look)

    def _look(self) -> None:
        from tui.look import look

        engine, draft = self.tune.engine, self.tune.draft if self.tune.has_draft else None
        self.run_task("look", lambda: look(engine, draft), self._looked)

    def _looked(self, found: Found) -> None:
        first, self._found = self._found is None, found
        self.query_one("#menu", RowList).show_rows(menu_rows(found.words))
        self.query_one("#found", Lines).show(found.lines)
        if first:
            self.tune.warm_up()
        self.tune.know_runs(found.runs)  # the ledger's last word on live ones may be old
        if self._wanted:
            wanted, self._wanted = self._wanted, ""
            self.action_menu(wanted)

    def show_records(self, records: Sequence[RunRecord]) -> None:
        """Called by the app when its poller has news."""
        from tui.look import run_words

        if self._found is not None and records:
            words = {**self._found.words, "runs": run_words(records)}
            self.query_one("#menu", RowList).show_rows(menu_rows(words))

    def task_failed(self, error: UserError) -> None:
        self._wanted = ""
        self.query_one("#found", Lines).show([[("! ", "bad"), (error.message, "bad")], [(error.hint, "")]])

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.action_menu(event.key)

    def action_stay(self) -> None:
        """Say how to leave."""
        key = named_key(self, "home.quit")
        self.notify(f"This is the first screen: {key} quits. Running jobs go on.", markup=False)

    def action_menu(self, what: str) -> None:
        """Open what was chosen; before the look around has ended, as soon as it has."""
        if what in ("runs", "queue", "profiles", "clusters", "doctor"):
            self.tune.open(what)
        elif what == "replay":
            self.run_task("replay", self.tune.engine.demo_tape, partial(self.tune.open, "replay"))
        elif self._found is None:
            self._wanted = what
        elif what == "new":
            self.tune.begin(self._found.fresh)
        elif self._found.last is not None:
            self.tune.begin(self._found.last, keep=True)
        else:
            self.tune.begin(self._found.fresh)


def menu_rows(words: dict[str, str]) -> list[Row]:
    """The menu with what was found beside each line."""
    rows: list[Row] = []
    for key, title, what in MENU:
        cell: Cell = [(words.get(key, what), "muted")]
        rows.append(Row(key, (title, cell)))
    return rows
