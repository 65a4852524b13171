"""Owns asking the plan screen's question differently: another order, only some layouts; and copying its command."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpt_tune.errors import UserError
from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.profiles.schema import LayoutChoice
from gpt_tune.workflows import ordering, twin
from gpt_tune.workflows.draft import YOU, Draft

if TYPE_CHECKING:
    from tui.app import GptTune

SHOWN = 25  # layouts of the table
ONLY = "Only layouts with (tp=8 zero=1 recompute=none; nothing frees all):"


class Asking:
    """Mixed into the plan screen. order: one of ordering.ORDERS."""

    order: str = "rank"

    if TYPE_CHECKING:
        tune: GptTune
        _request: PlanRequest | None

        def action_search(self) -> None: ...
        def ordered(self) -> None: ...
        def chosen_now(self) -> tuple[PlanRequest, Plan] | None: ...

    @property
    def objective(self) -> str:
        return ordering.ORDERS[self.order].objective

    def asked_of(self, draft: Draft) -> PlanRequest:
        """A draft's own question, for as many layouts as the table shows."""
        return self.tune.engine.choices.plan_request(draft, SHOWN)  # type: ignore[no-any-return]

    def asked_of_draft(self) -> PlanRequest:
        """What the draft at hand asks."""
        return self.asked_of(self.tune.draft)

    # --- another order

    def action_order(self) -> None:
        from tui.screens.pick_dialog import PickDialog

        options = [(name, order.label, order.means) for name, order in ordering.ORDERS.items()]
        self.tune.push_screen(PickDialog(options, self.order), self._reorder)

    def _reorder(self, name: str | None) -> None:
        if name is None or name == self.order:
            return
        before, self.order = self.objective, name
        if self.objective == before:
            self.ordered()
        else:
            self.action_search()

    # --- only some

    def action_only(self) -> None:
        from tui.screens.dialogs import Ask

        now = ordering.only_words(dict(self.tune.draft.profile.layout.fixed))
        self.tune.push_screen(Ask(ONLY, now, self._wrong, empty=True), self._narrow)

    def _wrong(self, text: str) -> str | None:
        """Why these keys will not do, or None."""
        try:
            self.tune.engine.choices.plan_request(self._narrowed(text))
        except UserError as error:
            return str(error)
        return None

    def _narrowed(self, text: str) -> Draft:
        draft = self.tune.draft
        free = self.tune.engine.choices.unfixed(draft)
        fixed = ordering.only(text)
        said = {**free.origins, **({"layout.fixed": YOU} if fixed else {})}
        profile = replace(free.profile, layout=LayoutChoice(fixed))
        return replace(free, profile=profile, origins=said, plan=None)  # type: ignore[no-any-return]

    def _narrow(self, text: str | None) -> None:
        if text is not None:
            self.tune.set_draft(self._narrowed(text))
            self.action_search()

    # --- the same by command

    def command(self, request: PlanRequest, plan: Plan | None) -> str:
        """What asks this on the command line: one layout, else the ranked ones."""
        if plan is None:
            return twin.plan_command(self.tune.draft, request)
        return twin.estimate_command(self.tune.draft, request, plan.layout)

    def action_take_command(self) -> None:
        chosen = self.chosen_now()
        if chosen is not None:
            self._copy(self.command(*chosen))

    def action_take_question(self) -> None:
        if self._request is not None:
            self._copy(self.command(self._request, None))

    def _copy(self, command: str) -> None:
        app: Any = self.tune
        if not command:
            app.notify("Save it as a profile (F2): gpt-tune plan NAME then asks the same.", markup=False)
            return
        app.copy_to_clipboard(command)
        app.notify(f"Copied: {command}", markup=False, timeout=10)
