"""Owns rules about the trainer's arguments: those that do nothing alone, contradict, or are missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpt_tune import rules as practices
from gpt_tune.lint import kinds
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.project import Project
from gpt_tune.lint.training import MEGATRON_DEEPSPEED, started_trainer, trainer_of

_ARGUMENTS = "Megatron-DeepSpeed megatron/arguments.py (4efb479)"
# The planner's best practice about the same variable: its id, source and fix are used here too.
_SEQUENCE_PARALLEL = next(p for p in practices.PRACTICES if p.id == "sp-needs-cdmc")
_VARIABLE = next(iter(_SEQUENCE_PARALLEL.environment))
# Fewer iterations than this are a benchmark, whose model nobody keeps.
_BENCHMARK_ITERATIONS = 500


def _sequence_parallel(document: Document, project: Project) -> Iterator[Hit]:
    flags = document.flags
    found = flags.named("sequence-parallel")
    if not found or started_trainer(document) is None or flags.has("use-torch-fsdp2", "use-megatron-fsdp"):
        return
    if flags.number("tensor-model-parallel-size") == 1 and not _from_outside(
        document, "tensor-model-parallel-size"
    ):
        return
    others = [s.source for s in project.submissions_of(document)]
    others += project.near(document, kinds.DOCKER)
    sources = any(c.name in ("source", ".") for c in document.script.commands)
    if sources or any(s.name == _VARIABLE for d in (document, *others) for s in d.settings):
        yield from _wrong_value(document)
        return
    deepspeed = trainer_of(flags) == MEGATRON_DEEPSPEED
    where = "" if deepspeed else " on GPUs before Blackwell"
    yield Hit(
        found[0].line,
        f"--sequence-parallel stops the trainer{where} unless {_VARIABLE}=1, which is set nowhere.",
        f"{_SEQUENCE_PARALLEL.fix}.",
    )


def _wrong_value(document: Document) -> Iterator[Hit]:
    for setting in document.settings:
        if setting.name != _VARIABLE or setting.how == "option":
            continue
        text = document.script.values.text(setting.default)
        if text is not None and text.isdigit() and text != "1":
            yield Hit(
                setting.line,
                f"{_VARIABLE} is {text}, but --sequence-parallel needs 1.",
                f"{_SEQUENCE_PARALLEL.fix}.",
                "warning",
            )


def _from_outside(document: Document, name: str) -> bool:
    values = document.script.values
    names = [n for f in document.flags.named(name) if f.value for n in f.value.names]
    return any(s.overridable for n in names for s in values.by_name.get(n, []))


def _checkpointing(document: Document, project: Project) -> Iterator[Hit]:
    flags = document.flags
    found = flags.named("deepspeed-activation-checkpointing")
    switches = flags.named(
        "checkpoint-activations", "recompute-granularity", "recompute-activations", "recompute-method"
    )
    # The switch may come from elsewhere: `$RECOMPUTE_ARGS` that the caller sets.
    if found and not switches:
        yield Hit(
            found[0].line,
            "--deepspeed-activation-checkpointing only chooses how to checkpoint; without --checkpoint-activations "
            "nothing is checkpointed.",
        )


def _decay(document: Document, project: Project) -> Iterator[Hit]:
    flags = document.flags
    for decay_name, length_name in (("lr-decay-iters", "train-iters"), ("lr-decay-samples", "train-samples")):
        for decay in flags.named(decay_name):
            length = next((f for f in flags.named(length_name) if f.value is not None), None)
            if decay.value is None or length is None or length.value is None:
                continue
            fixed = document.script.values.text(decay.value)
            if fixed is None or not fixed.isdigit() or set(decay.value.names) & set(length.value.names):
                continue
            free = _from_outside(document, length_name)
            same = length.value.names and document.script.values.text(length.value) == fixed
            if _from_outside(document, decay_name) or not (free or same):
                continue
            name = length.value.names[0]
            yield Hit(
                decay.line,
                f"--{decay_name} is always {fixed} while --{length_name} follows ${name}: with another {name} the "
                "learning rate ends too early or too late.",
                f"Use ${{{name}}} here too.",
                "warning" if free else "info",
            )


def _no_save(document: Document, project: Project) -> Iterator[Hit]:
    flags = document.flags
    training = flags.has("train-iters", "train-samples", "train-tokens") and flags.has(
        "lr", "micro-batch-size"
    )
    if started_trainer(document) is None or not training or flags.has("save") or _skipped_training(document):
        return
    iterations = flags.number("train-iters")
    benchmark = iterations is not None and iterations <= _BENCHMARK_ITERATIONS
    yield Hit(
        flags.line("train-iters", "train-samples", "train-tokens"),
        "No --save: nothing of this training is kept, and a failure starts it from the beginning.",
        "Pass --save DIR --load DIR --save-interval N.",
        "info" if benchmark else "warning",
    )


def _skipped_training(document: Document) -> bool:
    if document.flags.has("skip-train", "eval-only", "exit-on-missing-checkpoint-only", "save-dir"):
        return True
    return bool(re.search(r"\b\w*(?:convert|inference|generat|eval|serve|preprocess)\w*\.py", document.text))


def _no_interval(document: Document, project: Project) -> Iterator[Hit]:
    flags = document.flags
    if trainer_of(flags) != MEGATRON_DEEPSPEED or not flags.has("save") or flags.has("save-interval"):
        return
    if flags.has("train-iters", "train-samples", "train-tokens"):
        yield Hit(flags.line("save"), "--save without --save-interval is refused.", "Pass --save-interval N.")


def _contradictions(document: Document, project: Project) -> Iterator[Hit]:
    flags = document.flags
    if trainer_of(flags) is None:
        return
    length, slots = flags.number("seq-length"), flags.number("max-position-embeddings")
    if length is not None and slots is not None and slots < length:
        yield Hit(
            flags.line("max-position-embeddings"),
            f"--max-position-embeddings {slots} is less than --seq-length {length}.",
            f"Use {length}.",
        )
    lowest, highest = _decimal(flags.text("min-lr")), _decimal(flags.text("lr"))
    if lowest is not None and highest is not None and lowest > highest:
        yield Hit(
            flags.line("min-lr"), f"--min-lr {lowest:g} is above --lr {highest:g}.", "Use a smaller --min-lr."
        )
    if (
        flags.live("train-iters")
        and flags.live("train-samples")
        and _same_branch(document, "train-iters", "train-samples")
    ):
        yield Hit(
            flags.line("train-samples"),
            "--train-iters and --train-samples exclude each other.",
            "Pass one of them.",
        )


def _same_branch(document: Document, first: str, second: str) -> bool:
    """Whether the two flags stand in one list, so that both are passed."""
    owners = {(f.owner, f.blocks) for f in document.flags.live(first)}
    return any((f.owner, f.blocks) in owners for f in document.flags.live(second))


def _decimal(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"[0-9.]+(?:[eE][-+]?[0-9]+)?", text):
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _two_stages(document: Document, project: Project) -> Iterator[Hit]:
    """The ZeRO stage or batch on the command line against the JSON that the script writes."""
    flags = document.flags
    if trainer_of(flags) != MEGATRON_DEEPSPEED or not flags.has(
        "train-iters", "train-samples", "train-tokens"
    ):
        return
    pairs = (
        ("zero-stage", r"\"stage\"\s*:\s*(\d+)"),
        ("micro-batch-size", r"\"train_micro_batch_size_per_gpu\"\s*:\s*(\d+)"),
        ("global-batch-size", r"\"train_batch_size\"\s*:\s*(\d+)"),
    )
    for heredoc_line, text in _written(document):
        for name, pattern in pairs:
            value = flags.number(name)
            match = re.search(pattern, text)
            if value is not None and match is not None and int(match.group(1)) != value:
                line = heredoc_line + text.count("\n", 0, match.start())
                yield Hit(
                    line,
                    f"The DeepSpeed configuration says {match.group().strip()}, but --{name} is {value}.",
                    "Fill the configuration from the same variable.",
                )


def _written(document: Document) -> Iterator[tuple[int, str]]:
    """Configurations written by live here-documents: (first line, text with known values filled in)."""
    script = document.script
    for command in script.tree.commands:
        for redirect in command.redirects:
            heredoc = redirect.heredoc
            if (
                heredoc is None
                or "train_batch_size" not in heredoc.text
                or script.values.dead(command.blocks)
            ):
                continue
            pieces = [script.values.text_of(p) for p in heredoc.parts]
            yield heredoc.line, "".join("?" if p is None else p for p in pieces) or heredoc.text


_IN = (kinds.SHELL,)
RULES = (
    Rule(
        _SEQUENCE_PARALLEL.id, "error", _IN, _sequence_parallel,
        "The trainer raises at start-up.", f"{_SEQUENCE_PARALLEL.fix}.", _SEQUENCE_PARALLEL.source,
    ),
    Rule(
        "checkpointing-off", "error", _IN, _checkpointing,
        "The flag alone selects DeepSpeed's implementation and checkpoints nothing.",
        "Pass --checkpoint-activations as well.", _ARGUMENTS,
    ),
    Rule(
        "decay-fixed", "warning", _IN, _decay,
        "The schedule is made for another length of training.", "Decay over the iterations that are trained.",
        _ARGUMENTS,
    ),
    Rule(
        "no-save", "warning", _IN, _no_save,
        "A training that saves nothing leaves nothing.", "Pass --save.", "awsome-distributed-training PR 1009",
    ),
    Rule(
        "save-interval", "error", _IN, _no_interval,
        "The trainer asserts it.", "Pass --save-interval N.", _ARGUMENTS,
    ),
    Rule(
        "argument-conflict", "error", _IN, _contradictions,
        "The trainer asserts it.", "Make the two agree.", _ARGUMENTS,
    ),
    Rule(
        "config-disagrees", "error", _IN, _two_stages,
        "Megatron-DeepSpeed takes some of it from the flag and some from the configuration.",
        "Fill both from one variable.", "Megatron-DeepSpeed reads both; DeepSpeed asserts the batch sizes",
    ),
)  # fmt: skip
