"""A Llama 2 fine-tuning job: converted once and only for its own weights, then trained with what the trainer takes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import planner, recipes
from gpt_tune.errors import UserError
from gpt_tune.profiles import store
from gpt_tune.profiles.schema import Finetune, ModelChoice, Profile, Resources, Training
from gpt_tune.recipes.base import JobSpec
from gpt_tune.workflows.request import plan_request
from tests.recipes import stubs
from tests.recipes.plans import training_job
from tests.recipes.specs import put, with_environment
from tests.recipes.test_megatron_command import known_options

RECIPE = "llama2-finetune"
TRAINING = Training(global_batch_size=256, iterations=3500, learning_rate=2e-5, lr_warmup_iterations=100)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "wei ghts"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "data.json").write_text("[]")
    return folder


def llama_job(
    run_dir: Path, weights: Path, gpus: int = 8, fix: tuple[str, ...] = (), **changes: Any
) -> JobSpec:
    tune = Finetune(
        **{"weights": str(weights), "data": str(weights / "data.json"), **changes.pop("finetune", {})}
    )
    profile = Profile(
        name="llama it",
        recipe=RECIPE,
        model=ModelChoice(id=changes.pop("model", "llama-2-7b"), seq_length=512),
        resources=Resources(gpus=gpus, gpus_per_node=min(gpus, 8), gpu="h100"),
        training=changes.pop("training", TRAINING),
        finetune=tune,
    )
    fixed = dict(f.split("=") for f in fix)
    profile = dataclasses.replace(profile, layout=dataclasses.replace(profile.layout, fixed=_typed(fixed)))
    plan = planner.search(plan_request(profile, None, None, top=1)).plans[0]
    spec = training_job(run_dir, plan, profile.model.id, "h100", 512, profile.training, **changes)
    return dataclasses.replace(spec, profile=profile)


def _typed(fixed: dict[str, str]) -> dict[str, Any]:
    return {k: int(v) if v.isdigit() else {"true": True, "false": False}.get(v, v) for k, v in fixed.items()}


class Job:
    """A rendered job and a checkout that looks like the trainer's, whose programs only write down their start."""

    def __init__(self, spec: JobSpec, folder: Path) -> None:
        self.run_dir, self.folder, self.starts = Path(spec.run_dir), folder, 0
        self.script = put(recipes.render(spec), spec.run_dir)
        checkout = Path(stubs.trainer(folder / "check out"))
        (checkout / "finetune_llama.py").write_text("")
        (checkout / "megatron/model").mkdir(parents=True, exist_ok=True)
        (checkout / "megatron/model/transformer.py").write_text("each_hidden_size = 1")
        self.checkout = checkout
        self.tp_pp = ""

    def prepared(self) -> None:
        """What the stubbed preparation leaves out."""
        (self.run_dir / "prepared").mkdir(exist_ok=True)
        (self.run_dir / "prepared/epsilon").write_text("1e-06")

    def converted(self, tp: int, pp: int, complete: str | None = None) -> Path:
        """What the stubbed converter leaves out: its checkpoint."""
        folder = self.run_dir / f"converted/tp{tp}-pp{pp}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "latest").write_text("global_step0")
        if complete is not None:
            (folder / "complete").write_text(complete + "\n")
        return folder

    def start(self, **environment: str) -> stubs.Outcome:
        self.starts += 1
        self.prepared()
        ready = {"MEGATRON_PATH": str(self.checkout), "SLURM_NTASKS": "8", "SLURM_JOB_NUM_NODES": "1"}
        return stubs.run(
            self.script, self.folder / f"start{self.starts}", slurm=True, **{**ready, **environment}
        )


def programs(outcome: stubs.Outcome) -> dict[str, list[str]]:
    """Program -> its arguments, over everything that was started."""
    found = {}
    for starts in outcome.ranks.values():
        for started in starts:
            words = started.arguments
            place = next(
                i for i, w in enumerate(words) if w.endswith(".py") and not w.endswith("/repaired.py")
            )
            found[Path(words[place]).name] = words[place + 1 :]
    return found


def flags(arguments: list[str]) -> dict[str, list[str]]:
    """Options and values as the trainer's parser takes them; the last of two wins, as in argparse."""
    known, found, position = known_options(), {}, 0
    while position < len(arguments):
        name = arguments[position]
        assert name in known, f"{name} is not an option of the trainer"
        end = position + 1 + (int(known[name][0]) if known[name][0].isdigit() else 1)
        found[name] = arguments[position + 1 : end]
        position = end
    return found


