"""Owns what every screen shares: the path at the top, the keys at the bottom, Esc, help. No content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from tui.keys import with_names
from tui.widgets.keybar import KeyBar
from tui.widgets.lines import Lines
from tui.widgets.paint import Line, Span, fit, line_width

if TYPE_CHECKING:
    from tui.app import GptTune


class PathBar(Lines):
    """The line at the top. Its looks are its own: a screen of several bases has only one base's CSS."""

    DEFAULT_CSS = """
    PathBar { dock: top; height: 1; background: $panel; padding: 0 1; overflow-y: hidden; }
    PathBar:ansi { background: ansi_default; text-style: reverse; }
    """


class Page(Screen[None]):
    """A full screen: path, body, keys. Subclasses give `body`, `path` and, where useful, HELP_TEXT."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="back"),
        Binding("question_mark,f1", "app.help", "Help", key_display="?", id="help"),
        Binding("ctrl+y", "app.copy_out", "Copy", show=False, id="copy",
                tooltip="Copy what is selected, else what the cursor is on, to your own clipboard"),
    ]  # fmt: skip
    DEFAULT_CSS = """
    Page { layout: vertical; background: $background; }
    """
    HELP_TEXT: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        """Each key gets a name, by which the user can move it."""
        if "BINDINGS" in cls.__dict__:
            cls.BINDINGS = with_names(cls.__name__, cls.BINDINGS)
        super().__init_subclass__(**more)

    def text_to_copy(self) -> str:
        """What `copy` takes when nothing is selected."""
        from tui.widgets.rows import RowList

        return self.focused.row_text if isinstance(self.focused, RowList) else ""

    @property
    def tune(self) -> GptTune:
        """The app, with its own type."""
        return self.app  # type: ignore[return-value]

    def path(self) -> Line:
        return [("gpt-tune", "strong")]

    def body(self) -> ComposeResult:
        yield from ()

    def compose(self) -> ComposeResult:
        yield PathBar(id="path")
        yield from self.body()
        yield KeyBar()

    def on_mount(self) -> None:
        self.update_path()

    def update_path(self) -> None:
        self.query_one("#path", PathBar).show([near(self.path(), self.size.width - 2)])

    @on(events.Resize)
    def _path_resized(self) -> None:
        self.update_path()

    def action_back(self) -> None:
        self.app.pop_screen()


def near(path: Line, width: int) -> Line:
    """The path without its first parts where it is too long: where the user is stays in view."""
    kept = list(path)
    if line_width(kept) <= width:
        return kept
    while len(kept) > 4 and line_width(kept) > width - 2 and kept[2][1] != "key":
        del kept[2:4]
    return fit([*kept[:2], ("… ", "muted"), *kept[2:]], max(width, 1))


def trail(parts: list[str], at: int) -> Line:
    """`gpt-tune  Cluster › GPUs › Model`: the part at `at` is where the user is."""
    line: list[Span] = [("gpt-tune", "strong"), ("  ", "")]
    for i, part in enumerate(parts):
        line.append((part, "key" if i == at else "" if i < at else "muted"))
        line.append((" › ", "muted"))
    return line[:-1]
