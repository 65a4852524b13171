"""The command, configuration and checks of a Megatron-DeepSpeed job, as a stub trainer receives them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.profiles.schema import Resources, TrainerChoice, Training
from gpt_tune.recipes.base import JobSpec
from tests.recipes import stubs
from tests.recipes.plans import plan_for, training_job
from tests.recipes.specs import put

OPTIONS = Path(__file__).parents[1] / "data" / "megatron_deepspeed_options.tsv"


def known_options(table: Path = OPTIONS) -> dict[str, tuple[str, str, list[str]]]:
    """The trainer's options: number of values, type, choices. Facts read off its own parser."""
    rows = [line.rstrip("\n").split("\t") for line in table.read_text().splitlines() if line[0] != "#"]
    return {name: (count, kind, choices.split(",") if choices else []) for name, count, kind, choices in rows}


def parsed(arguments: list[str], table: Path = OPTIONS) -> dict[str, list[str]]:
    """Options with their values, checked as the trainer's parser would."""
    known, found = known_options(table), {}
    position = 0
    while position < len(arguments):
        name = arguments[position]
        assert name in known, f"{name} is not an option of the trainer"
        count, kind, choices = known[name]
        end = position + 1 + (int(count) if count.isdigit() else 1)
        values = arguments[position + 1 : end]
        assert len(values) == end - position - 1, f"{name} lacks its value"
        for value in values:
            if kind in ("int", "float"):
                assert {"int": int, "float": float}[kind](value) is not None
            assert not choices or value in choices, f"{name} {value}"
        assert name not in found, f"{name} is given twice"
        found[name] = values
        position = end
    return found


class Rendered:
    """A job in its run folder, ready to be started with a stub trainer."""

    def __init__(self, spec: JobSpec, folder: Path) -> None:
        self.rendered = recipes.render(spec)
        self.run_dir = Path(spec.run_dir)
        self.script = put(self.rendered, self.run_dir)
        self.folder = folder
        self.starts = 0

    def start(self, slurm: bool = True, **environment: str) -> stubs.Outcome:
        self.starts += 1
        # test_preflight.py looks at the nodes; here the disk need not hold a checkpoint.
        ready = {"MEGATRON_PATH": stubs.trainer(self.folder / "checkout"), "PREFLIGHT": "0"}
        return stubs.run(
            self.script, self.folder / f"start{self.starts}", slurm=slurm, **{**ready, **environment}
        )

    def options(self, **environment: str) -> dict[str, list[str]]:
        outcome = self.start(True, **environment)
        assert outcome.code == 0, outcome.output
        words = outcome.arguments
        program = next(i for i, w in enumerate(words) if w.endswith("/pretrain_gpt.py"))
        return parsed(words[program + 1 :])

    def config(self) -> dict[str, Any]:
        (path,) = self.run_dir.glob("ds_config-*.json")
        data: dict[str, Any] = json.loads(path.read_text())
        return data


def rendered(
    tmp_path: Path, model: str = "gpt-1.3b", gpus: int = 16, fix: tuple[str, ...] = (), **values: Any
) -> Rendered:
    gpu = values.pop("gpu", "h200")
    trainer = values.pop("trainer", "megatron-deepspeed")
    plan = plan_for(model, gpus, gpu, fix, trainer, **values.pop("request", {}))
    return Rendered(training_job(tmp_path / "run x", plan, model, gpu, **values), tmp_path)


