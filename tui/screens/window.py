"""Owns what all windows over a screen share: the box, and that they look the same at every size. No content."""

from __future__ import annotations

from typing import Any

from textual.screen import ModalScreen, ScreenResultType

from tui.keys import family, with_names

BOX = """
    align: center middle; background: $background 60%;
    & > Vertical {
        width: 90%; max-width: 90; height: auto; max-height: 90%; padding: 1 2; background: $surface;
        border: round $primary;
    }
    &:ansi { background: ansi_default; & > Vertical { border: round ansi_blue; background: ansi_default; } }
"""


class Window(ModalScreen[ScreenResultType]):
    """A window. Nothing in one depends on the size classes, and setting them would style everything twice."""

    def __init_subclass__(cls, **more: Any) -> None:
        """Each key gets a name, by which the user can move it."""
        if "BINDINGS" in cls.__dict__:
            cls.BINDINGS = with_names(family(cls), cls.BINDINGS)
        super().__init_subclass__(**more)

    HORIZONTAL_BREAKPOINTS = []  # noqa: RUF012  # Textual's own contract
    VERTICAL_BREAKPOINTS = []  # noqa: RUF012
