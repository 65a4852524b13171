"""Owns the window that saves all choices under a name: it stays, with what was typed, until they are saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from gpt_tune.errors import UserError
from tui.screens.window import BOX, Window
from tui.tasks import Tasks
from tui.widgets.fields import Entry
from tui.widgets.keybar import KeyBar
from tui.widgets.lines import Lines
from tui.widgets.paint import Line

if TYPE_CHECKING:
    from gpt_tune.workflows.draft import Draft
    from tui.app import GptTune


class SaveProfile(Tasks, Window["str | None"]):
    """One line for the name. Gives the path of the file, or None when left by Esc."""

    KEY_WORDS: ClassVar[dict[str, str]] = {"submit": "Save"}
    DEFAULT_CSS = "SaveProfile {" + BOX + " & Entry { margin: 1 0; } }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back", key_display="Esc")]

    def __init__(self, store: Any, profile: Any, name: str) -> None:
        super().__init__()
        self._store, self._profile, self._first = store, profile, name

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines([[("Save these choices as a profile. Its name:", "strong")]])
            yield Entry(self._first, placeholder="for example gpt-1.3b")
            yield Lines(id="said", indent=2)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(Entry).focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one("#said", Lines).show(self._words(event.value.strip()))

    def _words(self, name: str) -> list[Line]:
        """What saving under this name would do, or why it cannot be done."""
        if not name:
            return [[("Letters, digits, '.', '_' and '-'.", "muted")]]
        try:
            self._store.check_name(name)
        except UserError as error:
            better = self._store.name_for(name)
            hint = f"Perhaps {better}?" if better else error.hint
            return [[("! ", "bad"), (error.message, "bad"), (f" {hint}", "")]]
        if self._store.is_own(name):
            return [[("! ", "warn"), (f"You have a profile {name}: Enter replaces it.", "warn")]]
        return [
            [("Enter saves it; ", "muted"), (f"gpt-tune submit {name}", ""), (" then submits it.", "muted")]
        ]

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        event.stop()
        name = event.value.strip()
        if name and not self.task_running("save"):
            store, profile = self._store, self._profile
            self.run_task("save", lambda: str(store.save(profile, name)), self._saved)

    def _saved(self, path: str) -> None:
        self.dismiss(path)

    def task_failed(self, error: UserError) -> None:
        """The name stays as it was typed."""
        lines: list[Line] = [[("! ", "bad"), (error.message, "bad")], [(error.hint, "")]]
        self.query_one("#said", Lines).show(lines)


def ask_profile_name(app: GptTune, draft: Draft) -> None:
    """Save all choices of a draft under a name that the user gives."""
    store, profile = app.engine.profiles, app.engine.choices.profile_of(draft)
    window = SaveProfile(store, profile, profile.name or store.name_for(draft.base))

    def saved(path: str | None) -> None:
        if path is not None:
            app.notify(f"Saved as {path}.", markup=False)

    app.push_screen(window, saved)
