"""Sweeps and ladders of a fine-tuning job: the planner's best, each strategy, and rungs on one layout."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Finetune, Profile, Resources, Site
from gpt_tune.recipes import qlora_layout
from gpt_tune.workflows import ladder
from gpt_tune.workflows import sweep as sweeps
from gpt_tune.workflows.launch import Launch
from tests.cluster import SlurmCluster

pytestmark = pytest.mark.slurm
TUNE = Profile(
    name="tune",
    recipe="qlora",
    finetune=Finetune(weights="Qwen/Qwen3-8B", data="some/data"),
    resources=Resources(gpus=8),
)
LADDER = """
[[rung]]
name = "plain"
[[rung]]
name = "checkpointing"
set = ["finetune.gradient_checkpointing=true"]
[[rung]]
name = "zero2"
set = ["finetune.strategy=zero2"]
"""


@pytest.fixture(autouse=True)
def _site(slurm: SlurmCluster, home: Path, tmp_path: Path) -> None:
    sites.save(Site(cluster="testbed", scheduler="slurm", run_root=str(tmp_path / "runs")))


def read(launch: Launch) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        next(f.content for f in launch.rendered.files if f.path == "finetune.json")
    )
    return found


def test_the_planners_best_layouts_are_tried() -> None:
    sweep = sweeps.prepare(TUNE, top=3, steps=10)
    plans = [launch.plan for launch in sweep.launches.values()]
    assert len({str(plan.layout) for plan in plans if plan}) == 3
    for launch in sweep.launches.values():
        assert launch.plan is not None
        assert read(launch)["micro_batch_size"] == launch.plan.layout.micro_batch_size
        assert read(launch)["steps"] == launch.rendered.prediction.total_steps == 10
        assert launch.seconds == pytest.approx(10 * launch.plan.step.seconds)


@pytest.mark.parametrize("vary", ["zero_stage=0,2,3", "finetune.strategy=ddp,zero2,zero3"])
def test_every_strategy_is_tried_in_either_words(vary: str) -> None:
    sweep = sweeps.prepare(TUNE, vary=[vary], steps=10)
    assert [read(sweep.launches[n])["strategy"] for n in (1, 2, 3)] == ["ddp", "zero2", "zero3"]


def test_a_strategy_that_the_profile_contradicts_is_left_out() -> None:
    named = replace(TUNE, finetune=replace(TUNE.finetune, strategy="zero2"))
    sweep = sweeps.prepare(named, vary=["zero_stage=0,2"], steps=10)
    assert list(sweep.launches) == [2]
    assert "finetune.strategy says zero_stage=2" in sweep.skipped[1]


def test_weights_of_no_known_shape_have_no_best_layouts() -> None:
    mystery = replace(TUNE, finetune=replace(TUNE.finetune, weights="nobody/mystery"))
    with pytest.raises(UserError, match="no layouts to choose from"):
        sweeps.prepare(mystery, top=3, steps=10)
    assert len(sweeps.prepare(mystery, vary=["finetune.lora_rank=8,16"], steps=10).launches) == 2


def test_rungs_stand_on_one_layout(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(LADDER)
    sweep = ladder.prepare(TUNE, str(file), steps=10)
    assert sweep.skipped == {}
    rungs = [sweep.launches[n].spec.profile.finetune for n in (1, 2, 3)]
    keys = [setting.partition(".")[2] for setting in qlora_layout.KEYS.values()]
    changed = [{k for k in keys if getattr(a, k) != getattr(b, k)} for a, b in pairwise(rungs)]
    assert changed == [{"gradient_checkpointing"}, {"strategy"}]
    assert rungs[0].micro_batch_size is not None
