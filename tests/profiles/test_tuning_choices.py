"""The wizard's way through a fine-tuning job: what is asked, planned, turned and contradicted, and what runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import clusters, planner
from gpt_tune.errors import UserError
from gpt_tune.planner.types import Plan
from gpt_tune.profiles.schema import Finetune, Profile, Resources, Site
from gpt_tune.workflows import choices, launch, whatif
from gpt_tune.workflows.draft import YOU, Draft
from gpt_tune.workflows.tuning import trained_model
from tests.profiles.test_choices import EVERYTHING, planning, value
from tests.profiles.test_choices import asked as pages

pytestmark = pytest.mark.usefixtures("home")
LAYOUT = ("finetune.strategy", "finetune.micro_batch_size", "finetune.gradient_accumulation_steps",
          "finetune.gradient_checkpointing")  # fmt: skip


@pytest.fixture(autouse=True)
def _clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "available", lambda: ["dev", "local"])
    monkeypatch.setattr(clusters, "silent", dict)
    monkeypatch.setattr(clusters, "discover", lambda name=None: EVERYTHING[name or "dev"])


def answered(draft: Draft, **answers: str) -> Draft:
    """A draft with answers; `__` in a name is a dot."""
    for key, text in answers.items():
        draft = choices.put(draft, key.replace("__", "."), text)
    return draft


def tuning(*start: Draft, **answers: str) -> Draft:
    draft = answered(start[0] if start else planning("dgx-h200"), recipe="qlora")
    return answered(draft, **{"finetune__weights": "Qwen/Qwen3-8B", "finetune__data": "some/data", **answers})


def on(cluster: str) -> Draft:
    return choices.load_cluster(choices.start(cluster=cluster), cluster)


def words(draft: Draft, label: str, looked: bool = True) -> str:
    found = choices.forecast(draft) if looked else None
    return dict(choices.summary(draft, found).parts).get(label, "")


def best(draft: Draft, rank: int = 1) -> Plan:
    return planner.search(choices.plan_request(draft, top=20)).plans[rank - 1]


# -- where it is planned --------------------------------------------------------------------------
def test_it_is_planned_where_gpu_and_model_are_known() -> None:
    for draft in (tuning(), tuning(on("dev")), tuning(on("dev"), resources__partition="long")):
        assert "plan" in pages(draft)
        assert choices.forecast(draft) is not None
        assert choices.plan_request(draft).model.id == "qwen3-8b"
    assert choices.problems(tuning()) == []


@pytest.mark.parametrize("where", ["local", "cpu"])
def test_without_gpus_it_trains_on_the_cpu_as_before(where: str) -> None:
    draft = tuning(on("local")) if where == "local" else tuning(on("dev"), resources__partition="cpu")
    assert "plan" not in pages(draft)
    assert choices.forecast(draft) is None
    assert not [p for p in choices.problems(draft) if "GPU" in p.text]
    (batch,) = [f for f in choices.fields(draft, "training") if f.key == "training.global_batch_size"]
    assert batch.source == "4 for each process"
    # What the trainer takes is shown: nobody chooses it.
    assert [value(draft, key) for key in LAYOUT] == ["auto", "1", "4", "true"]
    assert "step" not in dict(choices.summary(draft).parts)


def test_weights_of_no_known_shape_are_not_planned_until_the_model_is_named() -> None:
    draft = tuning(finetune__weights="nobody/mystery")
    assert "plan" not in pages(draft)
    assert "not known" in words(draft, "model")
    named = answered(draft, model__id="llama-3.1-8b")
    assert "plan" in pages(named)
    assert "llama-3.1-8b" in words(named, "model")


def test_before_weights_are_given_nothing_is_made_up() -> None:
    draft = answered(planning("dgx-h200"), recipe="qlora")
    assert choices.forecast(draft) is None
    assert "not given yet" in words(draft, "model")
    assert "step" not in dict(choices.summary(draft).parts)
    assert {p.key for p in choices.problems(draft)} == {"finetune.weights", "finetune.data"}


# -- what is shown is what trains -----------------------------------------------------------------
def test_the_questions_show_what_trains() -> None:
    draft = tuning()
    fields = {f.key: f for f in choices.fields(draft, "training")}
    for key in LAYOUT:
        assert fields[key].advanced
    for key in LAYOUT[1:]:
        assert (fields[key].value, fields[key].source) == ("", "the planner chooses")
    assert fields["model.seq_length"].value == str(choices.plan_request(draft).seq_length) == "1536"
    assert fields["training.global_batch_size"].value == str(choices.plan_request(draft).global_batch_size)
    assert [o.value for o in fields["finetune.gradient_checkpointing"].options] == ["", "true", "false"]
    (model,) = choices.fields(draft, "model")
    assert (model.value, model.source) == ("qwen3-8b", "weights' name")
    ready = launch.preview(draft)
    read = json.loads(next(f.content for f in ready.rendered.files if f.path == "finetune.json"))
    assert (read["max_length"], ready.spec.model.id) == (1536, "qwen3-8b")
    # The run's record names the model too: a later look at it must not guess again.
    assert ready.spec.profile.model.id == "qwen3-8b"


@pytest.mark.parametrize(
    ("answers", "batch"),
    [
        ({}, "32"),
        ({"finetune__micro_batch_size": "2"}, "64"),
        ({"finetune__gradient_accumulation_steps": "2"}, "16"),
        ({"training__global_batch_size": "48"}, "48"),
        ({"resources__gpus": "16"}, "64"),
    ],
)
def test_the_batch_shown_is_the_batch_planned(answers: dict[str, str], batch: str) -> None:
    draft = tuning(**answers)
    assert value(draft, "training.global_batch_size") == batch
    assert choices.plan_request(draft).global_batch_size == int(batch)
    assert words(draft, "batch", looked=False).startswith(f"{batch} x 1,536 tokens")


def test_the_summary_says_how_rough_it_is_and_no_made_up_total() -> None:
    draft = tuning()
    assert "1.6 either way" in words(draft, "sure")
    assert " to " in words(draft, "step")
    assert words(draft, "takes").endswith("GPU-hours per 1,000 steps")
    assert words(draft, "length", looked=False) == "3 epochs of the data"
    assert words(draft, "best") == "DDP, 4 x 1, no checkpointing"
    ready = launch.preview(draft)
    assert ready.seconds is None
    assert ready.gpu_hours is None
    assert ready.rate.endswith("for each 1,000 steps")
    assert ready.thousand_steps is not None
    for steps in ({"finetune__steps": "500"}, {"finetune__max_samples": "1000"}):
        known = tuning(**steps)
        done = launch.preview(known)
        assert done.rendered.prediction.total_steps == (500 if "finetune__steps" in steps else 90)
        assert done.gpu_hours is not None
        assert done.gpu_hours > 0
        assert done.rate == ""
        assert "per" not in words(known, "takes")


def test_adapters_on_16_bit_weights_are_planned_as_such() -> None:
    draft = tuning(finetune__base_weights="16bit")
    assert choices.plan_request(draft).trainer.name == "lora"
    assert best(draft).memory.stages[0].parameters > 1.5 * best(tuning()).memory.stages[0].parameters


# -- contradictions -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answers", "key", "text", "says"),
    [
        (
            {"finetune__micro_batch_size": "2", "finetune__gradient_accumulation_steps": "4"},
            "training.global_batch_size", "32", "are 64 examples a step",
        ),
        ({"training__global_batch_size": "32"}, "finetune.micro_batch_size", "3", "batch that they do is 24"),
        ({}, "training.global_batch_size", "33", "The nearest batch that they do is 32"),
    ],
)  # fmt: skip
def test_answers_that_contradict_each_other_are_refused_at_once(
    answers: dict[str, str], key: str, text: str, says: str
) -> None:
    draft = tuning(**answers)
    said = choices.check(draft, key, text)
    assert said is not None
    assert says in said
    with pytest.raises(UserError):
        choices.put(draft, key, text)
    assert choices.check(draft, key, "") is None, "emptied, it contradicts nobody"


def test_gpus_that_do_not_divide_the_batch_are_a_problem_of_the_batch() -> None:
    draft = answered(tuning(training__global_batch_size="24"), resources__gpus="16")
    (problem,) = choices.problems(draft)
    assert (problem.step, problem.key) == ("training", "training.global_batch_size")
    assert "16 GPUs" in problem.text


def test_every_value_and_option_that_is_shown_is_legal() -> None:
    for draft in (tuning(), tuning(on("local")), tuning(finetune__micro_batch_size="2")):
        for field in choices.fields(draft, "training"):
            assert field.help.endswith(".")
            assert choices.check(draft, field.key, field.value) is None, field.key
            for option in field.options if field.key != "recipe" else ():
                assert choices.check(draft, field.key, option.value) is None, (field.key, option)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("finetune.micro_batch_size", "0.5"),
        ("finetune.micro_batch_size", "two"),
        ("finetune.gradient_accumulation_steps", "9999999999"),
        ("finetune.gradient_checkpointing", "perhaps"),
        ("finetune.strategy", "zero1"),
        ("training.global_batch_size", "-8"),
    ],
)
def test_bad_answers_are_one_sentence(key: str, text: str) -> None:
    said = choices.check(tuning(), key, text)
    assert said
    assert "\n" not in said


# -- a plan that is chosen ------------------------------------------------------------------------
def test_another_plan_than_the_first_is_kept_in_the_profiles_own_words() -> None:
    draft = tuning()
    plan = next(p for p in planner.search(choices.plan_request(draft, 20)).plans if p.layout.zero_stage == 2)
    chosen = choices.choose(draft, plan)
    profile, x = choices.profile_of(chosen), plan.layout
    tune = profile.finetune
    assert (tune.strategy, tune.micro_batch_size) == ("zero2", x.micro_batch_size)
    assert tune.gradient_accumulation_steps == x.gradient_accumulation_steps
    assert tune.gradient_checkpointing == (x.recompute.granularity == "full")
    assert profile.layout.fixed == {}
    assert profile.training.precision == Profile().training.precision
    said = {s.key: s.origin for s in choices.settings_of(chosen)}
    assert said["finetune.strategy"] == "chosen on the plan step"
    assert said["model.id"] == "weights' name"
    ready = launch.preview(chosen)
    assert ready.plan is not None
    assert ready.plan.layout == x
    # What was saved plans the same again; going back to the plan offers every layout.
    again = choices.start(profile, choices.PLAN_ONLY, available=())
    assert best(again).layout == x
    assert choices.plan_request(chosen) == choices.plan_request(draft)


def test_the_first_plan_leaves_the_profile_open() -> None:
    draft = tuning()
    chosen = choices.choose(draft, best(draft), choices.plan_request(draft))
    assert choices.profile_of(chosen).finetune == draft.profile.finetune


TURNS = [
    ("zero_stage", 1), ("micro_batch_size", -1), ("recompute.granularity", 1), ("global_batch_size", 1),
    ("global_batch_size", -1), ("seq_length", 1), ("gpus", 1), ("gpus", -1),
]  # fmt: skip


@pytest.mark.parametrize(("key", "by"), TURNS)
@pytest.mark.parametrize(
    "named",
    [
        {},
        {"finetune__micro_batch_size": "2", "finetune__gradient_accumulation_steps": "2"},
        {"training__global_batch_size": "64", "finetune__gradient_checkpointing": "false"},
        {"finetune__strategy": "ddp", "finetune__micro_batch_size": "2", "training__global_batch_size": "32"},
    ],
    ids=["open", "counts", "batch", "strategy"],
)
def test_what_is_turned_is_what_runs(key: str, by: int, named: dict[str, str]) -> None:
    """A number turned on the plan step, whoever named it before, is what the run has and the draft asks for."""
    draft = tuning(**named)
    request = choices.plan_request(draft)
    # Small micro batches leave room for more GPUs and smaller batches.
    plan = min(planner.search(request).plans, key=lambda p: p.layout.micro_batch_size)
    turned = whatif.turn(request, plan, key, by)
    if not turned.result.legal and turned.result.plan is not None:  # ZeRO-1 lies between
        turned = whatif.turn(turned.request, turned.result.plan, key, by)
    assert turned.result.legal
    assert turned.result.plan is not None
    chosen = choices.choose(draft, turned.result.plan, turned.request)
    asked, x = choices.plan_request(chosen), turned.result.plan.layout
    assert (asked.gpus, asked.global_batch_size, asked.seq_length) == (
        x.gpus, x.global_batch_size, turned.request.seq_length,
    )  # fmt: skip
    ready = launch.preview(chosen)
    assert ready.plan is not None
    assert ready.plan.layout == x
    read = json.loads(next(f.content for f in ready.rendered.files if f.path == "finetune.json"))
    assert (
        read["micro_batch_size"] * read["gradient_accumulation_steps"] * ready.spec.gpus
        == x.global_batch_size
    )
    # And without the plan at hand, from the profile alone, it is the same.
    profile = choices.profile_of(chosen)
    (same,) = planner.search(
        choices.plan_request(choices.start(profile, choices.PLAN_ONLY, available=()), 1)
    ).plans
    assert same.layout == x


def test_a_layout_that_a_profile_fixes_can_be_freed() -> None:
    draft = tuning(finetune__strategy="zero3", finetune__micro_batch_size="2")
    assert choices.fixed_by(draft) == "you fix 2 of its keys"
    free = choices.unfixed(draft)
    assert choices.fixed_by(free) == ""
    assert dict(choices.plan_request(free).fixed) == dict(choices.plan_request(tuning()).fixed)
    assert [free.origins.get(key) for key in LAYOUT] == [None] * 4
    assert free.origins["finetune.weights"] == YOU


def test_an_answer_takes_the_place_of_a_fixed_key_of_the_same_meaning() -> None:
    profile = replace(
        tuning().profile, layout=replace(Profile().layout, fixed={"zero_stage": 3, "micro_batch_size": 2})
    )
    draft = choices.start(profile, choices.PLAN_ONLY, available=())
    changed = choices.put(draft, "finetune.strategy", "ddp")
    fixed = choices.plan_request(changed).fixed
    assert (fixed["zero_stage"], fixed["micro_batch_size"]) == (0, 2)


# -- where nothing fits ---------------------------------------------------------------------------
def test_where_nothing_fits_the_profiles_own_numbers_run_with_a_warning() -> None:
    profile = Profile(
        recipe="qlora",
        finetune=Finetune(weights="meta-llama/Llama-3.1-405B", data="some/data"),
        resources=Resources(gpus=1, gpu="dgx-h200"),
        site=Site(run_root="/shared/runs"),
    )
    draft = choices.start(profile, choices.PLAN_ONLY, available=())
    found = choices.forecast(draft)
    assert found is not None
    assert found.plan is None
    assert choices.plan_optional(draft)
    ready = launch.preview(draft)
    assert ready.plan is None
    assert any("GiB a GPU" in w for w in ready.warnings)
    more = replace(profile, resources=Resources(gpus=64, gpu="dgx-h200"))
    split = launch.preview(choices.start(more, choices.PLAN_ONLY, available=()))
    assert any("loads whole" in w and "16bit" in w for w in split.warnings)
    wide = replace(more, finetune=replace(more.finetune, base_weights="16bit"))
    assert launch.preview(choices.start(wide, choices.PLAN_ONLY, available=())).plan is not None


def test_experts_in_4_bits_are_refused_with_the_setting_that_cures_it() -> None:
    draft = tuning(finetune__weights="mistralai/Mixtral-8x7B-v0.1")
    assert "plan" not in pages(draft)
    (problem,) = choices.problems(draft)
    assert "finetune.base_weights to 16bit" in problem.text
    assert "plan" in pages(choices.put(draft, "finetune.base_weights", "16bit"))


def test_a_folder_of_weights_here_is_planned_by_its_own_shape(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "intermediate_size": 3072, "vocab_size": 151936, "head_dim": 128,
        "max_position_embeddings": 40960, "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values))
    draft = tuning(finetune__weights=str(tmp_path))
    assert choices.plan_request(draft).model.layers == 28
    assert "its config.json" in words(draft, "model")


@pytest.mark.parametrize(
    ("weights", "model", "shown"),
    [
        ("Qwen/Qwen3-8B", "", "qwen3-8b"),
        ("nobody/mystery", "", "mystery"),
        ("nobody/mystery", "llama-3.1-8b", "llama-3.1-8b"),
        ("/shared/weights/mine/", "", "mine"),
    ],
)
def test_a_list_of_profiles_names_what_is_fine_tuned(weights: str, model: str, shown: str) -> None:
    profile = tuning(finetune__weights=weights).profile
    if model:
        profile = replace(profile, model=replace(profile.model, id=model))
    assert trained_model(profile) == shown
    assert trained_model(replace(profile, recipe="megatron-lm")) == profile.model.id
