"""Owns how a run is said in the list of runs: the cells of its row, and the lines about the one chosen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tui.states import ago, state_cell
from tui.widgets.columns import Column
from tui.widgets.paint import Cell, Line

COLUMNS = (
    Column("state", least=9),
    Column("name", most=28),
    Column("job", drop=2),
    Column("model", drop=6, most=20),
    Column("where", drop=5),
    Column("GPUs", "right", drop=4),
    Column("steps", "right", drop=4),
    Column("when", drop=1),
    Column("tags", drop=3, most=24),
    Column("note or why", grow=True, drop=3, least=10),
)


def about_lines(record: Any, tags: Sequence[str]) -> list[Line]:
    """The run's id and model, and its tags and note whole: the table may have cut them."""
    lines: list[Line] = [[("run   ", "muted"), (record.run_id, ""), (f"  {model_of(record)}", "")]]
    if tags:
        lines.append([("tags  ", "muted"), (" ".join(tags), "accent")])
    if record.note:
        lines.append([("note  ", "muted"), (record.note, "")])
    return lines


def model_of(record: Any) -> str:
    return str((record.shape or {}).get("id") or "")


def run_cells(record: Any, reason: str, tags: Sequence[str], marked: bool = False) -> tuple[Cell, ...]:
    where = (
        f"{record.cluster}/{record.partition}"
        if record.partition and record.cluster != "local"
        else record.cluster
    )
    said: Cell = [(record.note, "")] if record.note else [(reason, "muted")]
    return (
        state_cell(record.state),
        f"* {record.name}" if marked else record.name,
        record.job_id or "-",
        model_of(record) or "-",
        where,
        str(record.gpus or "-"),
        "-" if record.last_iteration is None else f"{record.last_iteration:,}",
        ago(record.ended_at or record.started_at or record.submitted_at or record.created_at),
        [(" ".join(tags), "accent")],
        said,
    )
