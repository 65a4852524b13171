"""Owns what the review says in lines: what runs where, what it costs, what was found, what differs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpt_tune.words import count_words, gpu_hours_words, seconds_words
from tui.widgets.paint import Line
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.workflows.launch import Launch
    from gpt_tune.workflows.reviewing import Checked

SETTINGS = "settings"  # the second tab: not a file, but where each value comes from


def cost_lines(ready: Launch, plan_only: bool, starts: str) -> list[Line]:
    """What runs where, what it costs, and when it could start."""
    spec = ready.spec
    tasks = spec.nodes * spec.tasks_per_node
    what = plural(spec.gpus, "GPU") if spec.gpus else plural(tasks, "process", "processes")
    kind = spec.profile.resources.node or spec.profile.resources.gpu
    where = f"for {kind}, planning only" if plan_only else f"on {spec.site.cluster}"
    size = f"{what} on {plural(spec.nodes, 'node')}"
    takes, rate = _time_words(ready), ready.rate
    costs: Line = [
        ("costs ", ""),
        (_cost_words(ready), "accent"),
        (f", takes {takes}" if takes else "; nobody can tell how long it takes", ""),
    ]
    place = "nothing is written until you say where" if plan_only else f"in {_short_path(spec.run_dir)}"
    return [
        [(f"{spec.profile.recipe} {where}", "strong"), (f"  {size}{_steps_words(ready)}", "")],
        [("costs ", ""), (rate, "accent"), ("; how many, only the data tells", "")] if rate else costs,
        [(f"{starts}; " if starts else "", ""), (place, "muted")],
    ]


def _steps_words(ready: Launch) -> str:
    """How many steps; a job that trains by the clock can only be said to make roughly so many."""
    steps, profile = ready.rendered.prediction.total_steps, ready.spec.profile
    if not steps:
        return ""
    if profile.recipe == "smoke" and profile.smoke.steps is None:
        digits = max(len(str(steps)) - 1, 0)
        return f", roughly {round(steps, -digits):,} steps"
    return f", {count_words(steps)} steps"


def _cost_words(ready: Launch) -> str:
    hours = gpu_hours_words(ready.gpu_hours)
    nodes = ready.node_hours
    if not ready.gpu_hours or nodes is None:
        return hours
    return f"{hours} ({nodes:,.1f} node-hours)" if nodes >= 1 else f"{hours} ({nodes:.2g} node-hours)"


def _time_words(ready: Launch) -> str:
    """How long it is expected to run, with the interval of the step time where there is one."""
    if ready.seconds is None:
        return ""
    prediction = ready.rendered.prediction
    words = f"about {seconds_words(ready.seconds)}"
    step, low, high = prediction.step_seconds, prediction.step_low, prediction.step_high
    if step and low and high and ready.plan is not None:
        ends = (seconds_words(ready.seconds * low / step), seconds_words(ready.seconds * high / step))
        return f"{words} (9 of 10: {ends[0]} to {ends[1]})"
    return words


def _short_path(path: str) -> str:
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def marks(names: Sequence[str], ready: Launch, checked: Checked | None) -> dict[str, str]:
    """The word behind each tab: edited, how many findings, what became of it since the earlier run."""
    found: dict[str, str] = {}
    for name in names:
        words = ["edited"] if name in ready.edited else []
        if checked is not None:
            count = len(checked.in_file(name))
            words += [f"{count}!"] if count else []
            diff = checked.difference.of(name) if checked.difference else None
            if diff is not None and diff.kind == "changed":
                words.append(f"+{diff.added}-{diff.removed}")
            elif diff is not None and diff.kind == "new":
                words.append("new")
        found[name] = " ".join(words)
    return found


def said_lines(ready: Launch, checked: Checked | None) -> list[Line]:
    """What the user should know before going on: warnings, own edits, findings, the earlier run."""
    lines: list[Line] = []
    for path, why in ready.lost:
        text = (
            f"Your change of {path} is left out: {why}. Change the settings back and it returns, or press e."
        )
        lines.append([("! ", "bad"), (text, "bad")])
    if ready.edited:
        lines.append([("Edited by you: ", "accent"), (f"{', '.join(ready.edited)}. u takes it back.", "")])
    lines.append([("Checking the files…", "muted")] if checked is None else _checked_line(checked))
    return lines + [[("! ", "warn"), (w, "warn")] for w in dict.fromkeys(ready.warnings)]


def _checked_line(checked: Checked) -> Line:
    from gpt_tune.workflows.differences import words as difference_words
    from gpt_tune.workflows.file_findings import words as finding_words

    errors = any(f.severity == "error" for f in checked.findings)
    line: list[tuple[str, str]] = [
        ("lint: ", "muted"),
        (finding_words(checked.findings), "bad" if errors else ""),
    ]
    if checked.compared is None:
        return [*line, ("  ·  no earlier run of these choices to compare with", "muted")]
    line += [
        ("  ·  beside ", "muted"),
        (f"{checked.compared.name} {checked.compared.run_id}", ""),
        (": ", "muted"),
    ]
    if checked.difference is None:
        return [*line, (checked.trouble, "warn")]
    changed = checked.difference.changed
    return [*line, (difference_words(changed) if changed else "the same files", "")]


def dry_run_words(ready: Launch) -> str:
    """What Enter would do."""
    size = sum(len(f.content) for f in ready.rendered.files)
    how = "sbatch" if ready.spec.scheduler == "slurm" else "bash, detached"
    files = f"would write {len(ready.rendered.files)} files ({size:,} bytes) to {ready.spec.run_dir}"
    return f"{files} and start {ready.rendered.script} with {how}. Nothing was done."


def in_order(ready: Launch) -> list[str]:
    """The tabs: the job script, the settings, then what is read, then what belongs to the trainer."""
    script = ready.rendered.script
    files = sorted((f.path for f in ready.rendered.files), key=lambda path: _place(path, script))
    return [*files[:1], SETTINGS, *files[1:]]


def _place(path: str, script: str) -> tuple[int, str]:
    kinds = (
        path == script,
        path.endswith(".md"),
        path.endswith((".json", ".toml", ".yaml")),
        "/" not in path,
    )
    return kinds.index(True) if True in kinds else len(kinds), path