LAYOUTS: list[tuple[str, int, tuple[str, ...]]] = [
    ("gpt-1.3b", 16, ("tensor_parallel=2", "pipeline_parallel=2", "zero_stage=1")),
    ("gpt-1.3b", 16, ("tensor_parallel=4", "pipeline_parallel=1", "zero_stage=0")),
    ("gpt-1.3b", 16, ("tensor_parallel=1", "zero_stage=2")),
    ("gpt-1.3b", 16, ("tensor_parallel=2", "sequence_parallel=false", "zero_stage=3", "recompute=full")),
    ("gpt-1.3b", 16, ("context_parallel=2", "context_method=ulysses", "zero_stage=1")),
    ("gpt-1.3b", 16, ("flash_attention=false", "micro_batch_size=1", "recompute=selective")),
    ("gpt-1.3b", 16, ("precision=fp16",)),
    ("gpt-13b", 16, ()),
    ("llama-3.1-8b", 16, ("tensor_parallel=2", "zero_stage=0")),
    ("llama-3.1-8b", 16, ("zero_stage=3",)),
    ("llama-2-7b", 16, ("tensor_parallel=2", "sequence_parallel=true", "zero_stage=1")),
]  # fmt: skip


@pytest.mark.parametrize(("model", "gpus", "fix"), LAYOUTS)
def test_every_flag_is_one_the_trainer_takes(
    tmp_path: Path, model: str, gpus: int, fix: tuple[str, ...]
) -> None:
    job = rendered(tmp_path, model, gpus, fix)
    found = job.options()
    config = job.config()
    tp, pp = int(found["--tensor-model-parallel-size"][0]), int(found["--pipeline-model-parallel-size"][0])
    sp = int(found.get("--ds-sequence-parallel-size", ["1"])[0])
    dp = gpus // (tp * pp * sp)
    assert config["train_batch_size"] == int(found["--global-batch-size"][0])
    assert config["train_micro_batch_size_per_gpu"] == int(found["--micro-batch-size"][0])
    accumulation = config["gradient_accumulation_steps"]
    assert config["train_batch_size"] == config["train_micro_batch_size_per_gpu"] * accumulation * dp
    assert config["zero_optimization"]["stage"] == int(found["--zero-stage"][0])
    if config["zero_optimization"]["stage"] >= 2:
        assert "--no-pipeline-parallel" in found
        assert pp == 1
    assert ("--no-pipeline-parallel" in found) == (config["zero_optimization"]["stage"] >= 2 or sp > 1)
    for precision in ("bf16", "fp16"):
        assert (f"--{precision}" in found) == (precision in config)
    assert config["data_types"]["grad_accum_dtype"] in ("fp32", "bf16", "fp16")
    partitioned = "--sequence-parallel" not in found
    assert config["pipeline"] == {"pipe_partitioned": partitioned, "grad_partitioned": partitioned}


def test_the_seed_job(tmp_path: Path) -> None:
    fix = ("tensor_parallel=8", "pipeline_parallel=8", "zero_stage=0", "micro_batch_size=1", "recompute=none")
    job = rendered(tmp_path, "gpt-145b", 64, fix, gpu="b200", request={"global_batch_size": 64})
    found = job.options(SLURM_NTASKS="64", SLURM_JOB_NUM_NODES="8")
    expected = {
        "--num-layers": "80", "--hidden-size": "12288", "--num-attention-heads": "96", "--ffn-hidden-size": "49152",
        "--seq-length": "2048", "--max-position-embeddings": "2048", "--micro-batch-size": "1",
        "--global-batch-size": "64", "--train-iters": "50", "--lr-decay-iters": "50", "--lr-warmup-iters": "5",
    }  # fmt: skip
    assert {k: found[k] for k in expected} == {k: [v] for k, v in expected.items()}
    # Kernels of the fused softmax stop at compute capability 9.0, and a B200 has 10.0.
    assert "--no-masked-softmax-fusion" in found
    assert "--no-gradient-accumulation-fusion" in found
    script = job.script.read_text()
    for line in ("--nodes=8", "--ntasks=64", "--ntasks-per-node=8", "--gres=gpu:8", "--exclusive", "--mem=0"):
        assert f"#SBATCH {line}\n" in script
    assert job.rendered.prediction.total_steps == 50
    assert job.rendered.prediction.peak_tflops == 2250.0
    assert job.rendered.prediction.tokens_per_step == 64 * 2048


