"""Owns what every job script has in common: scheduler options, software, variables, file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpt_tune import rendering
from gpt_tune.errors import UserError, nearest
from gpt_tune.profiles.schema import Environment
from gpt_tune.recipes import network, slurm_time
from gpt_tune.recipes.base import JobSpec, RenderedFile
from gpt_tune.recipes.preflight import Look

SCRIPT = "job.sbatch"
_KINDS = ("host", "venv", "conda", "modules", "pyxis", "apptainer")
# Options that decide where output goes and how a job is found again: they stay ours.
_OURS = frozenset(
    {"array", "chdir", "comment", "error", "job-name", "open-mode", "output", "parsable", "signal"}
    | {"test-only", "wait", "wrap"}
)


def job_name(spec: JobSpec) -> str:
    """The job's name in the scheduler's lists and in log file names."""
    return rendering.slug(spec.profile.name, spec.profile.recipe)


def ranks(spec: JobSpec) -> int:
    """Processes of the job: one a GPU, one a node without GPUs."""
    return spec.nodes * spec.tasks_per_node


def log_pattern(spec: JobSpec) -> str:
    """The log's absolute path with the scheduler's patterns in it."""
    return f"{spec.run_dir}/{rendering.LOG_FOLDER}/%x-%j.out"


def sbatch_options(spec: JobSpec, *, whole_nodes: bool, requeue: bool) -> list[str]:
    """The `#SBATCH` options of a job, one a line. whole_nodes: share no node with other jobs."""
    site = spec.site
    option = rendering.sbatch_option
    lines = [
        option("job-name", job_name(spec)),
        option("comment", spec.token),
        option("output", log_pattern(spec)),
        option("open-mode", "append"),
        option("chdir", rendering.run_folder(spec.run_dir)),
        option("nodes", spec.nodes),
        option("ntasks", ranks(spec)),
        option("ntasks-per-node", spec.tasks_per_node),
        option("signal", f"B:USR1@{slurm_time.warning_seconds(site.time_limit)}"),
        option("requeue" if requeue else "no-requeue"),
    ]
    if spec.gpus > 0:
        gpu_type = f"{spec.gpu_type}:" if spec.gpu_type else ""
        lines.append(option("gres", f"gpu:{gpu_type}{spec.gpus_per_node}"))
    if whole_nodes:
        lines += [option("exclusive"), option("mem", 0)]
    named = {
        "partition": spec.profile.resources.partition or site.partition,
        "account": site.account,
        "qos": site.qos,
        "time": site.time_limit,
        "exclude": ",".join(site.exclude_nodes),
    }
    lines += [option(name, value) for name, value in named.items() if value]
    return lines + [extra_option(text) for text in site.extra_sbatch]


def extra_option(text: str) -> str:
    """A `#SBATCH` option of the site's own, checked and quoted: "--constraint=a&b"."""
    match = re.fullmatch(r"--([a-z][a-z0-9-]*)(?:[= ](.*))?", text.strip(), re.DOTALL)
    if match is None:
        raise UserError(
            f"The extra sbatch option {text[:60]!r} is not of the form --name or --name=value.",
            "Write its long form.",
        )
    name, value = match.groups()
    if name in _OURS:
        raise UserError(
            f"--{name} cannot be an extra sbatch option: gpt-tune sets it to find the job and its log again.",
            "Remove it from the site's extra options.",
        )
    if value and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return rendering.sbatch_option(name, value)


def check_environment(environment: Environment) -> list[str]:
    """Sentences about an environment that cannot work."""
    kind = environment.kind
    if kind not in _KINDS:
        close = nearest(kind, _KINDS)
        return [f"Unknown environment kind {kind!r}." + (f" Did you mean {close!r}?" if close else "")]
    if kind in ("venv", "conda") and not environment.path:
        return [f"The {kind} environment has no path."]
    if kind in ("pyxis", "apptainer") and not environment.image:
        return [f"The {kind} environment has no image."]
    if kind == "modules" and not environment.modules:
        return ["The module environment lists no modules."]
    return [f"The mount {m!r} holds a comma, which separates mounts." for m in environment.mounts if "," in m]


def fixed_variables(spec: JobSpec) -> list[tuple[str, str]]:
    """Variables the site or profile asks for: always set."""
    return [(rendering.variable_name(n), v) for n, v in spec.site.environment.variables.items()]


def variables(spec: JobSpec, extra: Iterable[network.Variable] = ()) -> list[tuple[str, str, str]]:
    """Variables a job is better off with, as (name, value, why); the user's own win."""
    own = spec.site.environment.variables
    known = (*extra, *network.variables(spec.site, spec.nodes, spec.gpus))
    return [(v.name, v.value, v.why) for v in known if v.name not in own]


