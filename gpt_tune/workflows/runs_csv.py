"""Owns reading measured runs from a CSV file."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_tune.errors import UserError, shown
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.models.shape import ModelShape
from gpt_tune.workflows.runs_row import (
    Row,
    layout_of,
    model_of,
    node_of,
    number,
    trainer_of,
    watts,
    whole,
)

# A row without these says nothing that could be predicted.
REQUIRED = (
    "id",
    "series",
    "framework",
    "gpu",
    "gpus",
    "hidden",
    "layers",
    "heads",
    "ffn",
    "seq_length",
    "vocab",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "micro_batch_size",
    "global_batch_size",
    "recompute",
    "precision",
    "step_seconds",
    "memory_gb",
    "memory_kind",
    "oom",
)
OPTIONAL = (
    "source",
    "gpu_mem_gb",
    "kv_heads",
    "virtual_pipeline",
    "context_parallel",
    "expert_parallel",
    "sequence_parallel",
    "zero_stage",
    "step_is_derived",
    "notes",
    "gradient_accumulation_steps",
    "flash_attention",
    "fused_softmax",
    "pipeline_engine",
    "dropout",
    "gradient_accumulation_dtype",
    "allocated_gib",
    "reserved_gib",
    "outside_allocator_gib",
    "busy_watts",
    "logged_tflops",
)

# Larger ones are typing errors, and their products leave 64 bits.
_LARGEST = 10_000_000
_COUNTS = (
    *("gpus", "hidden", "layers", "heads", "kv_heads", "ffn", "seq_length", "vocab", "tensor_parallel"),
    *("pipeline_parallel", "virtual_pipeline", "context_parallel", "expert_parallel", "data_parallel"),
    *("micro_batch_size", "global_batch_size", "gradient_accumulation_steps"),
)
_TOO_MANY = " cells without a column"

# Below this power an H200 waits for its host, and repeats differ by 15-50 %.
BUSY_WATTS = 550.0


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run. Seconds and memory are None where the row does not state them.

    memory_gib is of the kind the row names: allocated | reserved | device | unknown; allocated_gib and
    reserved_gib are the further columns of our own runs. busy_watts is the idlest rank's;
    host_bound: the row's file states power, and this row none or a low one.
    """

    id: str
    series: str
    framework: str
    model: ModelShape
    node: Node
    trainer: Trainer
    layout: Layout
    seq_length: int
    step_seconds: float | None
    memory_gib: float | None
    memory_kind: str
    allocated_gib: float | None
    reserved_gib: float | None
    oom: bool
    busy_watts: float | None
    host_bound: bool
    notes: str


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a file, the rows that could not be used with the reason, and columns that were ignored."""

    runs: tuple[Run, ...]
    skipped: tuple[tuple[str, str], ...]
    ignored_columns: tuple[str, ...]


def read(path: Path) -> Runs:
    """All rows of a CSV. Raises UserError when the file or its columns are unusable."""
    rows = _rows(path)
    runs: list[Run] = []
    skipped: list[tuple[str, str]] = []
    for line, row in enumerate(rows.rows, start=2):
        name = row.get("id") or f"line {line}"
        try:
            runs.append(to_run(row))
        except UserError as error:
            skipped.append((name, error.message))
    return Runs(tuple(runs), tuple(skipped), rows.ignored)


@dataclass(frozen=True, slots=True)
class _Rows:
    rows: tuple[Row, ...]
    ignored: tuple[str, ...]


def _rows(path: Path) -> _Rows:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(
            f"Cannot read {path}: {error.strerror}.", "Give the path of a CSV file of runs."
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"Cannot read {path}: it is no UTF-8 text (byte {error.start + 1}).",
            "Save the table as CSV in UTF-8.",
        ) from error
    try:
        return _parsed(text, path)
    except csv.Error as error:
        raise UserError(f"{path} is not a CSV file: {error}.", "Give a CSV file of runs.") from error


def _parsed(text: str, path: Path) -> _Rows:
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=_separator(text))
    names = [name.strip() for name in reader.fieldnames or []]
    if not any(names):
        raise UserError(f"{path} is empty.", "Give a CSV file of runs with a line of column names.")
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise UserError(f"{path} has the column {', '.join(twice)} more than once.", "Leave one of them.")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise UserError(
            f"{path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}.",
            "The columns of a runs file are those of `gpt-tune results export`.",
        )
    reader.fieldnames = names
    ignored = tuple(n for n in names if n not in REQUIRED and n not in OPTIONAL and n)
    return _Rows(tuple(_cells(row) for row in reader), ignored)


def _separator(text: str) -> str:
    """What stands between the column names: spreadsheets of many countries write semicolons, others tabs."""
    header = text.partition("\n")[0]
    return max((",", ";", "\t"), key=header.count)


def _cells(row: dict[str | None, Any]) -> Row:
    """A line's cells. More of them than columns are kept under the key that no column has."""
    cells = {k: (v or "").strip() for k, v in row.items() if isinstance(k, str)}
    return {**cells, _TOO_MANY: ", ".join(row[None])} if None in row else cells


def _check(row: Row) -> None:
    """What no run can have had, whatever else its row says."""
    if row.get(_TOO_MANY):
        raise UserError(f"The line has more cells than there are columns: {shown(row[_TOO_MANY])}.")
    for key in _COUNTS:
        if row.get(key) and whole(row, key) > _LARGEST:
            raise UserError(f"{key} is {shown(row[key])}, above {_LARGEST}.")
    for key in ("step_seconds", "memory_gb"):
        if number(row, key) == 0:
            raise UserError(f"{key} is {row[key]}; leave it empty where it was not measured.")
    if row["oom"] not in ("", "0", "1"):
        raise UserError(f"oom is {shown(row['oom'])}, neither 0 nor 1.")


def to_run(row: Row) -> Run:
    """One row. Raises UserError with the reason when it cannot be predicted."""
    _check(row)
    model = model_of(row)
    framework = row["framework"]
    layout = layout_of(row, framework)
    if layout.gpus != whole(row, "gpus"):
        raise UserError(
            f"{row['gpus']} GPUs are not tensor x pipeline x context x data parallel = {layout.gpus}."
        )
    memory = number(row, "memory_gb")
    return Run(
        id=row["id"],
        series=row["series"],
        framework=framework,
        model=model,
        node=node_of(row),
        trainer=trainer_of(row, framework),
        layout=layout,
        seq_length=whole(row, "seq_length"),
        step_seconds=number(row, "step_seconds"),
        memory_gib=memory,
        memory_kind=row["memory_kind"] if memory is not None else "",
        allocated_gib=number(row, "allocated_gib"),
        reserved_gib=number(row, "reserved_gib"),
        oom=row["oom"] == "1",
        busy_watts=watts(row.get("busy_watts", "")) or None,
        host_bound="busy_watts" in row and watts(row["busy_watts"]) <= BUSY_WATTS,
        notes=row.get("notes", ""),
    )
