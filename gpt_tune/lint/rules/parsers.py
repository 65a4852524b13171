"""Owns rules about Python scripts that read training logs: wrong FLOPs, invented layouts, lines they miss."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from gpt_tune.lint import kinds
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.formula import SAMPLE, Formula, formulas
from gpt_tune.lint.project import Project
from gpt_tune.lint.rules.slurm import long_name
from gpt_tune.lint.training import trainer_of

_NARAYANAN = "Narayanan et al., arXiv 2104.04473, equation 3; gpt_tune.models.flops"
# 72 with the backward pass, 96 with full recompute; a share of attention, causal or not, moves it a little.
_LOW, _HIGH = 0.62, 1.75
_LAYOUT = {
    "tp", "pp", "zero", "zero_stage", "mbs", "gbs", "micro_batch_size", "global_batch_size", "seq_length", "seq_len",
    "tensor_parallel", "pipeline_parallel", "nodes", "num_nodes", "gpus_per_node",
}  # fmt: skip
_SHAPE = {"hidden_size", "hidden", "num_layers", "layers", "num_heads", "num_attention_heads", "vocab_size"}


def _flops(document: Document, project: Project) -> Iterator[Hit]:
    if document.python is None:
        return
    trains = re.search(r"(?i)train|iteration|\bloss\b", document.text)
    for formula in formulas(document.python):
        short = "layers" not in formula.used
        if short and not trains:
            continue  # 2 FLOPs a parameter and token are right for inference
        ratio = _units(formula.value / (_short_reference(formula) if short else _reference(formula)))
        if not 1 / 32 <= ratio <= 32 or _LOW <= ratio <= _HIGH:
            continue
        times = f"{1 / ratio:.1f} times too low" if ratio < 1 else f"{ratio:.1f} times too high"
        if short:
            yield Hit(
                formula.line,
                f"This FLOPs formula is {times}: training takes 6 FLOPs a parameter and token (8 with full recompute), "
                f"here it is {6 * ratio:.3g}.",
                "Use 6 * parameters * tokens.",
            )
            continue
        yield Hit(
            formula.line,
            f"This FLOPs formula is {times}: forward and backward of a GPT layer are 72 x batch x sequence x hidden^2 "
            f"(96 with full recompute); here the factor amounts to {72 * ratio:.3g}.",
            "Use 72 * B * s * L * h**2 * (1 + s / (6 * h) + V / (12 * h * L)), or with full recompute 96 and "
            "V / (16 * h * L).",
        )


def _reference(formula: Formula) -> float:
    """What the formula should give for the sample numbers, without recompute."""
    h, n, s = SAMPLE["hidden"], SAMPLE["layers"], SAMPLE["seq"]
    batch = SAMPLE["batch"] if "batch" in formula.used else 1.0
    vocabulary = SAMPLE["vocab"] / (12 * n * h) if "vocab" in formula.used else 0.0
    return 72 * batch * s * n * h * h * (1 + s / (6 * h) + vocabulary)


def _short_reference(formula: Formula) -> float:
    tokens = SAMPLE["tokens"] if "tokens" in formula.used else SAMPLE["batch"] * SAMPLE["seq"]
    return 6 * SAMPLE["parameters"] * tokens


def _units(ratio: float) -> float:
    """The ratio without its powers of a thousand, which are units: TFLOPS, milliseconds."""
    return float(ratio / 1000.0 ** round(math.log(ratio, 1000)))


def _fixed_shape(document: Document, project: Project) -> Iterator[Hit]:
    """Shape figures that a rate is worked out from and nobody can give."""
    if document.python is None or not re.search(r"(?i)tflops", document.text):
        return
    options = _options(document.python)
    for function in ast.walk(document.python):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not re.search(
            r"(?i)flop", ast.unparse(function)
        ):
            continue
        fixed = [(n, v, line) for n, v, line in _constants(function) if n in _SHAPE and n not in options]
        names = {n for n, _, _ in fixed}
        if len(names) < 2 or _passed_by_callers(document.python, function.name, names):
            continue
        words = ", ".join(f"{n}={v}" for n, v, _ in fixed[:4])
        yield Hit(
            fixed[0][2],
            f"{words} are built in: for any other model the TFLOPS are wrong without a word.",
            "Read them from the log's argument dump, or make them options without defaults.",
        )
        return


def _constants(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, int, int]]:
    """Whole-number defaults of parameters and constants assigned in a function."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults = function.args.defaults
    pairs = list(zip(arguments[len(arguments) - len(defaults) :], defaults))
    pairs += [(a, d) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults) if d is not None]
    for argument, default in pairs:
        if _is_number(default):
            yield argument.arg, default.value, default.lineno  # type: ignore[attr-defined]
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_number(node.value):
            yield node.targets[0].id, node.value.value, node.lineno  # type: ignore[attr-defined]


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool)