def test_recompute_really_checkpoints(tmp_path: Path) -> None:
    found = rendered(tmp_path, fix=("recompute=full", "recompute.layers=3")).options()
    assert "--checkpoint-activations" in found  # without it the next flag does nothing
    assert "--deepspeed-activation-checkpointing" in found
    assert found["--checkpoint-num-layers"] == ["3"]


def test_block_recompute_is_not_handed_to_deepspeed(tmp_path: Path) -> None:
    fix = ("zero_stage=2", "recompute.granularity=full", "recompute.method=block", "recompute.layers=5")
    found = rendered(tmp_path, fix=fix).options()
    assert found["--recompute-method"] == ["block"]
    assert found["--recompute-num-layers"] == ["5"]
    assert "--deepspeed-activation-checkpointing" not in found


def test_sequence_parallel_sets_its_variable(tmp_path: Path) -> None:
    job = rendered(
        tmp_path, "llama-2-7b", 16, ("tensor_parallel=2", "sequence_parallel=true", "zero_stage=1")
    )
    outcome = job.start()
    assert outcome.ranks["0"][0].environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    off = job.start(SEQUENCE_PARALLEL="0")
    assert "--sequence-parallel" not in off.arguments
    assert job.config()["pipeline"]["pipe_partitioned"] is True


def test_llama_style(tmp_path: Path) -> None:
    job = rendered(tmp_path, "llama-3.1-8b", 16, ("tensor_parallel=2", "zero_stage=0"))
    outcome = job.start()
    words = outcome.arguments
    # Rotary positions and grouped queries meet defects of the public trainer.
    assert words[1] == str(job.run_dir / "repaired.py")
    assert words[2:4] == ["--rope-scaling", "llama3 factor=8 low=1 high=4 original=8192"]
    assert words[4].endswith("/pretrain_gpt.py")
    found = parsed(words[5:])
    assert found["--rotary-position-embeddings-theta"] == ["500000"]
    assert found["--num-key-value-heads"] == ["8"]
    assert found["--ffn-hidden-size"] == ["14336"]
    assert found["--normalization"] == ["rmsnorm"]
    for flag in (
        "--swiglu", "--disable-bias-linear", "--untie-embeddings-and-output-weights",
        "--use-rotary-position-embeddings", "--no-query-key-layer-scaling",
    ):  # fmt: skip
        assert found[flag] == []


@pytest.mark.parametrize(
    ("model", "theta", "percent"),
    [("llama-2-7b", None, None), ("llama-3-8b", ["500000"], None), ("mistral-7b-v0.3", ["1000000"], None),
     ("pythia-1.4b", None, ["0.25"])],
)  # fmt: skip
def test_rotary_positions_have_the_models_own_base(
    tmp_path: Path, model: str, theta: list[str] | None, percent: list[str] | None
) -> None:
    found = rendered(tmp_path, model, 16).options()
    assert found.get("--rotary-position-embeddings-theta") == theta
    assert found.get("--rotary-percent") == percent


def test_a_hugging_face_tokenizer_has_a_row_for_each_token(tmp_path: Path) -> None:
    """Llama 3's counts 128000 tokens and leaves out its 256 added ones, of which one ends every document."""
    data = tmp_path / "data"
    for ending in (".bin", ".idx"):
        data.with_suffix(ending).write_bytes(b"x")
    training = Training(data=str(data), tokenizer="huggingface", tokenizer_model="/t")
    words = rendered(tmp_path, "llama-3-8b", 16, training=training).start().arguments
    assert words[words.index("--vocabulary") + 1] == "128256"
    assert words.index("--vocabulary") < next(
        i for i, w in enumerate(words) if w.endswith("/pretrain_gpt.py")
    )


def test_a_scaling_the_trainer_cannot_have_is_refused(tmp_path: Path) -> None:
    spec = training_job(tmp_path, plan_for("llama-2-7b", 8), "llama-2-7b")
    yarn = dataclasses.replace(spec.model, rope_scaling="yarn factor=4")
    with pytest.raises(
        UserError, match="scales its rotary angles by 'yarn'; this recipe can linear and llama3"
    ):
        recipes.render(dataclasses.replace(spec, model=yarn))


