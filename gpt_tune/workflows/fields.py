"""Owns the table of questions: key, words, kind and when each is asked. Defaults and options live beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpt_tune.workflows.draft import Draft
from gpt_tune.workflows.request import always_planned

Condition = Callable[[Draft], bool]


@dataclass(frozen=True, slots=True)
class Spec:
    """One question as data. when: whether it is asked for a draft. needed: whether it may not stay empty."""

    key: str
    label: str
    help: str
    kind: str = "text"
    unit: str = ""
    when: Condition = lambda draft: True
    needed: Condition = lambda draft: False
    advanced: bool = False


def _slurm(draft: Draft) -> bool:
    return draft.cluster is not None and draft.cluster.scheduler == "slurm"


def _on_cluster(draft: Draft) -> bool:
    return not draft.plan_only


def _plans(draft: Draft) -> bool:
    """Pretraining with a layout: these trainers are checkouts, and their versions matter."""
    return always_planned(draft.recipe)


def _smoke(draft: Draft) -> bool:
    return draft.recipe == "smoke"


def _custom(draft: Draft) -> bool:
    return draft.recipe == "custom"


def _tunes(draft: Draft) -> bool:
    """Adapters on published weights: every number is the recipe's own."""
    return draft.recipe == "qlora"


def _converts(draft: Draft) -> bool:
    return draft.recipe == "llama2-finetune"


def _finetunes(draft: Draft) -> bool:
    return _tunes(draft) or _converts(draft)


def _trains(draft: Draft) -> bool:
    return draft.recipe not in ("smoke", "custom", "qlora") and not _benchmarks(draft)


def _saves(draft: Draft) -> bool:
    return _trains(draft) or _tunes(draft)


def _deepspeeds(draft: Draft) -> bool:
    return _plans(draft) and draft.recipe != "megatron-lm"


def _acs(draft: Draft) -> bool:
    return draft.recipe == "acs"


def _acs_script(draft: Draft) -> bool:
    return _acs(draft) and draft.profile.acs.work == "script"


def _benchmarks(draft: Draft) -> bool:
    return _acs(draft) and draft.profile.acs.work == "ljperf"


def _schedules(draft: Draft) -> bool:
    return _trains(draft) and not _acs(draft)


def _reads_data(draft: Draft) -> bool:
    """Whether it trains on token files; a script of the user's own reads its own data, fine-tuning reads records."""
    return _schedules(draft) and not _converts(draft)


def _tokenizer_files(draft: Draft) -> bool:
    return _reads_data(draft) and draft.profile.training.data != "synthetic"


def _environment(*kinds: str) -> Condition:
    return lambda draft: draft.site.environment.kind in kinds


STEPS = (
    ("cluster", "Cluster"),
    ("site", "Site"),
    ("gpus", "GPUs"),
    ("model", "Model"),
    ("training", "Training"),
    ("plan", "Plan"),
    ("review", "Review"),
)

CLUSTER = (Spec("cluster", "Cluster", "Where the job runs. Planning alone needs no cluster.", "choice"),)

SITE = (
    Spec("site.run_root", "Run folder", "Folder for scripts and logs that every node of the cluster can see.",
         "path", needed=_slurm),
    Spec("site.account", "Account", "The account that Slurm charges; empty takes your default.", when=_slurm),
    Spec("site.partition", "Partition", "Where jobs go unless a run says otherwise.", "choice", when=_slurm),
    Spec("site.qos", "QOS", "Quality of service; empty takes your default.", when=_slurm),
    Spec("site.time_limit", "Time limit", "As Slurm writes it: 30 (minutes), 2:00:00 or 1-12:00:00.", when=_slurm),
    Spec("site.node", "Node type", "The catalogue's name of the nodes; it fixes link and NIC rates.", "choice",
         when=_slurm),
    Spec("site.network_profile", "Network", "Which environment variables the network wants.", "choice",
         when=_slurm),
    Spec("site.environment.kind", "Environment", "How a job finds Python and the trainer.", "choice"),
    Spec("site.environment.image", "Image", "Container image, as the container tool names it.", "path",
         when=_environment("pyxis", "apptainer"), needed=_environment("pyxis", "apptainer")),
    Spec("site.environment.mounts", "Mounts", "Folders the container sees: SOURCE:TARGET, with commas.",
         when=_environment("pyxis", "apptainer")),
    Spec("site.environment.path", "Environment folder", "The venv's or conda environment's folder.", "path",
         when=_environment("venv", "conda"), needed=_environment("venv", "conda")),
    Spec("site.environment.modules", "Modules", "Modules to load, with commas.", when=_environment("modules"),
         needed=_environment("modules")),
    Spec("site.ssh", "Login node", "For a cluster reached by ssh: user@host, or an alias of ~/.ssh/config.",
         when=_slurm, advanced=True),
    Spec("site.way", "Way to Slurm", "Force Slurm's commands (cli) or its library (api).", "choice", when=_slurm,
         advanced=True),
    Spec("site.group", "Share with group", "Unix group that may read run folders; empty keeps them private.",
         advanced=True),
    Spec("site.exclude_nodes", "Exclude nodes", "Nodes that jobs must avoid, with commas.", when=_slurm,
         advanced=True),
    Spec("site.extra_sbatch", "More #SBATCH lines", "Options added to every job, with commas.", when=_slurm,
         advanced=True),
)  # fmt: skip

