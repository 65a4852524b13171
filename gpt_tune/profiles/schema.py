"""Owns what a profile and a site hold: every choice, with its default. Plain data; no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gpt_tune.profiles.acs import Acs

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Resources:
    """gpus None: one node's worth. gpu: catalogue id used for planning ("b200"); "" takes the cluster's."""

    partition: str = ""
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpu: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """id: catalogue id, alias, path to a config.json or TOML, or `layers=..,hidden=..,heads=..`."""

    id: str = "gpt-1.3b"
    seq_length: int | None = None  # None: the model's own


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """Layout keys the user fixed (dotted JSON paths); everything else is the planner's."""

    fixed: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Training:
    """Training choices. tokens and iterations exclude each other; both None means `iterations = 50`.

    data: "synthetic" or a path prefix of .bin/.idx files. lengths in tokens; intervals in iterations.
    """

    data: str = "synthetic"
    tokenizer: str = "gpt2"
    tokenizer_model: str = ""
    vocab_file: str = ""
    merge_file: str = ""
    split: str = "969,30,1"
    global_batch_size: int | None = None
    iterations: int | None = None
    tokens: float | None = None
    learning_rate: float = 1e-4
    min_learning_rate: float = 1e-5
    lr_decay_style: Literal["constant", "linear", "cosine", "inverse-square-root"] = "cosine"
    lr_warmup_iterations: int = 5
    lr_decay_iterations: int | None = None
    weight_decay: float = 0.1
    gradient_clipping: float = 1.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    init_std: float = 0.006
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    dropout: float = 0.0
    seed: int = 1234
    log_interval: int = 1
    checkpoint_dir: str = ""  # "": inside the run folder
    checkpoint_interval: int | None = None
    load: str = ""
    eval_interval: int = 1000
    eval_iterations: int = 0


@dataclass(frozen=True, slots=True)
class Smoke:
    """The smoke recipe's own knobs: seconds is how long it should train; steps overrides it."""

    seconds: int = 60
    steps: int | None = None
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    seq_length: int = 64
    micro_batch_size: int = 8


@dataclass(frozen=True, slots=True)
class Custom:
    """A job of the user's own: a script path or a command line, and the log format it prints."""

    script: str = ""
    command: str = ""
    log_format: str = "auto"


@dataclass(frozen=True, slots=True)
class Finetune:
    """Fine-tuning of published weights: recipes qlora and llama2-finetune. Source of numbers: the AWS QLoRA test case
    (Qwen3-8B on medical-o1-reasoning-SFT), unless said otherwise. Tokens and passwords never stand here.

    weights: a folder of Hugging Face weights or the name of a repository of them. data: a JSON, JSONL or parquet
    file, or the name of a data set. Fields left "" are looked for under their usual names.
    """

    weights: str = ""
    data: str = ""
    data_config: str = ""  # a data set's configuration ("en")
    data_split: str = "train"
    prompt_field: str = ""
    input_field: str = ""
    reasoning_field: str = ""  # put between <think> tags before the answer
    answer_field: str = ""
    messages_field: str = ""  # a conversation: a list of {role, content}
    system_prompt: str = ""
    max_samples: int | None = None
    validation_share: float = 0.05
    # What follows is for qlora only; llama2-finetune takes its numbers from [training] and the plan.
    strategy: Literal["auto", "ddp", "zero2", "zero3"] = "auto"
    base_weights: Literal["nf4", "fp4", "16bit"] = "nf4"
    double_quantisation: bool = True
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.05
    lora_targets: tuple[str, ...] = (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    )  # fmt: skip
    micro_batch_size: int | None = None  # None: the planner's choice, and without a plan 1
    gradient_accumulation_steps: int | None = (
        None  # None: what the step's batch leaves; that is 4 of 1 on each GPU
    )
    epochs: float = 3.0
    steps: int | None = None  # instead of epochs
    learning_rate: float = 2e-4
    lr_decay_style: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_share: float = 0.03
    weight_decay: float = 0.0
    gradient_clipping: float = 0.3
    optimizer: Literal["adamw", "adamw_8bit", "paged_adamw_8bit"] = "paged_adamw_8bit"
    gradient_checkpointing: bool | None = None  # None: the planner's choice, and without a plan on
    group_by_length: bool = True
    log_interval: int = 10
    checkpoint_interval: int = 100
    checkpoints_kept: int = 5
    eval_interval: int = 100
    patience: int = 3  # evaluations without progress before it stops; 0 never stops early
    seed: int = 42
    # llama2-finetune: which names the checkout's converter has for its options; auto reads its source in the job.
    converter: Literal["auto", "origin-hf-ckpt-dir", "hf-ckpt-dir"] = "auto"
    export: bool = False  # llama2-finetune: turn the last checkpoint back into Hugging Face weights


