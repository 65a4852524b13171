"""Turning any number of a plan: what follows from it follows, illegal ones are explained, and it can be taken over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import calibration, planner
from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.workflows import choices, forecast, launch, sure, whatif
from gpt_tune.workflows.draft import Draft

pytestmark = pytest.mark.usefixtures("home")


def draft_for(model: str, gpus: int = 64, kind: str = "p6-b200") -> Draft:
    made = choices.start(cluster=choices.PLAN_ONLY, available=())
    for key, text in (
        ("resources.gpu", kind),
        ("resources.gpus", str(gpus)),
        ("model.id", model),
        ("trainer.path", "/opt/mds"),
    ):
        made = choices.put(made, key, text)
    return made


def best(draft: Draft) -> tuple[PlanRequest, Plan]:
    request = choices.plan_request(draft)
    return request, planner.search(request).plans[0]


@pytest.mark.parametrize("model", ["gpt-145b", "llama-3.1-8b", "mixtral-8x7b"])
def test_every_number_turns_both_ways_without_a_crash(model: str) -> None:
    request, plan = best(draft_for(model))
    keys = [t.key for t in whatif.turnables(request, plan.layout)]
    assert {"tensor_parallel", "micro_batch_size", "gpus", "global_batch_size", "seq_length"} <= set(keys)
    assert ("expert_parallel" in keys) is (model == "mixtral-8x7b")
    for key in keys:
        for by in (1, -1):
            turned = whatif.turn(request, plan, key, by)
            assert turned.result.legal is not bool(turned.result.problems)
            assert turned.result.legal or turned.result.problems[0].text


def test_numbers_of_the_question_change_the_question_and_nothing_else_does() -> None:
    request, plan = best(draft_for("gpt-145b"))
    for key, value in (
        ("gpus", 128),
        ("global_batch_size", request.global_batch_size * 2),
        ("seq_length", 4096),
    ):
        turned = whatif.turn(request, plan, key, 1)
        assert getattr(turned.request, key) == value
        assert turned.result.plan is not None
    doubled = whatif.turn(request, plan, "gpus", 1).result.plan
    assert doubled is not None
    assert doubled.layout.gpus == 128
    assert doubled.layout.tensor_parallel == plan.layout.tensor_parallel
    assert whatif.turn(request, plan, "zero_stage", 1).request == request


def test_the_ends_stay_where_they_are() -> None:
    request, plan = best(draft_for("llama-3.2-1b", 1, "h100"))
    assert whatif.turn(request, plan, "gpus", -1).request.gpus == 1
    odd = whatif.turn(request, plan, "global_batch_size", 1).request
    assert odd.global_batch_size == request.global_batch_size * 2


def test_a_turned_layout_is_taken_over_with_what_the_question_became() -> None:
    draft = draft_for("gpt-145b")
    request, plan = best(draft)
    turned = whatif.turn(request, plan, "gpus", 1)
    assert turned.result.plan is not None
    again = whatif.turn(turned.request, turned.result.plan, "global_batch_size", 1)
    assert again.result.plan is not None
    chosen = choices.choose(draft, again.result.plan, again.request)
    assert chosen.profile.resources.gpus == 128
    assert chosen.profile.training.global_batch_size == again.request.global_batch_size
    assert choices.plan_request(chosen).gpus == 128
    ready = launch.preview(chosen)
    assert ready.spec.gpus == 128
    assert ready.plan is not None
    assert ready.plan.layout == again.result.plan.layout
    assert (
        choices.profile_of(chosen).layout.fixed["tensor_parallel"] == plan.layout.tensor_parallel
    )  # a saved profile keeps it


def test_a_layout_that_a_profile_fixes_is_named_and_can_be_freed() -> None:
    draft = draft_for("gpt-145b")
    _, plan = best(draft)
    turned = whatif.turn(choices.plan_request(draft), plan, "micro_batch_size", -1).result.plan
    assert turned is not None
    kept = choices.profile_of(choices.choose(draft, turned))
    again = choices.start(kept, choices.PLAN_ONLY, base="night", available=())
    assert "night fixes" in choices.fixed_by(again)
    assert planner.search(choices.plan_request(again)).searched == 1
    free = choices.unfixed(again)
    assert choices.fixed_by(free) == ""
    assert planner.search(choices.plan_request(free)).searched > 100


def test_another_precision_is_taken_over() -> None:
    draft = draft_for("gpt-145b")
    request, plan = best(draft)
    plans = [whatif.turn(request, plan, "precision", by).result.plan for by in (1, -1)]
    other = next(p for p in plans if p is not None and p.layout.precision != plan.layout.precision)
    chosen = choices.choose(draft, other, request)
    assert choices.plan_request(chosen).precision == other.layout.precision


def test_the_forecast_is_the_planners_best_and_is_not_asked_twice() -> None:
    draft = draft_for("gpt-145b")
    _, plan = best(draft)
    found = forecast.forecast(draft)
    assert found is not None
    assert found.plan is not None
    assert found.plan.layout == plan.layout
    assert forecast.forecast(draft, found) is found
    assert forecast.forecast(choices.put(draft, "training.learning_rate", "1e-5"), found) is found
    words = dict(choices.summary(draft, found).parts)
    assert "best so far" in words["layout"]
    assert "GPU-hours" in words["takes"]
    assert "tokens a day" in words["pace"]
    assert "runs on b200" in words["sure"]
    moved = choices.put(draft, "resources.gpus", "128")
    assert "looking" in dict(choices.summary(moved, found).parts)["layout"]


def test_a_forecast_that_fits_nowhere_says_so() -> None:
    found = forecast.forecast(draft_for("gpt-1t", 8))
    assert found is not None
    assert found.plan is None
    assert "none fits" in dict(choices.summary(draft_for("gpt-1t", 8), found).parts)["layout"]


def test_no_forecast_without_a_planner_or_a_gpu() -> None:
    smoke = choices.put(draft_for("gpt-145b"), "recipe", "smoke")
    assert forecast.forecast(smoke) is None
    assert forecast.forecast(choices.start(cluster=choices.PLAN_ONLY, available=())) is None


@pytest.mark.parametrize(
    ("node", "whole", "short"),
    [
        ("dgx-h200", "off on", "runs on h200 elsewhere"),
        ("g6", "not held against measured runs", "nothing measured"),
    ],
)
def test_how_sure_is_said_with_its_measurements(node: str, whole: str, short: str) -> None:
    request = choices.plan_request(draft_for("gpt-1.3b", 8, node))
    assert whole in sure.sure_words(request)
    assert short in sure.short_words(request)


def test_a_calibration_of_the_cluster_itself_says_so(home: Path) -> None:
    request = replace(choices.plan_request(draft_for("gpt-1.3b", 8, "dgx-h200")), cluster="dev")
    known = calibration.load(request.node, "dev")
    calibration.save(replace(known, name="dev", time_error=0.04, time_rows=12), "dev")
    assert "calibrated here" in sure.short_words(request)
    assert "on this cluster" in sure.sure_words(request)
