"""Owns the steps where one thing is picked from a list, or typed: cluster and model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from tui.screens.step import StepPage
from tui.widgets.columns import Column
from tui.widgets.fields import Entry, FieldLike, OptionLike
from tui.widgets.lines import Lines
from tui.widgets.paint import spans, text_of
from tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from gpt_tune.workflows.draft import Draft


class PickStep(StepPage):
    """A list with a line to type in: typing filters it, and what matches nothing is taken as it stands."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Choose", key_display="↑↓"),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "move(-8)", "Up 8", show=False),
        Binding("pagedown", "move(8)", "Down 8", show=False),
    ]
    key: ClassVar[str] = ""
    placeholder: ClassVar[str] = ""

    def field(self) -> FieldLike:
        return next(f for f in self.tune.fields(self.step) if f.key == self.key)

    def content(self) -> ComposeResult:
        yield Entry(placeholder=self.placeholder, id="wanted")
        yield RowList(
            [Column("", least=16), Column("", grow=True)],
            self._rows(""),
            header=False,
            empty="nothing matches",
            id="list",
        )

    def on_mount(self) -> None:
        super().on_mount()
        self.picker.add_class("-active")  # the cursor looks alive although the focus is in the entry
        self.picker.go_to(self.field().value)
        self.query_one("#wanted", Entry).focus()

    @property
    def picker(self) -> RowList:
        return self.query_one("#list", RowList)

    def _rows(self, wanted: str) -> list[Row]:
        options = [o for o in self.field().options if matches(o, wanted)]
        return [Row(o.value, (o.label, [(o.detail, "muted")])) for o in options]

    @on(Input.Changed, "#wanted")
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.picker.show_rows(self._rows(event.value))
        text = event.value.strip()
        if text and not self.picker.rows:
            error = self.tune.check(self.key, text)
            self.say(error or f"Enter takes {text!r}.", "bad" if error else "")
        else:
            self.explain()

    @on(RowList.Highlighted)
    def _highlighted(self, event: RowList.Highlighted) -> None:
        event.stop()
        self.explain()

    @on(Input.Submitted, "#wanted")
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_next()

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.action_next()

    def action_move(self, by: int) -> None:
        self.picker.action_move(by)

    def explain(self) -> None:
        """What must be known of the row under the cursor, then help on the question."""
        notes = self.tune.engine.choices.notes_of(self.key, self.picker.key or "")
        lines = [[(note, "")] for note in notes]
        self.query_one("#help", Lines).show([*lines, [(self.field().help, "muted")]])

    def picked(self) -> str:
        """What Enter takes: the row under the cursor, or the text when it matches no row."""
        return self.picker.key or self.query_one("#wanted", Entry).value.strip()

    def ready(self) -> bool:
        error = self.tune.put(self.key, self.picked())
        if error is not None:
            self.say(error, "bad")
        return error is None


def matches(option: OptionLike, wanted: str) -> bool:
    """Every word typed occurs in the option's name or words."""
    text = f"{option.value} {option.label} {option.detail}".lower()
    return all(word in text for word in wanted.lower().split())


class ClusterStep(PickStep):
    """Which cluster. What each one has is asked in the background; going on waits for the chosen one only."""

    step = "cluster"
    key = "cluster"
    question = "Where shall it run?"
    placeholder = "type to filter"
    HELP_TEXT = "Clusters that can be reached from here, this machine, and planning without submitting."

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, str] = {}

    def on_mount(self) -> None:
        self._leave_what_is_not_here()
        super().on_mount()
        for name in self.tune.draft.clusters:
            self._ask(name)

    def _leave_what_is_not_here(self) -> None:
        """A draft made for a cluster that cannot be reached from here goes on with one that can."""
        offered = [o.value for o in self.field().options]
        if self.field().value not in offered:
            self.tune.put(self.key, offered[0])

    def explain(self) -> None:
        """What had to be left out comes first: it changes what would run."""
        if self.tune.draft.left:
            self.say(self.tune.draft.left, "warn")
        else:
            super().explain()

    def _ask(self, name: str) -> None:
        words = self.tune.engine.cluster_words
        self.run_task(
            f"ask-{name}",
            lambda: words(name),
            lambda said: self._answer(name, said),
            lambda error: self._answer(name, f"cannot be reached: {error.message}"),
        )

    def _answer(self, name: str, said: str) -> None:
        self._said[name] = said
        self.picker.show_rows(self._rows(self.query_one("#wanted", Entry).value))

    def _rows(self, wanted: str) -> list[Row]:
        rows = super()._rows(wanted)
        return [
            Row(r.key, (r.cells[0], [(self._said.get(r.key, text_of(spans(r.cells[1]))), "muted")]))
            for r in rows
        ]

    def ready(self) -> bool:
        if not super().ready():
            return False
        name = self.tune.engine.choices.needs_cluster(self.tune.draft)
        if name is None:
            return True
        if not self.task_running("load"):
            self.say(f"Asking {name} for its partitions and nodes…")
            load, draft = self.tune.engine.choices.load_cluster, self.tune.draft
            self.run_task("load", lambda: load(draft, name), self._loaded)
        return False

    def _loaded(self, draft: Draft) -> None:
        if draft.left:
            self.notify(draft.left, markup=False, timeout=10)
        self.tune.set_draft(replace(draft, left=""))
        self.explain()
        self.tune.next_step(self.step)


class ModelStep(PickStep):
    """Which model: the catalogue, a config file or a shape."""

    step = "model"
    key = "model.id"
    question = "Which model?"
    placeholder = "type to filter, or a config.json, or layers=..,hidden=..,heads=.."
    HELP_TEXT = (
        "A name of the catalogue, the path of a config.json or TOML file, or a shape as key=value pairs."
    )
