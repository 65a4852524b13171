"""Owns the list of saved and ready-made profiles: start from one, see where its values come from, edit, share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType

from gpt_tune.errors import UserError
from tui import editor
from tui.screens.base import Page, trail
from tui.tasks import Tasks
from tui.widgets.columns import Column
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from gpt_tune.workflows.origins import Setting

COLUMNS = (
    Column("profile", least=16, most=30),
    Column("of", drop=3),
    Column("job", drop=1),
    Column("model", drop=2),
    Column("what", grow=True, least=12),
)


class Profiles(Tasks, Page):
    """Enter starts the wizard with every value of the profile filled in."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "edit", "Edit", tooltip="Edit this profile in $EDITOR; it is checked before it is kept"),
        Binding("x", "remove", "Remove", tooltip="Delete a profile of your own"),
        Binding("w", "export", "Export", tooltip="Write this profile into one file for a colleague"),
        Binding("i", "import", "Import", tooltip="Keep a colleague's file as a profile of yours"),
    ]
    DEFAULT_CSS = """
    Profiles > #list { margin: 1 0 0 0; height: 1fr; min-height: 4; }
    Profiles > #about { height: 1fr; max-height: 12; margin: 0 1; border-top: solid $panel; }
    Profiles > #about:ansi { border-top: solid ansi_bright_black; }
    Profiles > #said { height: auto; max-height: 3; margin: 0 1; }
    """
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Start from it"}
    HELP_TEXT = (
        "A profile is a whole set of choices. Enter starts from it; every value can still be changed.\n"
        "Below the list: what it sets, and where each value comes from. Later ones win: the shipped starter, the\n"
        "site's defaults, yours, the profile, gpt-tune.toml of the project's folder, the command line."
    )

    def __init__(self) -> None:
        super().__init__()
        self._typed_in_vain: dict[str, str] = {}  # what was edited and could not be kept

    def path(self) -> Line:
        return trail(["Profiles"], 0)

    def body(self) -> ComposeResult:
        yield RowList(COLUMNS, id="list", empty="no profiles yet: F2 in the wizard saves one")
        yield Lines(id="about", indent=4, focusable=True)
        yield Lines(id="said", indent=2)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#list").focus()
        self._load()

    @property
    def _under_cursor(self) -> str | None:
        return self.query_one("#list", RowList).key

    # --- the list

    def _load(self, then: str | None = None) -> None:
        """Read them again. then: the one to put the cursor on."""
        store = self.tune.engine.profiles

        def show(found: list[tuple[str, Any, bool]]) -> None:
            rows = self.query_one("#list", RowList)
            rows.show_rows([Row(name, _cells(name, profile, own)) for name, profile, own in found])
            if then is not None:
                rows.go_to(then)
            self._explain()

        self.run_task("load", lambda: [(*read(store, n), store.is_own(n)) for n in store.names()], show)

    @on(RowList.Highlighted)
    def _highlighted(self, event: RowList.Highlighted) -> None:
        event.stop()
        self._explain()

    def _explain(self) -> None:
        """What the profile under the cursor sets, and where each value comes from."""
        name, store = self._under_cursor, self.tune.engine.profiles
        if name is not None:
            self.run_task("explain", lambda: settings_of(store, name), self._explained, self._unexplained)

    def _explained(self, settings: tuple[Setting, ...]) -> None:
        self.query_one("#about", Lines).show(setting_lines(settings))

    def _unexplained(self, error: UserError) -> None:
        self.query_one("#about", Lines).show([[("! ", "bad"), (str(error), "bad")]])

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.tune.begin_from_profile(event.key)

    # --- what can be done with one

    def action_edit(self) -> None:
        """Edit it; a starter becomes a profile of the user's own under the same name."""
        name, store = self._under_cursor, self.tune.engine.profiles
        if name is None:
            return
        text = before = ""
        try:
            before = store.export(name)
            text = self._typed_in_vain.get(name, before)
            words = editor.command()
            with self.app.suspend():
                text = editor.edit(f"{name}.toml", text, words)
            if text == before:
                self._say("Nothing was changed.")
                return
            path = store.save(store.from_text(text, name), name)
            self._typed_in_vain.pop(name, None)
            self._say(f"Saved as {path}.")
            self._load(name)
        except SuspendNotSupported:
            self._say("An editor needs a terminal of its own: `gpt-tune profiles edit NAME` in one.", "bad")
        except UserError as error:
            if text != before:
                self._typed_in_vain[name] = text
                error = UserError(
                    error.message, f"{error.hint} Not saved; e opens what you wrote again.".strip()
                )
            self.task_failed(error)

    def action_export(self) -> None:
        from tui.screens.dialogs import Ask

        if (name := self._under_cursor) is None:
            return
        store = self.tune.engine.profiles

        def write(path: str | None) -> None:
            if path:
                self.run_task(
                    "export", lambda: store.export_to(name, path), lambda p: self._say(f"Written: {p}.")
                )

        self.app.push_screen(Ask(f"Write {name} into which file?", f"./{name}.toml", _taken), write)

    def action_import(self) -> None:
        from tui.screens.dialogs import Ask

        store = self.tune.engine.profiles

        def keep(path: str | None) -> None:
            if path:
                self.run_task("import", lambda: store.import_(path), self._imported)

        self.app.push_screen(Ask("Which file? It is checked before it is kept.", "", _missing), keep)

    def _imported(self, path: Path) -> None:
        self._say(f"Kept as {path}.")
        self._load(path.stem)

    def action_remove(self) -> None:
        name = self._under_cursor
        if name is None:
            return
        if not self.tune.engine.profiles.is_own(name):
            self._say(f"{name} is a shipped starter and cannot be removed.", "warn")
            return
        from tui.screens.dialogs import Confirm

        question = f"Remove the profile {name}?"
        self.app.push_screen(Confirm(question, "Runs made from it are not touched."), self._remove)

    def _remove(self, yes: bool | None) -> None:
        name = self._under_cursor
        if yes and name is not None:
            store = self.tune.engine.profiles
            self.run_task("remove", lambda: store.remove(name), lambda _: self._load())

    def _say(self, text: str, role: str = "") -> None:
        self.query_one("#said", Lines).say(text, role)

    def task_failed(self, error: UserError) -> None:
        self.query_one("#said", Lines).show([[("! ", "bad"), (error.message, "bad"), (f" {error.hint}", "")]])


