"""Every log of the corpus gets one of the diagnoses its expected.json accepts."""

from __future__ import annotations

import pytest

from gpt_tune.diagnosis import diagnose
from tests.logs import corpus


@pytest.mark.parametrize("number", corpus.numbers())
def test_diagnosis(number: str) -> None:
    want = corpus.expected()[number]
    got = diagnose([corpus.log(number)])
    root = got.root_cause
    identity = root.id if root is not None else None
    said = [(f.id, f.severity, f.echo_of) for f in got.findings]
    assert got.status in want["status"], said
    if "root_cause" in want:
        assert identity in want["root_cause"], said
    assert identity not in want.get("not", []), said
    if "rank" in want:
        assert root is not None
        assert root.rank == want["rank"]
    if "host" in want:
        first = next(f for f in got.findings if f.id == want["root_cause"][0])
        assert first.host == want["host"]