LAYOUT = (
    "tensor_parallel=4",
    "pipeline_parallel=2",
    "micro_batch_size=16",
    "zero_stage=0",
    "sequence_parallel=false",
)


@pytest.fixture
def seed(tmp_path: Path, weights: Path) -> Job:
    """The layout of the test case: TP 4, PP 2 on one node."""
    job = Job(llama_job(tmp_path / "run x", weights, fix=LAYOUT), tmp_path)
    job.converted(4, 2, complete=f"{weights} tp4 pp2")
    return job


def test_training_has_every_flag_of_the_test_case(seed: Job) -> None:
    outcome = seed.start()
    assert outcome.code == 0, outcome.output
    found = flags(programs(outcome)["finetune_llama.py"])
    expected = {
        "--num-layers": "32", "--hidden-size": "4096", "--ffn-hidden-size": "11008", "--num-attention-heads": "32",
        "--seq-length": "512", "--train-iters": "3500", "--lr": "2e-05", "--micro-batch-size": "16",
        "--global-batch-size": "256", "--attention-dropout": "0.0", "--hidden-dropout": "0.0",
        "--normalization": "rmsnorm", "--tokenizer-type": "HFTokenizer", "--layernorm-epsilon": "1e-06",
        "--tokenizer-model": f"{seed.run_dir}/prepared/tokenizer", "--data-path": f"{seed.run_dir}/prepared/data.json",
        "--lr-decay-iters": "3500", "--zero-stage": "0", "--dataloader-type": "cyclic", "--eval-iters": "0",
        "--save": f"{seed.run_dir}/checkpoints", "--save-interval": "500",
        "--load": f"{seed.run_dir}/converted/tp4-pp2",
    }  # fmt: skip
    assert {k: found.get(k) for k in expected} == {k: [v] for k, v in expected.items()}
    for flag in (
        "--finetune", "--repeated-dataloader", "--use-rotary-position-embeddings", "--swiglu", "--disable-bias-linear",
        "--untie-embeddings-and-output-weights", "--no-query-key-layer-scaling", "--bf16", "--exit-signal-handler",
    ):  # fmt: skip
        assert flag in found
    assert "--no-pipeline-parallel" not in found
    started = outcome.ranks["0"][0].arguments
    assert started[1].endswith("/repaired.py")


def test_weights_are_converted_first_and_once(tmp_path: Path, weights: Path) -> None:
    job = Job(llama_job(tmp_path / "run", weights, fix=LAYOUT), tmp_path)
    folder = job.converted(4, 2)
    stale = folder / "global_step0"
    stale.mkdir()
    (folder / "mine.txt").write_text("kept")
    first = job.start()
    # The stub converts nothing, and a job must not train on nothing.
    assert first.code == 2
    assert "The converter ended without a checkpoint" in first.output
    assert not stale.exists()
    assert (folder / "mine.txt").exists()
    assert "finetune_llama.py" not in programs(first)
    arguments = programs(first)["convert.py"]
    assert arguments[:3] == [str(job.checkout), str(weights), "auto"]
    found = flags(arguments[3:])
    assert found["--save"] == [str(folder)]
    assert found["--tensor-model-parallel-size"] == ["4"]
    config = json.loads(Path(found["--deepspeed_config"][0]).read_text())
    assert config == {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 16, "steps_per_print": 100}
    assert "--load" not in found
    job.converted(4, 2, complete=f"{weights} tp4 pp2")
    second = job.start()
    assert second.code == 0, second.output
    assert "converted already" in second.output
    assert "convert.py" not in programs(second)


def test_other_weights_are_never_taken_for_these(seed: Job, weights: Path) -> None:
    seed.converted(4, 2, complete="/other/weights tp4 pp2")
    outcome = seed.start()
    assert outcome.code == 2
    assert "holds the conversion of other weights: /other/weights" in outcome.output
    other = seed.start(TP="2", PP="4")  # another split is another conversion
    assert "converting" in other.output
    assert (seed.run_dir / "converted/tp2-pp4").is_dir()


def test_a_new_start_continues_the_training(seed: Job) -> None:
    (seed.run_dir / "checkpoints").mkdir()
    (seed.run_dir / "checkpoints/latest").write_text("global_step500")
    outcome = seed.start()
    found = flags(programs(outcome)["finetune_llama.py"])
    assert found["--load"] == [f"{seed.run_dir}/checkpoints"]
    assert "--finetune" not in found
    assert "--override-opt_param-scheduler" in found
    assert "convert.py" not in programs(outcome)


