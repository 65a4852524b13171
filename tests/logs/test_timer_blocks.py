"""Timers and engine lines beside every step: read in bulk, and the same as line by line."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from gpt_tune.logs import parser as parser_module
from gpt_tune.logs.formats import make_formats
from gpt_tune.logs.parse import parse_json, result_of
from gpt_tune.logs.parser import LogParser
from gpt_tune.logs.reading import shipped_scanner
from gpt_tune.logs.scan import Block, Lines

LOOSE = ("step", "forward_microstep")
TIMERS = ("forward-backward", "forward-compute", "batch-generator", "all-grads-sync", "optimizer")


def step(i: int, ms: float, loss: float = 2.5, total: int = 9000) -> str:
    return (
        f" iteration {i:8d}/{total:8d} | consumed samples: {64 * i:12d} | elapsed time per iteration (ms): {ms:.1f} |"
        f" learning rate: 1.0E-04 | global batch size:    64 | lm loss: {loss:.6E} | loss scale: 1.0 |"
        " grad norm: 1.000 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def block(rng: random.Random, ranks: int = 4) -> Iterator[str]:
    if rng.random() < 0.5:
        yield rng.choice(("(min, max) time across ranks (ms):", "max time across ranks (ms):"))
        for name in TIMERS:
            low = rng.uniform(10, 90)
            yield f"    {(name + ' ').ljust(48, '.')}: ({low:.2f}, {low * 1.1:.2f})"
    else:
        yield "times across ranks (ms):"
        for name in TIMERS:
            yield f"  {name}:"
            for rank in range(ranks):
                yield f"     rank {rank:2d}: {rng.uniform(10, 90):.2f}"


def engine(i: int, ms: float, loss: float) -> Iterator[str]:
    head = "[2026-05-22 21:15:09,288] [INFO] [logging.py:96:log_dist] [Rank 0]"
    yield f"steps: {i} loss: {loss:.4f} iter time (s): {ms / 1000:.3f} samples/sec: {64000 / ms:.3f}"
    yield f"{head} step={i}, skipped={i // 50}, lr=[0.0001, 0.0001], mom=[(0.9, 0.95), (0.9, 0.95)]"
    yield f"rank=0 time (ms) | forward_microstep: {ms / 3:.2f} | backward_microstep: {ms / 2:.2f}"


def mixed(seed: int, steps: int = 300) -> str:
    """Steps with timers, now and then another's line within a block, a restart, engines, another label."""
    rng = random.Random(seed)
    lines: list[str] = []
    label = rng.choice(("", "63: ", "[default7]:", "node07: "))
    i = 0
    engines, restarts = rng.random() < 0.4, rng.random() < 0.3
    for _ in range(steps):
        i += 1
        if restarts and rng.random() < 0.01:
            i = max(1, i - rng.randrange(40))
        ms, loss = rng.uniform(900, 1100), rng.uniform(2, 3)
        if engines:
            lines += [f"0: {text}" for text in engine(i, ms, loss)]
        lines.append(label + step(i, ms, loss))
        inner = [label + text for text in block(rng)] if rng.random() < 0.9 else []
        if rng.random() < 0.1 and inner:
            inner.insert(rng.randrange(len(inner)), "3: [W1130 init.cpp:774] Warning: something else")
        lines += inner
    return "\n".join(lines) + "\n"


def read(text: str, pieces: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a parser makes of it when the log comes in so many blocks of whole lines."""
    parser = LogParser()
    lines = text.encode().splitlines(keepends=True)
    size = -(-len(lines) // pieces)
    for start in range(0, len(lines), size):
        parser.feed_block(b"".join(lines[start : start + size]), "log")
    parser.finish()
    times = {
        name: ({w: list(t) for w, t in kind.by_writer.items()}, list(kind.spread))
        for name, kind in parser.rank_times.kinds.items()
    }
    return parse_json(result_of(parser)), times


@pytest.mark.parametrize("seed", range(12))
def test_the_same_timers_and_steps_as_without_taking_them_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = mixed(seed)
    quick = [read(text, pieces) for pieces in (1, 7)]

    def nothing(block: Block, found: Lines, state: object) -> tuple[Lines, list[object]]:
        return found, []

    monkeypatch.setattr(parser_module, "take_out", nothing)
    plain = [read(text, pieces) for pieces in (1, 7)]
    assert [q[0] for q in quick] == [p[0] for p in plain]
    # What stands before the step line it belongs to counts with either neighbour.
    for got, want in zip(quick, plain):
        assert {k: v for k, v in got[1].items() if k not in LOOSE} == {
            k: v for k, v in want[1].items() if k not in LOOSE
        }
    assert any(times for _, times in quick)


@pytest.mark.parametrize("seed", range(6))
def test_in_bulk_as_line_by_line(seed: int) -> None:
    """Up to the first blocks, which are all read, also the timers are the same."""
    text = mixed(seed, steps=60)
    parser = LogParser()
    parser.feed(text.splitlines(), "log")
    parser.finish()
    in_bulk, times = read(text, 3)
    assert in_bulk == parse_json(result_of(parser))
    own = {n: list(k.spread) for n, k in parser.rank_times.kinds.items()}
    assert {n: spread for n, (_, spread) in times.items()} == own


def test_a_timer_belongs_to_the_step_before_it() -> None:
    text = "".join(
        f"{step(i, 1000)}\n(min, max) time across ranks (ms):\n    forward-compute {'.' * 32}: ({i}.00, {i}.50)\n"
        for i in range(1, 41)
    )
    _, times = read(text, 1)
    assert times["forward-compute"][1] == [(i, (i + 0.5) / i - 1.0) for i in range(1, 41)]


def test_engine_lines_ahead_of_the_step_fill_what_it_lacks() -> None:
    """The pipeline engine prints a step before the trainer does; its rate is kept, the trainer's loss stands."""
    lines: list[str] = []
    for i in range(1, 101):
        lines += engine(i, 1000.0, 2.0)
        lines.append("63: " + step(i, 1000.0, 2.25))
    got, _ = read("\n".join(lines) + "\n", 1)
    steps = got["steps"]
    assert [s["iteration"] for s in steps] == list(range(1, 101))
    assert {s["loss"] for s in steps} == {2.25}
    assert {s["samples_per_second"] for s in steps} == {64.0}
    assert got["trainer"] == "megatron-deepspeed"
    assert len(got["runs"]) == 1


def test_no_other_format_asks_for_what_engines_print() -> None:
    """Otherwise their lines end every run of step lines, and reading a log takes twice as long."""
    engines = sum(
        1 << i
        for i, f in enumerate(make_formats())
        if type(f).__name__ in ("Engine", "Pipeline", "RankTimers")
    )
    lines = [*engine(5, 1000.0, 2.0), "CurrSamplesPerSec=7.87, MemAllocated=59.61GB, MaxMemAllocated=63.29GB"]
    found = shipped_scanner().lines(Block("\n".join(lines).encode()))
    assert len(found.groups)
    assert [int(g) & ~engines for g in found.groups] == [0] * len(found.groups)
