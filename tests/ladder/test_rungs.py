"""Rungs: what each adds, what is left out and why, and how sure a comparison of two of them is."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.profiles import store
from gpt_tune.profiles.acs import Acs
from gpt_tune.profiles.schema import Profile
from gpt_tune.workflows import ladder
from gpt_tune.workflows.sweeping.comparing import SpeedUp, compare, speed_up
from gpt_tune.workflows.sweeping.ranking import Measured, Row, with_interval

IMAGES = {"base": "base:1", "communication": "accl:1"}
ACS = Profile(
    recipe="acs",
    acs=Acs(work="script", script="/w/train.py", image="mine:1", compile=True, ladder_images=IMAGES),
)


def acs_rungs(**changes: Any) -> list[Any]:
    acs = dataclasses.replace(ACS.acs, **changes)
    return ladder.tasks(dataclasses.replace(ACS, acs=acs), ladder.load("acs"))


def test_each_rung_adds_one_thing() -> None:
    found = acs_rungs()
    assert [t.problem for t in found] == [""] * 5
    assert [t.values["rung"] for t in found] == [
        "base",
        "+communication library",
        "+OS",
        "+compile",
        "+recompute",
    ]
    chosen = [
        (t.profile.acs.image, t.profile.acs.compile, t.profile.acs.checkpoint_optimization) for t in found
    ]
    assert chosen == [
        ("base:1", False, False), ("accl:1", False, False), ("mine:1", False, False), ("mine:1", True, False),
        ("mine:1", True, True),
    ]  # fmt: skip
    for below, above in pairwise(chosen[2:]):
        assert sum(a != b for a, b in zip(below, above)) == 1
    assert {t.profile.training.iterations for t in found} == {20}


def test_a_rung_without_its_image_is_left_out_and_the_switches_stay_off() -> None:
    found = acs_rungs(ladder_images={})
    assert [bool(t.problem) for t in found] == [True, True, False, False, False]
    assert "acs.ladder_images.base is empty" in found[0].problem
    assert [t.profile.acs.compile for t in found[2:]] == [False, True, True]


def test_what_the_benchmark_cannot_do_is_not_carried_upwards() -> None:
    found = acs_rungs(work="ljperf", script="", compile=False)
    assert [bool(t.problem) for t in found] == [False, False, False, True, False]
    assert "ljperf documents no switch" in found[3].problem
    assert (found[4].profile.acs.compile, found[4].profile.acs.checkpoint_optimization) == (False, True)


def test_the_starter_climbs() -> None:
    rungs = ladder.tasks(store.load("acs-train"), ladder.load("acs"))
    assert [bool(t.problem) for t in rungs] == [True, True, False, False, False]


def test_a_ladder_is_for_its_recipe() -> None:
    with pytest.raises(UserError, match="for recipe acs"):
        ladder.tasks(Profile(recipe="smoke"), ladder.load("acs"))


def test_layout_keys_climb_too(tmp_path: Path) -> None:
    file = tmp_path / "kernels.toml"
    file.write_text(
        """