@pytest.mark.parametrize("name", ["auto", "origin-hf-ckpt-dir", "hf-ckpt-dir"])
def test_the_converters_names_can_be_set(tmp_path: Path, weights: Path, name: str) -> None:
    job = Job(llama_job(tmp_path / "run", weights, fix=LAYOUT, finetune={"converter": name}), tmp_path)
    assert programs(job.start())["convert.py"][2] == name


def test_export_turns_the_last_checkpoint_back(tmp_path: Path, weights: Path) -> None:
    job = Job(llama_job(tmp_path / "run", weights, fix=LAYOUT, finetune={"export": True}), tmp_path)
    job.converted(4, 2, complete=f"{weights} tp4 pp2")
    arguments = programs(job.start())["convert.py"]
    assert "--export" in arguments
    found = flags([a for a in arguments[3:] if a != "--export"])
    assert found["--load"] == [f"{job.run_dir}/checkpoints"]
    assert found["--save"] == [f"{job.run_dir}/export"]


def test_the_users_own_arguments_reach_both_programs(tmp_path: Path, weights: Path) -> None:
    """Some change the shape of tensors, so that weights converted without them cannot be loaded."""
    spec = llama_job(tmp_path / "run", weights, fix=LAYOUT)
    words = ("--make-vocab-size-divisible-by", "64")
    trainer = dataclasses.replace(spec.profile.trainer, extra_arguments=words)
    job = Job(dataclasses.replace(spec, profile=dataclasses.replace(spec.profile, trainer=trainer)), tmp_path)
    job.converted(4, 2)
    assert flags(programs(job.start())["convert.py"][3:])[words[0]] == ["64"]
    job.converted(4, 2, complete=f"{weights} tp4 pp2")
    assert flags(programs(job.start())["finetune_llama.py"])[words[0]] == ["64"]


def test_an_older_trainer_runs_as_it_is(seed: Job) -> None:
    (seed.checkout / "megatron/model/transformer.py").write_text("self.split_tensor(x)")
    started = seed.start().ranks["0"][0].arguments
    assert started[1] == f"{seed.checkout}/finetune_llama.py"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"ZERO_STAGE": "2", "PP": "1"}, "need DeepSpeed's pipeline engine"),
        ({"SAVE_INTERVAL": "0"}, "would throw the training away"),
        ({"WEIGHTS": "meta-llama/Llama-2-7b-hf"}, "absolute path"),
        ({"WEIGHTS": "/nowhere"}, "holds no config.json"),
        ({"DATA_PATH": "/nowhere.json"}, "cannot be read"),
        ({"MEGATRON_PATH": "/nowhere"}, "holds no finetune_llama.py"),
        ({"GLOBAL_BATCH_SIZE": "250"}, "is not a multiple"),
    ],
)
def test_wrong_inputs_end_the_job_before_it_starts_anything(
    seed: Job, environment: dict[str, str], words: str
) -> None:
    outcome = seed.start(**environment)
    assert outcome.code == 2
    assert words in outcome.output
    assert outcome.ranks == {}


HOSTILE = [
    "a b",
    "it's",
    '"x"',
    "$(touch owned)",
    "`id`",
    "back\\slash",
    "a;b&c",
    "* ?",
    "ünï 漢",
    "x" * 200,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_arrives_as_it_is(tmp_path: Path, text: str) -> None:
    folder = tmp_path / text
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "data.json").write_text("[]")
    spec = llama_job(
        tmp_path / "run", folder, fix=LAYOUT, finetune={"prompt_field": text, "answer_field": text}
    )
    outcome = Job(spec, tmp_path).start()
    found = programs(outcome)
    prepare = found["prepare.py"]
    assert prepare[prepare.index("--weights") + 1] == str(folder)
    assert prepare[prepare.index("--data") + 1] == str(folder / "data.json")
    assert found["convert.py"][1] == str(folder)
    assert json.loads((tmp_path / "run/llama2.json").read_text())["prompt_field"] == text
    assert not list(tmp_path.rglob("owned"))


