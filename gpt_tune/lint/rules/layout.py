"""Owns rules about the layout a script runs: the trainer's legality, what ZeRO does to stages, missing checks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.kinds import SHELL
from gpt_tune.lint.legality import problems_of
from gpt_tune.lint.project import Project
from gpt_tune.lint.shell.script import words_of
from gpt_tune.lint.shell.tree import Block, Command
from gpt_tune.lint.sweep import Run, runs_from, runs_of
from gpt_tune.lint.training import MEGATRON_DEEPSPEED, allocated_gpus, trainer_of, training_of

_PP = "pipeline-model-parallel-size"
_ZERO_TWO = re.compile(
    r"(?i)zero\w*\}?\"?'?\s*(?:-ge\s*\"?2|-gt\s*\"?1|>=\s*2|>\s*1|==?\s*\"?[23]|-eq\s*\"?[23])"
)
_MODULO = re.compile(r"\(\(.*%.*\)\)|\blet\b.*%|expr\b.*%|python3?\b.*%|\bbc\b.*%|awk.*%")
_LAYOUT_FLAGS = ("tensor-model-parallel-size", _PP, "global-batch-size", "micro-batch-size")


def _illegal(document: Document, project: Project) -> Iterator[Hit]:
    seen: set[str] = set()
    for problem in problems_of(document, training_of(document)):
        seen.add(problem.text)
        yield Hit(document.flags.line(*problem.flags), f"{problem.text} [{problem.rule}]", problem.fix)
    for run in runs_of(document, project):
        for problem in problems_of(document, training_of(document, dict(run.given))):
            if problem.text not in seen:
                seen.add(problem.text)
                line = document.flags.line(*problem.flags)
                yield Hit(line, f"{_where(run)}: {problem.text} [{problem.rule}]", problem.fix)


def _where(run: Run) -> str:
    label = f" ({run.label})" if run.label else ""
    return f"As {run.source.shown}:{run.line} runs it{label}"


def _forced_stage(document: Document) -> tuple[Block, str] | None:
    """The branch that fixes the stages to 1 for ZeRO 2 and 3, and the variable that asks for more."""
    fixed = [
        f
        for f in document.flags.named(_PP)
        if document.script.values.text(f.value) == "1" and any(_ZERO_TWO.search(b.head) for b in f.blocks)
    ]
    asked = [f for f in document.flags.named(_PP) if f.value is not None and f.value.names and f not in fixed]
    if not fixed or not asked or asked[0].value is None:
        return None
    block = next(b for b in fixed[0].blocks if _ZERO_TWO.search(b.head))
    return block, asked[0].value.names[0]


def _effective_stages(document: Document, project: Project) -> Iterator[Hit]:
    forced = _forced_stage(document)
    if forced is None:
        return
    block, name = forced
    for run in runs_of(document, project):
        training = training_of(document, dict(run.given))
        asked = run.given.get(name, document.script.values.variable(name) or "")
        if training.zero_stage is not None and training.zero_stage >= 2 and asked not in ("", "1"):
            yield Hit(
                block.line,
                f"{run.source.shown}:{run.line}{f' ({run.label})' if run.label else ''} asks for {name}={asked} with "
                f"ZeRO-{training.zero_stage}; this branch runs 1 stage, and whatever records {name} records {asked}.",
            )
    reassigned = any(
        s.name == name and any(b.number == block.number for b in s.blocks) for s in document.script.settings
    )
    if reassigned:
        return
    for command in document.script.commands:
        if _records(command, name):
            yield Hit(
                command.line,
                f"${name} is reported as asked for, but from ZeRO-2 on the script runs 1 stage (line {block.line}).",
                f"Set {name}=1 in the branch of line {block.line}.",
            )
            return


def _records(command: Command, name: str) -> bool:
    """Whether a command prints the variable or writes it to a file."""
    if command.name not in ("echo", "printf", "cat", "tee", "jq"):
        return False
    if any(name in w.names for w in words_of(command)):
        return True
    return any(
        r.heredoc is not None and any(p.text == name for p in r.heredoc.parts) for r in command.redirects
    )


def _recorded_request(document: Document, project: Project) -> Iterator[Hit]:
    """A sweep that writes the stages it asked for next to a ZeRO stage that does not allow them."""
    for script in document.scripts:
        for command in script.commands:
            if command.name not in ("echo", "printf"):
                continue
            names = [n for w in command.words for n in w.names]
            stage = next((n for n in names if re.fullmatch(r"(?i)pp|pipeline\w*|pp_size", n)), None)
            zero = next((n for n in names if re.fullmatch(r"(?i)zero\w*", n)), None)
            to_file = any(r.operator in (">", ">>") for r in command.redirects)
            if (
                stage is None
                or zero is None
                or not to_file
                or any(_ZERO_TWO.search(b.head) for b in command.blocks)
            ):
                continue
            if any(
                s.name == stage and any(_ZERO_TWO.search(b.head) for b in s.blocks) for s in script.settings
            ):
                continue
            asked = _asked_for_both(document, project)
            if asked:
                yield Hit(
                    command.line,
                    f"The line records ${stage} as asked for, but {asked}: the trainer cannot run more than 1 stage "
                    "from ZeRO-2 on, so the record is wrong.",
                    f"Record 1 when ${zero} is 2 or 3.",
                )


def _asked_for_both(document: Document, project: Project) -> str:
    """A run of the sweep with ZeRO 2 or 3 and several stages, in words."""
    for _, runs in runs_from(document, project):
        for run in runs:
            zero = next((v for k, v in run.given.items() if "ZERO" in k), "")
            names = [k for k in run.given if k in ("PP", "PP_SIZE") or k.startswith("PIPELINE")]
            stages = run.given[names[0]] if names else "1"
            if zero in ("2", "3") and stages not in ("", "1"):
                return f"line {run.line} asks for {stages} stages with ZeRO-{zero}"
    return ""


def _unchecked(document: Document, project: Project) -> Iterator[Hit]:
    flags = document.flags
    if trainer_of(flags) is None or not (document.script.is_batch or any(document.script.calls("srun"))):
        return
    free = [
        f
        for f in flags.named(*_LAYOUT_FLAGS)
        if f.value is not None and _overridable(document, f.value.names)
    ]
    if len({f.name for f in free}) < 2 or any(_MODULO.search(x) for x in document.lines):
        return
    names = ", ".join(dict.fromkeys(n for f in free if f.value for n in f.value.names))
    yield Hit(
        min(f.line for f in free),
        f"{names} can be set from outside, and nothing checks that they divide the GPUs, heads, layers and batch: "
        "a wrong one fails only after every GPU is allocated.",
        "Check the remainders before srun: (( GLOBAL_BATCH_SIZE % (MICRO_BATCH_SIZE * DP) == 0 )) || exit 2.",
    )


def _overridable(document: Document, names: tuple[str, ...]) -> bool:
    values = document.script.values
    return any(s.overridable for n in names for s in values.by_name.get(n, []))


def _gpu_count(document: Document, project: Project) -> Iterator[Hit]:
    flags = document.flags
    started, allocated = flags.number("nproc-per-node"), allocated_gpus(document)
    if started is not None and allocated is not None and started != allocated and trainer_or_torch(document):
        severity = "error" if started > allocated else "warning"
        yield Hit(
            flags.line("nproc-per-node"),
            f"{started} processes are started on each node, which has {allocated} GPUs for this job.",
            f"Make it {allocated}, or ask for {started} GPUs.",
            "error" if severity == "error" else "warning",
        )
    nodes, directive = flags.number("nnodes"), document.script.directive("nodes", "N")
    if (
        nodes is not None
        and directive is not None
        and directive.value.isdigit()
        and nodes != int(directive.value)
    ):
        yield Hit(
            flags.line("nnodes"),
            f"The launcher is told {nodes} nodes, but #SBATCH asks for {directive.value}.",
            "Use $SLURM_JOB_NUM_NODES.",
        )


def trainer_or_torch(document: Document) -> bool:
    """Whether the script starts processes through a PyTorch launcher."""
    return bool(re.search(r"torchrun|torch\.distributed|accelerate launch|deepspeed", document.text))


def _launcher_per_task(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.batch_scripts():
        directive = script.directive("ntasks-per-node")
        if directive is None or not directive.value.isdigit() or int(directive.value) < 2:
            continue
        for command in script.calls("srun"):
            text = " ".join(script.values.expand(w) for w in command.words)
            launcher = re.search(
                r"\btorchrun\b|-m torch\.distributed\.(?:run|launch)|\baccelerate launch\b", text
            )
            own = re.search(r"--ntasks-per-node[= ]\S+|\s-n\s|--ntasks[= ]|\s-n\d", text)
            processes = re.search(r"--nproc[_-]per[_-]node[= ]\"?(\d+)", text)
            if launcher and not own and (processes is None or processes.group(1) != "1"):
                yield Hit(
                    command.line,
                    f"srun starts {launcher.group()} {directive.value} times on each node (--ntasks-per-node="
                    f"{directive.value}), and each starts its own processes.",
                    "Use --ntasks-per-node=1 with a launcher, or start python directly.",
                )
                break


def _zero_needs_flag(document: Document, project: Project) -> Iterator[Hit]:
    """ZeRO 2 and 3 that can be asked for from outside, in a script that never switches the pipeline engine off."""
    flags = document.flags
    if trainer_of(flags) != MEGATRON_DEEPSPEED or flags.has("no-pipeline-parallel"):
        return
    for flag in flags.live("zero-stage"):
        value = flag.value
        if value is not None and value.names and _overridable(document, value.names):
            yield Hit(
                flag.line,
                f"${value.names[0]} can be set to 2 or 3, which the pipeline engine refuses; the script never passes "
                "--no-pipeline-parallel.",
            )
            return


RULES = (
    Rule(
        "layout-illegal", "error", (SHELL,), _illegal,
        "The trainer asserts it after start-up, when all GPUs are already taken.", "Choose numbers that divide.",
        "gpt_tune.layouts.legality; the rule's name stands in brackets", pairs=True,
    ),
    Rule(
        "effective-stages", "error", (SHELL,), _effective_stages,
        "Results are filed under a layout that did not run.", "Record the value that is used.",
        "DeepSpeed runtime/pipe/engine.py: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
    ),
    Rule(
        "recorded-stages", "error", (SHELL,), _recorded_request,
        "Results are filed under a layout that did not run.", "Record the value that is used.",
        "DeepSpeed runtime/pipe/engine.py: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
    ),
    Rule(
        "unchecked-layout", "warning", (SHELL,), _unchecked,
        "Megatron checks the arithmetic only after start-up.", "Check it in the script, before srun.",
        "Megatron-DeepSpeed megatron/arguments.py validate_args",
    ),
    Rule(
        "gpu-count", "error", (SHELL,), _gpu_count,
        "Processes without a GPU of their own fail; GPUs without a process idle.", "Make both numbers equal.",
        "torchrun documentation; sbatch manual",
    ),
    Rule(
        "launcher-per-task", "error", (SHELL,), _launcher_per_task,
        "Ranks are started several times over and wait for each other.", "Start one launcher per node.",
        "torchrun documentation: one agent per node",
    ),
    Rule(
        "zero-needs-no-pipeline", "warning", (SHELL,), _zero_needs_flag,
        "DeepSpeed's pipeline engine asserts that the stage is below 2.",
        "Pass --no-pipeline-parallel with one stage when ZeRO is 2 or 3.", "DeepSpeed runtime/pipe/engine.py",
    ),
)  # fmt: skip
