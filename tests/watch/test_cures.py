"""From what broke a run to settings of the next one: less memory, more time, on from a checkpoint, or a sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpt_tune import planner
from gpt_tune.diagnosis.types import Finding
from gpt_tune.errors import UserError
from gpt_tune.ledger import RunRecord
from gpt_tune.planner.types import Plan
from gpt_tune.profiles.build import to_dict
from gpt_tune.profiles.schema import Finetune, Profile, Resources, Site
from gpt_tune.recipes import qlora_layout
from gpt_tune.toml import dump
from gpt_tune.workflows.cures import changes_of, going_on, settings_of
from gpt_tune.workflows.flat_layout import flat_layout
from gpt_tune.workflows.records import prediction_of, profile_of
from gpt_tune.workflows.request import plan_request
from gpt_tune.workflows.resubmit import again

OOM = Finding("F1", "error", "GPU 0 ran out of memory.", "Use less memory.", action="less_memory")
LATE = Finding("F72", "error", "Slurm ended the job at its time limit.", "Resume.", action="more_time")
HOURS = 3600


def record_of(
    profile: Profile, plan: Plan | None = None, run_dir: str = "/nowhere", **more: Any
) -> RunRecord:
    record = RunRecord(
        run_id="r20201130-000000-0001", token="t", cluster="dev", scheduler="slurm", name="x",
        recipe=profile.recipe, run_dir=run_dir, script=f"{run_dir}/job.sbatch", created_at="2020-11-30T00:00:00Z",
        profile=dump(to_dict(profile)), plan=plan.to_json() if plan is not None else None, gpus=8, nodes=1,
        partition="p",
    )  # fmt: skip
    return replace(record, **more)


def planned(rank: int) -> tuple[RunRecord, Plan]:
    plans = planner.search(planner.build_request("gpt-1.3b", 8, gpu="h100", top=40)).plans
    plan = plans[rank]
    profile = Profile(recipe="megatron-deepspeed", resources=Resources(gpus=8, gpu="h100"))
    profile = replace(profile, model=replace(profile.model, id="gpt-1.3b"))
    return record_of(profile, plan), plan


@pytest.fixture
def partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that allows 8 hours and gives 2 where nothing is asked for; its files are not there."""
    limits = SimpleNamespace(name="p", time_limit_seconds=8 * HOURS, default_time_seconds=2 * HOURS)
    monkeypatch.setattr("gpt_tune.clusters.discover", lambda name: SimpleNamespace(partitions=(limits,)))
    monkeypatch.setattr("gpt_tune.workflows.cures._resume", lambda record: {})


def test_a_findings_own_changes_come_first(home: Path) -> None:
    finding = replace(OOM, changes={"training.dropout": "0.0"})
    assert settings_of(record_of(Profile()), finding) == {"training.dropout": "0.0"}


def test_out_of_memory_gives_the_best_layout_that_needs_clearly_less(home: Path) -> None:
    record, plan = planned(0)
    settings = settings_of(record, OOM)
    changes = changes_of(record, settings)
    assert changes
    assert all(change.before != change.after for change in changes)
    fixed = {key.removeprefix("layout.fixed."): value for key, value in settings.items()}
    request = planner.build_request("gpt-1.3b", 8, gpu="h100", fix=fixed, top=1)
    (next_plan,) = planner.search(request).plans
    assert next_plan.memory.device_gib <= 0.93 * plan.memory.device_gib
    assert {k: str(v).lower() for k, v in flat_layout(next_plan.layout.to_json()).items() if k in fixed} == {
        k: v.lower() for k, v in fixed.items()
    }


def test_out_of_memory_at_the_leanest_layout_says_so(home: Path) -> None:
    plans = planner.search(planner.build_request("gpt-1.3b", 8, gpu="h100", top=500)).plans
    leanest = min(plans, key=lambda p: p.memory.device_gib)
    record, _ = planned(0)
    lean = replace(record, plan=replace(leanest, memory=replace(leanest.memory, device_gib=1.0)).to_json())
    with pytest.raises(UserError, match="clearly less than the 1 GiB"):
        settings_of(lean, OOM)


@pytest.mark.parametrize(
    "plan", [None, {}, {"memory": {"device_gib": "much"}}, {"memory": {"device_gib": True}}]
)
def test_a_run_that_was_not_planned_is_not_guessed_at(home: Path, plan: Any) -> None:
    record = replace(planned(0)[0], plan=plan)
    with pytest.raises(UserError, match="was not planned"):
        settings_of(record, OOM)


