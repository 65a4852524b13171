"""Owns what all windows over a screen share: the box, and that they look the same at every size. No content."""

from __future__ import annotations

from textual.screen import ModalScreen, ScreenResultType

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

    HORIZONTAL_BREAKPOINTS = []  # noqa: RUF012  # Textual's own contract
    VERTICAL_BREAKPOINTS = []  # noqa: RUF012
