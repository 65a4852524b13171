"""Owns the rule that compares the size a model is called with the size it has."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.kinds import MARKDOWN, PYTHON, SHELL
from gpt_tune.lint.project import Project
from gpt_tune.lint.training import training_of
from gpt_tune.models.shape import ModelShape
from gpt_tune.words import count_words

# Names are rounded: gemma-7b has 8.5B. Below a billion the vocabulary decides.
_TOLERANCE = 0.2
_TOLERANCE_SMALL = 0.35
_LABEL = re.compile(r"(?<![\w.])~?(\d{1,4}(?:\.\d{1,2})?)[ _-]?(b|m|t|billion|million|trillion)(?![a-z0-9])")
_IN_NAMES = re.compile(r"(?:^|[-_./ ])(\d{1,4}(?:[.p]\d{1,2})?)(b|m|t)(?=$|[-_./ ])")
_MODEL_WORDS = re.compile(r"(?i)param|model|gpt|llama|\bsize\b|pretrain|architecture")
# From Llama 2's to Gemma's.
_VOCABULARIES = (32_000, 128_256, 262_144)
# Shapes for trying something out keep the name of the model they stand in for.
_FEWEST_LAYERS = 10
_TRIAL = re.compile(r"(?i)(?<![a-z])(?:tests?|debug|short|toy|smoke|tiny|mock|benchmark-model)(?![a-z])")
_NOT_A_SIZE = re.compile(
    r"(?i)e\.g|for example|such as|token|byte|\bgb\b|\bmb\b|words|samples|corpus|dataset|\bdata\b"
)
_SCALE = {"b": 1e9, "billion": 1e9, "m": 1e6, "million": 1e6, "t": 1e12, "trillion": 1e12}
_README_NUMBERS = {
    "layers": re.compile(r"(?i)(\d{1,3})[ -]*(?:transformer )?layers?\b|\blayers?\b[ =:]*(\d{1,3})\b"),
    "hidden": re.compile(
        r"(?i)hidden(?:[ _-]*(?:size|dim(?:ension)?|width))?[ =:]*(?:of )?(\d[\d,]{2,6})|(\d[\d,]{2,6})[ -]hidden"
    ),
    "heads": re.compile(
        r"(?i)(?:attention[ _-]*)?heads?[ =:]*(\d{1,3})\b|(\d{1,3})[ -]*(?:attention )?heads?\b"
    ),
    "ffn": re.compile(
        r"(?i)(?:ffn|feed[ -]?forward|mlp|intermediate)\w*(?:[ _-]*(?:hidden|size|dim))*[ =:]*(\d[\d,]{2,6})"
    ),
}


def _size(document: Document, project: Project) -> Iterator[Hit]:
    training = training_of(document)
    shape = training.shape() if training.plain_gpt else None
    if shape is None or shape.layers < _FEWEST_LAYERS or _TRIAL.search(document.path.stem):
        return
    known = training.vocab is not None or document.flags.has("merge-file")
    yield from _judge(shape, _script_labels(document), known)


def _script_labels(document: Document) -> list[tuple[float, str, int]]:
    """Sizes that a script calls its model: in its own name or its job's, else in comments that agree."""
    found = [
        (v, x, document.flags.line("num-layers", "hidden-size"))
        for v, x in _sizes(document.path.stem, _IN_NAMES)
    ]
    for directive in document.script.directives:
        if directive.name in ("job-name", "J"):
            found += [(v, x, directive.line) for v, x in _sizes(directive.value, _IN_NAMES)]
    said: list[tuple[float, str, int]] = []
    for comment in document.script.comments:
        if comment.alone and _MODEL_WORDS.search(comment.text) and not _NOT_A_SIZE.search(comment.text):
            said += [(v, x, comment.line) for v, x in _sizes(comment.text, _LABEL)]
    # Comments that name several sizes offer a choice.
    agree = len({round(math.log(v), 1) for v, _, _ in said}) == 1
    return found + said if agree or not said else found


def _sizes(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[float, str]]:
    for match in pattern.finditer(text.lower()):
        value = float(match.group(1).replace("p", ".")) * _SCALE[match.group(2)]
        if 1e7 <= value <= 1e13:
            yield value, match.group().strip(" -_./")


def _judge(
    shape: ModelShape, labels: list[tuple[float, str, int]], vocab_known: bool = True
) -> Iterator[Hit]:
    """A hit when no label is near the real size, whatever the vocabulary where that is not fixed."""
    from gpt_tune.models.parameters import total

    actual = total(shape)
    sizes = [actual] if vocab_known else [actual, *(total(replace(shape, vocab=v)) for v in _VOCABULARIES)]
    if not labels or any(abs(s / v - 1) <= _tolerance(s, x) for v, x, _ in labels for s in sizes):
        return
    value, text, line = min(labels, key=lambda x: abs(math.log(x[0] / actual)))
    if _known_by(shape, value):
        return
    lines = ", ".join(dict.fromkeys(str(n) for v, _, n in labels if v == value))
    yield Hit(
        line,
        f"Called {text} (line {lines}), but {shape.layers} layers x {shape.hidden} hidden are "
        f"{count_words(actual)} parameters, {actual / value:.3g} times that.",
        f"Rename it, or change the shape: {_closest_layers(shape, value)}.",
    )


