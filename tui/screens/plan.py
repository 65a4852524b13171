"""Owns the plan screen: ranked layouts, one in detail, its stages, what-if, two compared, what was rejected.

It shows what `planner.search` and `workflows.whatif` say; it computes nothing of its own.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from gpt_tune.errors import UserError
from gpt_tune.planner.types import Plan, PlanRequest, SearchResult
from gpt_tune.workflows import ordering
from tui.screens.plan_ask import Asking
from tui.screens.plan_shown import YOURS, Shown
from tui.screens.step import StepPage
from tui.widgets.knobs import Knobs
from tui.widgets.lines import Lines
from tui.widgets.plan_answer import answer_line
from tui.widgets.plan_table import REJECTED_COLUMNS, columns_for, rejected_columns, rejected_rows, table
from tui.widgets.rows import RowList


class NearMisses(RowList):
    """The layouts that were ruled out; Enter tries the change that was advised."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "try_change", "Try the change", id="plan.try-change",
                tooltip="Estimate the near miss with the change that would let it in"),
    ]  # fmt: skip

    def action_try_change(self) -> None:
        self.action_choose()


class PlanStep(Asking, Shown, StepPage):
    """The centre piece."""

    CSS_PATH = "../styles/plan.tcss"
    step = "plan"
    question = "Which layout?"
    HELP_TEXT = (
        "Layouts that fit, in the planner's order. All numbers are predictions;\n"
        "their intervals hold in 9 of 10 runs.\n"
        "Right arrow turns any number of a layout, or type it: it is estimated at\n"
        "once, and Enter makes it a row that can be chosen.\n"
        "Bars: █ needed, ▓ perhaps not, ░ perhaps too, ┃ what the GPU has. The risk\n"
        "is smaller than the bar beyond the limit makes believe: the allocator\n"
        "gives its reserve back before it fails."
    )
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Review"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "right,w", "what_if", "What if", key_display="→", tooltip="Turn single numbers of this layout"
        ),
        Binding("m", "memory", "Memory", tooltip="Every stage's memory by cause, against the limit"),
        Binding("c", "compare", "Compare", tooltip="Mark this layout, then compare it with another"),
        Binding("r", "rejected", "Rejected",
                tooltip="Layouts that were ruled out, and the change that cures each; Enter tries it"),
        Binding("o", "order", "Order", tooltip="By step time, memory, risk; most memory left, fewest GPUs"),
        Binding("slash", "only", "Only", tooltip="Search only layouts with some numbers fixed, such as tp=8 zero=1"),
        Binding("space", "more", "Scroll", show=False, tooltip="Scroll the text below the table; back at its end"),
        Binding("y", "take_command", "Copy command", show=False, tooltip="Copy the command that estimates this layout"),
        Binding("Y", "take_question", "Copy plan command", show=False, tooltip="Copy the command that finds them all"),
        Binding(
            "f", "free", "Free layout", show=False, tooltip="Forget what a profile, a run or / fixed of the layout"
        ),
        Binding("s", "search", "Search again", show=False),
        Binding("n", "without", "Go on without a layout", show=False, tooltip="The job runs without a plan"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._request: PlanRequest | None = None
        self._result: SearchResult | None = None
        # The draft's own question; turned numbers may differ from the rows'.
        self._answered: PlanRequest | None = None
        self._sure = ""
        self._sure_short = ""
        self._marked: Plan | None = None

    def body(self) -> ComposeResult:
        yield Lines([[("Searching layouts…", "muted")]], id="answer")
        yield RowList([c.column for c in columns_for(())], id="plans", empty="searching…")
        yield Knobs(id="knobs")
        with Horizontal(id="below"):
            yield Lines(id="detail", indent=8, focusable=True)
            yield NearMisses(REJECTED_COLUMNS, id="rejected", empty="nothing was rejected")

    def on_mount(self) -> None:
        self.update_path()
        self.query_one("#plans").focus()
        self.action_search()

    def resumed(self) -> None:
        self.update_path()
        if self._request is None or self.task_running("search"):
            return
        try:
            request = self.asked_of_draft()
        except UserError as error:
            self.task_failed(error)
            return
        if request != self._answered:  # something was changed on another step
            self.action_search()

    def show_summary(self) -> None:
        """The screen itself says everything a summary would."""

    # --- searching

    def action_search(self) -> None:
        engine, draft, order = self.tune.engine, self.tune.draft, self.order

        def search() -> tuple[PlanRequest, PlanRequest, SearchResult, tuple[str, str]]:
            own = self.asked_of(draft)
            request = ordering.asked_for(own, order)
            result = engine.planner.search(request)
            request = ordering.on_the_gpus_found(request, result)
            return own, request, result, (engine.sure.short_words(own), engine.sure.sure_words(own))

        self.run_task("search", search, self._searched)

    def _searched(self, answer: tuple[PlanRequest, PlanRequest, SearchResult, tuple[str, str]]) -> None:
        self._answered, self._request, self._result, (self._sure_short, self._sure) = answer
        self._marked = None
        self.forget_turns()
        result = self._result
        tuned = self.tuned
        self._show_table()
        rejected = self.query_one("#rejected", RowList)
        rejected.show_rows(
            rejected_rows(result.rejected, tuned),
            columns=rejected_columns(len(result.rejected), result.rejected_count),
        )
        self.set_class(not result.plans, "-nothing")
        self.set_class(not result.plans, "-rejected")
        if not result.plans or rejected.has_focus:
            self.focus_table()
        self.refresh_bindings()
        self._show_answer()
        self.show_detail()

    def focus_table(self) -> None:
        """The keyboard to the layouts; to the near misses where nothing fits."""
        nothing = self._result is not None and not self._result.plans and self.yours is None
        self.query_one("#rejected" if nothing else "#plans").focus()

    def task_failed(self, error: UserError) -> None:
        self.query_one("#answer", Lines).show([[("! ", "bad"), (f"{error.message} {error.hint}", "bad")]])

    def _show_answer(self) -> None:
        if self._request is None or self._result is None:
            return
        choices = self.tune.engine.choices
        fixed = choices.fixed_by(self.tune.draft)
        line = answer_line(self._request, self._result, ordering.ORDERS[self.order], fixed, self._without)
        self.query_one("#answer", Lines).show([line])

    def _plans(self) -> list[Plan]:
        """The rows: what was found, in the order asked for, then the one turned by hand."""
        found = list(ordering.in_order(self._result.plans, self.order)) if self._result is not None else []
        return [*found, self.yours] if self.yours is not None else found

    def _show_table(self) -> None:
        plans = self._plans()
        keys = [YOURS if plan is self.yours else str(plan.rank) for plan in plans]
        marks = ["you" if key == YOURS else key for key in keys]
        marks = [f"*{m}" if p is self._marked else m for p, m in zip(plans, marks, strict=True)]
        columns, rows = table(plans, keys, marks)
        self.query_one("#plans", RowList).show_rows(rows, columns=columns)

    def ordered(self) -> None:
        """Sorted anew: the best by the new order is what one wants to see."""
        self._show_table()
        self.query_one("#plans", RowList).action_move(-(10**6))
        self._show_answer()
        self.show_detail()

    def text_to_copy(self) -> str:
        if self.focused is self.query_one("#plans") or self.turning:
            chosen = self.chosen_now()
            return "" if chosen is None else self.command(*chosen)
        return super().text_to_copy()

    @on(RowList.Highlighted)
    def _highlighted(self, event: RowList.Highlighted) -> None:
        event.stop()
        if event.rows.id == "rejected":
            if event.rows.has_focus:
                self.show_rejected()
        else:
            self.show_detail()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.show_detail)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a number is being turned, only what belongs to that works; without layouts, only what needs none."""
        if action == "without":
            return self._without
        if self.turning:
            return action not in (
                "what_if",
                "compare",
                "rejected",
                "search",
                "next",
                "memory",
                "order",
                "only",
                "free",
            )
        if self.has_class("-nothing") and self.yours is None:
            return action not in ("what_if", "compare", "rejected", "memory", "next", "take_command")
        return not (action == "free" and not self._fixed)

    @property
    def _fixed(self) -> bool:
        return self.tune.has_draft and bool(self.tune.engine.choices.fixed_by(self.tune.draft))

    @property
    def _without(self) -> bool:
        """Whether the job can do without a layout, and there is none."""
        nothing = self._result is not None and not self._result.plans and self.yours is None
        return (
            nothing and self.tune.has_draft and bool(self.tune.engine.choices.plan_optional(self.tune.draft))
        )

    def took(self) -> None:
        """A turned layout is a row of the table now."""
        self.remove_class("-rejected", "-nothing")
        self._show_table()
        self.query_one("#plans", RowList).go_to(YOURS)

    # --- other views, going on

    def action_compare(self) -> None:
        """Mark the layout under the cursor; a second time takes the mark away."""
        self._marked = None if self._marked is not None else self.current()
        if self._result is not None:
            self._show_table()
        self.show_detail()

    def action_free(self) -> None:
        """Let the planner choose again where a profile or an earlier run had fixed the layout."""
        choices = self.tune.engine.choices
        if choices.fixed_by(self.tune.draft):
            self.tune.set_draft(choices.unfixed(self.tune.draft))
            self.action_search()

    def action_rejected(self) -> None:
        if self.beside and not self.query_one("#rejected").has_focus:
            self.add_class("-rejected")
        else:
            self.toggle_class("-rejected")
        self.query_one("#rejected" if self.has_class("-rejected") else "#plans").focus()
        self.show_detail()

    def action_back(self) -> None:
        if self.has_class("-rejected") and not self.has_class("-nothing"):
            self.action_rejected()
        elif self._marked is not None:
            self.action_compare()
        elif self.has_class("-memory"):
            self.action_memory()
        else:
            super().action_back()

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        if event.rows.id == "plans":
            self.action_next()
        elif self._result is not None and self._result.rejected:
            self.mend(self._result.rejected[event.rows.cursor])

    def action_without(self) -> None:
        """On without a plan; the review says what that means."""
        self.tune.next_step(self.step)

    def ready(self) -> bool:
        chosen = self.chosen_now()
        if chosen is None:
            return False
        asked, plan = chosen
        choices = self.tune.engine.choices
        try:
            draft = choices.choose(self.tune.draft, ordering.as_chosen(plan, self.order), asked)
        except UserError as error:  # turned to more GPUs than the partition has, say
            self.task_failed(error)
            return False
        self.tune.set_draft(draft)
        self._answered = self.asked_of_draft()  # coming back shows the same rows again
        return True
