"""Damaged logs: nothing raises, nothing unsafe comes out, both ways of reading agree."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from functools import cache, partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpt_tune.diagnosis import Diagnoser, diagnose_json
from gpt_tune.diagnosis.collect import MAX_TEXT
from gpt_tune.diagnosis.signatures import Signature, candidates, signatures
from gpt_tune.logs.clean import MAX_LINE, split_lines
from gpt_tune.logs.fold import same_text
from gpt_tune.logs.formats import FORMATS, make_formats
from gpt_tune.logs.formats.base import Format, Line
from gpt_tune.logs.lines import read_line, shown
from gpt_tune.logs.parse import LogParser, parse_csv, parse_json, result_of
from gpt_tune.logs.reading import make_line
from gpt_tune.logs.table import StepTable
from tests.logs import corpus

# `make test` looks at 5,000 damaged logs in all, `make test-full` at 100,000.
QUICK, PARTS, LONG, LONG_PARTS, RUBBISH = 4200, 8, 95_000, 25, 800
PIECES = (
    b"\x1b[31m", b"\x1b]0;t\x07", b"\x1b[", b"\xff\xfe", b"\0", b"\r", b"\r\n", b"\n", b"12: ", b"[rank3]: ",
    b"|", b": ", b"nan", b"-1", b"1e999", b"9" * 40, b"{", b"}", b"'", "│ ❱ ".encode(), "\u202e".encode(),
    b"\xc2\x9b31m",
    b"iteration        7/     100 | ", b"elapsed time per iteration (ms): ", b"[batch=1/2]:\n",
    b" 7%|x| 7/9 [00:01<00:01, 1.0s/it]",
)  # fmt: skip


@cache
def lines() -> list[bytes]:
    """Every line of the corpus."""
    return [line for number in corpus.numbers() for line in corpus.log(number).read_bytes().split(b"\n")]


def damaged(seed: int) -> bytes:
    """A few lines of one or two logs, cut, glued, repeated, shuffled and sprinkled with rubbish."""
    rng = random.Random(seed)
    start = rng.randrange(len(lines()))
    text = bytearray(b"\n".join(lines()[start : start + rng.randint(1, 8)]))
    if rng.random() < 0.3:
        text += b"\n" + rng.choice(lines())
    for _ in range(rng.randint(0, 8)):
        place = rng.randrange(len(text) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            text[place:place] = rng.choice(PIECES)
        elif kind == 1:
            del text[place : place + rng.randint(1, 30)]
        elif kind == 2:
            text[place:place] = text[place : place + rng.randint(1, 120)]
        elif kind == 3 and place < len(text):
            text[place] = rng.randrange(256)
        else:
            text[place:place] = rng.choice(lines())[: rng.randint(0, 200)]
    return bytes(text)


def unsafe(text: str) -> bool:
    return any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)


def check(raw: bytes) -> None:
    clean, transient = split_lines(raw)
    assert not any(unsafe(line) for line in clean)
    assert all(0 <= index < len(clean) for index in transient)
    by_line, by_block, diagnoser = LogParser(), LogParser(), Diagnoser()
    for line in clean:
        by_line.feed([line], "log")
    by_block.feed_block(raw, "log")
    by_line.finish()
    by_block.finish()
    result = result_of(by_line)
    parsed = json.dumps(parse_json(result), allow_nan=False)
    assert parsed == json.dumps(parse_json(result_of(by_block)), allow_nan=False)
    assert parse_csv(result).count("\n") == len(result.table) + 1 - hidden(result.table)
    diagnoser.feed(clean, "log", 1, transient)
    said = json.dumps(diagnose_json(diagnoser.conclude(by_line)), allow_nan=False, ensure_ascii=False)
    assert not unsafe(said)


def hidden(table: StepTable) -> int:
    """Steps that a resumed run did again."""
    return len(table) - len(list(table.steps()))


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_corpus(part: int) -> None:
    for seed in range(part, QUICK, PARTS):
        check(damaged(seed))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(LONG_PARTS))
def test_mutated_corpus_for_long(part: int) -> None:
    for seed in range(QUICK + part, QUICK + LONG, LONG_PARTS):
        check(damaged(seed))


@settings(max_examples=RUBBISH, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.one_of(st.sampled_from(PIECES), st.binary(max_size=40), st.text(max_size=20).map(str.encode)),
        max_size=12,
    )
)
def test_rubbish(pieces: list[bytes]) -> None:
    check(b"".join(pieces))


HOSTILE: tuple[Callable[[int], str], ...] = (
    lambda n: "1" * n,
    lambda n: "iteration " * (n // 10),
    lambda n: "iteration        1/       2 | " * (n // 29),
    lambda n: " lm loss: 1.0 |" * (n // 15),
    lambda n: "{'loss': " * (n // 9),
    lambda n: "'a': 1, " * (n // 8),
    lambda n: "  7%|" * (n // 5),
    lambda n: "steps: 1 loss: 1.0 a: 1.0 " * (n // 26),
    lambda n: "rank 1: node1: [1] " * (n // 19),
    lambda n: "CUDA out of memory. Tried to allocate 1 GiB. GPU 0 has a total capacity of 1 GiB " * (n // 83),
    lambda n: "Root Cause (first observed failure): time : host : " * (n // 51),
    lambda n: "global batch size 1 is not divisible by " * (n // 40),
    lambda n: "NVRM: Xid (PCI:" * (n // 15),
    lambda n: "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(OpType=" * (n // 70),
    lambda n: "Aa.Bb.Error: " * (n // 13),
    lambda n: "epoch=1/micro_step=1/global_step=" * (n // 33),
    lambda n: "step:  1  loss: memory: " * (n // 24),
    lambda n: "Training epoch 1, iteration 1/1 | global_step: " * (n // 47),
    lambda n: " " * n,
    lambda n: "|" * n,
    lambda n: "=" * n,
)


@pytest.mark.parametrize("make", HOSTILE)
def test_a_hostile_line_of_a_megabyte(make: Callable[[int], str]) -> None:
    raw = make(1024 * 1024)[: 1024 * 1024].encode()
    began = time.process_time()
    clean, _ = split_lines(raw + b"\n")
    parser, diagnoser = LogParser(), Diagnoser()
    parser.feed(clean)
    diagnoser.feed(clean)
    diagnoser.conclude(parser)
    assert time.process_time() - began < 0.25  # 50 ms is the aim; the rest is for a busy machine


@pytest.mark.parametrize("make", HOSTILE)
def test_no_pattern_runs_away(make: Callable[[int], str]) -> None:
    """Twice the text takes about twice the time, for every format and every signature, triggers or not."""
    times = []
    for size in (2000, 4000, 8000):
        line = make_line(make(size))
        began = time.process_time()
        for fmt in make_formats():
            list(fmt.feed(line))
        for signature in signatures():
            signature.match(line.full[:4096], line.text[:4096])
        times.append(time.process_time() - began)
    assert times[2] < 0.4


# Repeated behind a pattern's own words: what makes a careless repetition look at everything again and again.
FILLING = ("1", "a ", "1, ", "a.A", "'a' ", "[(", "{own} ", "-_1")
WORST_SECONDS = 0.05


@pytest.mark.parametrize("signature", signatures(), ids=lambda s: s.id)
def test_each_signature_on_the_worst_text_for_it(signature: Signature) -> None:
    for pattern in signature.patterns:
        own = {need.strip("\n") for need in signature.needs}
        own |= set(re.findall(r"[A-Za-z][A-Za-z _']{5,}", pattern.pattern)[:2])
        for words in own:
            for filling in FILLING:
                text = (words + " " + filling.replace("{own}", words) * MAX_TEXT)[: 2 * MAX_TEXT]
                assert quickest(partial(pattern.search, text)) < WORST_SECONDS, (words, filling)


@pytest.mark.parametrize("make", FORMATS, ids=lambda f: getattr(f, "__name__", "format"))
def test_each_format_on_the_worst_text_for_it(make: Callable[[], Format]) -> None:
    for trigger in make().triggers:
        for filling in FILLING:
            line = make_line((trigger + filling.replace("{own}", trigger) * MAX_LINE)[:MAX_LINE])
            took = quickest(partial(_fed, make, line))
            assert took < WORST_SECONDS, (trigger, filling)


def _fed(make: Callable[[], Format], line: Line) -> None:
    list(make().feed(line))


@pytest.mark.parametrize("make", HOSTILE)
def test_what_a_pane_asks_of_each_line(make: Callable[[int], str]) -> None:
    text = make(MAX_LINE)[:MAX_LINE]
    assert quickest(lambda: (read_line(text), same_text(text), shown(text))) < WORST_SECONDS


def quickest(work: Callable[[], object]) -> float:
    """CPU seconds; a second try where the first was disturbed."""
    times = []
    for _ in range(3):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
        if times[-1] < WORST_SECONDS / 2:
            break
    return min(times)


def test_candidates_of_rubbish_are_found_without_patterns() -> None:
    assert not list(candidates("x" * 100_000))
