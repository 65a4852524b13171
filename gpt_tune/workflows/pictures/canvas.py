"""Owns what a picture is painted on: lines, texts and boxes in pixels; as SVG here, as PNG in `raster`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol
from xml.sax.saxutils import escape, quoteattr

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]
TEXT = 12.0  # pixels high


class Canvas(Protocol):
    """Pixels, the origin at the top left."""

    def line(
        self, points: Sequence[Point], colour: str, width: float, dash: tuple[float, ...] = ()
    ) -> None: ...
    def text(
        self, at: Point, words: str, colour: str, anchor: Anchor = "start", bold: bool = False
    ) -> None: ...
    def finish(self) -> bytes: ...


class Svg:
    """An SVG file without scripts, fonts or links; every text in it is escaped."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="{TEXT:g}">',
            f"<title>{escape(plain(title))}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]

    def line(self, points: Sequence[Point], colour: str, width: float, dash: tuple[float, ...] = ()) -> None:
        if len(points) < 2:
            return
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{" ".join(f"{d:g}" for d in dash)}"' if dash else ""
        self._parts.append(
            f'<polyline points="{places}" fill="none" stroke={quoteattr(colour)} stroke-width="{width:g}"{dashes}/>'
        )

    def text(self, at: Point, words: str, colour: str, anchor: Anchor = "start", bold: bool = False) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" fill={quoteattr(colour)} text-anchor="{anchor}"{weight}>'
            f"{escape(plain(words))}</text>"
        )

    def finish(self) -> bytes:
        return "\n".join([*self._parts, "</svg>", ""]).encode("utf-8")


def plain(text: str) -> str:
    """Text without what XML cannot hold and what would not show."""
    return "".join(c if c.isprintable() else "�" for c in text)
