"""The command and the checks of a Megatron-LM job, as a stub trainer receives them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.profiles.schema import ModelChoice, Profile, TrainerChoice, Training
from gpt_tune.recipes.base import JobSpec
from tests.recipes import stubs
from tests.recipes.plans import plan_for, training_job
from tests.recipes.specs import put
from tests.recipes.test_megatron_command import parsed

OPTIONS = Path(__file__).parents[1] / "data" / "megatron_lm_options.tsv"
RECIPE = "megatron-lm"


def checkout(folder: Path) -> str:
    """A folder that looks like a Megatron-LM checkout."""
    (folder / "megatron" / "training").mkdir(parents=True, exist_ok=True)
    return stubs.trainer(folder)


def lm_job(
    run_dir: Path, model: str = "gpt-1.3b", gpus: int = 16, fix: tuple[str, ...] = (), **more: Any
) -> JobSpec:
    profile = {"recipe": RECIPE, **more.pop("profile", {})}
    return training_job(
        run_dir, plan_for(model, gpus, "h100", fix, RECIPE), model, "h100", profile=profile, **more
    )


def start(spec: JobSpec, folder: Path, **environment: str) -> stubs.Outcome:
    ready = {
        "MEGATRON_PATH": checkout(folder.parent / "check out"), "PREFLIGHT": "0", "SLURM_NTASKS": str(spec.gpus),
        "SLURM_JOB_NUM_NODES": str(spec.nodes), **environment,
    }  # fmt: skip
    return stubs.run(put(recipes.render(spec), spec.run_dir), folder, slurm=True, **ready)


def options(spec: JobSpec, folder: Path, **environment: str) -> dict[str, list[str]]:
    outcome = start(spec, folder, **environment)
    assert outcome.code == 0, outcome.output
    words = outcome.arguments
    program = next(i for i, w in enumerate(words) if w.endswith("/pretrain_gpt.py"))
    return parsed(words[program + 1 :], OPTIONS)


LAYOUTS: list[tuple[str, int, tuple[str, ...]]] = [
    ("gpt-1.3b", 16, ()),
    ("gpt-1.3b", 16, ("tensor_parallel=2", "sequence_parallel=true")),
    ("gpt-1.3b", 16, ("zero_stage=0",)),
    ("gpt-1.3b", 16, ("flash_attention=false", "recompute=selective")),
    ("gpt-13b", 32, ("pipeline_parallel=4", "virtual_pipeline=2")),
    ("gpt-13b", 16, ("recompute.granularity=full", "recompute.method=block", "recompute.layers=3")),
    ("gpt-175b", 128, ()),
    ("llama-3.1-8b", 16, ("context_parallel=2",)),
    ("llama-3.1-8b", 16, ("context_parallel=2", "context_method=ulysses")),
    ("llama-2-7b", 8, ("precision=fp8",)),
    ("qwen2.5-7b", 16, ()),
    ("qwen3-8b", 16, ()),
    ("mixtral-8x7b", 64, ()),
    ("qwen3-30b-a3b", 32, ("expert_parallel=8",)),
    ("qwen1.5-moe-a2.7b", 16, ()),
]  # fmt: skip


@pytest.mark.parametrize(("model", "gpus", "fix"), LAYOUTS)
def test_every_flag_is_one_the_trainer_takes(
    tmp_path: Path, model: str, gpus: int, fix: tuple[str, ...]
) -> None:
    spec = lm_job(tmp_path / "run x", model, gpus, fix)
    found = options(spec, tmp_path / "s")

    def value(name: str, default: int = 1) -> int:
        return int(found[name][0]) if name in found else default

    tp, pp = value("--tensor-model-parallel-size"), value("--pipeline-model-parallel-size")
    cp, ep = value("--context-parallel-size"), value("--expert-model-parallel-size")
    dp, left = divmod(gpus, tp * pp * cp)
    assert left == 0
    accumulation, left = divmod(value("--global-batch-size"), value("--micro-batch-size") * dp)
    assert left == 0
    layers = value("--num-layers")
    assert layers % pp == 0
    if "--num-layers-per-virtual-pipeline-stage" in found:
        chunk = value("--num-layers-per-virtual-pipeline-stage")
        assert (layers // pp) % chunk == 0
        assert layers // pp // chunk > 1
        assert accumulation % pp == 0
    assert dp * cp % ep == 0
    assert ("--sequence-parallel" in found) <= (tp > 1)
    assert found["--mock-data"] == []
    assert "--data-path" not in found
    assert ("--overlap-param-gather" in found) == ("--use-distributed-optimizer" in found)
    assert ("--recompute-method" in found) == (found.get("--recompute-granularity") == ["full"])
    assert value("--max-position-embeddings") >= value("--seq-length")


def test_the_layout_arrives(tmp_path: Path) -> None:
    fix = (
        "tensor_parallel=4", "pipeline_parallel=4", "virtual_pipeline=2", "sequence_parallel=true", "zero_stage=1",
        "context_parallel=2",
    )  # fmt: skip
    spec = lm_job(tmp_path / "r", "llama-3.1-8b", 64, fix)
    outcome = start(spec, tmp_path / "s", RECOMPUTE="full", RECOMPUTE_METHOD="block", RECOMPUTE_LAYERS="3")
    found = parsed(outcome.arguments[2:], OPTIONS)
    assert found["--num-layers-per-virtual-pipeline-stage"] == ["4"]
    assert found["--recompute-method"] == ["block"]
    assert found["--recompute-num-layers"] == ["3"]
    assert found["--cp-comm-type"] == ["p2p"]
    assert found["--num-query-groups"] == ["8"]
    assert outcome.ranks["0"][0].environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert found["--use-distributed-optimizer"] == found["--overlap-grad-reduce"] == []


def test_models_arrive_as_they_are(tmp_path: Path) -> None:
    llama = options(lm_job(tmp_path / "a", "llama-3.1-8b"), tmp_path / "1")
    assert llama["--rotary-base"] == ["500000"]
    assert llama["--rope-scaling-factor"] == ["8.0"]
    assert llama["--use-rope-scaling"] == llama["--swiglu"] == llama["--disable-bias-linear"] == []
    assert llama["--normalization"] == ["RMSNorm"]
    gpt = options(lm_job(tmp_path / "b"), tmp_path / "2")
    assert gpt["--position-embedding-type"] == ["learned_absolute"]
    assert not {"--swiglu", "--rotary-base", "--use-rope-scaling", "--group-query-attention"} & gpt.keys()
    qwen = options(lm_job(tmp_path / "c", "qwen2.5-7b"), tmp_path / "3")
    assert qwen["--add-qkv-bias"] == []
    assert options(lm_job(tmp_path / "d", "qwen3-8b"), tmp_path / "4")["--qk-layernorm"] == []
    mixtral = options(lm_job(tmp_path / "e", "mixtral-8x7b", 64), tmp_path / "5")
    assert (mixtral["--num-experts"], mixtral["--moe-router-topk"]) == (["8"], ["2"])
    neox = options(lm_job(tmp_path / "f", "pythia-1.4b"), tmp_path / "6")
    assert neox["--rotary-percent"] == ["0.25"]


@pytest.mark.parametrize(
    ("model", "words"), [("bloom-7b1", "norm after the embedding"), ("gemma-2-9b", "4 norms a layer")]
)
def test_models_it_cannot_build_are_refused(tmp_path: Path, model: str, words: str) -> None:
    profile = Profile(recipe=RECIPE, model=ModelChoice(id=model))
    assert any(words in p for p in recipes.get(RECIPE).problems(profile))


def test_another_scaling_than_llama_3s_is_refused(tmp_path: Path) -> None:
    spec = lm_job(tmp_path, "llama-3.1-8b")
    for scaling in ("linear factor=4", "llama3 factor=8 low=1 high=4 original=4096"):
        with pytest.raises(UserError, match="Llama 3's way only"):
            recipes.render(
                dataclasses.replace(spec, model=dataclasses.replace(spec.model, rope_scaling=scaling))
            )


OVERRIDES: list[tuple[dict[str, str], str]] = [
    ({"TP": "3"}, "TP=3 does not divide the attention heads 16; use 2 or 4."),
    ({"PP": "5"}, "PP=5 does not divide the layers 24; use 4 or 6."),
    ({"VIRTUAL_PIPELINE": "2"}, "VIRTUAL_PIPELINE=2 needs more than one pipeline stage"),
    ({"PP": "2", "VIRTUAL_PIPELINE": "5"}, "VIRTUAL_PIPELINE=5 does not divide the layers of a stage 12; use 4 or 6."),
    ({"PP": "8", "VIRTUAL_PIPELINE": "3", "GLOBAL_BATCH_SIZE": "100", "MICRO_BATCH_SIZE": "1"},
     "needs accumulation steps divisible by PP=8, not 50"),
    ({"CONTEXT_PARALLEL": "2", "SEQ_LENGTH": "2050"}, "a multiple of 2 x CONTEXT_PARALLEL = 4; use 2048 or 2052."),
    ({"CONTEXT_PARALLEL": "2", "TRANSFORMER_IMPL": "local"}, "needs TRANSFORMER_IMPL=transformer_engine"),
    ({"EXPERT_PARALLEL": "2"}, "the model has no experts; use 1."),
    ({"RECOMPUTE_METHOD": "some"}, "it must be uniform or block"),
    ({"DISTRIBUTED_OPTIMIZER": "2"}, "DISTRIBUTED_OPTIMIZER is '2'; it must be 0 or 1."),
    ({"GLOBAL_BATCH_SIZE": "100"}, "is not a multiple of MICRO_BATCH_SIZE"),
    ({"TP": "16", "PP": "2"}, "16 GPUs cannot be split"),
    ({"LOAD_DIR": "/nowhere"}, "There is no checkpoint to load"),
    ({"DATA_PATH": "/nowhere/data"}, "There is no readable /nowhere/data.idx and .bin"),
    ({"MEGATRON_PATH": "/nowhere"}, "it is not a Megatron-LM checkout"),
    ({"TP": "2; touch /tmp/x"}, "it must be a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("environment", "words"), OVERRIDES)
def test_the_arithmetic_is_checked_before_anything_starts(
    tmp_path: Path, environment: dict[str, str], words: str
) -> None:
    spec = lm_job(tmp_path / "r", fix=("tensor_parallel=1", "pipeline_parallel=1", "micro_batch_size=8"))
    outcome = start(spec, tmp_path / "s", **environment)
    assert outcome.code == 2, outcome.output
    assert words in outcome.output
    assert outcome.ranks == {}


def test_the_two_megatrons_are_not_taken_for_each_other(tmp_path: Path) -> None:
    deepspeeds = stubs.trainer(tmp_path / "mds")
    outcome = start(lm_job(tmp_path / "a"), tmp_path / "1", MEGATRON_PATH=deepspeeds)
    assert (outcome.code, outcome.ranks) == (2, {})
    assert "it is not a Megatron-LM checkout" in outcome.output
    theirs = training_job(tmp_path / "b", plan_for("gpt-1.3b", 16))
    outcome = start(theirs, tmp_path / "2", MEGATRON_PATH=checkout(tmp_path / "mlm"))
    assert (outcome.code, outcome.ranks) == (2, {})
    assert "is a Megatron-LM checkout, and this job needs Megatron-DeepSpeed" in outcome.output


def test_legal_overrides_reach_the_trainer(tmp_path: Path) -> None:
    spec = lm_job(tmp_path / "r", fix=("tensor_parallel=1", "pipeline_parallel=1"))
    found = options(
        spec, tmp_path / "s", TP="2", PP="2", VIRTUAL_PIPELINE="3", SEQUENCE_PARALLEL="1", TRAIN_ITERS="3",
        MICRO_BATCH_SIZE="1", GLOBAL_BATCH_SIZE="64", DISTRIBUTED_OPTIMIZER="0", FUSE_ACTIVATION="0",
    )  # fmt: skip
    assert found["--num-layers-per-virtual-pipeline-stage"] == ["4"]
    assert found["--sequence-parallel"] == found["--no-bias-gelu-fusion"] == []
    assert found["--lr-decay-iters"] == ["3"]
    assert "--use-distributed-optimizer" not in found


def test_saving_going_on_and_real_data(tmp_path: Path) -> None:
    data = tmp_path / "the data"
    for ending in (".bin", ".idx"):
        Path(f"{data}{ending}").write_bytes(b"x")
    training = Training(data=str(data), tokenizer="huggingface", tokenizer_model="/t", checkpoint_interval=10)
    spec = lm_job(
        tmp_path / "r",
        training=training,
        profile={"trainer": TrainerChoice(extra_arguments=("--seed", "1 2"))},
    )
    folder = tmp_path / "r" / "checkpoints"
    found = start(spec, tmp_path / "1").arguments
    assert found[-2:] == ["--seed", "1 2"]
    spec = dataclasses.replace(spec, profile=dataclasses.replace(spec.profile, trainer=TrainerChoice()))
    first = options(spec, tmp_path / "2")
    assert first["--data-path"] == [str(data)]
    assert first["--tokenizer-type"] == ["HuggingFaceTokenizer"]
    assert (first["--save"], first["--save-interval"]) == ([str(folder)], ["10"])
    assert "--exit-signal-handler" in first
    assert "--load" not in first
    assert "--mock-data" not in first
    (folder / "latest_checkpointed_iteration.txt").write_text("10")
    second = options(spec, tmp_path / "3")
    assert second["--load"] == [str(folder)]
    assert "--override-opt_param-scheduler" in second


def test_a_plan_of_another_trainer_is_refused(tmp_path: Path) -> None:
    spec = training_job(tmp_path, plan_for("gpt-1.3b", 16), profile={"recipe": RECIPE})
    with pytest.raises(UserError, match="needs a plan for that trainer"):
        recipes.render(spec)
    with pytest.raises(UserError, match="The plan is for 16 GPUs, the job has 8"):
        recipes.render(dataclasses.replace(lm_job(tmp_path), gpus=8))


def test_the_folder_says_what_it_is(tmp_path: Path) -> None:
    rendered = recipes.render(lm_job(tmp_path, "gpt-13b", 32, ("pipeline_parallel=4", "virtual_pipeline=2")))
    readme = next(f.content for f in rendered.files if f.path == "README.md").decode()
    assert "Megatron-LM" in readme
    assert "model chunks a stage: 2" in readme
    assert "DeepSpeed" not in readme
    assert {f.path for f in rendered.files} == {
        "job.sbatch",
        "rank.sh",
        "preflight.sh",
        "plan.json",
        "README.md",
    }
    assert rendered.prediction.step_seconds
    assert any("MEGATRON_PATH" in w for w in rendered.summary["warnings"])