def _passed_by_callers(tree: ast.Module, name: str, wanted: set[str]) -> bool:
    """Whether every call of a function gives these arguments by name."""
    calls = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and getattr(n.func, "id", getattr(n.func, "attr", "")) == name
    ]
    return bool(calls) and all(
        wanted <= {k.arg for k in c.keywords} or len(c.args) > len(wanted) for c in calls
    )


def _options(tree: ast.Module) -> set[str]:
    """Names of command-line options, with `_` for `-`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("add_argument", "option"):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    found.add(argument.value.lstrip("-").replace("-", "_"))
    return found


def _invented_layout(document: Document, project: Project) -> Iterator[Hit]:
    """Layout figures in the result that come from constants because nothing tells the script the real ones."""
    if document.python is None:
        return
    options = _options(document.python)
    reads_log = any("log" in o or "file" in o for o in options)
    if not reads_log:
        return
    fixed: dict[str, tuple[int, int]] = {}
    for function in ast.walk(document.python):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for name, value, line in _constants(function):
                if name in _LAYOUT and not _alternatives(name) & options:
                    fixed.setdefault(name, (value, line))
    for name, value, line in _dict_constants(document.python):
        if name in _LAYOUT and not _alternatives(name) & options:
            fixed.setdefault(name, (value, line))
    written = {
        n
        for n in fixed
        if re.search(rf"[\"']{n}[\"']\s*[:\]]|[\"']\w*{n}\w*[\"']\s*:\s*{n}\b", document.text)
    } or (set(fixed) if re.search(r"json\.dump|csv\.writer|DictWriter|to_csv", document.text) else set())
    if len(fixed) < 3 or not written or _all_given(document.python, fixed):
        return
    words = ", ".join(f"{n}={v}" for n, (v, _) in list(fixed.items())[:6])
    yield Hit(
        min(line for _, line in fixed.values()),
        f"{words} go into the result as constants: no option and no line of the log says what really ran.",
        "Read them from the log's argument dump or take them as required options; write null when unknown.",
    )


def _dict_constants(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Whole-number constants under fixed keys of dictionaries."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, item in zip(node.keys, node.values):
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and _is_number(item):
                    yield key.value, item.value, item.lineno  # type: ignore[attr-defined]


def _alternatives(name: str) -> set[str]:
    """Option names that could carry a layout figure."""
    groups = (
        {"tp", "tensor_parallel", "tensor_model_parallel_size"},
        {"pp", "pipeline_parallel", "pipeline_model_parallel_size"},
        {"zero", "zero_stage"},
        {"mbs", "micro_batch_size", "micro_batch"},
        {"gbs", "global_batch_size", "global_batch"},
        {"seq_length", "seq_len", "sequence_length"},
        {"nodes", "num_nodes", "nnodes"},
        {"gpus_per_node", "gpus"},
    )
    return next((g for g in groups if name in g), {name})


def _all_given(tree: ast.Module, fixed: dict[str, tuple[int, int]]) -> bool:
    """Whether every function that has these as defaults is always called with all of them."""
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        own = (
            {n for n, _, _ in _constants(function)}
            & fixed.keys()
            & {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}
        )
        if own and not _passed_by_callers(tree, function.name, own):
            return False
    return not any(isinstance(n, ast.Dict) for n in ast.walk(tree))


# -- lines of the log ----------------------------------------------------------------------------------------


_MATCHES = frozenset(
    {"compile", "search", "match", "findall", "finditer", "fullmatch", "split", "index", "find"}
)


def _searched(tree: ast.Module) -> list[ast.Constant]:
    """Texts that the script looks for in lines: arguments of regular expressions, and left sides of `in`."""
    found: list[ast.Constant] = []
    for node in ast.walk(tree):
        given: list[ast.expr] = []
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _MATCHES:
            given = list(node.args[:1])
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            given = [node.left]
        for item in given:
            found += [n for n in ast.walk(item) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return found


def _misses_nan(document: Document, project: Project) -> Iterator[Hit]:
    if document.python is None:
        return
    texts = _searched(document.python)
    loss = next((t for t in texts if re.search(r"lm[\s_\\+*]*s?[\s_\\+*]*loss", str(t.value))), None)
    iteration = any(re.search(r"iteration|elapsed", str(t.value)) for t in texts)
    counted = re.search(r"nan[\s\\+*_]*s?[\s\\+*_]*iter|skipped[\s\\+*_]*s?[\s\\+*_]*iter", document.text)
    if loss is None or not iteration or counted:
        return
    yield Hit(
        loss.lineno,
        "Steps are read by their lm loss, which Megatron prints only when it is above zero: NaN and skipped steps "
        "vanish, and 'number of nan iterations' and 'number of skipped iterations' are not read.",
        "Read both counters, and report steps without a loss.",
    )


def _log_name(document: Document, project: Project) -> Iterator[Hit]:
    """A file name that the script looks for and no job writes."""
    if document.python is None:
        return
    for node in ast.walk(document.python):
        prefix = _name_prefix(node)
        if prefix is None:
            continue
        others = [
            j for j in _job_names(document, project) if not (prefix.startswith(j) or j.startswith(prefix))
        ]
        if not others:
            continue
        names = ", ".join(sorted(set(others))[:3])
        yield Hit(
            getattr(node, "lineno", 1),
            f"It looks for logs named {prefix}..., but jobs here are named {names}: the logs are missed or guessed.",
            f"Submit with --job-name={prefix}NAME, or look for the name the job has.",
        )
        return


def _shell_misses_nan(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        if re.search(r"nan iter|skipped iter", script.text):
            continue
        for command in script.calls("grep", "egrep", "awk", "sed"):
            if any("lm loss" in w.source for w in command.words):
                yield Hit(
                    command.line,
                    "Steps are read by their lm loss, which Megatron leaves out when it is NaN; the counts of NaN and "
                    "skipped iterations are not read.",
                    "Read 'number of nan iterations' too.",
                )
                return


def _name_prefix(node: ast.AST) -> str | None:
    """The fixed start of an f-string that names a job's log: f"sweep_{name}_{id}.out"."""
    if not isinstance(node, ast.JoinedStr) or len(node.values) < 3:
        return None
    first, last = node.values[0], node.values[-1]
    if not isinstance(first, ast.Constant) or not isinstance(last, ast.Constant):
        return None
    start, end = str(first.value), str(last.value)
    return (
        start if re.fullmatch(r"[\w.-]{3,}[_-]", start) and re.fullmatch(r"\.(?:out|log|err)", end) else None
    )


