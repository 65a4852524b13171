"""Owns the plan screen: ranked layouts, one in detail, what-if, two compared, what was rejected.

It shows what `planner.search`, `planner.what_if` say; it computes nothing of its own.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from gpt_tune.errors import UserError
from gpt_tune.planner.types import EstimateResult, Plan, PlanRequest, SearchResult
from gpt_tune.words import seconds_words
from tui.screens.step import StepPage
from tui.widgets.knobs import Knobs
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.plan_lines import (
    COLUMNS,
    REJECTED_COLUMNS,
    compared,
    detail,
    knobs_of,
    layout_words,
    problem_lines,
    rejected_lines,
    rejected_rows,
    table_row,
)
from tui.widgets.rows import Row, RowList

YOURS = "yours"  # the row of a layout turned by hand


class PlanStep(StepPage):
    """The centre piece."""

    CSS_PATH = "../styles/plan.tcss"
    step = "plan"
    question = "Which layout?"
    HELP_TEXT = (
        "Layouts that fit, fastest first. Step times and memory are predictions; the interval holds 9 of 10 runs.\n"
        "Right arrow turns single numbers of a layout and estimates again at once."
    )
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Review"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "right,w", "what_if", "What if", key_display="→", tooltip="Turn single numbers of this layout"
        ),
        Binding("c", "compare", "Compare", tooltip="Mark this layout, then compare it with another"),
        Binding(
            "r", "rejected", "Rejected", tooltip="Layouts that were ruled out, and the change that cures each"
        ),
        Binding("s", "search", "Search again", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._request: PlanRequest | None = None
        self._result: SearchResult | None = None
        self._yours: EstimateResult | None = None
        self._trial: EstimateResult | None = None
        self._marked: Plan | None = None

    def body(self) -> ComposeResult:
        yield Lines([[("Searching layouts…", "muted")]], id="answer")
        yield RowList(COLUMNS, id="plans", empty="searching…")
        yield Knobs(id="knobs")
        with Horizontal(id="below"):
            yield Lines(id="detail", indent=8, focusable=True)
            yield RowList(REJECTED_COLUMNS, id="rejected", empty="nothing was rejected")

    def on_mount(self) -> None:
        self.update_path()
        self.query_one("#plans").focus()
        self.action_search()

    def resumed(self) -> None:
        self.update_path()
        if self._request is None or self.task_running("search"):
            return
        try:
            request = self.tune.engine.choices.plan_request(self.tune.draft)
        except UserError as error:
            self.task_failed(error)
            return
        if request != self._request:  # something was changed on another step
            self.action_search()

    def show_summary(self) -> None:
        """The screen itself says everything a summary would."""

    # --- searching

    def action_search(self) -> None:
        engine, draft = self.tune.engine, self.tune.draft

        def search() -> tuple[PlanRequest, SearchResult]:
            request = engine.choices.plan_request(draft)
            return request, engine.planner.search(request)

        self.run_task("search", search, self._searched)

    def _searched(self, answer: tuple[PlanRequest, SearchResult]) -> None:
        self._request, self._result = answer
        self._yours = self._trial = self._marked = None
        self._show_table()
        self.query_one("#rejected", RowList).show_rows(rejected_rows(self._result.rejected))
        self.set_class(not self._result.plans, "-nothing")
        if not self._result.plans:
            self.query_one("#rejected").focus()
        self._show_answer()
        self._show_detail()

    def task_failed(self, error: UserError) -> None:
        self.query_one("#answer", Lines).show([[("! ", "bad"), (f"{error.message} {error.hint}", "bad")]])

    def _show_answer(self) -> None:
        request, result = self._request, self._result
        if request is None or result is None:
            return
        batch = f"batch {request.global_batch_size} x {request.seq_length}"
        asked = f"{request.model.id} on {request.gpus} x {request.node.gpu.id}, {batch}"
        found = (
            f"{len(result.plans)} of {result.searched:,} layouts"
            if result.plans
            else f"none of {result.searched:,} layouts fits"
        )
        role = "" if result.plans else "bad"
        line: Line = [
            (f"{asked}: ", "muted"),
            (found, role),
            (f" in {seconds_words(result.seconds)}", "muted"),
        ]
        self.query_one("#answer", Lines).show([line])

    def _show_table(self) -> None:
        assert self._result is not None
        rows = [table_row(plan, str(plan.rank)) for plan in self._result.plans]
        if self._yours is not None and self._yours.plan is not None:
            rows.append(table_row(self._yours.plan, YOURS, "you"))
        marked = [r if self._marked is None or r.key != str(self._marked.rank) else _starred(r) for r in rows]
        self.query_one("#plans", RowList).show_rows(marked)

    # --- the one in detail

    def current(self) -> Plan | None:
        """The plan under the cursor."""
        key = self.query_one("#plans", RowList).key
        if key == YOURS and self._yours is not None:
            return self._yours.plan
        plans = self._result.plans if self._result is not None else ()
        return next((p for p in plans if str(p.rank) == key), None)

    def _show_detail(self) -> None:
        panel = self.query_one("#detail", Lines)
        plan, width = self.current(), max(panel.size.width, 40)
        if self.query_one("#knobs").has_focus and self._trial is not None:
            self._show_trial(panel, width)
        elif plan is None or self.has_class("-rejected"):
            self._show_rejected_detail(panel)
        elif self._marked is not None and self._marked is not plan:
            panel.show(
                compared(
                    self._marked, plan, (f"layout {self._marked.rank}", f"layout {plan.rank or 'yours'}")
                )
            )
        else:
            panel.show(detail(plan, width, self.tune.letters, self.size.height > 40))

    def _show_trial(self, panel: Lines, width: int) -> None:
        trial = self._trial
        assert trial is not None
        lines = problem_lines(trial.problems)
        if trial.plan is not None:
            lines += [[(layout_words(trial.plan.layout), "strong")]] if lines else []
            lines += detail(trial.plan, width, self.tune.letters, False)
        panel.show(lines)

    def _show_rejected_detail(self, panel: Lines) -> None:
        rows = self.query_one("#rejected", RowList)
        rejected = self._result.rejected if self._result is not None else ()
        panel.show(rejected_lines(rejected[rows.cursor]) if rejected else [])

    @on(RowList.Highlighted)
    def _highlighted(self, event: RowList.Highlighted) -> None:
        event.stop()
        if event.rows.id == "rejected":
            if event.rows.has_focus:
                self._show_rejected_detail(self.query_one("#detail", Lines))
        else:
            self._show_detail()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show_detail)

    # --- what if

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a number is being turned, only what belongs to that works."""
        turning = self.has_class("-what-if")
        return not (turning and action in ("what_if", "compare", "rejected", "search", "next"))

    def action_what_if(self) -> None:
        plan = self.current()
        if plan is None:
            return
        self._trial = EstimateResult(legal=True, problems=(), plan=plan)
        knobs = self.query_one("#knobs", Knobs)
        knobs.show_knobs(knobs_of(plan.layout))
        self.add_class("-what-if")
        self.refresh_bindings()
        knobs.focus()
        self._show_detail()

    @on(Knobs.Turned)
    def _turned(self, event: Knobs.Turned) -> None:
        event.stop()
        trial, request, planner = self._trial, self._request, self.tune.engine.planner
        if trial is None or trial.plan is None or request is None:
            return
        plan = trial.plan
        self.run_task("what-if", lambda: planner.what_if(request, plan, event.key, event.by), self._tried)

    def _tried(self, answer: EstimateResult) -> None:
        if answer.plan is None and self._trial is not None:
            answer = EstimateResult(answer.legal, answer.problems, self._trial.plan)
        self._trial = answer
        if answer.plan is not None:
            self.query_one("#knobs", Knobs).show_knobs(knobs_of(answer.plan.layout))
        self._show_detail()

    @on(Knobs.Kept)
    def _kept(self, event: Knobs.Kept) -> None:
        event.stop()
        if self._trial is None or not self._trial.legal or self._trial.plan is None:
            return  # the problem stands on the screen
        self._yours = self._trial
        self._show_table()
        self._leave_what_if()
        self.query_one("#plans", RowList).go_to(YOURS)

    @on(Knobs.Left)
    def _left(self, event: Knobs.Left) -> None:
        event.stop()
        self._leave_what_if()

    def _leave_what_if(self) -> None:
        self._trial = None
        self.remove_class("-what-if")
        self.refresh_bindings()
        self.query_one("#plans").focus()
        self._show_detail()

    # --- compare, rejected, going on

    def action_compare(self) -> None:
        """Mark the layout under the cursor; a second time takes the mark away."""
        self._marked = None if self._marked is not None else self.current()
        if self._marked is not None:
            self.notify(f"Layout {self._marked.rank} marked: move to another one to compare.", markup=False)
        if self._result is not None:
            self._show_table()
        self._show_detail()

    def action_rejected(self) -> None:
        self.toggle_class("-rejected")
        self.query_one("#rejected" if self.has_class("-rejected") else "#plans").focus()
        self._show_detail()

    def action_back(self) -> None:
        if self.has_class("-rejected"):
            self.action_rejected()
        elif self._marked is not None:
            self.action_compare()
        else:
            super().action_back()

    @on(RowList.Chosen, "#plans")
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.action_next()

    def ready(self) -> bool:
        plan = self.current()
        if plan is None:
            return False
        self.tune.set_draft(self.tune.engine.choices.choose(self.tune.draft, plan))
        return True


def _starred(row: Row) -> Row:
    return Row(row.key, ("*" + str(row.cells[0]), *row.cells[1:]))