def _tolerance(size: float, label: str) -> float:
    """How far a label may be off: a whole number of billions is a rounded one, 1.3B is often called 1b."""
    least = _TOLERANCE if size >= 1e9 else _TOLERANCE_SMALL
    whole = re.match(r"~?(\d+)[ _-]?[a-z]", label)
    return max(least, 0.5 / int(whole.group(1))) if whole is not None and int(whole.group(1)) else least


def _known_by(shape: ModelShape, value: float) -> bool:
    """Whether a published model of this very shape goes by that size."""
    return any(
        (m.layers, m.hidden, m.heads) == (shape.layers, shape.hidden, shape.heads)
        and any(abs(v / value - 1) < 0.02 for v, _ in _sizes(m.id.replace("-", " "), _LABEL))
        for m in _catalogue()
    )


@lru_cache(maxsize=1)
def _catalogue() -> tuple[ModelShape, ...]:
    from gpt_tune.models.catalogue import all_models

    return tuple(all_models())


def _closest_layers(shape: ModelShape, value: float) -> str:
    from gpt_tune.models.parameters import layer, total

    rest = total(shape) - shape.layers * layer(shape).total
    layers = max(1, round((value - rest) / layer(shape).total))
    return f"{count_words(value)} at this width is {layers} layers"


def _readme(document: Document, project: Project) -> Iterator[Hit]:
    for line, text in document.markdown.prose:
        shape = _shape_in(text)
        if shape is None:
            continue
        labels = [(v, t, line) for v, t in _sizes(text, _LABEL)]
        yield from _judge(shape, labels[:1])


def _shape_in(text: str) -> ModelShape | None:
    """The model a sentence describes with layers, width and heads."""
    found: dict[str, int] = {}
    for name, pattern in _README_NUMBERS.items():
        match = pattern.search(text)
        if match is not None:
            found[name] = int(next(g for g in match.groups() if g).replace(",", ""))
    if (
        not {"layers", "hidden", "heads"} <= found.keys()
        or not found["heads"]
        or found["hidden"] % found["heads"]
    ):
        return None
    if re.search(r"(?i)kv[- _]?heads|gqa|experts?\b|moe\b|llama|mistral|qwen|gemma", text):
        return None
    return ModelShape(
        id="readme", layers=found["layers"], hidden=found["hidden"], heads=found["heads"], kv_heads=found["heads"],
        ffn=found.get("ffn", 4 * found["hidden"]), vocab=50257, seq_length=2048,
        head_size=found["hidden"] // found["heads"],
    )  # fmt: skip


def _python(document: Document, project: Project) -> Iterator[Hit]:
    """A parse script that names a model beside the numbers of its shape."""
    text = document.text
    found: dict[str, int] = {}
    for name, pattern in (
        ("layers", r"\bnum_layers\s*(?::\s*int\s*)?=\s*(\d+)"),
        ("hidden", r"\bhidden(?:_size|_dim)?\s*(?::\s*int\s*)?=\s*(\d+)"),
        ("heads", r"\bnum_(?:attention_)?heads\s*(?::\s*int\s*)?=\s*(\d+)"),
    ):
        match = re.search(pattern, text, re.IGNORECASE)
        if match is not None:
            found[name] = int(match.group(1))
    if {"layers", "hidden"} > found.keys() or not found.get("hidden"):
        return
    heads = found.get("heads") or max(1, found["hidden"] // 128)
    if not found["layers"] or found["hidden"] % heads:
        return
    labels: list[tuple[float, str, int]] = []
    for match in re.finditer(r"[\"']([\w.-]*(?:gpt|model|llama)[\w.-]*)[\"']", text, re.IGNORECASE):
        labels += [(v, t, document.line_at(match.start())) for v, t in _sizes(match.group(1), _IN_NAMES)]
    shape = ModelShape(
        id="script", layers=found["layers"], hidden=found["hidden"], heads=heads, kv_heads=heads,
        ffn=4 * found["hidden"], vocab=50257, seq_length=2048, head_size=found["hidden"] // heads,
    )  # fmt: skip
    yield from _judge(shape, labels)


_WHY = "Memory, time and every comparison are planned for another model."
_SOURCE = "gpt_tune.models.parameters; awsome-distributed-training PR 1009 calls 145.6B parameters 103B"
RULES = (
    Rule("size-label", "error", (SHELL,), _size, _WHY, "Name the size it has.", _SOURCE),
    Rule("size-label", "error", (MARKDOWN,), _readme, _WHY, "Name the size it has.", _SOURCE),
    Rule("size-label", "error", (PYTHON,), _python, _WHY, "Name the size it has.", _SOURCE),
)
