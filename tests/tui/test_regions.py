"""Only what differs between two pictures is sent: every changed cell is in a region, an unchanged line in none."""

from __future__ import annotations

import random

import pytest

from tui.widgets.paint import Line
from tui.widgets.regions import changed_regions

WIDTH = 30


def picture(rng: random.Random) -> list[Line]:
    roles = ("", "muted", "bad")
    return [
        [("".join(rng.choice("ab ") for _ in range(rng.randrange(8))), rng.choice(roles)) for _ in range(3)]
        for _ in range(rng.randrange(6))
    ]


def cells(lines: list[Line]) -> dict[tuple[int, int], tuple[str, str]]:
    found = {}
    for y, line in enumerate(lines):
        for x, cell in enumerate([(c, role) for text, role in line for c in text]):
            found[x, y] = cell
    return found


@pytest.mark.parametrize("seed", range(40))
def test_every_changed_cell_is_in_a_region_and_no_other_line(seed: int) -> None:
    rng = random.Random(seed)
    before, after = picture(rng), picture(rng)
    regions = changed_regions(before, after, WIDTH)
    old, new = cells(before), cells(after)
    changed = {at for at in old.keys() | new.keys() if old.get(at, (" ", "")) != new.get(at, (" ", ""))}
    assert all(any(r.contains(x, y) for r in regions) for x, y in changed)
    assert {r.y for r in regions} == {y for _, y in changed}
    assert len({r.y for r in regions}) == len(regions)


def test_wide_characters_take_the_whole_line() -> None:
    (region,) = changed_regions([[("模型", "")]], [[("模x", "")]], WIDTH)
    assert (region.x, region.width) == (0, WIDTH)


def test_nothing_changed_sends_nothing() -> None:
    same: list[Line] = [[("a", "bad"), ("b", "")], []]
    assert changed_regions(same, [[("a", "bad"), ("b", ""), (" ", "")]], WIDTH) == []