def test_a_plain_gpt_needs_no_repair_until_it_is_changed(tmp_path: Path) -> None:
    job = rendered(tmp_path, fix=("micro_batch_size=2", "zero_stage=1"))
    assert not any("repaired.py" in w for w in job.start().arguments)
    assert any("repaired.py" in w for w in job.start(FLASH_ATTENTION="0").arguments)
    assert not any("repaired.py" in w for w in job.start(FLASH_ATTENTION="0", MICRO_BATCH_SIZE="1").arguments)


def test_sequence_parallelism_starts_the_mended_trainer(tmp_path: Path) -> None:
    """Its learned positions crash, and gradients of its norms are not added up."""
    fix = ("tensor_parallel=2", "sequence_parallel=true", "zero_stage=1", "pipeline_parallel=1")
    job = rendered(tmp_path, fix=fix)
    assert any("repaired.py" in w for w in job.start().arguments)
    assert not any("repaired.py" in w for w in job.start(SEQUENCE_PARALLEL="0").arguments)


@pytest.mark.parametrize(
    ("version", "stated", "stage", "dtype"),
    [
        ("0.16.4", "", 0, "fp32"),
        ("0.16.4", "", 1, "bf16"),
        ("0.17.6", "", 0, "bf16"),
        ("0.19.8", "", 0, "bf16"),
        ("0.19.8", "fp32", 1, "fp32"),
        ("0.17.6", "fp32", 0, "fp32"),
    ],
)
def test_gradient_accumulation_is_stated(
    tmp_path: Path, version: str, stated: str, stage: int, dtype: str
) -> None:
    fix = [f"zero_stage={stage}", *([f"gradient_accumulation_dtype={stated}"] if stated else [])]
    job = rendered(tmp_path, fix=tuple(fix), trainer=f"megatron-deepspeed@deepspeed-{version}")
    job.options()
    assert job.config()["data_types"] == {"grad_accum_dtype": dtype}


def test_an_overridden_zero_stage_takes_its_own_accumulation_or_is_refused(tmp_path: Path) -> None:
    job = rendered(
        tmp_path,
        fix=("zero_stage=1", "pipeline_parallel=1", "gradient_accumulation_dtype=fp32"),
        trainer="megatron-deepspeed@deepspeed-0.19.8",
    )
    outcome = job.start(ZERO_STAGE="0")
    assert outcome.code == 2
    assert "raises NotImplementedError for bf16 with fp32" in outcome.output
    plain = rendered(tmp_path / "2", fix=("zero_stage=1", "pipeline_parallel=1"))
    plain.options(ZERO_STAGE="0")
    assert plain.config()["data_types"] == {"grad_accum_dtype": "fp32"}
    assert plain.config()["zero_optimization"] == {"stage": 0}


def test_a_deepspeed_without_data_types_gets_none(tmp_path: Path) -> None:
    job = rendered(tmp_path, fix=("zero_stage=2",), trainer="megatron-deepspeed@deepspeed-0.7.7")
    job.options()
    assert "data_types" not in job.config()