def test_fine_tuning_halves_the_micro_batch(home: Path) -> None:
    profile = Profile(recipe="qlora", finetune=Finetune(micro_batch_size=4, gradient_accumulation_steps=2))
    assert settings_of(record_of(profile), OOM) == {
        "finetune.micro_batch_size": "2",
        "finetune.gradient_accumulation_steps": "4",
    }
    with pytest.raises(UserError, match="smallest micro batch"):
        settings_of(record_of(replace(profile, finetune=Finetune(micro_batch_size=1))), OOM)


@pytest.mark.parametrize(("had", "gets"), [("1:00:00", "2:00:00"), ("", "4:00:00"), ("6:00:00", "8:00:00")])
def test_a_time_limit_is_doubled_as_far_as_the_partition_allows(
    home: Path, partition: None, had: str, gets: str
) -> None:
    record = record_of(Profile(site=Site(time_limit=had)))
    assert settings_of(record, LATE) == {"site.time_limit": gets}
    (change,) = changes_of(record, settings_of(record, LATE))
    assert change.before == (had or None)


def test_a_limit_that_cannot_grow_points_to_a_chain(home: Path, partition: None) -> None:
    with pytest.raises(UserError, match="no more than the 8:00:00") as raised:
        settings_of(record_of(Profile(site=Site(time_limit="8:00:00"))), LATE)
    assert "--until-done" in str(raised.value)