def mounts(spec: JobSpec, also: Iterable[str] = ()) -> list[str]:
    """Folders a container sees: the run folder, what the recipe needs, and the site's own.

    also: absolute paths; one that a mount of the site shows already is left to it, since it is the container's path.
    """
    own = spec.site.environment.mounts
    shown = [m.split(":")[1 if ":" in m else 0].rstrip("/") for m in own]
    needed = [
        p
        for p in (spec.run_dir, *also)
        if p.startswith("/") and not any(f"{p}/".startswith(f"{s}/") for s in shown)
    ]
    for path in (*needed, *own):
        rendering.single_line(path, "A container mount")
        if "," in path or (path in needed and ":" in path):
            raise UserError(
                f"The mount {path!r} holds a comma or a colon, which separate mounts.", "Use another folder."
            )
    return list(dict.fromkeys([*(f"{p}:{p}" for p in needed), *(m if ":" in m else f"{m}:{m}" for m in own)]))


def common_values(spec: JobSpec, also_mount: Iterable[str] = (), look: Look | None = None) -> dict[str, Any]:
    """What `common/job.sbatch.j2` and `common/preflight.j2` ask for, except `sbatch`, `headline` and `variables`."""
    environment = spec.site.environment
    problems = check_environment(environment)
    if problems:
        raise UserError(problems[0], "Change the site's environment.")
    for text in (environment.image, environment.path, *environment.modules):
        rendering.single_line(text, "The environment")
    pyxis, apptainer = environment.kind == "pyxis", environment.kind == "apptainer"
    bound = ",".join(mounts(spec, also_mount)) if pyxis or apptainer else ""
    prefix = ""
    if apptainer:
        words = ["apptainer", "exec", *(["--nv"] if spec.gpus else []), "--bind", bound, environment.image]
        prefix = " ".join(rendering.quote(w) for w in words) + " "
    return {
        "run_dir": rendering.run_folder(spec.run_dir),
        "token": _token(spec.token),
        "umask": "007" if spec.site.group else "077",
        "ranks": ranks(spec),
        "environment": environment,
        "fixed_variables": fixed_variables(spec),
        "container_image": environment.image if pyxis else "",
        "container_mounts": bound,
        "apptainer_image": environment.image if apptainer else "",
        "prefix": prefix,
        "preflight": look,
        "container_variables": _container_variables(spec) if pyxis else [],
    }


def _container_variables(spec: JobSpec) -> list[str]:
    """Names that a job exports for its network and its site, whatever an image says."""
    named = [
        *spec.site.environment.variables,
        *(v.name for v in network.variables(spec.site, spec.nodes, spec.gpus)),
    ]
    return sorted({n for n in named if not n.startswith("GPT_TUNE_")})


def _token(token: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", token):
        raise UserError(f"The run's token {token!r} holds characters that are not allowed.", "Submit again.")
    return token


def rank_file() -> RenderedFile:
    """The wrapper each rank starts in."""
    return RenderedFile("rank.sh", rendering.shipped("common/rank.sh"), executable=True)


def plural(number: int, thing: str) -> str:
    """ "1 node", "8 nodes", "2 processes"."""
    return f"{number} {thing}" + ("" if number == 1 else "es" if thing.endswith("s") else "s")


def described(variables_: Iterable[tuple[str, str, str]]) -> Mapping[str, str]:
    """Variables by name, for a summary."""
    return {name: value for name, value, _ in variables_}


def summary(
    spec: JobSpec,
    recipe: str,
    headline: str,
    variables_: Iterable[tuple[str, str, str]],
    warnings: Iterable[str],
) -> dict[str, Any]:
    """What a rendered job comes to, for the review and `render --json`."""
    return {
        "name": job_name(spec),
        "recipe": recipe,
        "ranks": ranks(spec),
        "nodes": spec.nodes,
        "gpus": spec.gpus,
        "headline": headline,
        "environment": dict(described(variables_)),
        "warnings": list(warnings),
    }


def where_words(spec: JobSpec) -> str:
    """Where a job runs, in words: cluster, scheduler, partition, account, and its nodes."""
    site, resources = spec.site, spec.profile.resources
    cluster = spec.profile.cluster or site.cluster
    words = [f"{cluster} ({spec.scheduler})" if cluster not in ("", spec.scheduler) else spec.scheduler]
    words += [f"{k} {v}" for k, v in (("partition", site.partition), ("account", site.account)) if v]
    kind = resources.node or site.node or resources.gpu
    return ", ".join([*words, plural(spec.nodes, "node") + (f" of {kind}" if kind else "")])
