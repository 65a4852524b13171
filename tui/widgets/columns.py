"""Owns how table columns share a width: which are dropped, which grow. Pure arithmetic, no widget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from tui.widgets.paint import Cell, Line, Span, fit, line_width, spans

GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One column. drop 0 is never dropped; larger numbers go first. grow takes what is left over."""

    label: str
    align: str = "left"
    drop: int = 0
    grow: bool = False
    least: int = 0
    most: int = 200


@dataclass(frozen=True, slots=True)
class Fitted:
    """Widths by column (0: hidden)."""

    widths: tuple[int, ...]

    @property
    def hidden(self) -> int:
        return sum(w == 0 for w in self.widths)


def fit_columns(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> Fitted:
    """Widths that fit into `width`: natural ones, less wanted columns dropped until the rest fits."""
    natural = [
        min(
            column.most,
            max(
                [cell_len(column.label), column.least, *(line_width(spans(r[i])) for r in rows if i < len(r))]
            ),
        )
        for i, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    for i in sorted(shown, key=lambda i: -columns[i].drop):
        if columns[i].drop == 0 or _needed(columns, natural, shown) <= width:
            break
        shown.remove(i)
    return Fitted(tuple(_share(columns, natural, shown, width)))


def _needed(columns: Sequence[Column], natural: list[int], shown: list[int]) -> int:
    return sum(max(columns[i].least, 4) if columns[i].grow else natural[i] for i in shown) + GAP * len(shown)


def _share(columns: Sequence[Column], natural: list[int], shown: list[int], width: int) -> list[int]:
    widths = [natural[i] if i in shown else 0 for i in range(len(columns))]
    growing = [i for i in shown if columns[i].grow]
    spare = width - sum(widths) - GAP * max(len(shown) - 1, 0)
    for i in growing:
        widths[i] = max(columns[i].least, 1, widths[i] + spare // len(growing))
    if not growing and spare < 0 and shown:
        widths[shown[-1]] = max(1, widths[shown[-1]] + spare)
    return widths


def lay_out(columns: Sequence[Column], fitted: Fitted, cells: Sequence[Cell], role: str = "") -> Line:
    """One row of cells as a painted line."""
    line: list[Span] = []
    for i, column in enumerate(columns):
        if fitted.widths[i]:
            cell = cells[i] if i < len(cells) else ""
            line += fit(cell, fitted.widths[i], column.align, role)
            line.append((" " * GAP, role))
    return line[:-1]
