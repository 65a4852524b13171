"""Owns a node of a job in words: its row, its GPUs, and the line above all of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpt_tune.words import percent_words
from tui.widgets.columns import Column
from tui.widgets.paint import Cell, Line, Span
from tui.widgets.rows import Row
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.workflows.nodes.rows import NodeRow
    from gpt_tune.workflows.nodes.samples import GpuSample, NodeSample

COLUMNS = (
    Column("node", most=28),
    Column("ranks", "right", drop=5),
    Column("step", "right"),
    Column("lag", "right"),
    Column("said", "right", drop=1),
    Column("GPU", "right", drop=2),
    Column("memory", "right", drop=3),
    Column("W", "right", drop=4),
    Column("°C", "right", drop=3),
    Column("what stands out, or its last line", grow=True, drop=1, least=16),
)
GPU_COLUMNS = range(5, 9)
HOT_CELSIUS = 85.0  # the driver slows data-centre GPUs from about 85 to 90 °C on


def table(rows: Sequence[NodeRow]) -> tuple[list[Column], list[Row]]:
    """The table; without columns for GPUs while nobody samples them."""
    sampled = any(row.sample is not None for row in rows)
    kept = [i for i in range(len(COLUMNS)) if sampled or i not in GPU_COLUMNS]
    cells = [node_cells(row) for row in rows]
    return [COLUMNS[i] for i in kept], [
        Row(row.node, tuple(line[i] for i in kept)) for row, line in zip(rows, cells, strict=True)
    ]


def node_cells(row: NodeRow) -> tuple[Cell, ...]:
    """One row. GPU figures are the lowest use and the highest memory, power and temperature of the node's GPUs."""
    gpus = row.sample.gpus if row.sample is not None else ()
    use = _least([g.utilisation for g in gpus])
    heat = _most([g.celsius for g in gpus])
    words: Cell = [(row.words, "warn")] if row.words else [(row.last_line, "muted")]
    return (
        row.node,
        ranks_words(row.ranks),
        "-" if row.iteration is None else f"{row.iteration:,}",
        [(str(row.lag), "warn")] if row.lag else "-" if row.lag is None else "0",
        "-" if row.seen_seconds_ago is None else _coarse(row.seen_seconds_ago),
        "-" if use is None else percent_words(use),
        _figure(_most([g.memory_used_gib for g in gpus]), "GiB"),
        _figure(_most([g.watts for g in gpus]), ""),
        [(f"{heat:.0f}", "warn" if heat >= HOT_CELSIUS else "")] if heat is not None else "-",
        words,
    )


def ranks_words(ranks: Sequence[int]) -> str:
    """`0-7`, `0-3,8`, or how many there are where that would be long."""
    if not ranks:
        return "-"
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    said = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    return said if len(said) <= 12 else plural(len(ranks), "rank")


def summary_line(rows: Sequence[NodeRow], sampler: str) -> list[Line]:
    """How many nodes, how many of them stand out, and whether there are GPU figures."""
    odd = sum(bool(row.words) for row in rows)
    line: list[Span] = [(plural(len(rows), "node"), "strong"), (", ", "")]
    line.append((f"{odd} of them stand out", "warn") if odd else ("nothing stands out", "good"))
    sampled = [row.sample for row in rows if row.sample is not None]
    if sampler:
        return [[*line], [("! ", "warn"), (sampler, "warn")]]
    line.append((f"  ·  {len(sampled)} sampled" if sampled else "  ·  s samples their GPUs", "muted"))
    return [line]


def detail_lines(row: NodeRow) -> list[Line]:
    """The node under the cursor: its last line and each of its GPUs."""
    lines: list[Line] = [[(row.node, "strong"), (f"  {row.words}" if row.words else "", "warn")]]
    if row.last_line:
        lines.append([("last line  ", "muted"), (row.last_line, "")])
    if row.sample is None:
        return lines
    lines.append(_host_line(row.sample))
    lines += [_gpu_line(gpu) for gpu in row.sample.gpus]
    if row.sample.xids:
        codes = ", ".join(f"Xid {xid.code} on GPU {xid.gpu}" for xid in row.sample.xids[-4:])
        lines.append([("errors     ", "muted"), (codes, "bad")])
    return lines


def _host_line(sample: NodeSample) -> Line:
    parts = []
    if sample.cpu is not None:
        parts.append(f"CPU {percent_words(sample.cpu)}")
    if sample.memory_used_gib is not None and sample.memory_total_gib:
        parts.append(f"memory {sample.memory_used_gib:,.0f} of {sample.memory_total_gib:,.0f} GiB")
    if not sample.gpus:
        parts.append("no GPU answers here")
    return [("host       ", "muted"), ("   ".join(parts), "")]


def _gpu_line(gpu: GpuSample) -> Line:
    memory = _figure(gpu.memory_used_gib, "")
    total = f" of {gpu.memory_total_gib:.0f}" if gpu.memory_total_gib else ""
    use = "-" if gpu.utilisation is None else percent_words(gpu.utilisation)
    hot = gpu.celsius is not None and gpu.celsius >= HOT_CELSIUS
    return [
        (f"GPU {gpu.index:<7}", "muted"),
        (f"{use:>6}  {memory}{total} GiB  {_figure(gpu.watts, 'W')}  ", ""),
        (_figure(gpu.celsius, "°C"), "warn" if hot else ""),
    ]


def _coarse(seconds: float) -> str:
    """`1 s`, `12 min`, `3 h`."""
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def _figure(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f} {unit}".rstrip()


def _least(values: Sequence[float | None]) -> float | None:
    return min((v for v in values if v is not None), default=None)


def _most(values: Sequence[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)
