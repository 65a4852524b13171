"""Patterns that a user types: the same answers as Python's, without its traps."""

from __future__ import annotations

import random
import re
import time

import pytest

from gpt_tune.errors import UserError
from gpt_tune.logs.safe_regex import safe_pattern

PATTERNS = (
    "nccl.*timeout", "(a+)+b", "^foo$", r"\bfoo\b", "[^a-c]x{2,4}", r"loss: \d+\.\d+", "x*", "a{2}", "(?:ab|ba)+$",
    r"\Bo", "fo?o?", "[a-c]+?x", "^", "$", "a.c", r"\w+ \w+", "(x|(y|z)){1,3}b",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_agrees_with_python(pattern: str) -> None:
    mine, python = safe_pattern(pattern), re.compile(pattern, re.IGNORECASE)
    rng = random.Random(pattern)
    for _ in range(1500):
        text = "".join(rng.choice("abcxyz foo NCLtimeu:.19lsAB") for _ in range(rng.randrange(14)))
        match = python.search(text)
        assert mine.search(text) == (match is not None), text
        found = mine.find(text)
        assert (found is None) == (match is None), text
        if match is not None and found is not None:
            assert found[0] == match.start(), text


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+$b", "(.*a.*a.*)*z", "a*a*a*a*a*b", "(a?){20}a{20}c"])
def test_no_pattern_runs_away(pattern: str) -> None:
    compiled = safe_pattern(pattern)
    began = time.process_time()
    for _ in range(5):
        assert not compiled.search("a" * 8000)
    compiled.find("a" * 8000)
    assert time.process_time() - began < 2.0


def test_a_table_that_grows_is_emptied() -> None:
    compiled = safe_pattern("q[a-z]{3}$")
    rng = random.Random(0)
    for _ in range(40):
        compiled.search("".join(chr(rng.randrange(32, 0x2FFF)) for _ in range(400)))
    assert compiled.search("xxqabc")
    assert not compiled.search("qabcd")


@pytest.mark.parametrize(
    ("pattern", "word"),
    [("", "empty"), ("a(", "missing"), ("x" * 500, "500"), (r"(a)\1", "back references"), ("(?=a)", "look-around"),
     ("((a{50}){50}){50}", "too large"), ("*a", "nothing to repeat"), ("\x1b[31m(", "�")],
)  # fmt: skip
def test_refused_in_words(pattern: str, word: str) -> None:
    with pytest.raises(UserError) as error:
        safe_pattern(pattern)
    assert word in error.value.message
    assert error.value.message.isprintable()