@dataclass(frozen=True, slots=True)
class Preflight:
    """A look at every node before the job starts. auto: where a recipe's job takes several. seconds: its limit."""

    run: Literal["auto", "on", "off"] = "auto"
    seconds: int = 55


@dataclass(frozen=True, slots=True)
class TrainerChoice:
    """Where the trainer's code is and which versions it has."""

    path: str = ""  # Megatron-DeepSpeed checkout, seen from inside the job's environment
    deepspeed: str = "0.16.4"
    gradient_accumulation_dtype: Literal["", "fp32", "bf16", "fp16"] = ""
    extra_arguments: tuple[str, ...] = ()


EnvironmentKind = Literal["host", "venv", "conda", "modules", "pyxis", "apptainer"]


@dataclass(frozen=True, slots=True)
class Environment:
    """How a job finds its software. path: venv or conda folder. image: pyxis or apptainer image."""

    kind: EnvironmentKind = "host"
    path: str = ""
    image: str = ""
    mounts: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Site:
    """What a cluster needs to know once. run_root: shared folder that holds run folders (required on Slurm).

    ssh: the login node for a cluster that is not reached from this machine: `user@host`, an alias of
    ~/.ssh/config, or `ssh://user@host:port`. way: force Slurm's commands ("cli") or pyslurm ("api").
    exclude_reasons: why and since when a node of exclude_nodes is left out.
    """

    cluster: str = ""
    scheduler: Literal["", "slurm", "local"] = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    time_limit: str = ""  # Slurm's notation, "" takes the partition's default
    run_root: str = ""
    node: str = ""  # catalogue id of the node type ("p6-b200"), "" guesses from the GPU type
    network_profile: str = ""  # "", "none", "efa", "infiniband"
    group: str = ""  # share run folders with this Unix group
    exclude_nodes: tuple[str, ...] = ()
    exclude_reasons: dict[str, str] = field(default_factory=dict)
    ssh: str = ""
    way: Literal["", "cli", "api"] = ""
    extra_sbatch: tuple[str, ...] = ()
    environment: Environment = field(default_factory=Environment)


@dataclass(frozen=True, slots=True)
class Profile:
    """A whole set of choices. cluster "": the one found here ("local" when there is no Slurm)."""

    name: str = ""
    schema: int = SCHEMA
    recipe: str = "megatron-deepspeed"
    cluster: str = ""
    description: str = ""
    resources: Resources = field(default_factory=Resources)
    model: ModelChoice = field(default_factory=ModelChoice)
    layout: LayoutChoice = field(default_factory=LayoutChoice)
    training: Training = field(default_factory=Training)
    trainer: TrainerChoice = field(default_factory=TrainerChoice)
    smoke: Smoke = field(default_factory=Smoke)
    custom: Custom = field(default_factory=Custom)
    finetune: Finetune = field(default_factory=Finetune)
    acs: Acs = field(default_factory=Acs)
    preflight: Preflight = field(default_factory=Preflight)
    site: Site = field(default_factory=Site)  # what this profile overrides of the cluster's site
