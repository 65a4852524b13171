"""A planned QLoRA job: what a profile fixes, what the plan decides, and that the run trains with just that."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import planner, recipes
from gpt_tune.errors import UserError
from gpt_tune.models import catalogue
from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.profiles.schema import Finetune, LayoutChoice, ModelChoice, Profile, Resources, Training
from gpt_tune.recipes import qlora_choices, qlora_layout, qlora_model
from gpt_tune.recipes.base import JobSpec, Rendered
from gpt_tune.resources import data_dir
from gpt_tune.workflows.file_findings import findings
from gpt_tune.workflows.request import iterations_of, needs_plan, plan_request
from tests.recipes import stubs
from tests.recipes.specs import put
from tests.recipes.test_qlora import options, qlora_job

TUNE = Finetune(weights="Qwen/Qwen3-8B", data="some/data")


def profile(tune: Finetune = TUNE, gpus: int = 8, gpu: str = "h200", **changes: Any) -> Profile:
    return Profile(recipe="qlora", finetune=tune, resources=Resources(gpus=gpus, gpu=gpu), **changes)


def plans(asked: Profile, top: int = 20) -> tuple[Plan, ...]:
    return planner.search(plan_request(asked, top=top)).plans


def spec_of(tmp_path: Path, asked: Profile, plan: Plan | None) -> JobSpec:
    spec = qlora_job(tmp_path / "run", asked.finetune, asked.resources.gpus or 0)
    return replace(spec, profile=asked, plan=plan, model=catalogue.get("qwen3-8b"))


def trained(rendered: Rendered) -> dict[str, Any]:
    """What the trainer reads."""
    found: dict[str, Any] = json.loads(content(rendered, "finetune.json"))
    return found


def content(rendered: Rendered, path: str) -> str:
    return next(f.content for f in rendered.files if f.path == path).decode()


def layout_of(request: PlanRequest) -> dict[str, Any]:
    """The layout keys that a question fixes; its batch and precision are its own."""
    return {k: v for k, v in request.fixed.items() if k not in ("global_batch_size", "precision")}


# -- the question ---------------------------------------------------------------------------------
def test_an_open_profile_leaves_everything_to_the_planner() -> None:
    asked = plan_request(profile())
    assert (asked.trainer.name, asked.seq_length, asked.global_batch_size) == ("qlora", 1536, 32)
    assert asked.model.id == "qwen3-8b"
    assert layout_of(asked) == {}
    assert asked.precision == "bf16"
    assert plan_request(profile(gpu="v100-32g")).precision == "fp16"
    assert plan_request(profile(replace(TUNE, base_weights="16bit"))).trainer.name == "lora"


@pytest.mark.parametrize(
    ("named", "fixed", "batch"),
    [
        ({"strategy": "ddp"}, {"zero_stage": 0}, 32),
        ({"strategy": "zero2"}, {"zero_stage": 2}, 32),
        ({"strategy": "zero3"}, {"zero_stage": 3}, 32),
        ({"micro_batch_size": 2}, {"micro_batch_size": 2}, 64),
        ({"gradient_accumulation_steps": 8}, {"gradient_accumulation_steps": 8}, 64),
        (
            {"micro_batch_size": 2, "gradient_accumulation_steps": 3},
            {"micro_batch_size": 2, "gradient_accumulation_steps": 3},
            48,
        ),
        ({"gradient_checkpointing": True}, {"recompute.granularity": "full"}, 32),
        ({"gradient_checkpointing": False}, {"recompute.granularity": "none"}, 32),
    ],
)
def test_what_a_profile_names_is_fixed(named: dict[str, Any], fixed: dict[str, Any], batch: int) -> None:
    """An old profile with explicit numbers trains with them: the same batch, the same micro batch."""
    asked = profile(replace(TUNE, **named))
    request = plan_request(asked)
    assert layout_of(request) == fixed
    assert request.global_batch_size == batch
    for plan in planner.search(request).plans:
        flat = qlora_layout.flat_of(plan.layout)
        assert {key: flat[key] for key in fixed} == fixed
        assert plan.layout.global_batch_size == batch


def test_adapters_and_optimizer_travel_with_the_question() -> None:
    tune = replace(TUNE, lora_rank=64, lora_dropout=0.0, lora_targets=("q_proj",), optimizer="adamw_8bit")
    tuning = plan_request(profile(replace(tune, double_quantisation=False))).tuning
    assert (tuning.lora_rank, tuning.lora_dropout, tuning.lora_targets) == (64, 0.0, ("q_proj",))
    assert not tuning.double_quantisation
    assert tuning.optimizer_of("qlora", "ddp") == "adamw_8bit"
    assert tuning.optimizer_of("qlora", "zero2") == tuning.optimizer_of("lora", "zero3") == "adamw"


def test_the_trainer_takes_the_optimizer_that_the_model_counts() -> None:
    text = (data_dir("templates") / "qlora" / "trainer" / "finetune.py").read_text()
    assert f'UNDER_DEEPSPEED = "{qlora_layout._UNDER_DEEPSPEED}"' in text
    assert '"per_device_eval_batch_size": settings["micro_batch_size"]' in text


# -- batches --------------------------------------------------------------------------------------
def with_batch(whole: int | None, **named: Any) -> Profile:
    return profile(replace(TUNE, **named), training=Training(global_batch_size=whole))


@pytest.mark.parametrize(
    ("whole", "named", "counts"),
    [
        (None, {}, (1, 4)),
        (None, {"micro_batch_size": 3}, (3, 4)),
        (None, {"gradient_accumulation_steps": 7}, (1, 7)),
        (64, {}, (1, 8)),
        (64, {"micro_batch_size": 2}, (2, 4)),
        (64, {"gradient_accumulation_steps": 2}, (4, 2)),
        (64, {"micro_batch_size": 2, "gradient_accumulation_steps": 4}, (2, 4)),
    ],
)
def test_a_batch_is_micro_batch_by_accumulation_by_ranks(
    whole: int | None, named: dict[str, int], counts: tuple[int, int]
) -> None:
    asked = with_batch(whole, **named)
    assert qlora_layout.counts_of(asked, 8) == counts
    assert qlora_layout.batch_of(asked, 8) == 8 * counts[0] * counts[1]


@pytest.mark.parametrize(
    ("whole", "named", "words"),
    [
        (
            32,
            {"micro_batch_size": 2, "gradient_accumulation_steps": 4},
            "is 32, and finetune.micro_batch_size 2 x ",
        ),
        (30, {}, "The nearest batch that they do is 32"),
        (36, {"micro_batch_size": 2}, "The nearest batch that they do is 32"),
        (4, {}, "The nearest batch that they do is 8"),
        (50, {"gradient_accumulation_steps": 3}, "The nearest batch that they do is 48"),
    ],
)
def test_a_batch_that_contradicts_is_one_sentence_with_the_numbers(
    tmp_path: Path, whole: int, named: dict[str, int], words: str
) -> None:
    asked = with_batch(whole, **named)
    for attempt in (
        lambda: plan_request(asked),
        lambda: qlora_layout.counts_of(asked, 8),
        lambda: recipes.render(spec_of(tmp_path, asked, None)),
    ):
        with pytest.raises(UserError) as caught:
            attempt()
        assert words in str(caught.value)
        assert "8 GPUs" in caught.value.message


def test_two_ways_to_fix_a_layout_must_agree() -> None:
    both = profile(replace(TUNE, strategy="zero2"), layout=LayoutChoice(fixed={"zero_stage": 2}))
    assert plan_request(both).fixed["zero_stage"] == 2
    with pytest.raises(UserError, match=r"finetune\.strategy says zero_stage=2"):
        plan_request(replace(both, layout=LayoutChoice(fixed={"zero_stage": 3})))


# -- both ways ------------------------------------------------------------------------------------
def test_every_plan_comes_back_as_itself_from_the_profile_that_says_it() -> None:
    """profile -> plan -> profile -> plan: nothing is lost or changed on the way."""
    asked = profile()
    for plan in plans(asked):
        pinned = qlora_layout.with_layout(asked, qlora_layout.flat_of(plan.layout))
        assert qlora_layout.fixed_of(pinned) == qlora_layout.flat_of(plan.layout)
        (again,) = planner.search(plan_request(pinned, top=5)).plans
        assert again.layout == plan.layout
        assert (again.memory, again.step) == (plan.memory, plan.step)
    assert qlora_layout.opened(pinned) == asked


# -- the run --------------------------------------------------------------------------------------
def test_a_plan_decides_what_the_trainer_reads_and_the_job_says(tmp_path: Path) -> None:
    found = plans(profile())
    assert len({(p.layout.zero_stage, p.layout.micro_batch_size) for p in found}) > 3
    for number, plan in enumerate(found[:6]):
        spec = replace(spec_of(tmp_path, profile(), plan), run_dir=str(tmp_path / str(number)))
        rendered, x = recipes.render(spec), plan.layout
        read = trained(rendered)
        assert read["strategy"] == {0: "ddp", 2: "zero2", 3: "zero3"}[x.zero_stage]
        assert read["micro_batch_size"] == x.micro_batch_size
        assert read["gradient_accumulation_steps"] == x.gradient_accumulation_steps
        assert read["gradient_checkpointing"] == (x.recompute.granularity == "full")
        assert json.loads(content(rendered, "plan.json")) == json.loads(json.dumps(plan.to_json()))
    outcome = stubs.run(put(rendered, spec.run_dir), tmp_path / "s", slurm=True, SLURM_NTASKS="8")
    assert outcome.code == 0, outcome.output
    said = options(outcome.arguments)
    assert (said["--strategy"], said["--micro-batch-size"]) == (
        read["strategy"],
        str(read["micro_batch_size"]),
    )
    assert said["--gradient-accumulation-steps"] == str(read["gradient_accumulation_steps"])
    assert f"= {x.global_batch_size} examples a step" in outcome.output


def test_a_planned_run_predicts_time_with_its_interval_and_no_made_up_cost(tmp_path: Path) -> None:
    plan = plans(profile())[0]
    expected = recipes.render(spec_of(tmp_path, profile(), plan)).prediction
    assert expected.step_seconds == plan.step.seconds
    assert (expected.step_low, expected.step_high) == (plan.step.low, plan.step.high)
    assert expected.memory_gib == plan.memory.device_gib
    assert "1.6" in expected.source
    assert expected.total_steps is None
    # Examples are shorter than their limit and frozen weights have no gradients: a speed would be made up.
    assert expected.model_tflops is expected.tokens_per_step is expected.model_flops_per_step is None


def test_without_a_plan_a_job_is_as_it_was(tmp_path: Path) -> None:
    rendered = recipes.render(spec_of(tmp_path, profile(), None))
    read = trained(rendered)
    assert (read["micro_batch_size"], read["gradient_accumulation_steps"]) == (1, 4)
    assert read["gradient_checkpointing"] is True
    assert "plan.json" not in {f.path for f in rendered.files}
    assert rendered.prediction.step_seconds is None
    explicit = replace(TUNE, micro_batch_size=2, gradient_accumulation_steps=3, gradient_checkpointing=False)
    read = trained(recipes.render(spec_of(tmp_path, profile(explicit), None)))
    assert (read["micro_batch_size"], read["gradient_accumulation_steps"]) == (2, 3)
    assert read["gradient_checkpointing"] is False


def test_memory_without_a_plan_counts_the_optimizer_that_runs(tmp_path: Path) -> None:
    def gib(strategy: Any, optimizer: Any) -> float:
        tune = replace(TUNE, strategy=strategy, optimizer=optimizer, lora_rank=1024)
        memory = qlora_choices.choose(spec_of(tmp_path, profile(tune), None)).memory
        assert memory is not None
        return memory.device_gib

    assert gib("ddp", "adamw") > gib("ddp", "adamw_8bit")
    for strategy in ("zero2", "zero3"):
        assert gib(strategy, "adamw") == gib(strategy, "adamw_8bit")


# -- how long -------------------------------------------------------------------------------------
def steps_of_the_trainer() -> Any:
    """The trainer's own count; its module looks for its neighbours beside it."""
    folder = data_dir("templates") / "qlora" / "trainer"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("qlora_finetune", folder / "finetune.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
        for name in ("checkpoints", "examples", "machine", "settings"):
            sys.modules.pop(name, None)
    return module


@pytest.mark.parametrize("samples", [1, 7, 100, 1001])
@pytest.mark.parametrize("epochs", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.9])
def test_steps_are_those_that_the_trainer_counts(samples: int, epochs: float, share: float) -> None:
    tune = replace(TUNE, max_samples=samples, epochs=epochs, validation_share=share)
    trainer = steps_of_the_trainer()
    rows, _ = trainer.examples.split(list(range(samples)), share, 42)
    for micro, accumulation in ((1, 4), (2, 3)):
        read = {"micro_batch_size": micro, "gradient_accumulation_steps": accumulation, "epochs": epochs,
                "warmup_share": 0.03, "steps": 0}  # fmt: skip
        expected, _ = trainer.steps_of(read, len(rows), 8)
        assert qlora_layout.steps_of(profile(tune), 8 * micro * accumulation) == expected