GPUS = (
    Spec("resources.partition", "Partition", "A group of nodes with its own limits.", "choice", when=_slurm),
    Spec("resources.gpu", "GPU or node type", "What to plan for: a GPU or a node type of the catalogue.", "choice",
         when=lambda d: d.plan_only, needed=lambda d: d.plan_only),
    Spec("resources.gpus", "GPUs", "At most one node's worth, or whole nodes.", "int", "GPUs"),
    Spec("resources.gpus_per_node", "GPUs a node", "How many GPUs one node has.", "int", "GPUs", advanced=True),
)  # fmt: skip

MODEL = (
    Spec("model.id", "Model", "Catalogue name, path of a config.json, or layers=..,hidden=..,heads=..", "choice",
         needed=lambda d: True),
)  # fmt: skip

TRAINING = (
    Spec("recipe", "Job", "What runs: a trainer, a one-minute check, or a script of your own.", "choice"),
    Spec("acs.work", "Work", "The image's own benchmark (ljperf), or a training script of yours.", "choice", when=_acs),
    Spec("acs.benchmark", "Benchmark", "What ljperf measures.", when=_benchmarks),
    Spec("acs.script", "Script", "Absolute path of the training script, as the container sees it.", "path",
         when=_acs_script),
    Spec("acs.arguments", "Arguments", "The script's own, with commas.", when=_acs_script),
    Spec("acs.compile", "Compile", "The image's compiler.", "bool", when=_acs_script),
    Spec("acs.checkpoint_optimization", "Optimise recompute", "The image's memory model chooses what is recomputed.",
         "bool", when=_acs),
    Spec("acs.micro_batch_size", "Micro batch", "Sequences a GPU computes at once.", "int", "sequences",
         when=_acs_script),
    Spec("acs.zero_stage", "ZeRO stage", "What ZeRO splits over the GPUs.", "choice", when=_acs_script),
    Spec("acs.release", "Image release", "Of training-nv-pytorch.", "choice", when=_acs),
    Spec("acs.image", "Image", "Another address or enroot file; empty takes the release's public image.", when=_acs,
         advanced=True),
    Spec("acs.driver", "Driver", "What the nodes have, checked before submitting; empty is checked in the job.",
         when=_acs, advanced=True),
    Spec("acs.packages", "Packages", "NAME==VERSION put beside the image's own, with commas.", when=_acs,
         advanced=True),
    Spec("acs.deepspeed_config", "DeepSpeed file", "A JSON file of yours; empty writes one.", "path",
         when=_acs_script, advanced=True),
    Spec("trainer.path", "Trainer's folder", "Checkout of the trainer, as the job sees it.", "path", when=_plans,
         needed=lambda d: _plans(d) and _on_cluster(d)),
    Spec("finetune.weights", "Weights", "Folder of Hugging Face weights; qlora also takes a repository's name.", "path",
         when=_finetunes, needed=_finetunes),
    Spec("finetune.data", "Data", "A JSON, JSONL or parquet file of records, or a data set's name.", "path",
         when=_finetunes, needed=_finetunes),
    Spec("finetune.data_config", "Configuration", "Of the data set, where it has several.", when=_finetunes),
    Spec("finetune.prompt_field", "Question's field", "Empty looks for the usual names.", when=_finetunes),
    Spec("finetune.answer_field", "Answer's field", "Empty looks for the usual names.", when=_finetunes),
    Spec("finetune.input_field", "Input's field", "More text of the question, where records have it.", when=_finetunes,
         advanced=True),
    Spec("finetune.reasoning_field", "Reasoning's field", "Put between <think> tags before the answer.", when=_tunes,
         advanced=True),
    Spec("finetune.messages_field", "Messages' field", "A conversation: a list of roles and contents.", when=_tunes,
         advanced=True),
    Spec("finetune.strategy", "Strategy", "What DeepSpeed splits over the GPUs; auto leaves it to the planner.",
         "choice", when=_tunes, advanced=True),
    Spec("finetune.base_weights", "Base weights", "4 bits (nf4, fp4), or 16bit.", "choice", when=_tunes),
    Spec("finetune.lora_rank", "LoRA rank", "Rank of the adapters.", "int", when=_tunes),
    Spec("finetune.lora_alpha", "LoRA alpha", "Their scale; usually twice the rank.", "int", when=_tunes),
    Spec("finetune.micro_batch_size", "Micro batch", "Examples a GPU takes at once; empty leaves it to the planner.",
         "int", "examples", when=_tunes, advanced=True),
    Spec("finetune.gradient_accumulation_steps", "Accumulation",
         "Micro batches of one optimizer step; empty takes what the global batch leaves.", "int", "steps",
         when=_tunes, advanced=True),
    Spec("finetune.gradient_checkpointing", "Checkpointing",
         "Recompute activations: less memory, more time; empty leaves it to the planner.", "choice", when=_tunes,
         advanced=True),
    Spec("finetune.epochs", "Epochs", "Passes over the data.", "float", when=_tunes),
    Spec("finetune.steps", "Steps", "Optimizer steps instead of epochs.", "int", "steps", when=_tunes, advanced=True),
    Spec("finetune.learning_rate", "Learning rate", "The highest learning rate.", "float", when=_tunes),
    Spec("finetune.max_samples", "Records", "At most so many; empty takes all.", "int", "records", when=_finetunes,
         advanced=True),
    Spec("finetune.optimizer", "Optimizer", "The 8-bit ones need ddp; under DeepSpeed it is adamw.", "choice",
         when=_tunes, advanced=True),
    Spec("finetune.checkpoint_interval", "Checkpoint every", "Steps between checkpoints.", "int", "steps", when=_tunes,
         advanced=True),
    Spec("finetune.converter", "Converter", "Option names of the checkout's; auto reads its source.", "choice",
         when=_converts, advanced=True),
    Spec("finetune.export", "Export", "Turn the last checkpoint into Hugging Face weights.", "bool", when=_converts),
    Spec("training.data", "Data", "Path prefix of .bin and .idx files, or synthetic.", "path", when=_reads_data),
    Spec("training.tokenizer", "Tokenizer", "gpt2, or the trainer's own name of another.", when=_reads_data),
    Spec("training.tokenizer_model", "Tokenizer model", "File or folder of the tokenizer, where it needs one.",
         "path", when=_tokenizer_files, advanced=True),
    Spec("training.vocab_file", "Vocabulary file", "gpt2-vocab.json, for tokenizers of that kind.", "path",
         when=_tokenizer_files, advanced=True),
    Spec("training.merge_file", "Merges file", "gpt2-merges.txt, for tokenizers of that kind.", "path",
         when=_tokenizer_files, advanced=True),
    Spec("model.seq_length", "Sequence length", "Tokens in one sequence.", "int", "tokens", when=_saves),
    Spec("training.global_batch_size", "Global batch", "Sequences in one step, over all GPUs.", "int", "sequences",
         when=_saves),
    Spec("training.iterations", "Iterations", "Steps to train; excludes tokens.", "int", "steps", when=_trains),
    Spec("training.tokens", "Tokens", "Tokens to train, for example 300B; excludes iterations.", "float", "tokens",
         when=_trains),
    Spec("training.learning_rate", "Learning rate", "The highest learning rate.", "float", when=_trains),
    Spec("training.min_learning_rate", "Lowest learning rate", "Where the schedule ends.", "float", when=_schedules),
    Spec("training.lr_decay_style", "Schedule", "How the learning rate falls.", "choice", when=_trains),
    Spec("training.lr_warmup_iterations", "Warm-up", "Steps of rising learning rate.", "int", "steps",
         when=_trains),
    Spec("training.precision", "Precision", "Number format of the arithmetic.", "choice", when=_trains),
    Spec("training.checkpoint_dir", "Checkpoints in", "Folder for checkpoints; empty keeps them in the run folder.",
         "path", when=_saves),
    Spec("training.checkpoint_interval", "Checkpoint every", "Empty writes none but the last.", "int", "steps",
         when=_trains),
    Spec("training.load", "Load from", "Checkpoint folder to go on from.", "path", when=_reads_data),
    Spec("trainer.deepspeed", "DeepSpeed version", "Memory rules differ between versions.", when=_deepspeeds),
    Spec("trainer.gradient_accumulation_dtype", "Accumulate in", "Number format of accumulated gradients.",
         "choice", when=_deepspeeds, advanced=True),
    Spec("training.lr_decay_iterations", "Decay over", "Steps of the schedule; empty takes the whole run.", "int",
         "steps", when=_schedules, advanced=True),
    Spec("training.weight_decay", "Weight decay", "AdamW's weight decay.", "float", when=_trains, advanced=True),
    Spec("training.gradient_clipping", "Gradient clipping", "Largest gradient norm.", "float", when=_trains,
         advanced=True),
    Spec("training.adam_beta1", "Adam beta 1", "Decay of the first moment.", "float", when=_trains, advanced=True),
    Spec("training.adam_beta2", "Adam beta 2", "Decay of the second moment.", "float", when=_trains,
         advanced=True),
    Spec("training.init_std", "Initial deviation", "Standard deviation of the first weights.", "float",
         when=_reads_data, advanced=True),
    Spec("training.dropout", "Dropout", "Hidden and attention dropout; costs memory.", "float", when=_reads_data,
         advanced=True),
    Spec("training.seed", "Seed", "Of the random numbers.", "int", when=_trains, advanced=True),
    Spec("training.split", "Split", "Shares of training, validation and test data.", when=_tokenizer_files,
         advanced=True),
    Spec("training.log_interval", "Log every", "Steps between log lines.", "int", "steps", when=_trains,
         advanced=True),
    Spec("training.eval_interval", "Evaluate every", "Steps between evaluations.", "int", "steps", when=_reads_data,
         advanced=True),
    Spec("training.eval_iterations", "Evaluation steps", "0 never evaluates.", "int", "steps", when=_reads_data,
         advanced=True),
    Spec("preflight.run", "Look at nodes first", "Find a broken node before the job's GPUs wait for it.", "choice",
         when=_slurm, advanced=True),
    Spec("smoke.seconds", "Train for", "How long the check should train.", "int", "s", when=_smoke),
    Spec("smoke.steps", "Steps", "Exactly so many steps instead.", "int", "steps", when=_smoke, advanced=True),
    Spec("smoke.layers", "Layers", "Of the tiny model that really trains.", "int", when=_smoke, advanced=True),
    Spec("smoke.hidden", "Hidden size", "Of the tiny model; must divide by its heads.", "int", when=_smoke,
         advanced=True),
    Spec("smoke.heads", "Heads", "Of the tiny model.", "int", when=_smoke, advanced=True),
    Spec("smoke.seq_length", "Sequence length", "Of the tiny model.", "int", "tokens", when=_smoke, advanced=True),
    Spec("smoke.micro_batch_size", "Micro batch", "Sequences of one step.", "int", "sequences", when=_smoke,
         advanced=True),
    Spec("custom.script", "Script", "Path of your script, as the job sees it.", "path", when=_custom),
    Spec("custom.command", "Command", "Or a command line.", when=_custom),
    Spec("custom.log_format", "Log format", "auto finds out.", when=_custom, advanced=True),
)  # fmt: skip

SPECS: dict[str, tuple[Spec, ...]] = {
    "cluster": CLUSTER,
    "site": SITE,
    "gpus": GPUS,
    "model": MODEL,
    "training": TRAINING,
    "plan": (),
    "review": (),
}


def spec_of(key: str) -> tuple[str, Spec]:
    """The step and the question of a key. KeyError when nothing asks for it."""
    for step, specs in SPECS.items():
        for spec in specs:
            if spec.key == key:
                return step, spec
    raise KeyError(key)
