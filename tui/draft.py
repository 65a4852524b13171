"""Owns the draft on the screen side: reading it, changing it, keeping texts that are not legal yet.

Every rule is the engine's (`gpt_tune.workflows.choices`); this only remembers what was typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpt_tune.errors import UserError

if TYPE_CHECKING:
    from gpt_tune.workflows.draft import Draft, Field, Step
    from tui.engine import Engine
    from tui.widgets.fields import FieldLike


class Drafting:
    """Mixed into the app."""

    engine: Engine
    forecast: Any = (
        None  # the best layout for the choices so far, found in the background; stale ones are not shown
    )
    _draft: Draft | None = None
    typed: dict[str, str]

    @property
    def draft(self) -> Draft:
        """The draft at hand. There is one from the first step to the submission; see has_draft."""
        assert self._draft is not None, "no draft has been begun"
        return self._draft

    @property
    def has_draft(self) -> bool:
        return self._draft is not None

    def set_draft(self, draft: Any, fresh: bool = False) -> None:
        """Take a changed draft; a fresh one forgets what was typed before."""
        self._draft = draft
        if fresh:
            self.typed.clear()

    def drop_draft(self) -> None:
        """Forget the draft: it has become a run."""
        self._draft = None
        self.typed.clear()

    def steps(self) -> Sequence[Step]:
        return self.engine.choices.steps(self.draft)  # type: ignore[no-any-return]

    def fields(self, step: str) -> Sequence[Field]:
        return self.engine.choices.fields(self.draft, step)  # type: ignore[no-any-return]

    def summary(self) -> Sequence[tuple[str, str]]:
        return self.engine.choices.summary(self.draft, self.forecast).parts  # type: ignore[no-any-return]

    def text_of(self, field: FieldLike) -> str:
        """What to show in a field: what was typed and is not legal yet, else its value."""
        return self.typed.get(field.key, field.value)

    def check(self, key: str, text: str) -> str | None:
        """Why a text will not do, in one sentence, or None."""
        return self.engine.choices.check(self.draft, key, text)  # type: ignore[no-any-return]

    def put(self, key: str, text: str) -> str | None:
        """Take a text into the draft; the sentence why not, when it is illegal (the text is kept)."""
        try:
            self._draft = self.engine.choices.put(self.draft, key, text)
        except UserError as error:
            self.typed[key] = text
            return str(error)
        self.typed.pop(key, None)
        return None