def read(store: Any, name: str) -> tuple[str, Any]:
    """A profile, or the sentence why it cannot be read: one broken file must not hide the others."""
    try:
        return name, store.load(name)
    except UserError as error:
        return name, str(error)


def settings_of(store: Any, name: str) -> tuple[Setting, ...]:
    """What a profile and the layers around it set."""
    from gpt_tune.workflows.origins import table

    layered = store.load_layered(name)
    found = table(layered.profile, layered.origins)
    return tuple(s for s in found if s.key not in ("name", "schema", "description"))


def setting_lines(settings: tuple[Setting, ...]) -> list[Line]:
    from gpt_tune.workflows.origins import words_of

    key = max((len(s.key) for s in settings), default=0)
    return [
        [(f"{s.key:<{key}}  ", "muted"), (f"{words_of(s.value)}  ", ""), (f"({s.origin})", "muted")]
        for s in settings
    ]


def _taken(path: str) -> str | None:
    try:
        return f"{path} is there already." if Path(path).expanduser().exists() else None
    except (OSError, ValueError, RuntimeError):
        return f"{path!r} cannot be a file."


def _missing(path: str) -> str | None:
    try:
        return None if not path or Path(path).expanduser().is_file() else "There is no such file yet."
    except (OSError, ValueError, RuntimeError):
        return f"{path!r} cannot be a file."


def _cells(name: str, profile: Any, own: bool) -> tuple[Any, ...]:
    of = "you" if own else "shipped"
    if isinstance(profile, str):
        return name, of, "", "", [(profile, "bad")]
    from gpt_tune.workflows.tuning import trained_model  # loads the planner

    model = "" if profile.recipe in ("smoke", "custom") else trained_model(profile)  # those bring their own
    return name, of, profile.recipe, model, [(profile.description, "muted")]
