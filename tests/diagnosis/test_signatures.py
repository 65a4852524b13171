"""Every signature finds the wording it is for, wherever a launcher puts it, and says something sensible."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.diagnosis import diagnose_lines
from gpt_tune.diagnosis.signatures import by_id, candidates, fill_in, signatures, size_gib

FOLDER = Path(__file__).resolve().parent.parent / "data" / "logs"


def _said() -> list[tuple[str, list[str]]]:
    """id -> lines of one log, in the trainers' and schedulers' own wording."""
    blocks = (FOLDER / "said.txt").read_text(encoding="utf-8").split("## ")[1:]
    return [(block.split("\n", 1)[0], block.rstrip("\n").split("\n")[1:]) for block in blocks]


SAID = _said()
PREFIXES = (
    "",
    "12: ",
    "[rank3]: ",
    "[80746] ",
    "2023-09-15T05:12:40.917701119Z ",
    "i.pretrain/0 [default2]:[rank2]: ",
)


@pytest.mark.parametrize(("identity", "lines"), SAID, ids=[f"{i}-{n}" for n, (i, _) in enumerate(SAID)])
def test_is_found(identity: str, lines: list[str]) -> None:
    got = diagnose_lines(lines)
    said = [f.id for f in got.findings]
    assert got.root_cause is not None, said
    assert got.root_cause.id == identity, said
    assert got.alarming
    assert "?" not in got.root_cause.text
    assert "{" not in got.root_cause.text + got.root_cause.fix


@pytest.mark.parametrize("prefix", PREFIXES)
def test_is_found_behind_any_prefix(prefix: str) -> None:
    for identity, lines in SAID:
        if identity in ("F5", "F24", "F31"):
            continue  # they ask who said it, which the prefix changes
        got = diagnose_lines([prefix + line for line in lines])
        assert got.root_cause is not None, (identity, prefix)
        assert got.root_cause.id == identity, (prefix, [f.id for f in got.findings])


def test_every_signature_with_patterns_has_an_example() -> None:
    said = {identity for identity, _ in SAID} | {"F211", "F40", "F37b", "F37c", "C6"}
    wanted = {s.id for s in signatures() if s.patterns and s.role != "context"}
    assert wanted - said == set()


def test_every_catalogue_row_has_an_entry() -> None:
    known = {s.id for s in signatures()} | {"F5"}
    rows = {f"F{n}" for n in range(1, 100)} | {"F37b", "F37c"}
    assert rows - known == set()


def test_every_signature_gives_sentences_and_a_source() -> None:
    for signature in signatures():
        assert signature.source, signature.id
        if signature.role != "context":
            assert signature.text.endswith("."), signature.id
            assert signature.fix.endswith("."), signature.id
        for need in signature.needs:
            assert len(need) >= 7, (signature.id, need)  # shorter ones slow the scan of every log


def test_a_part_without_its_figures_is_left_out() -> None:
    assert fill_in("lost[[ on {host}]][[, code {code}]].", {"code": "7"}) == "lost, code 7."


@pytest.mark.parametrize(
    ("text", "gib"),
    [("14.14 GiB", 14.14), ("512.00 MiB", 0.5), ("1.5 TiB", 1536.0), ("0 bytes", 0.0), ("lots", None)],
)
def test_sizes(text: str, gib: float | None) -> None:
    assert size_gib(text) == gib


def test_candidates_are_few() -> None:
    assert not list(candidates("node01:1:1 [0] NCCL INFO Channel 00/12 :    0   1   2   3"))
    assert by_id("F9").tier == "host_memory"
