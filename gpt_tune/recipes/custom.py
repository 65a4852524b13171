"""Owns the custom recipe: the user's own script or command, submitted and followed like any other job."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from gpt_tune import rendering
from gpt_tune.errors import UserError
from gpt_tune.models.flops import model_flops
from gpt_tune.profiles.schema import Environment, Profile
from gpt_tune.recipes import directives, preflight, script
from gpt_tune.recipes.base import JobSpec, Prediction, Rendered, RenderedFile

_CONTAINERS = ("pyxis", "apptainer")
_OPERATORS = "|&;<>()"
_LARGEST_SCRIPT = 1_000_000
# The log and the mark must stay where gpt-tune looks for them; the script keeps everything else it asks for.
_OURS = frozenset({"output", "error", "open-mode", "comment", "chdir"})
_REFUSED = {"array": "a job array", "wrap": "a wrapped command", "wait": "waiting for the job's end"}


@dataclass(frozen=True, slots=True)
class _Work:
    """What the job runs: a copy of the script or a command, where, and the script's own #SBATCH options."""

    words: str  # shell words, quoted
    folder: str
    options: dict[str, str]
    file: RenderedFile | None
    title: str


class CustomRecipe:
    """A script with its own #SBATCH lines, or a command line."""

    name = "custom"
    title = "Your own: a job script or a command of yours, submitted and followed"
    planned = False

    def problems(self, profile: Profile) -> list[str]:
        """Sentences about a script or command that cannot be run."""
        custom = profile.custom
        if bool(custom.script) == bool(custom.command):
            both = "custom.script and custom.command exclude each other; keep one."
            neither = "A custom job needs custom.script (a path) or custom.command (a command line)."
            return [both if custom.script else neither]
        try:
            _script_text(custom.script) if custom.script else command_words(custom.command)
        except UserError as error:
            return [str(error)]
        return []

    def render(self, spec: JobSpec) -> Rendered:
        """Files of the job: ours around a copy of theirs."""
        problems = self.problems(spec.profile)
        if problems:
            raise UserError(problems[0], "Change it in the profile.")
        work = _work(spec)
        spec = _without_container(spec, work)
        nodes = directives.whole(work.options, "nodes") or spec.nodes
        gpus = directives.gpus_per_node(work.options)
        look = preflight.look(spec, automatic=False)
        if look is not None and gpus is not None:
            look = replace(look, gpus=gpus, nodes=nodes)
        values = script.common_values(spec, look=look)
        variables = script.variables(spec)
        job = rendering.render(
            "custom/job.sbatch.j2",
            **values,
            sbatch=_sbatch_options(spec, work),
            headline=work.title,
            variables=variables,
            work=work,
        )
        files = [RenderedFile(script.SCRIPT, job, executable=True), *preflight.files(look)]
        if work.file is not None:
            files.append(work.file)
        files.append(RenderedFile("README.md", _readme(spec, work)))
        return Rendered(
            script=script.SCRIPT,
            files=tuple(files),
            log_paths=(script.log_pattern(spec),),
            prediction=_prediction(spec),
            summary={
                "name": work.options.get("job-name") or script.job_name(spec),
                "recipe": self.name,
                "ranks": script.ranks(spec),
                "nodes": nodes,
                "gpus": spec.gpus if gpus is None else gpus * nodes,
                "headline": work.title,
                "log_format": spec.profile.custom.log_format,
                "environment": script.described(variables),
                "warnings": [],
            },
        )


def command_words(command: str) -> list[str]:
    """The words of a command line, without a shell: what would need one is refused, not passed on as text."""
    quote = ""
    escaped = False
    for character in command:
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            if quote == '"' and character in "$`":
                raise _needs_shell(character)
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in _OPERATORS or character in "$`\n\r":
            raise _needs_shell(character)
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError("custom.command has an unclosed quote.", "Close it.") from error
    if not words:
        raise UserError("custom.command is empty.", "Write the command the job should run.")
    return words


def _needs_shell(character: str) -> UserError:
    shown = {"\n": "a line break", "\r": "a line break"}.get(character, repr(character))
    return UserError(
        f"custom.command holds {shown}, which only a shell understands.",
        "Quote it, write bash -c '...', or put the lines in a script and name that in custom.script.",
    )