def _job_names(document: Document, project: Project) -> Iterator[str]:
    """Names that jobs near a parse script get: by directive, or by what a submitting command says."""
    scripts = project.near(document, kinds.SHELL)
    training = [d for d in scripts if trainer_of(d.flags) is not None]
    for other in training or scripts:
        directive = next((d for d in other.script.directives if long_name(d) == "job-name"), None)
        if directive is None:
            continue
        submitters = {id(s.source): s.source for s in project.submissions_of(other) if s.is_sbatch}
        if not submitters:
            yield directive.value
        for submitter in submitters.values():
            match = re.search(r"--job-name[= ]\"?'?([\w.-]+)", submitter.text)
            yield match.group(1) if match is not None else directive.value


_PYTHON = (kinds.PYTHON,)
RULES = (
    Rule(
        "tflops-formula", "error", _PYTHON, _flops, "Every number that comes out of it is wrong by the same factor.",
        "Use the factor 72 (96 with full recompute).", _NARAYANAN,
    ),
    Rule(
        "shape-built-in", "warning", _PYTHON, _fixed_shape, "The figures are of one model only.",
        "Make them options.", "awsome-distributed-training PR 1009",
    ),
    Rule(
        "layout-invented", "error", _PYTHON, _invented_layout,
        "Results are filed under a layout that did not run.", "Read the layout, or write null.",
        "awsome-distributed-training PR 1009",
    ),
    Rule(
        "nan-steps-missed", "warning", _PYTHON, _misses_nan, "A diverged run looks like a short healthy one.",
        "Read the counters.",
        "Megatron-DeepSpeed megatron/training.py: the loss is printed when its average is above 0",
    ),
    Rule(
        "nan-steps-missed", "info", (kinds.SHELL, kinds.MAKE), _shell_misses_nan,
        "A diverged run looks like a short healthy one.", "Read the counters.",
        "Megatron-DeepSpeed megatron/training.py",
    ),
    Rule(
        "log-name", "warning", _PYTHON, _log_name, "Results are taken from another job's log, or from none.",
        "Make the names agree.", "awsome-distributed-training PR 1009",
    ),
)  # fmt: skip