ENVIRONMENTS: list[dict[str, Any]] = [
    {"kind": "venv", "path": "/shared/v e"},
    {"kind": "pyxis", "image": "/img/x y.sqsh"},
    {"kind": "apptainer", "image": "/img/x.sif"},
]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda e: e["kind"])
@pytest.mark.parametrize("export", [True, False])
def test_scripts_are_sound(tmp_path: Path, weights: Path, environment: dict[str, Any], export: bool) -> None:
    spec = with_environment(
        llama_job(tmp_path / "run", weights, 16, finetune={"export": export}), **environment
    )
    script = put(recipes.render(spec), spec.run_dir)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    done = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    if environment["kind"] != "venv":
        assert (
            str(weights)
            in script.read_text().split("--container-mounts=" if "pyxis" in str(environment) else "--bind")[1]
        )


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("gpt-1.3b", "not built like Llama 2"),
        ("mixtral-8x7b", "mixture of experts"),
        ("qwen3-8b", "normalises queries"),
        ("nothing", "nothing"),
    ],
)
def test_models_that_the_converter_does_not_know_are_refused(model: str, words: str) -> None:
    profile = Profile(
        recipe=RECIPE,
        model=ModelChoice(id=model),
        finetune=Finetune(weights="/w", data="/d"),
        training=TRAINING,
    )
    assert any(words in p for p in recipes.get(RECIPE).problems(profile))


@pytest.mark.parametrize("model", ["llama-7b", "llama-2-7b", "llama-2-70b"])
def test_models_that_it_knows_are_not(model: str) -> None:
    profile = Profile(
        recipe=RECIPE,
        model=ModelChoice(id=model),
        finetune=Finetune(weights="/w", data="/d"),
        training=TRAINING,
    )
    assert recipes.get(RECIPE).problems(profile) == []


@pytest.mark.parametrize(
    ("tune", "words"),
    [
        ({"weights": "meta-llama/Llama-2-7b-hf"}, "absolute path"),
        ({"weights": ""}, "finetune.weights is empty"),
        ({"data": ""}, "finetune.data is empty"),
        ({"data": "/a\nb"}, "line break"),
        ({"messages_field": "messages"}, "single questions"),
    ],
)
def test_inputs_that_cannot_be_are_refused(
    tmp_path: Path, weights: Path, tune: dict[str, Any], words: str
) -> None:
    spec = llama_job(tmp_path / "run", weights)
    bad = dataclasses.replace(spec.profile, finetune=dataclasses.replace(spec.profile.finetune, **tune))
    assert any(words in p for p in recipes.get(RECIPE).problems(bad))
    with pytest.raises(UserError):
        recipes.render(dataclasses.replace(spec, profile=bad))


def test_the_planner_knows_what_conversion_needs(tmp_path: Path, weights: Path) -> None:
    for gpus in (2, 8, 16):
        spec = llama_job(tmp_path / "run", weights, gpus)
        found = planner.search(plan_request(spec.profile, None, None, top=20)).plans
        assert found
        for plan in found:
            assert plan.trainer.name == "megatron-deepspeed"
            assert plan.layout.zero_stage < 2
            assert plan.layout.context_parallel == 1


def test_a_plan_without_the_engine_is_refused(tmp_path: Path, weights: Path) -> None:
    spec = llama_job(tmp_path / "run", weights)
    assert spec.plan is not None
    layout = dataclasses.replace(
        spec.plan.layout, zero_stage=3, pipeline_parallel=1, tensor_parallel=1, data_parallel=8,
        sequence_parallel=False, micro_batch_size=1, global_batch_size=256, gradient_accumulation_steps=32,
    )  # fmt: skip
    bad = dataclasses.replace(spec, plan=dataclasses.replace(spec.plan, layout=layout))
    with pytest.raises(UserError, match="pipeline engine"):
        recipes.render(bad)


def test_the_starter_renders(tmp_path: Path) -> None:
    profile = dataclasses.replace(store.load("llama2-7b-alpaca"), resources=Resources(gpus=8, gpu="h100"))
    plan = planner.search(plan_request(profile, None, None, top=1)).plans[0]
    spec = training_job(tmp_path / "run", plan, "llama-2-7b", "h100", 512, profile.training)
    rendered = recipes.render(dataclasses.replace(spec, profile=profile))
    readme = next(f.content for f in rendered.files if f.path == "README.md").decode()
    assert "converted/" in readme
    assert "scrambled" in readme
    assert rendered.prediction.step_seconds is not None
    assert {f.path for f in rendered.files} >= {"trainer/convert.py", "trainer/examples.py", "repaired.py"}
