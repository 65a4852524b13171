"""Owns the list of saved and ready-made profiles: start from one, look at it, remove one."""

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

COLUMNS = (
    Column("profile", least=16),
    Column("job", drop=1),
    Column("model", drop=2),
    Column("what", grow=True, least=12),
)


class Profiles(Tasks, Page):
    """Enter starts the wizard with every value of the profile filled in."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "remove", "Remove")]
    DEFAULT_CSS = "Profiles > #list { margin: 1 0; } Profiles > #said { height: 2; margin: 0 1; }"
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Start from it"}
    HELP_TEXT = "A profile is a whole set of choices. Enter starts from it; every value can still be changed."

    def path(self) -> Line:
        return trail(["Profiles"], 0)

    def body(self) -> ComposeResult:
        yield RowList(COLUMNS, id="list", empty="no profiles yet: f2 in the wizard saves one")
        yield Lines(id="said")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#list").focus()
        self._load()

    def _load(self) -> None:
        store = self.tune.engine.profiles
        self.run_task("load", lambda: [read(store, name) for name in store.names()], self._show)

    def _show(self, found: list[tuple[str, Any]]) -> None:
        self.query_one("#list", RowList).show_rows(
            [Row(name, _cells(name, profile)) for name, profile in found]
        )

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.tune.begin_from_profile(event.key)

    def action_remove(self) -> None:
        name = self.query_one("#list", RowList).key
        if name is None:
            return
        from tui.screens.dialogs import Confirm

        self.app.push_screen(
            Confirm(f"Remove the profile {name}?", "Runs made from it are not touched."), self._remove
        )

    def _remove(self, yes: bool | None) -> None:
        name = self.query_one("#list", RowList).key
        if yes and name is not None:
            store = self.tune.engine.profiles
            self.run_task("remove", lambda: store.remove(name), lambda _: self._load())

    def task_failed(self, error: UserError) -> None:
        self.query_one("#said", Lines).say(str(error), "bad")


def read(store: Any, name: str) -> tuple[str, Any]:
    """A profile, or the sentence why it cannot be read: one broken file must not hide the others."""
    from gpt_tune.errors import UserError

    try:
        return name, store.load(name)
    except UserError as error:
        return name, str(error)


def _cells(name: str, profile: Any) -> tuple[Any, ...]:
    if isinstance(profile, str):
        return name, "", "", [(profile, "bad")]
    return name, profile.recipe, profile.model.id, [(profile.description, "muted")]
