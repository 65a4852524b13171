"""Owns what a script trains and how: model shape, layout and batch out of its flags, as far as they are fixed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpt_tune.lint.documents import Document
from gpt_tune.lint.flags import Flags
from gpt_tune.models.shape import ModelShape

MEGATRON_DEEPSPEED, MEGATRON_LM = "megatron-deepspeed", "megatron-lm"
_DEEPSPEED_FLAGS = (
    "deepspeed-config", "zero-stage", "deepspeed-activation-checkpointing", "no-pipeline-parallel",
    "ds-sequence-parallel-size", "deepspeed",
)  # fmt: skip
_MEGATRON_FLAGS = ("tensor-model-parallel-size", "pipeline-model-parallel-size")
_MEGATRON_SCRIPT = re.compile(r"\b(?:pretrain|finetune)_\w+\.py")
# Variables that scripts keep the model's numbers in, where no flag says them.
_VARIABLES = {
    "num-layers": ("NUM_LAYERS", "NLAYERS", "N_LAYERS", "LAYERS"),
    "hidden-size": ("HIDDEN_SIZE", "NHIDDEN", "HIDDEN", "D_MODEL"),
    "num-attention-heads": ("NUM_HEADS", "NUM_ATTENTION_HEADS", "NUM_ATTN_HEADS", "NHEADS", "HEADS"),
    "ffn-hidden-size": ("FFN_HIDDEN_SIZE", "FFN_SIZE", "FFN"),
}
# Encoders, encoder-decoders and other families whose parameters are not counted here.
_OTHER_FAMILIES = re.compile(
    r"(?i)\b(?:pretrain|train|finetune)_?(?:t5|bert|ict|vit|vision|mamba|retro|vlm|clip|realm|biencoder)\w*\.py|"
    r"--(?:num-experts|spec|hybrid|decoder-num-layers|encoder-num-layers|kv-channels|multi-latent-attention|"
    r"moe-layer-freq|mamba|retro|export-force-local)\b"
)
_GPT2_VOCAB = 50257


@dataclass(frozen=True, slots=True)
class Training:
    """One training run of a script with given variables. None: not fixed in the script."""

    trainer: str | None
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    ffn: int | None
    seq_length: int | None
    vocab: int | None
    tensor_parallel: int | None
    pipeline_parallel: int | None
    context_parallel: int | None
    micro_batch_size: int | None
    global_batch_size: int | None
    zero_stage: int | None
    nodes: int | None
    gpus_per_node: int | None
    no_pipeline: bool | None
    gated: bool
    rmsnorm: bool
    rotary: bool
    untied: bool
    no_bias: bool
    plain_gpt: bool
    sequence_parallel: bool

    @property
    def gpus(self) -> int | None:
        if self.nodes is None or self.gpus_per_node is None:
            return None
        return self.nodes * self.gpus_per_node

    def shape(self, name: str = "script") -> ModelShape | None:
        """The model when layers, width and heads are fixed."""
        if not self.layers or not self.hidden or not self.heads or self.hidden % self.heads:
            return None
        # Megatron's own default for gated MLPs: two thirds, rounded down to 64.
        ffn = self.ffn or (self.hidden * 8 // 3 // 64 * 64 if self.gated else 4 * self.hidden)
        return ModelShape(
            id=name,
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            ffn=ffn,
            vocab=self.vocab or _GPT2_VOCAB,
            seq_length=self.seq_length or 2048,
            head_size=self.hidden // self.heads,
            gated_mlp=self.gated,
            norm="rmsnorm" if self.rmsnorm else "layernorm",
            linear_bias=not self.no_bias,
            qkv_bias=not self.no_bias,
            positions="rotary" if self.rotary else "learned",
            tied_embeddings=not self.untied,
        )


def starts_something(document: Document) -> bool:
    """Whether a script starts programs, rather than only setting variables for one that does."""
    names = {
        "torchrun",
        "deepspeed",
        "srun",
        "mpirun",
        "mpiexec",
        "accelerate",
        "eval",
        "bash",
        "sh",
        "python",
        "python3",
    }
    for command in document.script.commands:
        if command.name in names or (command.words and command.words[0].parts[0].kind == "variable"):
            return True
    return False


def trainer_of(flags: Flags) -> str | None:
    """Which trainer a script starts, by the flags it passes."""
    if not flags.has(*_MEGATRON_FLAGS) and not (flags.all and _MEGATRON_SCRIPT.search(flags.script.text)):
        return None
    return MEGATRON_DEEPSPEED if flags.has(*_DEEPSPEED_FLAGS) else MEGATRON_LM


def started_trainer(document: Document) -> str | None:
    """The trainer that a script starts itself; None for a file of settings that another script reads."""
    trainer = trainer_of(document.flags)
    return trainer if trainer is not None and starts_something(document) else None


def training_of(document: Document, overrides: dict[str, str] | None = None) -> Training:
    """What the script trains; overrides: variables its caller sets."""
    flags = document.flags.given(overrides) if overrides else document.flags
    trainer = trainer_of(flags)
    number = flags.number
    kv_heads = number("num-query-groups", "num-key-value-heads", "num-attention-heads-kv")
    if (flags.text("attention-head-type") or "").lower() == "multiquery":
        kv_heads = 1
    live = flags.live
    return Training(
        trainer=trainer,
        layers=_shape_number(flags, "num-layers"),
        hidden=_shape_number(flags, "hidden-size"),
        heads=_shape_number(flags, "num-attention-heads"),
        kv_heads=kv_heads,
        ffn=_shape_number(flags, "ffn-hidden-size"),
        seq_length=number("seq-length"),
        vocab=number("vocab-size", "padded-vocab-size"),
        tensor_parallel=_degree(flags, "tensor-model-parallel-size"),
        pipeline_parallel=_degree(flags, "pipeline-model-parallel-size"),
        context_parallel=_degree(flags, "context-parallel-size", "ds-sequence-parallel-size"),
        micro_batch_size=number("micro-batch-size"),
        global_batch_size=number("global-batch-size"),
        zero_stage=number("zero-stage"),
        nodes=_nodes(document, flags),
        gpus_per_node=gpus_per_node(document, flags),
        no_pipeline=_switched(flags, "no-pipeline-parallel"),
        gated=flags.has("swiglu"),
        rmsnorm=(flags.text("normalization") or "").lower() == "rmsnorm",
        rotary=flags.has("use-rotary-position-embeddings", "use-rotary-positional-embeddings")
        or (flags.text("position-embedding-type") or "") in ("rope", "rotary", "alibi", "none"),
        untied=flags.has("untie-embeddings-and-output-weights"),
        no_bias=flags.has("disable-bias-linear"),
        plain_gpt=not _OTHER_FAMILIES.search(document.text),
        sequence_parallel=bool(live("sequence-parallel")),
    )


def _degree(flags: Flags, *names: str) -> int | None:
    """A parallel degree: 1 when the flag is not passed at all, None when it is and its value is not fixed."""
    return flags.number(*names) if flags.has(*names) else 1


def _shape_number(flags: Flags, name: str) -> int | None:
    """A number of the model: the flag's, or where no flag says it, that of a variable with the usual name."""
    if flags.has(name):
        return flags.number(name)
    for variable in _VARIABLES[name]:
        text = flags.values.variable(variable)
        if text is not None and re.fullmatch(r"[0-9]{1,7}", text):
            return int(text)
    return None