OVERRIDES: list[tuple[dict[str, str], str]] = [
    ({"TP": "3"}, "TP=3 does not divide the attention heads 16; use 2 or 4."),
    ({"TP": "1000000000"}, "TP=1000000000 does not divide the attention heads 16; use 16 or 16."),
    ({"TP": "0"}, "TP is '0'; it must be a whole number of at least 1."),
    ({"TP": "2; touch /tmp/x"}, "TP is '2; touch /tmp/x'; it must be a whole number"),
    ({"TP": "08"}, "TP is '08'; it must be a whole number"),
    ({"PP": "64"}, "PP=64, but the model has 24 layers; use at most 24."),
    ({"PP": "2", "ZERO_STAGE": "2"}, "PP=2 needs DeepSpeed's pipeline engine"),
    ({"ZERO_STAGE": "4"}, "ZERO_STAGE is '4'; it must be 0, 1, 2 or 3."),
    ({"TP": "8", "PP": "4"}, "16 GPUs cannot be split into model copies of TP=8 x PP=4"),
    ({"MICRO_BATCH_SIZE": "3"}, "GLOBAL_BATCH_SIZE=256 is not a multiple of MICRO_BATCH_SIZE=3 x 8"),
    ({"GLOBAL_BATCH_SIZE": "100"}, "= 8; use 96 or 104."),
    ({"SEQUENCE_PARALLEL": "1", "SEQ_LENGTH": "2047"}, "TP=2 does not divide the sequence length 2047; use 1 or 23."),
    ({"SEQUENCE_PARALLEL": "1", "ZERO_STAGE": "2"}, "SEQUENCE_PARALLEL=1 needs DeepSpeed's pipeline engine"),
    ({"SEQUENCE_PARALLEL": "yes"}, "SEQUENCE_PARALLEL is 'yes'; it must be 0 or 1."),
    ({"CONTEXT_PARALLEL": "2"}, "CONTEXT_PARALLEL=2 needs TP=1 and PP=1, not TP=2 PP=1."),
    ({"CONTEXT_PARALLEL": "16", "TP": "1", "SEQ_LENGTH": "2056"}, "the sequence length 2056; use 8 or 257"),
    ({"RECOMPUTE": "some"}, "RECOMPUTE is 'some'; it must be none, selective or full."),
    ({"SAVE_INTERVAL": "-1"}, "SAVE_INTERVAL is '-1'"),
    ({"LOAD_DIR": "/nowhere"}, "There is no checkpoint to load: /nowhere has no file 'latest'."),
    ({"DATA_PATH": "/nowhere/data"}, "There is no readable /nowhere/data.idx and .bin"),
    ({"MEGATRON_PATH": "/nowhere"}, "/nowhere holds no pretrain_gpt.py"),
]  # fmt: skip


@pytest.mark.parametrize(("environment", "words"), OVERRIDES)
def test_the_arithmetic_is_checked_before_anything_starts(
    tmp_path: Path, environment: dict[str, str], words: str
) -> None:
    job = rendered(
        tmp_path,
        fix=("tensor_parallel=2", "pipeline_parallel=1", "zero_stage=1", "micro_batch_size=1"),
        request={"global_batch_size": 256},
    )
    outcome = job.start(True, **environment)
    assert outcome.code == 2, outcome.output
    assert words in outcome.output
    assert "0" not in outcome.ranks  # no rank was started
    assert (job.run_dir / "exit_code").read_text() == "2\n"


def test_legal_overrides_reach_trainer_and_configuration(tmp_path: Path) -> None:
    job = rendered(tmp_path, fix=("tensor_parallel=2", "zero_stage=1", "pipeline_parallel=1"))
    found = job.options(TP="4", PP="2", MICRO_BATCH_SIZE="2", GLOBAL_BATCH_SIZE="64", TRAIN_ITERS="3",
                        SEQ_LENGTH="4096",
                        FUSE_BIAS_GELU="0", RECOMPUTE="selective", FLASH_ATTENTION="0")  # fmt: skip
    assert found["--tensor-model-parallel-size"] == ["4"]
    assert found["--train-iters"] == ["3"]
    assert found["--lr-decay-iters"] == ["3"]  # follows, and leaves an iteration after the warm-up
    assert found["--lr-warmup-iters"] == ["2"]
    assert found["--max-position-embeddings"] == ["4096"]
    assert "--no-bias-gelu-fusion" in found
    assert found["--recompute-granularity"] == ["selective"]
    assert "--use-flash-attn-v2" not in found
    config = job.config()
    assert (config["train_batch_size"], config["train_micro_batch_size_per_gpu"]) == (64, 2)
    assert config["gradient_accumulation_steps"] == 16
    assert "comes from the environment" in job.start(TP="1").output


