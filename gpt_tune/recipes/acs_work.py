"""Owns what an acs job decides: image, interface, batch and DeepSpeed configuration, and what may be overridden."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpt_tune.errors import UserError
from gpt_tune.planner import default_global_batch
from gpt_tune.profiles.acs import Acs
from gpt_tune.profiles.schema import Training
from gpt_tune.recipes import acs_rules, script
from gpt_tune.recipes.acs_problems import read_config
from gpt_tune.recipes.base import JobSpec

DEFAULT_ITERATIONS = 50
_SCHEDULES = {"constant": "constant_with_warmup", "inverse-square-root": "inverse_sqrt"}


@dataclass(frozen=True, slots=True)
class Work:
    """A job with nothing left to decide. slurm_image: as pyxis or apptainer names it."""

    spec: JobSpec
    cuda: str
    docker_image: str
    slurm_image: str
    kind: Literal["pyxis", "apptainer"]
    interface: str
    batch: int
    iterations: int
    config: Mapping[str, Any] | None

    @property
    def acs(self) -> Acs:
        return self.spec.profile.acs

    @property
    def training(self) -> Training:
        return self.spec.profile.training

    @property
    def scripted(self) -> bool:
        return self.acs.work == "script"

    @property
    def save_dir(self) -> str:
        return self.training.checkpoint_dir or f"{self.spec.run_dir}/checkpoints"


def resolve(spec: JobSpec) -> Work:
    """The job with image, interface, batch and configuration settled. UserError when a rule forbids it."""
    acs, batch = spec.profile.acs, _batch(spec)
    interface = acs_rules.interface(spec.gpus_per_node)
    sentence = acs_rules.interface_problem(spec.site.environment.variables, spec.gpus_per_node)
    if sentence:
        raise UserError(sentence, "Remove it from site.environment.variables.")
    if acs.work == "ljperf" and spec.nodes > 1:
        raise UserError(
            f"The benchmark is for one node, not {spec.nodes}: nothing documents ljperf over several.",
            "Use one node's GPUs, or acs.work=script.",
        )
    if ":" in spec.run_dir:
        raise UserError(
            f"The run folder {spec.run_dir!r} holds a colon, which separates the parts of a mount.",
            "Choose a folder without it.",
        )
    kind, slurm_image = _slurm_image(spec)
    return Work(
        spec=spec,
        cuda=acs_rules.cuda_of(acs),
        docker_image=_docker_image(acs),
        slurm_image=slurm_image,
        kind=kind,
        interface=interface,
        batch=batch,
        iterations=_iterations(spec, batch),
        config=_config(spec) if acs.work == "script" else None,
    )


def _slurm_image(spec: JobSpec) -> tuple[Literal["pyxis", "apptainer"], str]:
    """How a Slurm job starts the image: acs.image, else the site's own, else the release's."""
    environment, acs = spec.site.environment, spec.profile.acs
    if environment.kind not in ("host", "pyxis", "apptainer"):
        raise UserError(
            f"The site's environment is a {environment.kind}, but an acs job runs in its image only.",
            "Set site.environment.kind to pyxis, apptainer or host.",
        )
    if environment.kind == "apptainer":
        image = acs.image or environment.image
        if not image:
            image = acs_rules.image_of(acs)
        return "apptainer", image if "://" in image or image.startswith("/") else f"docker://{image}"
    image = acs.image or environment.image or acs_rules.image_of(acs)
    return "pyxis", acs_rules.enroot_address(image)


def _docker_image(acs: Acs) -> str:
    """docker cannot start an enroot file: then the release's image, or "" where its tag is not known."""
    if acs.image and not acs.image.startswith("/"):
        return acs.image.removeprefix("docker://").replace("#", "/", 1)
    try:
        return acs_rules.image_of(replace(acs, image=""))
    except UserError:
        return ""


