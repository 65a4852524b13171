"""Every log of the corpus gives what its expected.json says."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_tune.logs.parse import parse_files, parse_json
from tests.logs import corpus


def mismatches(want: dict[str, Any], parsed: dict[str, Any]) -> list[str]:
    steps, wrong = parsed["steps"], []
    if "n_steps" in want and want["n_steps"] != len(steps):
        wrong.append(f"{len(steps)} steps, not {want['n_steps']}")
    if "n_runs" in want and want["n_runs"] != len(parsed["runs"]):
        wrong.append(f"{len(parsed['runs'])} runs, not {want['n_runs']}: {parsed['runs']}")
    for place, index in (("first", 0), ("last", -1)):
        for key, value in want.get(place, {}).items():
            got = steps[index].get(key) if steps else None
            if not corpus.same(value, got):
                wrong.append(f"{place} {key}: {got}, not {value}")
    for gap in want.get("null_fields", []):
        step = next((s for s in steps if s["iteration"] == gap["iteration"]), None)
        wrong += [
            f"{f} not null" for f in gap["fields"] if step is None or not corpus.same(None, step.get(f))
        ]
    for memory in want.get("memory", []):
        fits = [
            m
            for m in parsed["memory"]
            if all(m[k] == v if k == "rank" else corpus.same(v, m[k]) for k, v in memory.items())
        ]
        if not fits:
            wrong.append(f"memory {memory} not in {parsed['memory']}")
    if "memory" in want and len(want["memory"]) != len(parsed["memory"]):
        wrong.append(f"{len(parsed['memory'])} memory reports, not {len(want['memory'])}")
    return wrong


@pytest.mark.parametrize("number", corpus.numbers())
def test_extraction(number: str) -> None:
    parsed = parse_json(parse_files([corpus.log(number)]))
    assert mismatches(corpus.expected()[number], parsed) == []
