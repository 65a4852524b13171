"""Owns how the roles of painted text (`bad`, `muted`) look in each theme. Computed, not cascaded.

Component classes would say the same in CSS, but cost twenty style computations a widget each time a screen opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.style import Style
from textual.color import Color


@dataclass(frozen=True, slots=True)
class Look:
    """A role's look. colour, background: names of the theme's variables, empty for the widget's own."""

    colour: str = ""
    share: float = 1.0  # of the colour; the rest is the background
    background: str = ""
    bold: bool | None = None
    dim: bool | None = None
    reverse: bool | None = None


LOOKS: dict[str, Look] = {
    "muted": Look("foreground", 0.62),
    "good": Look("text-success"),
    "warn": Look("text-warning"),
    "bad": Look("text-error", bold=True),
    "accent": Look("text-accent"),
    "strong": Look(bold=True),
    "head": Look("foreground", 0.62, bold=True),
    "key": Look("text-accent", bold=True),
    "cursor": Look("block-cursor-foreground", background="block-cursor-background"),
    "idle-cursor": Look(background="surface-lighten-2"),
    "match": Look("background", background="warning"),
    "part-0": Look("primary"),
    "part-1": Look("accent"),
    "part-2": Look("success"),
    "part-3": Look("secondary"),
    "part-4": Look("foreground", 0.4),
    "part-5": Look("error"),
    "part-6": Look("primary-lighten-2"),
    "part-7": Look("secondary-lighten-2"),
    "part-8": Look("foreground", 0.75),
    "unsure": Look("foreground", 0.45),
}
# With 16 colours a colour cannot be mixed with the background, and what the background is nobody knows.
_SIXTEEN: dict[str, Look] = {
    "muted": Look("ansi_default", dim=True),
    "head": Look("ansi_default", bold=True),
    "unsure": Look("ansi_default", dim=True),
    "part-4": Look("ansi_bright_black"),
    "part-6": Look("ansi_bright_blue"),
    "part-7": Look("ansi_bright_magenta"),
    "cursor": Look(reverse=True),
    "idle-cursor": Look(bold=True),
    "match": Look(reverse=True),
}
_REVERSED_WITHOUT_COLOUR = ("cursor", "match")
ROLES = tuple(LOOKS)


def role_style(role: str, base: Style, variables: Mapping[str, str], ansi: bool, no_color: bool) -> Style:
    """The style of a role on top of a widget's own style. KeyError for a role that does not exist."""
    look = LOOKS[role]
    if ansi:
        look = _SIXTEEN.get(role, look)
    ground = _colour(look.background, variables)
    if ground is None and base.bgcolor is not None:
        ground = Color.from_rich_color(base.bgcolor)
    colour = _colour(look.colour, variables, ground)
    if colour is not None and look.share < 1.0 and ground is not None:
        colour = ground + colour.multiply_alpha(look.share)
    reverse = True if no_color and role in _REVERSED_WITHOUT_COLOUR else look.reverse
    return base + Style(
        color=colour.rich_color if colour is not None else None,
        bgcolor=ground.rich_color if look.background and ground is not None else None,
        bold=look.bold,
        dim=look.dim,
        reverse=reverse,
    )


def _colour(name: str, variables: Mapping[str, str], ground: Color | None = None) -> Color | None:
    """A variable of the theme, or None where the widget's own colour is meant."""
    if not name:
        return None
    value = variables.get(name, name)
    if value.startswith("auto"):  # `auto 87%`: black or white, whichever can be read on the background
        share = value.removeprefix("auto").strip().removesuffix("%")
        return ground + ground.get_contrast_text(float(share or 100) / 100) if ground is not None else None
    colour = Color.parse(value)
    return colour if colour.a or colour.ansi is not None else None
