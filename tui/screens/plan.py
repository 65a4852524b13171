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
from gpt_tune.planner.types import Plan, PlanRequest, SearchResult
from gpt_tune.words import seconds_words
from tui.screens.plan_whatif import WhatIf
from tui.screens.step import StepPage
from tui.widgets.knobs import Knobs
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.plan_compare import asked_line, compared
from tui.widgets.plan_lines import (
    COLUMNS,
    REJECTED_COLUMNS,
    detail,
    rejected_lines,
    rejected_rows,
    table_row,
)
from tui.widgets.rows import Row, RowList
from tui.widgets.words import plural

YOURS = "yours"  # the row of a layout turned by hand
MARKED: Line = [
    ("marked  ", "head"),
    ("move to another layout to compare the two; c takes the mark away", "accent"),
]


class PlanStep(WhatIf, StepPage):
    """The centre piece."""

    CSS_PATH = "../styles/plan.tcss"
    step = "plan"
    question = "Which layout?"
    HELP_TEXT = (
        "Layouts that fit, fastest first. Step times and memory are predictions; the interval holds 9 of 10 runs.\n"
        "Right arrow turns single numbers of a layout, of the batch and of the GPUs, and estimates again at once.\n"
        "Bars: █ needed, ▓ perhaps not needed, ░ perhaps needed too, ┃ what the GPU has. The risk of running out is\n"
        "smaller than the bar beyond the limit makes believe: the allocator gives its reserve back before it fails."
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
        Binding(
            "f", "free", "Free layout", show=False, tooltip="Forget what a profile or run fixed of the layout"
        ),
        Binding("s", "search", "Search again", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._request: PlanRequest | None = None
        self._result: SearchResult | None = None
        self._answered: PlanRequest | None = (
            None  # the draft's own question; turned numbers may differ from the rows'
        )
        self._sure = ""
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
        if request != self._answered:  # something was changed on another step
            self.action_search()

    def show_summary(self) -> None:
        """The screen itself says everything a summary would."""

    # --- searching

    def action_search(self) -> None:
        engine, draft = self.tune.engine, self.tune.draft

        def search() -> tuple[PlanRequest, SearchResult, str]:
            request = engine.choices.plan_request(draft)
            return (
                request,
                engine.planner.search(request),
                engine.sure.sure_words(request),
            )

        self.run_task("search", search, self._searched)

    def _searched(self, answer: tuple[PlanRequest, SearchResult, str]) -> None:
        self._request, self._result, self._sure = answer
        self._answered = self._request
        self._marked = None
        self.forget_turns()
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
            f"{len(result.plans)} of {plural(result.searched, 'layout')}"
            if result.plans
            else f"none of {plural(result.searched, 'layout')} fits"
        )
        role = "" if result.plans else "bad"
        line: Line = [
            (f"{asked}: ", "muted"),
            (found, role),
            (f" in {seconds_words(result.seconds)}", "muted"),
        ]
        fixed = self.tune.engine.choices.fixed_by(self.tune.draft)
        if fixed:
            line = [*line, (f"; {fixed}: f frees them", "accent")]
        self.query_one("#answer", Lines).show([line])

    def _show_table(self) -> None:
        assert self._result is not None
        rows = [table_row(plan, str(plan.rank)) for plan in self._result.plans]
        if self.yours is not None:
            rows.append(table_row(self.yours, YOURS, "you"))
        marked = [r if self._marked is None or r.key != str(self._marked.rank) else _starred(r) for r in rows]
        self.query_one("#plans", RowList).show_rows(marked)

    # --- the one in detail

    def current(self) -> Plan | None:
        """The plan under the cursor."""
        key = self.query_one("#plans", RowList).key
        if key == YOURS:
            return self.yours
        plans = self._result.plans if self._result is not None else ()
        return next((p for p in plans if str(p.rank) == key), None)

    def _show_detail(self) -> None:
        panel = self.query_one("#detail", Lines)
        plan, width = self.current(), max(panel.size.width, 40)
        if self.turning:
            panel.show(self.trial_lines(width))
        elif plan is None or (self.has_class("-rejected") and not self.beside):
            self._show_rejected_detail(panel)
        elif self._marked is not None and self._marked is not plan:
            names = (f"layout {self._marked.rank or 'yours'}", f"layout {plan.rank or 'yours'}")
            panel.show(compared(self._marked, plan, names))
        else:
            sure: Line = [("sure?   ", "head"), (self._sure, "muted")]
            marked = [MARKED] if self._marked is plan else []
            if plan is self.yours and self._request is not None:
                marked = [*marked, *asked_line(self._request, self.asked)]
            panel.show([*marked, *detail(plan, width, self.tune.letters, self.size.height > 40), sure])

    @property
    def beside(self) -> bool:
        """Whether there is room for the rejected layouts beside the one in detail."""
        return self.has_class("-wide") or self.has_class("-huge")

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

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a number is being turned, only what belongs to that works."""
        return not (self.turning and action in ("what_if", "compare", "rejected", "search", "next"))

    def took(self) -> None:
        """A turned layout is a row of the table now."""
        self._show_table()
        self.query_one("#plans", RowList).go_to(YOURS)

    def show_detail(self) -> None:
        self._show_detail()

    # --- compare, rejected, going on

    def action_compare(self) -> None:
        """Mark the layout under the cursor; a second time takes the mark away."""
        self._marked = None if self._marked is not None else self.current()
        if self._result is not None:
            self._show_table()
        self._show_detail()

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
        choices = self.tune.engine.choices
        try:
            draft = choices.choose(self.tune.draft, plan, self.asked if plan is self.yours else self._request)
        except UserError as error:  # turned to more GPUs than the partition has, say
            self.task_failed(error)
            return False
        self.tune.set_draft(draft)
        self._answered = choices.plan_request(draft)  # coming back shows the same rows again
        return True


def _starred(row: Row) -> Row:
    return Row(row.key, ("*" + str(row.cells[0]), *row.cells[1:]))
