"""Root causes among what follows from them, and healthy logs full of frightening words."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.diagnosis import diagnose, diagnose_lines
from tests.logs.test_table import line

FOLDER = Path(__file__).resolve().parent.parent / "data" / "logs"
BASE = [line(i, loss=3 - i / 100) for i in range(1, 31)]
SCARY = (FOLDER / "frightening.txt").read_text(encoding="utf-8").splitlines()
# Said last, these two mean something: nothing came after them.
MEANT_AT_THE_END = ("step creation temporarily disabled", "module: command not found")


def _cases() -> list[tuple[str, list[str], str | None, int | None]]:
    text = (FOLDER / "combinations.txt").read_text(encoding="utf-8")
    blocks = [block.rstrip("\n").split("\n") for block in text.split("\n## ")[1:]]
    tail = blocks[0][1:]
    cases = []
    for head, *lines in blocks[1:]:
        name, wanted, rank = head.split(" | ")
        if lines[-1].startswith("@tail"):
            lines = [*lines[:-1], *tail[int(lines[-1][5:] or 0) :]]
        cases.append((name, lines, None if wanted == "-" else wanted, None if rank == "-" else int(rank)))
    return cases


CASES = _cases()


@pytest.mark.parametrize("started", [False, True], ids=["at the start", "after steps"])
@pytest.mark.parametrize(("name", "lines", "wanted", "rank"), CASES, ids=[c[0] for c in CASES])
def test_the_cause_and_not_what_followed(
    name: str, lines: list[str], wanted: str | None, rank: int | None, started: bool
) -> None:
    got = diagnose_lines([*(BASE if started else []), *lines])
    root = got.root_cause
    assert (root.id if root is not None else None) == wanted, [f.id for f in got.findings]
    if root is not None and rank is not None:
        assert root.rank == rank


@pytest.mark.parametrize("text", SCARY)
def test_frightening_words_alarm_nobody(text: str) -> None:
    for place in (0, 10, 28, 30):
        if place == 30 and any(words in text for words in MEANT_AT_THE_END):
            continue
        got = diagnose_lines([*BASE[:place], text, *BASE[place:]])
        assert got.status == "healthy", (place, [(f.id, f.text) for f in got.findings])


@pytest.mark.parametrize("first", ["everybody", "the culprit"])
@pytest.mark.parametrize(("name", "lines", "wanted", "rank"), CASES, ids=[c[0] for c in CASES])
def test_the_same_where_the_culprit_writes_a_file_of_its_own(
    tmp_path: Path, name: str, lines: list[str], wanted: str | None, rank: int | None, first: str
) -> None:
    own = [text for text in lines if text.startswith("[rank5]")]
    if not own:
        return
    (tmp_path / "own").write_text("\n".join(own) + "\n")
    (tmp_path / "all").write_text("\n".join(text for text in lines if text not in own) + "\n")
    order = ["own", "all"] if first == "the culprit" else ["all", "own"]
    root = diagnose([tmp_path / file for file in order]).root_cause
    assert (root.id if root is not None else None) == wanted
