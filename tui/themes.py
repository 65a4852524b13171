"""Owns the colour themes and which one a terminal gets. Meaning never hangs on colour alone."""

from __future__ import annotations

from collections.abc import Mapping

from textual.theme import Theme

DARK = Theme(
    name="dark",
    primary="#4FB3BF",
    secondary="#7AA2F7",
    accent="#F2B56B",
    success="#8CC98F",
    warning="#E5C07B",
    error="#EF6F7B",
    foreground="#D8DEE4",
    background="#12161B",
    surface="#1B2128",
    panel="#232B34",
    dark=True,
    variables={"block-cursor-background": "#2F6F78", "block-cursor-foreground": "#FFFFFF"},
)
LIGHT = Theme(
    name="light",
    primary="#00707C",
    secondary="#3557B7",
    accent="#9A5B00",
    success="#2B7A3D",
    warning="#8F6400",
    error="#B3261E",
    foreground="#1E242A",
    background="#FBFAF7",
    surface="#EFEDE7",
    panel="#E2DFD6",
    dark=False,
    variables={"block-cursor-background": "#00707C", "block-cursor-foreground": "#FFFFFF"},
)
MONO = Theme(
    name="mono",
    primary="#C8C8C8",
    secondary="#A8A8A8",
    accent="#FFFFFF",
    success="#E0E0E0",
    warning="#E0E0E0",
    error="#FFFFFF",
    foreground="#D8D8D8",
    background="#101010",
    surface="#1C1C1C",
    panel="#262626",
    dark=True,
    variables={"block-cursor-background": "#D8D8D8", "block-cursor-foreground": "#101010"},
)
OURS = (DARK, LIGHT, MONO)
CYCLE = ("dark", "light", "ansi-dark", "ansi-light", "mono")


def theme_for(environ: Mapping[str, str]) -> str:
    """TEXTUAL_THEME wins, then NO_COLOR, then what the terminal can show."""
    wanted = environ.get("TEXTUAL_THEME", "")
    if wanted:
        return wanted
    if "NO_COLOR" in environ:
        return "mono"
    return "dark" if _many_colours(environ) else "ansi-dark"


def _many_colours(environ: Mapping[str, str]) -> bool:
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return True
    return "256color" in environ.get("TERM", "") or "direct" in environ.get("TERM", "")
