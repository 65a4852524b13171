"""Lines read as columns give exactly what lines read one by one give."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune.logs.bulk import learn
from gpt_tune.logs.clean import split_lines
from gpt_tune.logs.parse import LogParser, parse_json, read_blocks, result_of
from gpt_tune.logs.scan import Block, Scanner

NOISE = (
    "node03:1662:1662 [0] NCCL INFO Channel 02/0 : 5[0] -> 6[0] [send] via NET/Libfabric/0/GDRDMA",
    "[2026-11-30 05:54:04,930] [INFO] [engine.py:2317:_do] bucket flushed",
    "time (ms) | forward-compute: 264.79 | backward-compute: 462.83",
    "[rank7]:[W1130 05:54:03.095152109 init.cpp:774] Warning: nvfuser is no longer supported",
    "saving checkpoint at iteration      20 to /ckpt",
    "",
    "naïve — résumé ✓",
)


def step_line(rng: random.Random, iteration: int, style: int, clock: int = 0) -> str:
    time = rng.choice([rng.uniform(90, 110), rng.uniform(9000, 11000)])
    loss = "" if rng.random() < 0.03 else f" lm loss: {rng.uniform(0.001, 12):.6E} |"
    skipped = 1 if rng.random() < 0.05 else 0
    norm = rng.choice([f"{rng.random():.3f}", f"{rng.random() * 1000:.3f}", "nan", "inf"])
    head = f" iteration {iteration:8d}/{90000:8d} | consumed samples: {iteration * 64:12d} |"
    tail = f" number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |"
    if style == 0:
        return (
            f"{head} elapsed time per iteration (ms): {time:.1f} | learning rate: {rng.random() * 1e-3:.3E} |"
            f" global batch size:    64 |{loss} loss scale: {2.0 ** rng.randint(0, 20):.1f} | grad norm: {norm} |{tail}"
        )
    if style == 1:
        return (
            f" [2026-01-01 {clock // 3600 % 24:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}]{head}"
            f" elapsed time per iteration (ms): {time:.1f} |"
            f" throughput per GPU (TFLOP/s/GPU): {rng.random() * 500:.1f} |"
            f" learning rate: {rng.random() * 1e-3:.6E} | global batch size:    64 |{loss}"
            f" load_balancing_loss: {rng.random():.6E} | loss scale: 1.0 | grad norm: {norm} |{tail}"
        )
    return (
        f"{head} consumed tokens: {iteration * 131072:12d} | elapsed time per iteration (s): {time / 1000:.2f} |"
        f" learning rate: 0.000E+00 | global batch size:    64 |{loss} grad norm: {norm} |{tail}"
        f" samples per second: {rng.random() * 100:.3f} | TFLOPs: {rng.random() * 200:.2f} |"
    )


def log_of(seed: int) -> str:
    """A log with everything that happens: restarts, repeats, other ranks, other engines, cut lines."""
    rng = random.Random(seed)
    style, labelled, iteration, clock = seed % 3, rng.random() < 0.6, 0, 0
    mixed = labelled and rng.random() < 0.5  # several writers take turns; then nothing restarts
    lines: list[str] = []
    for _ in range(900):
        kind = rng.random()
        if kind < 0.6:
            iteration += rng.choice([1, 1, 1, 1, 10])
            clock += 10
            text = step_line(rng, iteration, style, clock)
            lines.append(text)
            if kind < 0.02:
                lines.append(text)
            elif kind < 0.04:
                lines.append(text[: rng.randrange(len(text))])
        elif kind < 0.63:
            step, skipped = iteration + rng.randint(0, 1), iteration // 50
            lines.append(f"[INFO] [Rank 0] step={step}, skipped={skipped}, lr=[0.00024], mom=[(0.9, 0.999)]")
        elif kind < 0.65:
            lines.append(f"steps: {iteration} loss: 5.0 iter time (s): 0.100 samples/sec: 640.0")
        elif kind < 0.655 and not mixed:
            iteration = max(0, iteration - rng.randint(0, 40))
        elif kind < 0.66 and not mixed:
            lines.append("[before the start of training step] datetime: 2025-01-01 00:00:00 ")
        elif kind < 0.67:
            lines.append(
                "[Rank 3] (after 20 iterations) memory (MB) | allocated: 1024.0 | reserved: 2048.0 | max reserved: 3.0"
            )
        else:
            lines.append(rng.choice(NOISE))
    if labelled:
        writers = [63, 63, 63, 7] if mixed else [63]
        lines = [f"{rng.choice(writers):2d}: {line}" for line in lines]
    return "\n".join(lines) + "\n"


def by_lines(text: bytes, batch: int) -> LogParser:
    parser = LogParser()
    lines, _ = split_lines(text)
    for start in range(0, len(lines), batch):
        parser.feed(lines[start : start + batch])
    parser.finish()
    return parser


def by_blocks(text: bytes, size: int) -> LogParser:
    parser = LogParser()
    start = 0
    while start < len(text):
        stop = text.rfind(b"\n", start, start + size) + 1 or len(text)
        parser.feed_block(text[start:stop])
        start = stop
    parser.finish()
    return parser


@pytest.mark.parametrize("seed", range(18))
def test_identical_results(seed: int) -> None:
    text = log_of(seed).encode()
    want = parse_json(result_of(by_lines(text, 1)))
    assert len(want["steps"]) > 300
    for other in (by_lines(text, 137), by_blocks(text, 1 << 20), by_blocks(text, 20_000)):
        got = parse_json(result_of(other))
        assert got["steps"] == want["steps"]
        assert {k: v for k, v in got.items() if k != "steps"} == {
            k: v for k, v in want.items() if k != "steps"
        }


def test_columns_are_really_used() -> None:
    rng = random.Random(1)
    lines = [step_line(rng, i, 0) for i in range(1, 3000)]
    parser = by_blocks("\n".join(lines).encode(), 1 << 20)
    assert parser.best.segments[0].chunks


def test_a_template_holds_only_what_it_can() -> None:
    lines = (step_line(random.Random(seed), 5, 0) for seed in range(50))
    row = (
        next(line for line in lines if "lm loss" in line and "norm: nan" not in line and "inf" not in line)
        .strip()
        .encode()
    )
    assert learn(row) is not None
    assert learn(row.replace(b" lm loss", b" load_balancing_loss")) is None
    assert learn(row[:-2]) is None
    assert learn("naïve".encode()) is None


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=200),
    st.integers(0, 12),
    st.sampled_from(["elapsed time per iteration", "'loss':", "%|", ", skipped="]),
)
def test_the_scanner_misses_nothing(noise: bytes, place: int, literal: str) -> None:
    scanner = Scanner({"elapsed time per iteration": 1, "'loss':": 2, "%|": 4, ", skipped=": 8})
    text = noise[:place] + literal.encode() + noise[place:] + b"\nanother line\n"
    found = scanner.lines(Block(text))
    bits = {"elapsed time per iteration": 1, "'loss':": 2, "%|": 4, ", skipped=": 8}[literal]
    hits = [
        text[a:b]
        for a, b, g in zip(found.starts.tolist(), found.stops.tolist(), found.groups.tolist())
        if g & bits
    ]
    lines = [piece for piece in text.split(b"\n") if literal.encode() in piece]
    assert all(line in hits for line in lines)
    assert found.total == len(text.split(b"\n")) - 1


def test_blocks_hold_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(1000)) + b"\0" * 5000 + b"\nlast without end")
    blocks = list(read_blocks(path, 100))
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    text = b"".join(blocks).replace(b"\0", b"")
    assert text.startswith(b"line 0\nline 1\n")
    assert text.endswith(b"line 999\n\nlast without end")
