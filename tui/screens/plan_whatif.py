"""Owns turning single numbers of a layout on the plan screen: the line of numbers, the trial, taking it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpt_tune.planner.types import EstimateResult, Plan, PlanRequest
from gpt_tune.workflows.whatif import Turned
from tui.tasks import Tasks
from tui.widgets.knobs import Knobs
from tui.widgets.paint import Line
from tui.widgets.plan_compare import asked_line, turned_line
from tui.widgets.plan_lines import detail, layout_words, problem_lines

if TYPE_CHECKING:
    from tui.app import GptTune


class WhatIf(Tasks):
    """Mixed into the plan screen. `yours` is the layout taken over, `asked` the question it answers."""

    _request: PlanRequest | None
    yours: Plan | None = None
    asked: PlanRequest | None = None
    _trial: EstimateResult | None = None  # as turned, perhaps illegal
    _turned_request: PlanRequest | None = None
    _begun: Plan | None = None  # where the turning began
    _waiting: list[tuple[str, int]]  # turns that came while one was estimated: none is lost

    if TYPE_CHECKING:
        tune: GptTune

        def current(self) -> Plan | None: ...
        def took(self) -> None: ...
        def show_detail(self) -> None: ...

    @property
    def turning(self) -> bool:
        return bool(self.has_class("-what-if"))  # type: ignore[attr-defined]

    @property
    def _knobs(self) -> Knobs:
        return self.query_one("#knobs", Knobs)  # type: ignore[attr-defined, no-any-return]

    def forget_turns(self) -> None:
        """The question was asked anew: what was turned before answers another one."""
        self.yours = self.asked = self._trial = self._turned_request = None

    def action_what_if(self) -> None:
        plan, request = self.current(), self._request
        if plan is None or request is None:
            return
        self._begun, self._waiting = plan, []
        self._turned_request = self.asked if plan is self.yours and self.asked is not None else request
        self._trial = EstimateResult(legal=True, problems=(), plan=plan)
        self._show_knobs()
        screen: Any = self
        screen.add_class("-what-if")
        screen.refresh_bindings()
        self._knobs.focus()
        self.show_detail()

    def _show_knobs(self) -> None:
        trial, request = self._trial, self._turned_request
        if trial is not None and trial.plan is not None and request is not None:
            self._knobs.show_knobs(self.tune.engine.whatif.turnables(request, trial.plan.layout))

    # Named as Textual finds them: a decorator does not register handlers of a class that is only mixed in.

    def on_knobs_turned(self, event: Knobs.Turned) -> None:
        event.stop()
        self._waiting.append((event.key, event.by))
        if not self.task_running("what-if"):
            self._turn_next()

    def _turn_next(self) -> None:
        trial, request = self._trial, self._turned_request
        if not self._waiting or trial is None or trial.plan is None or request is None:
            return
        plan, (key, by) = trial.plan, self._waiting.pop(0)
        whatif = self.tune.engine.whatif
        self.run_task("what-if", lambda: whatif.turn(request, plan, key, by), self._tried)

    def _tried(self, turned: Turned) -> None:
        if self._trial is None:  # left meanwhile
            return
        answer = turned.result
        if answer.plan is None:  # nothing to estimate: the numbers stay, the problem is said
            answer = EstimateResult(answer.legal, answer.problems, self._trial.plan)
        else:
            self._turned_request = turned.request
        self._trial = answer
        self._show_knobs()
        self.show_detail()
        self._turn_next()

    def trial_lines(self, width: int) -> list[Line]:
        """The layout as turned: what is wrong with it, what has changed, then as any other in detail."""
        trial = self._trial
        if trial is None:
            return []
        lines = problem_lines(trial.problems)
        if trial.plan is None:
            return lines
        lines += [[(layout_words(trial.plan.layout), "strong")]] if lines else []
        if self._request is not None:
            lines += asked_line(self._request, self._turned_request)
        if self._begun is not None and trial.plan is not self._begun:
            lines.append(turned_line(self._begun, trial.plan))
        return [*lines, *detail(trial.plan, width, self.tune.letters, False)]

    def on_knobs_kept(self, event: Knobs.Kept) -> None:
        event.stop()
        if self._trial is None or not self._trial.legal or self._trial.plan is None:
            return  # the problem stands on the screen
        if self._trial.plan is not self._begun:
            self.yours, self.asked = self._trial.plan, self._turned_request
            self.took()
        self._leave_what_if()

    def on_knobs_left(self, event: Knobs.Left) -> None:
        event.stop()
        self._leave_what_if()

    def _leave_what_if(self) -> None:
        self._trial = self._begun = None
        screen: Any = self
        screen.remove_class("-what-if")
        screen.refresh_bindings()
        screen.query_one("#plans").focus()
        self.show_detail()