@pytest.mark.parametrize("there", [True, False])
def test_a_run_goes_on_from_its_own_checkpoints_where_there_are_any(
    home: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setattr("gpt_tune.clusters.connect", lambda name: SimpleNamespace(files=None))
    monkeypatch.setattr(
        "gpt_tune.workflows.chain.newest_checkpoint", lambda files, folder: 400 if there else None
    )
    preempted = Finding("F73", "warning", "The job was preempted.", "Submit again.", action="resume")
    settings = settings_of(record_of(Profile(), run_dir="/shared/runs/x"), preempted)
    assert list(settings) == (["training.checkpoint_dir"] if there else [])
    assert all(value.startswith("/shared/runs/x") for value in settings.values())


def test_nothing_known_gives_nothing(home: Path) -> None:
    assert settings_of(record_of(Profile()), replace(OOM, action=None)) == {}


@pytest.mark.parametrize(
    ("recipe", "kept", "says"),
    [
        ("megatron-lm", True, "--set training.checkpoint_dir='/a b/checkpoints'"),
        ("megatron-lm", False, "as it was: gpt-tune resubmit r20201130-000000-0001"),
        ("smoke", True, "as it was: gpt-tune resubmit r20201130-000000-0001"),
        ("custom", True, "as it was: gpt-tune resubmit r20201130-000000-0001"),
    ],
)
def test_what_nothing_broke_is_started_again(
    monkeypatch: pytest.MonkeyPatch, recipe: str, kept: bool, says: str
) -> None:
    found = {"training.checkpoint_dir": "/a b/checkpoints"} if kept else {}
    monkeypatch.setattr("gpt_tune.workflows.cures._resume", lambda record: found)
    record = replace(record_of(Profile()), recipe=recipe)
    assert going_on(record).endswith(says)


# --- fine-tuning that was planned


def tuned(rank: int = 0, **tune: Any) -> tuple[RunRecord, Plan]:
    finetune = Finetune(weights="Qwen/Qwen3-8B", data="some/data", **tune)
    profile = Profile(recipe="qlora", finetune=finetune, resources=Resources(gpus=8, gpu="h100"))
    plan = planner.search(plan_request(profile, top=40)).plans[rank]
    return record_of(profile, plan), plan


@pytest.mark.parametrize(
    "tune", [{}, {"strategy": "ddp"}, {"micro_batch_size": 4, "gradient_accumulation_steps": 1}]
)
def test_a_planned_fine_tuning_run_gets_a_leaner_layout_of_the_same_batch(
    home: Path, tune: dict[str, Any]
) -> None:
    record, plan = tuned(**tune)
    settings = settings_of(record, OOM)
    assert set(settings) == set(qlora_layout.KEYS.values())
    changes = {c.key: (c.before, c.after) for c in changes_of(record, settings)}
    assert changes
    if "finetune.micro_batch_size" in changes:  # as it ran, not as the profile left it open
        assert changes["finetune.micro_batch_size"][0] == str(plan.layout.micro_batch_size)
    new = again(record, more=tuple(f"{k}={v}" for k, v in settings.items())).profile
    next_plan = planner.search(plan_request(new, top=1)).plans[0]
    assert next_plan.memory.device_gib <= 0.93 * plan.memory.device_gib
    assert next_plan.layout.global_batch_size == plan.layout.global_batch_size
    assert qlora_layout.values_of(flat_layout(next_plan.layout.to_json())) == {
        "finetune.strategy": new.finetune.strategy,
        "finetune.micro_batch_size": new.finetune.micro_batch_size,
        "finetune.gradient_accumulation_steps": new.finetune.gradient_accumulation_steps,
        "finetune.gradient_checkpointing": new.finetune.gradient_checkpointing,
    }


def test_a_fine_tuning_run_is_started_again_with_the_layout_that_it_had(home: Path) -> None:
    """Also where a later planner would choose another one: what ran is what runs."""
    record, plan = tuned(rank=3)
    for more in ((), ("finetune.learning_rate=0.001",), ("finetune.steps=7",)):
        profile = again(record, more=more).profile
        assert profile.layout.fixed == {}
        (same,) = planner.search(plan_request(profile, top=5)).plans
        assert same.layout == plan.layout


@pytest.mark.parametrize(
    "change",
    ["finetune.lora_rank=128", "finetune.base_weights=16bit", "model.seq_length=4096", "resources.gpus=4",
     "finetune.strategy=zero3", "training.global_batch_size=64"],
)  # fmt: skip
def test_what_the_layout_rests_on_frees_it(home: Path, change: str) -> None:
    record, _ = tuned(rank=3)
    key, _, value = change.partition("=")
    tune = again(record, more=(change,)).profile.finetune
    named = {"finetune.strategy": value if key == "finetune.strategy" else "auto"}
    assert tune.strategy == named["finetune.strategy"]
    assert (tune.micro_batch_size, tune.gradient_accumulation_steps, tune.gradient_checkpointing) == (
        None,
    ) * 3


def test_a_planned_fine_tuning_run_is_expected_to_take_a_time_and_to_have_no_speed(home: Path) -> None:
    """Its examples are shorter than their limit: TFLOPS and tokens a second of full ones would be made up."""
    record, plan = tuned()
    expected = prediction_of(record)
    assert expected is not None
    assert expected.step_time_ms == pytest.approx(1000 * plan.step.seconds)
    assert (expected.low_ms, expected.high_ms) == pytest.approx((1000 * plan.step.low, 1000 * plan.step.high))
    assert expected.device_gib == plan.memory.device_gib
    assert expected.model_tflops is expected.mfu is expected.tokens_per_second_per_gpu is None


@pytest.mark.parametrize(
    ("tune", "batch", "expected"),
    [
        ({}, None, (1, 4, True)),
        ({"micro_batch_size": 2}, None, (2, 4, True)),
        ({"gradient_checkpointing": False}, None, (1, 4, False)),
        ({}, 64, (1, None, True)),
        ({"gradient_accumulation_steps": 2}, 64, (None, 2, True)),
    ],
)
def test_a_run_without_a_plan_runs_again_as_it_did(
    home: Path, tune: dict[str, Any], batch: int | None, expected: tuple[Any, ...]
) -> None:
    """It took the trainer's usual numbers: a planner that knows its GPU by now does not choose others."""
    profile = Profile(recipe="qlora", finetune=Finetune(weights="Qwen/Qwen3-8B", data="some/data", **tune))
    profile = replace(profile, training=replace(profile.training, global_batch_size=batch))
    new = again(record_of(profile)).profile
    found = new.finetune
    assert (
        found.micro_batch_size,
        found.gradient_accumulation_steps,
        found.gradient_checkpointing,
    ) == expected
    assert qlora_layout.counts_of(new, 8) == qlora_layout.counts_of(profile, 8)


def test_open_choices_are_open_again_when_a_profile_is_read(home: Path) -> None:
    for tune in (Finetune(), Finetune(micro_batch_size=2, gradient_checkpointing=False, strategy="zero2")):
        record = record_of(Profile(recipe="qlora", finetune=tune))
        assert profile_of(record).finetune == tune