def test_two_jobs_in_one_folder_do_not_share_a_configuration(tmp_path: Path) -> None:
    job = rendered(tmp_path, fix=("zero_stage=1", "pipeline_parallel=1", "tensor_parallel=1"))
    first = job.start(MICRO_BATCH_SIZE="1").arguments
    second = job.start(MICRO_BATCH_SIZE="2", SLURM_JOB_ID="4712").arguments
    paths = [w[w.index("--deepspeed_config") + 1] for w in (first, second)]
    assert paths[0] != paths[1]
    assert [json.loads(Path(p).read_text())["train_micro_batch_size_per_gpu"] for p in paths] == [1, 2]


def test_saving_and_going_on(tmp_path: Path) -> None:
    job = rendered(tmp_path, training=Training(checkpoint_interval=10))
    found = job.options()
    folder = job.run_dir / "checkpoints"
    assert found["--save"] == [str(folder)]
    assert found["--save-interval"] == ["10"]
    assert "--exit-signal-handler" in found
    assert "--load" not in found
    assert "#SBATCH --requeue\n" in job.script.read_text()
    (folder / "latest").write_text("global_step10")
    found = job.options()
    assert found["--load"] == [str(folder)]
    assert "--override-opt_param-scheduler" in found


def test_nothing_is_saved_for_a_benchmark_unless_asked(tmp_path: Path) -> None:
    job = rendered(tmp_path)
    found = job.options()
    # The trainer's handler saves even without a folder, and would crash.
    assert not {"--save", "--save-interval", "--exit-signal-handler", "--load"} & found.keys()
    assert "#SBATCH --no-requeue\n" in job.script.read_text()
    assert "--save" in job.options(SAVE_INTERVAL="5")