def _switched(flags: Flags, name: str) -> bool | None:
    """Whether a switch is passed: None when that depends on a branch that is not worked out."""
    found = flags.live(name)
    if not found:
        return False
    branches = ("if", "else", "case", "while")
    sure = [
        f
        for f in found
        if not f.maybe and all(flags.values.state(b) is True for b in f.blocks if b.kind in branches)
    ]
    return True if sure else None


def _nodes(document: Document, flags: Flags) -> int | None:
    named = flags.number("nnodes", "num-nodes")
    if named is not None:
        return named
    directive = document.script.directive("nodes", "N")
    if directive is not None and directive.value.isdigit():
        return int(directive.value)
    return None


def gpus_per_node(document: Document, flags: Flags) -> int | None:
    """GPUs of a node as the launcher or the scheduler is told."""
    named = flags.number("nproc-per-node", "num-gpus")
    return named if named is not None else allocated_gpus(document)


def allocated_gpus(document: Document) -> int | None:
    """GPUs of a node that the `#SBATCH` lines ask for."""
    for name in ("gpus-per-node", "gres"):
        directive = document.script.directive(name)
        if directive is None or (name == "gres" and not directive.value.startswith("gpu")):
            continue
        match = re.search(r"(?:^|:)(\d+)$", directive.value)
        if match is not None:
            return int(match.group(1))
    return None
