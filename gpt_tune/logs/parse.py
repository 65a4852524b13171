"""Owns reading whole log files, and the JSON and CSV a parse gives."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from gpt_tune.errors import UserError
from gpt_tune.logs.facts import RunFacts
from gpt_tune.logs.formats.taught import more_formats
from gpt_tune.logs.parser import LogParser
from gpt_tune.logs.scan import ROOM, Block
from gpt_tune.logs.summary import Summary, summarise
from gpt_tune.logs.table import StepTable
from gpt_tune.logs.types import Event, RankMemory, Step
from gpt_tune.models.shape import ModelShape

__all__ = ["LogParser", "ParseResult", "Run", "parse_csv", "parse_files", "parse_json", "step_json"]

SCHEMA = "gpt-tune/parse/1"
BLOCK_BYTES = 2 * 1024 * 1024  # what about fits in the cache with its columns
MAX_LINE_BYTES = 1024 * 1024
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_UNPACK: dict[str, Callable[[str | Path], Any]] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
STEP_KEYS = (
    "iteration", "step_time_ms", "loss", "learning_rate", "grad_norm", "loss_scale", "logged_tflops",
    "logged_tflops_kind", "model_tflops", "tokens_per_second_per_gpu", "samples_per_second", "skipped", "nan",
    "consumed_samples", "global_batch_size",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One run segment of the log. resumed_from: the checkpoint's iteration, None when the log names none."""

    first: int
    last: int
    resumed_from: int | None


@dataclass(frozen=True, slots=True)
class ParseResult:
    """All that a log says. Steps are kept packed; iterate `steps()`."""

    trainer: str | None
    runs: tuple[Run, ...]
    table: StepTable
    memory: tuple[RankMemory, ...]
    facts: RunFacts
    summary: Summary
    events: tuple[Event, ...]
    arguments: dict[str, str]

    def steps(self) -> Iterator[Step]:
        """Standing steps: by run, then by iteration."""
        return self.table.steps()


def result_of(parser: LogParser) -> ParseResult:
    """What a parser has read so far."""
    table = parser.best
    runs = tuple(Run(s.first, s.last, s.resumed_from) for s in table.segments if not s.empty)
    return ParseResult(
        parser.trainer,
        runs,
        table,
        tuple(parser.memory),
        parser.facts,
        summarise(table),
        tuple(parser.events),
        dict(parser.arguments),
    )


def parse_files(
    paths: Sequence[str | Path],
    shape: ModelShape | None = None,
    gpus: int | None = None,
    seq_length: int | None = None,
    global_batch_size: int | None = None,
    log_format: str = "auto",
) -> ParseResult:
    """Reads files of one job (or of one run's several jobs), in the order given.

    log_format: `auto`, or a line with names in braces (see formats.taught). Raises UserError for a file that
    cannot be read.
    """
    parser = LogParser(shape, gpus, seq_length, global_batch_size, more_formats(log_format))
    parser.place([str(path) for path in paths])
    for path in paths:
        for block in laid_out(path):
            parser.feed_bytes(block, str(path))
    parser.finish()
    return result_of(parser)


def read_blocks(path: str | Path, size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """A file as blocks of whole lines; holes of a sparse file are skipped. Raises UserError."""
    for block in laid_out(path, size):
        yield block.raw()


def laid_out(path: str | Path, size: int = BLOCK_BYTES) -> Iterator[Block]:
    """The same without copies: each block is good until the next one is asked for. Raises UserError."""
    try:
        with _opened(path) as file:
            yield from _fill(file, bytearray(size + MAX_LINE_BYTES + ROOM), size)
    except (OSError, ValueError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"Cannot read the log {path}: {reason}.", "Check the path and its permissions."
        ) from error


def packed(path: str | Path) -> str | None:
    """With what a file is compressed, None when it is not."""
    if not Path(path).is_file():
        return None  # a pipe can be read only once
    with Path(path).open("rb") as file:
        head = file.read(6)
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def _opened(path: str | Path) -> BinaryIO:
    """The file, unpacked on the way when it is compressed. UserError for a kind that Python cannot unpack."""
    kind = packed(path)
    if kind == "zstd":
        raise UserError(f"{path} is compressed with zstd.", f"Unpack it first: zstd -d {path}")
    unpack = _UNPACK.get(kind or "")
    return cast("BinaryIO", unpack(path)) if unpack is not None else Path(path).open("rb", buffering=0)


def _read_into(file: BinaryIO, view: memoryview) -> int:
    """How many bytes came; a compressed file may end in the middle, as one that was copied while it grew."""
    if isinstance(file, io.FileIO):
        return file.readinto(view)
    count = 0
    try:
        while count < len(view) and (some := file.read1(len(view) - count)):  # type: ignore[attr-defined]
            view[count : count + len(some)] = some
            count += len(some)
    except EOFError:
        pass
    return count


def _fill(file: BinaryIO, buffer: bytearray, size: int) -> Iterator[Block]:
    """Reads behind the beginning of the line that the last block left over."""
    view = memoryview(buffer)
    kept = 0
    while count := _read_into(file, view[kept : kept + size]):
        if buffer[kept] == 0 and not view[kept : kept + count].tobytes().strip(b"\0"):
            continue
        end = buffer.rfind(b"\n", kept, kept + count) + 1
        if end == 0:
            # One line longer than a block: its beginning is kept, the rest of it is not.
            kept = min(kept + count, MAX_LINE_BYTES)
            continue
        stop = kept + count
        rest = bytes(view[end:stop][:MAX_LINE_BYTES])
        view[end : end + ROOM] = bytes(ROOM)
        yield Block(buffer, end)
        kept = len(rest)
        view[:kept] = rest
    if kept:
        view[kept : kept + ROOM] = bytes(ROOM)
        yield Block(buffer, kept)


def parse_json(result: ParseResult) -> dict[str, Any]:
    """The contract object `gpt-tune/parse/1`."""
    summary = result.summary
    return {
        "schema": SCHEMA,
        "trainer": result.trainer,
        "runs": [{"first": r.first, "last": r.last, "resumed_from": r.resumed_from} for r in result.runs],
        "steps": [step_json(step) for step in result.steps()],
        "memory": [
            {
                "rank": m.rank,
                "allocated_gib": _plain(m.allocated_gib),
                "reserved_gib": _plain(m.reserved_gib),
                "max_allocated_gib": _plain(m.max_allocated_gib),
                "max_reserved_gib": _plain(m.max_reserved_gib),
            }
            for m in result.memory
        ],
        "summary": {name: _plain(getattr(summary, name)) for name in Summary.__dataclass_fields__},
    }


def step_json(step: Step) -> dict[str, Any]:
    """One step with every key of the contract; JSON has no NaN, so a printed NaN or inf is null."""
    return {key: _plain(getattr(step, key)) for key in STEP_KEYS}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parse_csv(result: ParseResult) -> str:
    """The steps as CSV with a header; empty cells are null."""
    out = io.StringIO()
    writer = csv.DictWriter(out, STEP_KEYS, lineterminator="\n")
    writer.writeheader()
    for step in result.steps():
        writer.writerow({k: "" if v is None else v for k, v in step_json(step).items()})
    return out.getvalue()
