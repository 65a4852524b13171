"""Owns rules about DeepSpeed configurations in JSON: broken, contradictory, misspelt, version-dependent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpt_tune.errors import nearest
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.kinds import DEEPSPEED, SHELL
from gpt_tune.lint.project import Project
from gpt_tune.lint.tables import table

_CONFIG = "DeepSpeed runtime/config.py"
_ENGINE = "DeepSpeed runtime/engine.py _do_optimizer_sanity_check, tags v0.16.4 to v0.18.5"


def _line_of(document: Document, key: str, inside: str = "") -> int:
    """The line a key stands in; inside: the key of the object that holds it."""
    start = 0
    if inside:
        match = re.search(rf'"{re.escape(inside)}"\s*:', document.text)
        start = match.end() if match else 0
    match = re.compile(rf'"{re.escape(key)}"\s*:').search(document.text, start)
    return document.line_at(match.start()) if match else 1


def _data(document: Document) -> Mapping[str, Any]:
    return document.data if isinstance(document.data, Mapping) else {}


def _part(document: Document, key: str) -> Mapping[str, Any]:
    value = _data(document).get(key)
    return value if isinstance(value, Mapping) else {}


def _broken(document: Document, project: Project) -> Iterator[Hit]:
    if document.data is not None or "{{" in document.text:
        return
    try:
        json.loads(document.text)
    except json.JSONDecodeError as error:
        if _TEMPLATE.search(document.text) or "template" in document.name.lower():
            return  # a template, which another program fills in
        yield Hit(error.lineno, f"This is not JSON: {error.msg} (column {error.colno}).")
    except RecursionError:
        yield Hit(1, "This JSON is nested too deeply to be a configuration.")


_TEMPLATE = re.compile(r"[:\[,]\s*\$\{?\w+|<\w+>|:\s*[A-Z][A-Z0-9_]+\s*[,}\n]")


def _numbers(document: Document) -> tuple[Any, Any, Any]:
    data = _data(document)
    return tuple(
        data.get(k)
        for k in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )  # type: ignore[return-value]


def _batch(document: Document, project: Project) -> Iterator[Hit]:
    whole, micro, steps = _numbers(document)
    if not all(isinstance(x, int) and x > 0 for x in (whole, micro)):
        return
    per_rank = micro * (steps if isinstance(steps, int) and steps > 0 else 1)
    if whole % per_rank:
        accumulated = f" x gradient_accumulation_steps {steps}" if isinstance(steps, int) else ""
        below = max(per_rank, whole // per_rank * per_rank)
        yield Hit(
            _line_of(document, "train_batch_size"),
            f"train_batch_size {whole} is not divisible by train_micro_batch_size_per_gpu {micro}{accumulated} = "
            f"{per_rank}, for any number of GPUs.",
            f"Use {below} or {below + per_rank}.",
        )


def _precisions(document: Document, project: Project) -> Iterator[Hit]:
    enabled = [k for k in ("fp16", "bf16", "bfloat16") if _part(document, k).get("enabled") is True]
    if "fp16" in enabled and len(enabled) > 1:
        yield Hit(
            _line_of(document, enabled[1]), f"{' and '.join(enabled)} are both enabled; DeepSpeed refuses that.",
            "Enable one.",
        )  # fmt: skip


def _stage(document: Document) -> int | None:
    stage = _part(document, "zero_optimization").get("stage")
    return stage if isinstance(stage, int) and not isinstance(stage, bool) else None


def _unknown_keys(document: Document, project: Project) -> Iterator[Hit]:
    lists = table("deepspeed")
    for inside, known in (("", set(lists["top"])), ("zero_optimization", set(lists["zero"]))):
        data = _part(document, inside) if inside else _data(document)
        for key in data:
            if key in known or key.startswith(("_", "//", "$", "comment")):
                continue
            close = nearest(key, known, 0.8)
            if close is not None:
                yield Hit(
                    _line_of(document, key, inside),
                    f"DeepSpeed knows no {key!r}{f' in {inside}' if inside else ''}: it is ignored or refused.",
                    f"Write {close!r}.",
                )


def _wrong_stage(document: Document, project: Project) -> Iterator[Hit]:
    stage = _stage(document)
    part = _part(document, "zero_optimization")
    if stage is not None and stage not in (0, 1, 2, 3):
        yield Hit(_line_of(document, "stage"), f"There is no ZeRO stage {stage}.", "Use 0, 1, 2 or 3.")
        return
    if stage is not None and stage < 3:
        wanted = part.get("offload_param")
        if isinstance(wanted, Mapping) and str(wanted.get("device", "none")) not in ("none", "None"):
            yield Hit(
                _line_of(document, "offload_param"),
                f"offload_param works with ZeRO-3, not {stage}.",
                "Use stage 3.",
                "warning",
            )
    if stage == 0:
        wanted = part.get("offload_optimizer")
        if isinstance(wanted, Mapping) and str(wanted.get("device", "none")) not in ("none", "None"):
            yield Hit(
                _line_of(document, "offload_optimizer"),
                "offload_optimizer needs ZeRO 1 to 3, not 0.",
                "Use stage 1.",
            )


def _accumulation(document: Document, project: Project) -> Iterator[Hit]:
    """bf16 whose accumulation format is left to the release, in a configuration for the pipeline engine."""
    stage = _stage(document)
    enabled = any(_part(document, k).get("enabled") is True for k in ("bf16", "bfloat16"))
    stated = "grad_accum_dtype" in _part(document, "data_types")
    if enabled and not stated and stage in (0, 1) and _for_megatron(document, project):
        yield Hit(
            _line_of(document, "bf16"),
            f"bf16 with ZeRO-{stage} and no data_types.grad_accum_dtype: DeepSpeed adds gradients up in fp32 or bf16 "
            "depending on its release.",
            'State it: "data_types": {"grad_accum_dtype": "fp32"} (with ZeRO-1).',
        )


def _for_megatron(document: Document, project: Project) -> bool:
    return any(
        "--deepspeed_config" in d.text and "--tensor-model-parallel-size" in d.text
        for d in project.near(document, SHELL)
    )


def _written_accumulation(document: Document, project: Project) -> Iterator[Hit]:
    """The same for a configuration that a script writes."""
    for command in document.script.tree.commands:
        for redirect in command.redirects:
            text = redirect.heredoc.text if redirect.heredoc is not None else ""
            if (
                "train_batch_size" in text
                and re.search(r"\"bf16\"\s*:\s*\{\s*\"enabled\"\s*:\s*(?:true|\$)", text)
                and "grad_accum_dtype" not in document.text
            ):
                if document.script.values.dead(command.blocks) or redirect.heredoc is None:
                    continue
                line = redirect.heredoc.line + text[: text.index('"bf16"')].count("\n")
                yield Hit(
                    line,
                    "bf16 without data_types.grad_accum_dtype: DeepSpeed adds gradients up in fp32 or "
                    "bf16 depending on "
                    "its release and the ZeRO stage.",
                    'State it: "data_types": {"grad_accum_dtype": "fp32"} (with ZeRO-1).',
                )
                return


_JSON = (DEEPSPEED,)
RULES = (
    Rule("json-broken", "error", _JSON, _broken, "DeepSpeed stops at start-up.", "Correct it.", "RFC 8259"),
    Rule(
        "ds-batch", "error", _JSON, _batch, "DeepSpeed asserts train_batch = micro x accumulation x ranks.",
        "Make it divisible.", _CONFIG,
    ),
    Rule("ds-precision", "error", _JSON, _precisions, "DeepSpeed asserts it.", "Enable one.", _CONFIG),
    Rule(
        "ds-unknown-key", "warning", _JSON, _unknown_keys, "Misspelt keys change nothing.", "Correct the key.",
        "profiles/lint/deepspeed.toml",
    ),
    Rule("ds-stage", "error", _JSON, _wrong_stage, "DeepSpeed asserts it.", "Use another stage.", _CONFIG),
    Rule(
        "ds-accumulation", "info", _JSON, _accumulation,
        "The default changed in 0.17.6; many accumulation steps in bf16 lose precision.",
        "State data_types.grad_accum_dtype.", _ENGINE,
    ),
    Rule(
        "ds-accumulation", "info", (SHELL,), _written_accumulation,
        "The default changed in 0.17.6; many accumulation steps in bf16 lose precision.",
        "State data_types.grad_accum_dtype.", _ENGINE,
    ),
)  # fmt: skip