def _batch(spec: JobSpec) -> int:
    micro = spec.profile.acs.micro_batch_size * script.ranks(spec)
    given = spec.profile.training.global_batch_size
    batch = given or _usual_batch(spec, micro)
    if spec.profile.acs.work == "script" and batch % micro:
        near = f"{batch // micro * micro} or " if batch > micro else ""
        raise UserError(
            f"The global batch {batch} is not a multiple of micro batch {spec.profile.acs.micro_batch_size} x "
            f"{script.ranks(spec)} GPUs = {micro}.",
            f"Use {near}{(batch // micro + 1) * micro}.",
        )
    return batch


def seq_length(spec: JobSpec) -> int:
    """Tokens of a sequence, for counting: the script reads its own length."""
    return spec.profile.model.seq_length or spec.model.seq_length


def _usual_batch(spec: JobSpec, micro: int) -> int:
    """What the planner would take, in whole micro batches of every GPU."""
    wanted = default_global_batch(script.ranks(spec), seq_length(spec))
    return max(1, wanted // micro) * micro


def _iterations(spec: JobSpec, batch: int) -> int:
    training = spec.profile.training
    if training.tokens is not None:
        return max(1, math.ceil(training.tokens / (batch * seq_length(spec))))
    return training.iterations or DEFAULT_ITERATIONS


def _config(spec: JobSpec) -> Mapping[str, Any]:
    """DeepSpeed's configuration; transformers fills in what says "auto" from the trainer's own numbers."""
    acs = spec.profile.acs
    if acs.deepspeed_config:
        return read_config(acs.deepspeed_config)
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": {
            "stage": acs.zero_stage,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "reduce_bucket_size": "auto",
            acs_rules.PREFETCH: "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_gather_16bit_weights_on_model_save": True,
        },
        "wall_clock_breakdown": False,
    }


def settings(work: Work) -> list[tuple[str, Any, str]]:
    """What may be overridden in the environment: (variable, value, meaning)."""
    acs, training = work.acs, work.training
    recompute = ("CHECKPOINT_OPTIMIZATION", str(acs.checkpoint_optimization).lower(), "true lets the image choose what is recomputed")  # fmt: skip # noqa: E501
    driver = ("DRIVER_CHECK", 1, "0 starts with any driver")
    if not work.scripted:
        return [("BENCHMARK", acs.benchmark, "what ljperf measures"), recompute, driver]
    return [
        ("MICRO_BATCH_SIZE", acs.micro_batch_size, "sequences a GPU computes at once"),
        ("GLOBAL_BATCH_SIZE", work.batch, "sequences a step, over all GPUs"),
        ("TRAIN_ITERS", work.iterations, "optimizer steps"),
        ("LEARNING_RATE", repr(float(training.learning_rate)), "the highest learning rate"),
        ("ZERO_STAGE", acs.zero_stage, "what ZeRO splits: 1 optimizer, 2 gradients too, 3 weights too"),
        ("COMPILE", int(acs.compile), "1 compiles the model"),
        recompute,
        ("LOG_INTERVAL", training.log_interval, "steps between log lines"),
        ("SAVE_INTERVAL", training.checkpoint_interval or 0, "steps between checkpoints, 0 saves nothing"),
        ("SAVE_DIR", work.save_dir, "where checkpoints go"),
        ("SCRIPT", acs.script, "the training script, as the container sees it"),
        driver,
    ]


def trainer_flags(training: Training) -> list[list[str]]:
    """Options of Hugging Face's TrainingArguments that nobody overrides in the environment."""
    flags = [
        ["--weight_decay", repr(float(training.weight_decay))],
        ["--adam_beta1", repr(float(training.adam_beta1))],
        ["--adam_beta2", repr(float(training.adam_beta2))],
        ["--max_grad_norm", repr(float(training.gradient_clipping))],
        ["--lr_scheduler_type", _SCHEDULES.get(training.lr_decay_style, training.lr_decay_style)],
        ["--warmup_steps", str(training.lr_warmup_iterations)],
        ["--seed", str(training.seed)],
        ["--report_to", "none"],
    ]
    if training.precision != "fp32":
        flags.append([f"--{training.precision}", "True"])
    return flags
