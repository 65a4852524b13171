"""Owns turning single numbers of a layout on the plan screen: the numbers, the trial, taking it over.

A trial begins from a layout of the table, or from a near miss with the change that was advised for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpt_tune.errors import UserError
from gpt_tune.layouts.trainers import is_finetune
from gpt_tune.planner.types import EstimateResult, Plan, PlanRequest, Problem, Rejected
from gpt_tune.workflows.whatif import Turned
from tui.tasks import Tasks
from tui.widgets.knobs import Knobs
from tui.widgets.paint import Line
from tui.widgets.plan_compare import asked_line, turned_line
from tui.widgets.plan_lines import Told, detail, problem_lines
from tui.widgets.plan_table import layout_words

if TYPE_CHECKING:
    from tui.app import GptTune

Turn = Callable[[PlanRequest, Plan], Turned]


class WhatIf(Tasks):
    """Mixed into the plan screen. `yours` is the layout taken over, `asked` the question it answers."""

    _request: PlanRequest | None
    yours: Plan | None = None
    asked: PlanRequest | None = None
    _trial: EstimateResult | None = None  # as turned, perhaps illegal
    _note: str = ""  # why the last turn changed nothing
    _short: Problem | None = None  # what the memory lacks, where the layout is legal
    _turned_request: PlanRequest | None = None
    _begun: Plan | None = None  # where the turning began
    _mending: Rejected | None = None  # the near miss it began from
    # What Esc left: where it began, the question and the layout as turned. Turning the same one goes on from there.
    _left: tuple[Plan, PlanRequest, EstimateResult] | None = None
    _waiting: list[Turn]  # turns that came while one was estimated: none is lost

    if TYPE_CHECKING:
        tune: GptTune

        def current(self) -> Plan | None: ...
        def took(self) -> None: ...
        def show_detail(self) -> None: ...
        def told(self, request: PlanRequest, plan: Plan) -> Told: ...

    @property
    def turning(self) -> bool:
        return bool(self.has_class("-what-if"))  # type: ignore[attr-defined]

    @property
    def trial(self) -> tuple[PlanRequest, Plan] | None:
        """The layout as turned and its question, while numbers are turned."""
        if (
            not self.turning
            or self._trial is None
            or self._trial.plan is None
            or self._turned_request is None
        ):
            return None
        return self._turned_request, self._trial.plan

    @property
    def _knobs(self) -> Knobs:
        return self.query_one("#knobs", Knobs)  # type: ignore[attr-defined, no-any-return]

    def forget_turns(self) -> None:
        """The question was asked anew: what was turned before answers another one."""
        self.yours = self.asked = self._trial = self._turned_request = self._left = None

    def action_what_if(self) -> None:
        plan, request = self.current(), self._request
        if plan is None or request is None:
            return
        asked = self.asked if plan is self.yours and self.asked is not None else request
        if self._left is not None and self._left[0] is plan:
            self._begin(*self._left)
            self._note = "As you left them; Del begins anew."
            self.show_detail()
        else:
            self._begin(plan, asked, EstimateResult(legal=True, problems=(), plan=plan))

    def mend(self, rejected: Rejected) -> None:
        """Try a near miss with the change that was advised for it."""
        request = self._request
        if request is None:
            return
        whatif = self.tune.engine.whatif
        self._mending = rejected
        self.run_task("what-if", lambda: whatif.mended(request, rejected), self._mended)

    def _mended(self, turned: Turned) -> None:
        if turned.result.plan is None:  # nothing can be estimated of it
            problem = turned.result.problems[0]
            self.task_failed(UserError(problem.text, problem.fix))
            return
        self._begin(None, turned.request, turned.result)
        self._short = turned.memory
        self.show_detail()

    def _begin(self, plan: Plan | None, asked: PlanRequest, trial: EstimateResult) -> None:
        self._begun, self._waiting, self._note, self._short = plan, [], "", None
        self._turned_request, self._trial = asked, trial
        if plan is not None:
            self._mending = None
        self._show_knobs()
        screen: Any = self
        screen.add_class("-what-if")
        screen.refresh_bindings()
        self._knobs.focus()
        self.show_detail()

    def _show_knobs(self) -> None:
        trial = self._trial
        if trial is not None and trial.plan is not None and self._turned_request is not None:
            whatif = self.tune.engine.whatif
            held = whatif.held(self.tune.draft.recipe)
            self._knobs.show_knobs(whatif.turnables(self._turned_request, trial.plan.layout, held))

    # Named as Textual finds them: a decorator does not register handlers of a class that is only mixed in.

    def on_knobs_turned(self, event: Knobs.Turned) -> None:
        event.stop()
        whatif = self.tune.engine.whatif
        self._queue(lambda request, plan: whatif.turn(request, plan, event.key, event.by))

    def on_knobs_typed(self, event: Knobs.Typed) -> None:
        event.stop()
        whatif = self.tune.engine.whatif
        self._queue(lambda request, plan: whatif.typed(request, plan, event.key, event.text))

    def _queue(self, turn: Turn) -> None:
        self._waiting.append(turn)
        if not self.task_running("what-if"):
            self._turn_next()

    def _turn_next(self) -> None:
        trial, request = self._trial, self._turned_request
        if not self._waiting or trial is None or trial.plan is None or request is None:
            return
        plan, turn = trial.plan, self._waiting.pop(0)
        self.run_task("what-if", lambda: turn(request, plan), self._tried, self._refused)

    def _tried(self, turned: Turned) -> None:
        if self._trial is None:  # left meanwhile
            return
        answer = turned.result
        if answer.plan is None:  # nothing to estimate: the numbers stay, the problem is said
            answer = EstimateResult(answer.legal, answer.problems, self._trial.plan)
        else:
            self._turned_request = turned.request
        self._trial, self._note, self._short = answer, turned.note, turned.memory
        self._show_knobs()
        self.show_detail()
        self._turn_next()

    def _refused(self, error: UserError) -> None:
        """A question that contradicts itself is a problem of the trial, said where the trial is."""
        problem = Problem("value", error.message, error.hint)
        request = self._turned_request
        if request is not None:
            self._tried(Turned(request, EstimateResult(legal=False, problems=(problem,), plan=None)))

    def trial_lines(self, width: int) -> list[Line]:
        """The layout as turned: what is wrong with it, what has changed, then as any other in detail."""
        trial, asked = self._trial, self._turned_request
        if trial is None:
            return []
        lines: list[Line] = problem_lines((*trial.problems, *([self._short] if self._short else [])))
        if self._note:
            lines.append([("        ", ""), (self._note, "warn")])
        if trial.plan is None or asked is None:
            return lines
        said = layout_words(trial.plan.layout, is_finetune(trial.plan.trainer))
        lines.append([("layout  ", "head"), (said, "strong")])
        if self._request is not None:
            lines += asked_line(self._request, asked)
        if self._begun is not None and trial.plan is not self._begun:
            lines.append(turned_line(self._begun, trial.plan))
        if self._mending is not None and trial.legal:
            lines.append(
                [("        ", ""), (f"the near miss with {self._mending.fix or 'nothing changed'}", "accent")]
            )
        return [*lines, *detail(trial.plan, width, self.tune.letters, False, self.told(asked, trial.plan))]

    def on_knobs_kept(self, event: Knobs.Kept) -> None:
        event.stop()
        if self._trial is None or not self._trial.legal or self._trial.plan is None or self._waiting:
            return  # the problem stands on the screen
        if self._trial.plan is not self._begun:
            self.yours, self.asked, self._left = self._trial.plan, self._turned_request, None
            self.took()
        self._leave_what_if()

    def on_knobs_left(self, event: Knobs.Left) -> None:
        event.stop()
        trial, asked = self._trial, self._turned_request
        if (
            self._begun is not None
            and trial is not None
            and asked is not None
            and trial.plan is not self._begun
        ):
            self._left = (self._begun, asked, trial)
        self._leave_what_if()

    def on_knobs_anew(self, event: Knobs.Anew) -> None:
        event.stop()
        plan, request = self._begun, self._request
        if plan is None or request is None:  # a near miss: it began as it stands
            return
        self._left = None
        asked = self.asked if plan is self.yours and self.asked is not None else request
        self._begin(plan, asked, EstimateResult(legal=True, problems=(), plan=plan))

    def _leave_what_if(self) -> None:
        self._trial = self._begun = self._mending = None
        screen: Any = self
        screen.remove_class("-what-if")
        screen.refresh_bindings()
        screen.focus_table()
        self.show_detail()