[[rung]]
name = "base"
set = ["flash_attention=false", "site.environment.variables.NCCL_DEBUG=WARN"]
[[rung]]
name = "+flash"
set = ["flash_attention=true"]
[[rung]]
name = "+recompute"
set = ["recompute=full", "recompute.layers=2", "training.seed=7"]
"""
    )
    found = ladder.tasks(Profile(), ladder.load(str(file)))
    assert [t.profile.layout.fixed.get("flash_attention") for t in found] == [False, True, True]
    assert found[2].profile.layout.fixed["recompute.layers"] == 2
    assert found[2].profile.training.seed == 7
    assert found[2].profile.site.environment.variables == {"NCCL_DEBUG": "WARN"}


BAD = {
    "one rung": '[[rung]]\nname = "a"\n',
    "no rung": 'name = "x"\n',
    "same names": '[[rung]]\nname = "a"\n[[rung]]\nname = "a"\n',
    "no name": '[[rung]]\nname = ""\n[[rung]]\nname = "b"\n',
    "long name": f'[[rung]]\nname = "{"x" * 41}"\n[[rung]]\nname = "b"\n',
    "line break": '[[rung]]\nname = "a\\nb"\n[[rung]]\nname = "b"\n',
    "unknown key": '[[rung]]\nname = "a"\nsett = []\n[[rung]]\nname = "b"\n',
    "not toml": "[[rung\n",
    "wrong type": '[[rung]]\nname = "a"\nset = "x=1"\n[[rung]]\nname = "b"\n',
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_ladder_says_what_is_wrong(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(BAD[kind])
    with pytest.raises(UserError) as error:
        ladder.load(str(file))
    assert "x.toml" in str(error.value)
    assert "\n" not in error.value.message.replace("\\n", "")


@pytest.mark.parametrize("name", ["", "acz", "/nowhere/x.toml", "x.toml", "a\0b.toml"])
def test_an_unknown_ladder_names_those_that_exist(name: str) -> None:
    with pytest.raises(UserError, match="acs"):
        ladder.load(name)


@pytest.mark.parametrize(
    "rung", ['set = ["training.sed=1"]', 'take = ["training.seed=nosuch.key"]', 'reset = ["acs.imag"]']
)
def test_a_key_that_does_not_exist_is_named(rung: str, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f'[[rung]]\nname = "a"\n{rung}\n[[rung]]\nname = "b"\n')
    found = ladder.tasks(Profile(recipe="smoke"), ladder.load(str(file)))
    assert found[0].problem
    assert not found[1].problem


def test_rungs_run_one_at_a_time_unless_asked(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('[[rung]]\nname = "a"\n[[rung]]\nname = "b"\nset = ["smoke.hidden=32"]\n')
    smoke = Profile(recipe="smoke", cluster="local")
    assert ladder.prepare(smoke, str(file)).at_once == 1
    assert ladder.prepare(smoke, str(file), at_once=2).at_once == 2


def test_one_rung_is_no_comparison(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('[[rung]]\nname = "a"\nset = ["smoke.hidden=17"]\n[[rung]]\nname = "b"\n')
    with pytest.raises(UserError, match="Only 1 of 2 rungs"):
        ladder.prepare(Profile(recipe="smoke"), str(file))


# -- comparing ------------------------------------------------------------------------------------
def row(number: int, times: list[float], name: str = "", tokens: int | None = None, gpus: int = 1) -> Row:
    measured = Measured(len(times), statistics.mean(times), statistics.stdev(times)) if len(times) > 1 else Measured(len(times), times[0])  # fmt: skip # noqa: E501
    found = Row(number, {"rung": name or str(number)}, "COMPLETED", gpus=gpus, tokens_per_step=tokens)
    return with_interval(found, measured)


def test_rungs_are_compared_in_order_not_by_speed() -> None:
    rows = [row(3, [50.0, 51.0], "c"), row(1, [100.0, 102.0], "a"), row(2, [99.0, 103.0], "b")]
    found = compare(rows, "rung")
    assert [c.rung for c in found] == ["a", "b", "c"]
    assert found[0].previous is None
    assert found[0].base is None
    assert found[1].previous is not None
    assert found[1].previous.verdict == "cannot tell"
    assert found[2].previous is not None
    assert (found[2].previous.over, found[2].previous.verdict) == ("b", "faster")
    assert found[2].base is not None
    assert found[2].base.ratio == pytest.approx(2.0, rel=0.01)


def test_rungs_that_were_not_measured_are_passed_over() -> None:
    rows = [
        Row(1, {"rung": "a"}, "SKIPPED", problem="no image"), row(2, [100.0, 101.0], "b"),
        Row(3, {"rung": "c"}, "FAILED", problem="out of memory"), row(4, [80.0, 81.0], "d"),
    ]  # fmt: skip
    found = compare(rows, "rung")
    assert [c.previous.over if c.previous else None for c in found] == [None, None, None, "b"]
    assert [c.base.over if c.base else None for c in found] == [None, None, None, "b"]
    assert found[0].to_json()["problem"] == "no image"
    assert compare([], "rung") == []


def test_batches_of_different_size_are_compared_by_tokens() -> None:
    one, two = row(1, [100.0, 101.0], tokens=1000), row(2, [150.0, 151.0], tokens=3000)
    found = speed_up(two, one, "1")
    assert found is not None
    assert found.ratio == pytest.approx(2.0, rel=0.01)
    wider = speed_up(row(2, [100.0, 101.0], tokens=1000, gpus=2), one, "1")
    assert wider is not None
    assert wider.ratio == pytest.approx(0.5)


@pytest.mark.parametrize(("times", "words"), [([100.0], "cannot tell"), ([100.0, 100.0, 100.0], "faster")])
def test_short_and_constant_runs(times: list[float], words: str) -> None:
    found = speed_up(row(2, [x / 2 for x in times]), row(1, times), "1")
    assert found is not None
    assert found.ratio == pytest.approx(2)
    assert found.verdict == words


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """2,000 pairs of short runs with 4 % scatter: the true ratio is inside about 95 % of the intervals."""
    dice = random.Random(7)
    inside = told = 0
    for _ in range(2000):
        slow = row(1, [dice.gauss(110, 4.4) for _ in range(12)])
        fast = row(2, [dice.gauss(100, 4.0) for _ in range(15)])
        found = speed_up(fast, slow, "1")
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= 1.1 <= found.high
        told += found.verdict == "faster"
        assert math.isfinite(found.low)
    assert 0.93 < inside / 2000 < 0.97
    assert told / 2000 > 0.95


def test_words_of_a_comparison() -> None:
    assert SpeedUp("a", 1.2, 1.1, 1.3).verdict == "faster"
    assert SpeedUp("a", 0.8, 0.7, 0.9).verdict == "slower"
    assert SpeedUp("a", 1.0, 0.9, 1.1).verdict == "cannot tell"
    assert SpeedUp("a", 2.0).verdict == "cannot tell"
    assert SpeedUp("a", 2.0, 1.9, 2.1).to_json()["verdict"] == "faster"
