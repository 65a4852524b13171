"""Owns what stands below the table of the plan screen: one layout in detail, its stages, two compared, a near miss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpt_tune.layouts.trainers import is_finetune
from gpt_tune.planner.types import Plan, PlanRequest, SearchResult
from gpt_tune.workflows import cost
from gpt_tune.workflows.binding import binding_words
from tui.screens.plan_whatif import WhatIf
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.plan_compare import asked_line, compared
from tui.widgets.plan_lines import Told, detail, rejected_lines
from tui.widgets.rows import RowList
from tui.widgets.stage_view import stage_lines

YOURS = "yours"  # the row of a layout turned by hand
BESIDES_STAGES = 22  # lines that the rest of a layout's detail takes
MARKED: Line = [
    ("marked  ", "head"),
    ("move to another layout to compare the two; c takes the mark away", "accent"),
]


class Shown(WhatIf):
    """Mixed into the plan screen."""

    _result: SearchResult | None
    _marked: Plan | None
    _sure: str
    _sure_short: str

    if TYPE_CHECKING:
        query_one: Any
        has_class: Any
        toggle_class: Any
        call_after_refresh: Any
        focused: Any
        size: Any

        def command(self, request: PlanRequest, plan: Plan | None) -> str: ...

    def current(self) -> Plan | None:
        """The plan under the cursor."""
        key = self.query_one("#plans", RowList).key
        if key == YOURS:
            return self.yours
        plans = self._result.plans if self._result is not None else ()
        return next((p for p in plans if str(p.rank) == key), None)

    def chosen_now(self) -> tuple[PlanRequest, Plan] | None:
        """The layout at hand and the question it answers: the one that is turned, else the one under the cursor."""
        if self.trial is not None:
            return self.trial
        plan = self.current()
        asked = self.asked if plan is not None and plan is self.yours else self._request
        return None if plan is None or asked is None else (asked, plan)

    def told(self, request: PlanRequest, plan: Plan) -> Told:
        """What is said beside the plan's own numbers."""
        run = cost.cost_of_run(self.tune.draft.profile, request, plan)
        return Told(run.words, self._sure_short, binding_words(plan), self._sure, self.command(request, plan))

    def show_detail(self) -> None:
        panel = self.query_one("#detail", Lines)
        plan, width = self.current(), max(panel.size.width - 1, 40)
        if self.turning:
            panel.show(self.trial_lines(width))
        elif plan is None or (self.has_class("-rejected") and not self.beside):
            self.show_rejected()
        elif self._marked is not None and self._marked is not plan:
            names = (f"layout {self._marked.rank or 'yours'}", f"layout {plan.rank or 'yours'}")
            panel.show(compared(self._marked, plan, names))
        elif self.has_class("-memory"):
            room, numbers = panel.size.height - 7, min(len(plan.memory.stages), 12)
            height = max(5, min(10, room), min(18, room - numbers))
            panel.show(stage_lines(plan.memory, width, height, self.tune.letters))
        else:
            self._show_plan(panel, plan, width)

    def _show_plan(self, panel: Lines, plan: Plan, width: int) -> None:
        lines: list[Line] = [MARKED] if self._marked is plan else []
        chosen = self.chosen_now()
        if chosen is None or self._request is None:
            return
        if plan is self.yours:
            lines += asked_line(self._request, self.asked)
        told = self.told(chosen[0], plan)
        # All stages only where the reasons below them stay in sight; `m` shows them all anyway.
        every = len(plan.memory.stages) <= panel.size.height - BESIDES_STAGES
        panel.show([*lines, *detail(plan, width, self.tune.letters, every, told)])

    @property
    def beside(self) -> bool:
        """Whether there is room for the rejected layouts beside the one in detail."""
        return bool(self.has_class("-wide") or self.has_class("-huge"))

    def show_rejected(self) -> None:
        """The near miss under the cursor: why it lost, and what would have saved it."""
        rows = self.query_one("#rejected", RowList)
        rejected = self._result.rejected if self._result is not None else ()
        self.query_one("#detail", Lines).show(
            rejected_lines(rejected[rows.cursor], self.tuned) if rejected else []
        )

    @property
    def tuned(self) -> bool:
        """Whether these are fine-tuning jobs, whose layouts are said in other words."""
        return self._request is not None and is_finetune(self._request.trainer)

    def action_more(self) -> None:
        """Scroll what is said; from its end back to its start."""
        panel = self.query_one("#detail", Lines)
        room = max(panel.scrollable_content_region.height, 1)
        end = round(panel.scroll_offset.y) >= panel.virtual_size.height - room
        panel.scroll_to(y=0 if end else panel.scroll_offset.y + max(room - 1, 1), animate=False)

    def action_memory(self) -> None:
        self.toggle_class("-memory")
        self.query_one("#detail", Lines).scroll_home(animate=False)
        self.call_after_refresh(self.show_detail)
