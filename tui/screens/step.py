"""Owns what the wizard's steps share: the question, the live summary, Enter to go on, saving a profile."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer

from gpt_tune.errors import UserError
from tui.screens.base import Page, trail
from tui.tasks import Tasks
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.summary import Summary

FORESEE_SECONDS = 0.25  # after the last change: nobody's typing waits for a search


class StepPage(Tasks, Page):
    """One step. `content` yields the body; `ready` says whether Enter may go on."""

    CSS_PATH = "../styles/step.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Next", id="next"),
        Binding(
            "f2", "save_profile", "Save profile", tooltip="Save all choices so far as a profile", id="save"
        ),
    ]

    _foresee: Timer | None = None
    step: ClassVar[str] = ""
    question: ClassVar[str] = ""

    def path(self) -> Line:
        steps = [s for s in self.tune.steps() if not s.skip]
        at = next((i for i, s in enumerate(steps) if s.id == self.step), 0)
        return trail([s.title for s in steps] + ["Monitor"], at)

    def content(self) -> ComposeResult:
        yield from ()

    def question_words(self) -> str:
        """What this step asks, in words that fit the draft."""
        return self.question

    def body(self) -> ComposeResult:
        yield Lines([[(self.question_words(), "strong")]], id="question")
        yield from self.content()
        yield Lines(id="help", indent=2)
        yield Summary(id="summary")

    def on_mount(self) -> None:
        super().on_mount()
        self.show_summary()

    def on_screen_resume(self) -> None:
        if self.tune.has_draft:  # else the wizard is being closed, step by step
            self.resumed()

    def resumed(self) -> None:
        """On top (again): another step may have changed what is shown here."""
        self.update_path()
        for line in self.query("#question").results(Lines):  # the plan and the review ask nothing in words
            line.say(self.question_words(), "strong")
        self.show_summary()

    def show_summary(self) -> None:
        """What is chosen so far and what it implies, kept current; the layout is looked for in the background."""
        self.query_one("#summary", Summary).show_parts(self.tune.summary())
        if self._foresee is None:
            self._foresee = self.set_timer(FORESEE_SECONDS, self._look_ahead)
        else:
            self._foresee.reset()

    def _look_ahead(self) -> None:
        self._foresee = None
        if not self.tune.has_draft:
            return
        choices, draft, before = self.tune.engine.choices, self.tune.draft, self.tune.forecast
        self.run_task("forecast", lambda: choices.forecast(draft, before), self._foreseen, lambda _: None)

    def _foreseen(self, found: Any) -> None:
        self.tune.forecast = found
        if self.tune.has_draft:
            self.query_one("#summary", Summary).show_parts(self.tune.summary())

    def say(self, text: str, role: str = "muted") -> None:
        """One sentence where the help stands."""
        self.query_one("#help", Lines).say(text, role)

    def task_failed(self, error: UserError) -> None:
        self.query_one("#help", Lines).show(error_lines(error))

    def ready(self) -> bool:
        return True

    def action_next(self) -> None:
        if self.ready():
            self.tune.next_step(self.step)

    def action_back(self) -> None:
        """To the step before this one in the trail, whatever other answers have taken out of it or put into it."""
        # The site, once kept, is asked no more; on the way back it may still be put right.
        steps = [s.id for s in self.tune.steps() if not s.skip or s.id in (self.step, "site")]
        *earlier, before = ["", *(s for s in steps[: steps.index(self.step)] if s != "site")]
        self.app.pop_screen()
        while isinstance(self.app.screen, StepPage) and self.app.screen.step not in steps:
            self.app.pop_screen()
        below = self.app.screen
        if isinstance(below, StepPage) and below.step in earlier:
            self.tune.open(before)

    def action_save_profile(self) -> None:
        from tui.screens.save_profile import ask_profile_name

        ask_profile_name(self.tune, self.tune.draft)


def error_lines(error: UserError | None) -> list[Line]:
    """What went wrong, and what to do about it."""
    if error is None:
        return []
    hint: list[Line] = [[(error.hint, "")]] if error.hint else []
    return [[("! ", "bad"), (error.message, "bad")], *hint]