def _script_text(path: str) -> str:
    file = Path(path).expanduser()
    try:
        if file.stat().st_size > _LARGEST_SCRIPT:
            raise UserError(f"The script {file} has more than 1 MB.", "That is not a job script.")
        text = file.read_bytes().decode("utf-8")  # line ends as they are
    except (OSError, ValueError) as error:
        raise UserError(f"The script {path!r} cannot be read: {error}.", "Check the path.") from error
    if not text.startswith("#!"):
        raise UserError(
            f"The script {path} does not start with #!, so sbatch would refuse it.",
            "Make #!/bin/bash its first line.",
        )
    if "\r\n" in text:
        raise UserError(f"The script {path} has Windows line ends.", "Convert it: sed -i 's/\\r$//' FILE")
    for name, words in _REFUSED.items():
        if name in directives.read(text):
            raise UserError(
                f"The script {path} asks for {words} (--{name}), which gpt-tune does not follow.",
                "Submit it with sbatch itself, and watch the job by its id.",
            )
    return text


def _work(spec: JobSpec) -> _Work:
    custom = spec.profile.custom
    if custom.command:
        words = command_words(custom.command)
        return _Work(
            words=" ".join(rendering.quote(w) for w in words),
            folder=spec.run_dir,
            options={},
            file=None,
            title="A command of the user's own; README.md shows it.",
        )
    text = _script_text(custom.script)
    path = Path(custom.script).expanduser().absolute()
    copy = f"user/{rendering.slug(path.name, 'script')}"
    return _Work(
        words='"$RUN_DIR"/' + rendering.quote(copy),
        folder=str(path.parent),
        options=directives.read(text),
        file=RenderedFile(copy, text.encode("utf-8"), executable=True),
        title="A script of the user's own; its copy is in user/.",
    )


def _without_container(spec: JobSpec, work: _Work) -> JobSpec:
    """A script starts its own containers; a command can be put into an apptainer image, not a pyxis one."""
    kind = spec.site.environment.kind
    if kind not in _CONTAINERS:
        return spec
    if work.file is None:
        if kind == "pyxis":
            raise UserError(
                "A custom command cannot be put into a pyxis image: it runs once, outside srun.",
                "Write a script with srun --container-image=... and name it in custom.script.",
            )
        return spec
    host = Environment(variables=spec.site.environment.variables)
    return replace(spec, site=replace(spec.site, environment=host))


def _sbatch_options(spec: JobSpec, work: _Work) -> list[str]:
    """Ours, and the script's own over them, one a line; sbatch lets the last win."""
    theirs = {k: v for k, v in work.options.items() if k not in _OURS}
    own_size = {"nodes", "ntasks", "ntasks-per-node", "gres", "gpus", "gpus-per-node", "gpus-per-task"}
    ours = script.sbatch_options(spec, whole_nodes=False, requeue=False)
    if work.file is not None:
        # A script that was not written for an early warning would die of it.
        ours = [o for o in ours if not o.startswith(("--signal=", "--requeue", "--no-requeue"))]
    if own_size & theirs.keys():
        dropped = tuple(f"--{name}=" for name in own_size)
        ours = [o for o in ours if not o.startswith(dropped)]
    ours = [o for o in ours if o[2:].partition("=")[0] not in theirs]
    return ours + [
        rendering.sbatch_option(k, v or None) if len(k) > 1 else f"-{k}{v}" for k, v in theirs.items()
    ]


def _prediction(spec: JobSpec) -> Prediction:
    """Only what follows from the model and a stated batch; nobody knows how the script spreads them."""
    batch = spec.profile.training.global_batch_size
    seq_length = spec.profile.model.seq_length or spec.model.seq_length
    if batch is None:
        return Prediction(source="nothing is predicted for a job of the user's own")
    tokens = batch * seq_length
    return Prediction(
        model_flops_per_step=model_flops(spec.model, seq_length, tokens),
        tokens_per_step=tokens,
        total_steps=spec.profile.training.iterations,
        source="the profile's model, batch and sequence length; no time is predicted for a job of the user's own",
    )


def _readme(spec: JobSpec, work: _Work) -> bytes:
    custom = spec.profile.custom
    facts = [
        ("profile", spec.profile.name or "(unnamed)"),
        ("script", custom.script) if custom.script else ("command", custom.command),
        ("runs in", work.folder),
        ("model", spec.model.id),
        ("where", script.where_words(spec)),
        ("log format", custom.log_format),
    ]
    own = [("user/", "a copy of the script")] if work.file else []
    return rendering.render(
        "custom/README.md.j2",
        name=spec.profile.name or "Custom job",
        headline=work.title,
        run_id=spec.run_id,
        facts=facts,
        overrides=[],
        rechecked="",
        from_script=work.file is not None,
        files=[
            ("job.sbatch", "the job: the script's own #SBATCH lines, and what gpt-tune needs to follow it"),
            *own,
        ],
    )
