"""A ladder of a planned recipe: the planner lays out the first rung, and the others differ in what they add only."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import LayoutChoice, ModelChoice, Profile, Resources, Site, TrainerChoice
from gpt_tune.workflows import ladder
from gpt_tune.workflows.flat_layout import flat_layout


@pytest.mark.slurm
@pytest.mark.parametrize("fixed", [{}, {"tensor_parallel": 4}])
def test_only_the_rung_changes(slurm: object, home: Path, tmp_path: Path, fixed: dict[str, Any]) -> None:
    sites.save(Site(cluster="testbed", scheduler="slurm", run_root=str(tmp_path / "runs")))
    profile = Profile(
        name="k", model=ModelChoice(id="gpt-1.3b"), resources=Resources(gpus=8), trainer=TrainerChoice(path="/mds"),
        layout=LayoutChoice(fixed=fixed),
    )  # fmt: skip
    sweep = ladder.prepare(profile, "kernels", steps=10)
    assert sweep.skipped == {}
    layouts = []
    for number in sorted(sweep.launches):
        plan = sweep.launches[number].plan
        assert plan is not None
        layouts.append(flat_layout(plan.to_json()["layout"]))
    changed = [{k for k in a.keys() | b.keys() if a.get(k) != b.get(k)} for a, b in pairwise(layouts)]
    assert changed == [{"flash_attention"}, {"fusions.bias_gelu"}, {"fusions.bias_dropout"}]
    assert all(layouts[0][k] == v for k, v in fixed.items())
    assert sweep.as_array