def test_steps_are_known_only_where_something_says_them() -> None:
    request = plan_request(profile())
    assert iterations_of(profile(), request) is None
    assert iterations_of(profile(replace(TUNE, steps=70)), request) == 70
    # 1,000 records less 50 for validation, 32 a step, three times.
    assert iterations_of(profile(replace(TUNE, max_samples=1000)), request) == 90


# -- what the weights are -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("weights", "model"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("unsloth/Qwen3-8B-unsloth-bnb-4bit", "qwen3-8b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
        ("somebody/qwen3-8b-medical", None),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", None),
        ("some/where/else", None),
        ("layers=2,hidden=64,heads=4", None),
        ("../x.json", None),
        ("", None),
        ("/", None),
    ],
)
def test_a_repositorys_name_tells_the_model_or_nothing_does(weights: str, model: str | None) -> None:
    assert qlora_model.by_name(weights) == model


def config(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    values = {
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
        "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 32000, "max_position_embeddings": 4096,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps({**values, **changes}))
    return folder


def test_a_folder_of_weights_tells_its_shape(tmp_path: Path) -> None:
    folder = config(tmp_path / "weights of mine")
    asked = profile(replace(TUNE, weights=str(folder)))
    known = qlora_model.known(asked)
    assert known is not None
    assert "config.json" in known.why
    model = plan_request(asked).model
    assert (model.layers, model.hidden, model.vocab) == (16, 2048, 32000)
    named = replace(asked, model=ModelChoice(id="llama-3-8b"))
    assert plan_request(named).model.id == "llama-3-8b", "who names a model means it"


def test_weights_that_tell_nothing_are_not_planned(tmp_path: Path) -> None:
    strange = config(tmp_path / "strange", model_type="whisper")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    for weights in (str(strange), str(broken), "/elsewhere/on/the/cluster", "nobody/mystery"):
        asked = profile(replace(TUNE, weights=weights))
        assert qlora_model.known(asked) is None
        assert qlora_model.settled(asked) == asked
        assert not needs_plan(asked)
        assert needs_plan(replace(asked, model=ModelChoice(id="qwen3-8b"))), "a named model is planned"


def test_what_cannot_be_estimated_is_not_planned() -> None:
    assert needs_plan(profile())
    assert not needs_plan(profile(replace(TUNE, lora_targets=("c_attn",))))
    assert not needs_plan(profile(gpu=""))
    experts = replace(TUNE, weights="mistralai/Mixtral-8x7B-v0.1")
    named = profile(experts, model=ModelChoice(id="mixtral-8x7b"))
    assert not needs_plan(named), "experts in 4 bits are refused with a sentence of their own"
    assert needs_plan(replace(named, finetune=replace(experts, base_weights="16bit")))


@pytest.mark.parametrize("gpus", [1, 8, 16])
def test_a_planned_run_passes_its_own_lint_and_shellcheck(tmp_path: Path, gpus: int) -> None:
    asked = profile(replace(TUNE, steps=100), gpus=gpus)
    for plan in plans(asked)[::6]:
        spec = replace(
            spec_of(tmp_path, asked, plan), gpus=gpus, gpus_per_node=min(gpus, 8), nodes=max(1, gpus // 8)
        )
        rendered = recipes.render(spec)
        assert [f for f in findings(spec, rendered) if f.severity != "info"] == []
        script = put(rendered, tmp_path / f"{gpus}-{plan.rank}")
        done = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True, check=False)
        assert done.stdout == ""
        assert rendered.prediction.total_steps == 100
