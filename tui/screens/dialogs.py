"""Owns the small windows over a screen: help, a yes/no question, one line to type."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import Input

from tui.screens.window import BOX, Window
from tui.widgets.fields import Entry
from tui.widgets.keybar import KeyBar, binding_words, key_words, named_key
from tui.widgets.lines import Lines
from tui.widgets.paint import Line


class Help(Window[None]):
    """Every key of the screen below, from the same bindings as the footer, and what the screen is for."""

    DEFAULT_CSS = "Help {" + BOX + " & VerticalScroll { height: auto; max-height: 100%; } }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1,enter,q", "dismiss", "Close", key_display="Esc"),
        Binding("down", "scroll(1)", "Down", show=False),
        Binding("up", "scroll(-1)", "Up", show=False),
    ]

    def __init__(self, below: Screen[object], text: str) -> None:
        super().__init__()
        self._text = text
        self._keys = key_lines(below)

    def compose(self) -> ComposeResult:
        with Vertical(), VerticalScroll(can_focus=False):
            if self._text:
                yield Lines([*([(part, "")] for part in self._text.split("\n")), []])
            yield Lines(self._keys, indent=14)
        yield KeyBar()

    def action_scroll(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


# Movements everybody tries without being told.
OBVIOUS = (
    "scroll_",
    "page_",
    "screen.copy_text",
    "command_palette",
    "move(",
    "page(",
    "app.focus",
    "cursor_",
    "delete_",
    "copy",
    "cut",
    "paste",
    "home",
    "end",
)


# Keys of the app itself, which a screen's own keys may stand before.
GLOBAL = (("theme", "Next colour theme"), ("quit", "Twice: quit; running jobs go on"))


def key_lines(screen: Screen[object]) -> list[Line]:
    """One line a binding: key, what it does; those of the footer first."""
    found: dict[str, tuple[bool, str, str]] = {}
    for _, binding, enabled, _ in screen.active_bindings.values():
        if enabled and binding.description and not binding.system and not binding.action.startswith(OBVIOUS):
            what = binding.tooltip or binding_words(screen, binding)
            found.setdefault(binding.action, (not binding.show, key_words(screen.app, binding), what))
    listed = sorted(found.values(), key=lambda item: item[0])
    always = [("^p", "Everything that can be done here, by name")]
    always += [(named_key(screen.app, name), what) for name, what in GLOBAL]
    shown = {key for key, _ in always}
    pairs = [(key, what) for _, key, what in listed if key not in shown] + always
    return [[(f"{key:>12}  ", "key"), (what, "")] for key, what in pairs]


class Confirm(Window[bool]):
    """A question answered by Enter/y or Esc/n. The dangerous answer is never the default."""

    DEFAULT_CSS = "Confirm {" + BOX + "}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No", key_display="n"),
    ]

    def __init__(self, question: str, detail: str = "") -> None:
        super().__init__()
        self._question = question
        self._detail = detail

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines(
                [
                    [(self._question, "strong")],
                    [(self._detail, "muted")],
                    [],
                    [("y ", "key"), ("yes   ", ""), ("n ", "key"), ("no", "")],
                ]
            )
        yield KeyBar()

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Ask(Window["str | None"]):
    """One line of text. `check` gives a sentence while what is typed will not do. empty: nothing is an answer too."""

    KEY_WORDS: ClassVar[dict[str, str]] = {"submit": "OK"}

    DEFAULT_CSS = "Ask {" + BOX + " & Entry { margin: 1 0; } }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back", key_display="Esc")]

    def __init__(
        self,
        question: str,
        text: str = "",
        check: Callable[[str], str | None] | None = None,
        empty: bool = False,
    ) -> None:
        super().__init__()
        self._empty = empty
        self._question = question
        self._text = text
        self._check = check or (lambda _: None)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines([[(self._question, "strong")]])
            yield Entry(self._text)
            yield Lines(id="wrong")
        yield KeyBar()

    def on_mount(self) -> None:
        if self._text:  # what is offered may not do either
            self.query_one("#wrong", Lines).say(self._check(self._text) or "", "bad")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self.query_one("#wrong", Lines).say(self._check(event.value) or "", "bad")

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        event.stop()
        if (self._empty or event.value.strip()) and self._check(event.value) is None:
            self.dismiss(event.value.strip())
