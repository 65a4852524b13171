"""Owns fixed-width text tables (`sinfo -O`, `squeue -O`), the one output form that every Slurm version has.

Free text (job names, comments) may hold any separator, and JSON is missing or differs between versions, so
columns are cut by width, in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Column = tuple[str, int]  # Slurm's field name, width in bytes


def argument(columns: Sequence[Column]) -> str:
    """The value of -O for these columns."""
    return ",".join(f"{name}:{width}" for name, width in columns)


def rows(output: bytes, columns: Sequence[Column]) -> Iterator[dict[str, str]]:
    """Each row as name to text. A row of another length (a message in between) is left out."""
    length = sum(width for _, width in columns)
    position = 0
    while position < len(output):
        row = output[position : position + length]
        if len(row) == length and output[position + length : position + length + 1] in (b"\n", b""):
            yield _cut(row, columns)
            position += length + 1
            continue
        newline = output.find(b"\n", position)
        position = len(output) if newline < 0 else newline + 1


def _cut(row: bytes, columns: Sequence[Column]) -> dict[str, str]:
    cells = {}
    position = 0
    for name, width in columns:
        # A cell cut at its width may end inside a character.
        cells[name] = row[position : position + width].decode("utf-8", "ignore").strip()
        position += width
    return cells