def test_real_training_saves_by_itself(tmp_path: Path) -> None:
    data = tmp_path / "data" / "text_document"
    data.parent.mkdir()
    for ending in (".bin", ".idx"):
        data.with_suffix(ending).write_bytes(b"x")
    training = Training(data=str(data), vocab_file="/v/vocab.json", merge_file="/v/merges.txt", tokens=1e9)
    job = rendered(tmp_path, training=training, request={"global_batch_size": 256})
    found = job.options()
    assert found["--save-interval"] == ["500"]
    assert found["--data-path"] == [str(data)]
    assert found["--split"] == ["969,30,1"]
    assert found["--tokenizer-type"] == ["GPT2BPETokenizer"]
    assert found["--vocab-file"] == ["/v/vocab.json"]
    assert found["--train-iters"] == [str(-(-(10**9) // (256 * 2048)))]


def test_a_prefix_that_preprocessing_lengthened_is_named(tmp_path: Path) -> None:
    (tmp_path / "books_text_document.idx").write_bytes(b"x")
    outcome = rendered(tmp_path).start(DATA_PATH=str(tmp_path / "books"))
    assert f"{tmp_path}/books_text_document.idx: use that prefix." in outcome.output


def test_synthetic_data_is_made_once_before_the_ranks(tmp_path: Path) -> None:
    job = rendered(tmp_path)
    outcome = job.start()
    (made,) = outcome.ranks["once"]
    assert made.arguments[:3] == [
        str(job.run_dir / "make_data.py"),
        "--prefix",
        str(job.run_dir / "data" / "synthetic"),
    ]
    assert made.arguments[made.arguments.index("--vocab") + 1] == "50257"
    words = outcome.arguments
    assert words[words.index("--vocab-size") + 1] == "50256"  # NullTokenizer adds the end of text
    steps = outcome.calls("srun")
    assert any("--ntasks=1" in step and "make_data.py" in " ".join(step) for step in steps)
    (job.run_dir / "data").mkdir()
    (job.run_dir / "data" / "synthetic.idx").write_bytes(b"x")
    assert "once" not in job.start().ranks


@pytest.mark.parametrize(
    ("training", "words"),
    [
        (Training(iterations=5, tokens=1e9), "exclude each other"),
        (Training(iterations=0), "training.iterations is 0; it must be at least 1."),
        (
            Training(min_learning_rate=1.0),
            "training.min_learning_rate 1 is above training.learning_rate 0.0001",
        ),
        (Training(tokenizer="gtp2"), "Unknown tokenizer 'gtp2'. Did you mean 'gpt2'?"),
        (Training(data="/data/x"), "needs training.vocab_file and training.merge_file"),
        (Training(data="/data/x", tokenizer="huggingface"), "needs training.tokenizer_model"),
        (Training(dropout=1.0), "training.dropout is 1; it must be from 0 to below 1."),
        (Training(adam_beta2=1.5), "training.adam_beta2 is 1.5"),
        (Training(weight_decay=-1), "training.weight_decay is -1; it must not be negative."),
        (Training(seed=0), "training.seed is 0; it must be at least 1."),
    ],
)
def test_training_choices_that_cannot_run_are_refused(tmp_path: Path, training: Training, words: str) -> None:
    spec = training_job(tmp_path, plan_for("gpt-1.3b", 8), training=training)
    assert any(words in p for p in recipes.get("megatron-deepspeed").problems(spec.profile))
    with pytest.raises(UserError):
        recipes.render(spec)


@pytest.mark.parametrize("model", ["bloom-7b1", "mixtral-8x7b", "qwen2.5-7b", "qwen3-8b"])
def test_models_the_trainer_cannot_build_are_refused(tmp_path: Path, model: str) -> None:
    spec = training_job(tmp_path, plan_for("gpt-1.3b", 8), model)
    assert recipes.get("megatron-deepspeed").problems(spec.profile)
    with pytest.raises(UserError):
        recipes.render(spec)


def test_a_plan_of_another_size_is_refused(tmp_path: Path) -> None:
    spec = training_job(tmp_path, plan_for("gpt-1.3b", 16), gpus=8)
    with pytest.raises(UserError, match="The plan is for 16 GPUs, the job has 8"):
        recipes.render(spec)
    spec = dataclasses.replace(training_job(tmp_path, plan_for("gpt-1.3b", 16)), plan=None)
    with pytest.raises(UserError, match="needs a plan"):
        recipes.render(spec)


def test_part_of_a_node_is_not_taken_whole(tmp_path: Path) -> None:
    spec = training_job(
        tmp_path,
        plan_for("gpt-1.3b", 2),
        profile={"resources": Resources(gpus=2, gpus_per_node=2, node="p5en", gpu="h200")},
    )
    script = put(recipes.render(spec), tmp_path).read_text()
    assert "--exclusive" not in script
    assert "#SBATCH --gres=gpu:2\n" in script


def test_a_missing_trainer_path_is_said_before_and_stops_at_once(tmp_path: Path) -> None:
    job = rendered(tmp_path)
    assert any("MEGATRON_PATH" in w for w in job.rendered.summary["warnings"])
    outcome = job.start(MEGATRON_PATH="")
    assert outcome.code == 2
    assert "MEGATRON_PATH is not set" in outcome.output
    given = rendered(tmp_path / "b", profile={"trainer": TrainerChoice(path=stubs.trainer(tmp_path / "mds"))})
    assert given.start(MEGATRON_PATH="").code == 0
    assert not any("MEGATRON_PATH" in w for w in given.rendered.summary["warnings"])


def test_the_folder_says_how_it_was_chosen(tmp_path: Path) -> None:
    job = rendered(tmp_path, "gpt-145b", 64, gpu="b200")
    text = (job.run_dir / "README.md").read_text()
    for words in ("tensor parallel", "expected step time", "GPU-hours", "GLOBAL_BATCH_SIZE", "Why"):
        assert words in text
    plan = json.loads((job.run_dir / "plan.json").read_text())
    assert plan["layout"]["tensor_parallel"] >= 1
