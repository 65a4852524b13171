"""Owns the questions of a new run, for every face alike: steps, fields, defaults, checks, and what they imply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpt_tune import clusters, recipes, toml
from gpt_tune.errors import UserError, unknown_name
from gpt_tune.jobs.preparing import check_local_size
from gpt_tune.ledger import RunRecord
from gpt_tune.models import catalogue as models
from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.profiles import settings, sites, store
from gpt_tune.profiles.build import from_dict, value_at
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.workflows import defaults, request
from gpt_tune.workflows.answers import check, planning_alone, put
from gpt_tune.workflows.chosen import asks_model, fixed_by, profile_of, unfixed
from gpt_tune.workflows.draft import PLAN_ONLY, YOU, Draft, Field, Option, Problem, Step, Summary
from gpt_tune.workflows.fields import SPECS, STEPS, Spec
from gpt_tune.workflows.first_job import why_check, with_job_that_can_run
from gpt_tune.workflows.forecast import forecast
from gpt_tune.workflows.implications import summary
from gpt_tune.workflows.machine import has_gpus, machine_of
from gpt_tune.workflows.options import notes_of, options_of
from gpt_tune.workflows.origins import Setting, origins_of, table
from gpt_tune.workflows.request import tunes
from gpt_tune.workflows.resubmit import again
from gpt_tune.workflows.tuning import CHOSEN, model_of, tuned, tuning_problems, tuning_settings

__all__ = [
    "PLAN_ONLY", "SPECS", "Draft", "Field", "Option", "Problem", "Step", "Summary", "check", "choose", "fields",
    "fixed_by", "forecast", "from_profile", "from_profile_text", "from_run", "load_cluster", "needs_cluster",
    "notes_of", "plan_optional", "plan_request", "planned", "problems", "profile_of", "put", "save_site", "settings_of",
    "start", "steps", "summary", "unfixed", "why_check",
]  # fmt: skip


def start(
    profile: Profile | None = None,
    cluster: str | None = None,
    base: str = "",
    origins: Mapping[str, str] | None = None,
    available: tuple[str, ...] | None = None,
) -> Draft:
    """A draft with the best defaults. It asks which clusters there are, so call it off the screen's thread.

    base and origins say which profile it starts from and where its values come from. Without a profile: the
    site's, the user's and the project's settings.
    """
    known = tuple(clusters.available()) if available is None else available
    if profile is None:
        layered = store.defaults()
        profile, origins = layered.profile, {**layered.origins, **(origins or {})}
    else:
        origins = {"recipe": f"profile {base}" if base else "the profile", **(origins or {})}
    wanted = cluster or profile.cluster or (known[0] if known else "")
    draft = Draft(
        replace(profile, cluster=wanted),
        known,
        origins=origins,
        base=base,
        trouble=_silent() if available is None else "",
    )
    return planning_alone(draft) if wanted == PLAN_ONLY else draft


def _silent() -> str:
    """What to tell about a cluster that is configured here and does not answer, or ""."""
    return next((str(error) for error in clusters.silent().values()), "")


def needs_cluster(draft: Draft) -> str | None:
    """The cluster that load_cluster must look at next, or None."""
    if draft.plan_only or not draft.profile.cluster:
        return None
    if draft.cluster is not None and draft.cluster.name == draft.profile.cluster:
        return None
    return draft.profile.cluster


def load_cluster(draft: Draft, name: str) -> Draft:
    """The draft with a cluster looked at and everything that follows from it. Slow; may raise SchedulerError."""
    cluster = clusters.discover(name)
    kept = sites.load(cluster.name)
    site = kept or sites.guess(cluster)
    draft = replace(
        draft,
        profile=replace(draft.profile, cluster=cluster.name),
        cluster=cluster,
        plan_only=False,
        site=site,
        site_known=kept is not None,
        plan=None,
    )
    return with_job_that_can_run(_without_foreign_partition(draft))


def _without_foreign_partition(draft: Draft) -> Draft:
    """A partition chosen on another cluster means nothing here."""
    names = [p.name for p in draft.cluster.partitions] if draft.cluster else []
    if (
        draft.profile.resources.partition
        and draft.profile.resources.partition not in names
        and not draft.base
    ):
        return replace(draft, profile=settings.with_value(draft.profile, "resources.partition", ""))
    return draft


def steps(draft: Draft) -> tuple[Step, ...]:
    """The pages in order; skip says that a page has nothing to ask for this draft."""
    skipped = {
        "site": draft.plan_only
        or draft.site_known
        or draft.cluster is None
        or draft.cluster.scheduler == "local",
        "model": not asks_model(draft.recipe),
        "plan": not planned(draft),
    }
    return tuple(Step(step, title, skipped.get(step, False)) for step, title in STEPS)


def planned(draft: Draft) -> bool:
    """Whether the planner has a say in this draft."""
    return request.needs_plan(draft.profile, draft.site, None if draft.plan_only else draft.cluster)


def plan_optional(draft: Draft) -> bool:
    """Whether this draft's job runs without a plan too: where nothing fits, the profile's own numbers count."""
    return request.plan_optional(draft.recipe)


def fields(draft: Draft, step: str) -> tuple[Field, ...]:
    """The questions of one step, ready to show. UserError for an unknown step."""
    if step not in SPECS:
        raise unknown_name("step", step, SPECS)
    return tuple(_field(draft, spec) for spec in SPECS[step] if spec.when(draft))


def _field(draft: Draft, spec: Spec) -> Field:
    default, source = defaults.default_of(draft, spec.key)
    chosen = _chosen(draft, spec.key)
    value = default if chosen in (None, "") and not _may_be_empty(draft, spec.key) else chosen
    origin = draft.origins.get(spec.key)
    if origin is None and value != default:
        origin = _unnamed_source(draft, spec.key)
    label, unit = _label(draft, spec)
    return Field(
        key=spec.key,
        label=label,
        help=(why_check(draft) if spec.key == "recipe" else "") or spec.help,
        unit=unit,
        kind=spec.kind,
        options=options_of(draft, spec.key),
        value=text_of(value),
        default=text_of(default),
        source=origin or source,
        required=spec.needed(draft),
        advanced=spec.advanced,
    )


def _label(draft: Draft, spec: Spec) -> tuple[str, str]:
    """Where there are no GPUs, the same number counts processes."""
    found = defaults.machine(draft)
    if spec.key.startswith("resources.gpus") and found is not None and found.node is None and draft.cluster:
        return ("Processes" if spec.key == "resources.gpus" else "Processes a node"), "processes"
    return spec.label, spec.unit


def _unnamed_source(draft: Draft, key: str) -> str:
    if key.startswith("site."):
        return "kept for this cluster" if draft.site_known else "found on this cluster"
    return f"profile {draft.base}" if draft.base else "chosen for this machine"


def _chosen(draft: Draft, key: str) -> Any:
    if key == "cluster":
        return PLAN_ONLY if draft.plan_only else draft.profile.cluster
    if key == "model.id":
        return model_of(draft)
    return value_at(draft.site, key[5:]) if key.startswith("site.") else value_at(draft.profile, key)


def _may_be_empty(draft: Draft, key: str) -> bool:
    """Whether the user emptied a field on purpose: for text, empty is an answer."""
    return draft.origins.get(key) == YOU and _chosen(draft, key) == ""


def text_of(value: Any) -> str:
    """A value as it is typed."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}" if f"{value:g}" and float(f"{value:g}") == value else repr(value)
    if isinstance(value, (tuple, list)):
        return ", ".join(str(v) for v in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return str(value)


def problems(draft: Draft) -> list[Problem]:
    """Why the draft cannot be submitted yet, in the order of the pages; empty when it can."""
    found: list[Problem] = []
    for step in steps(draft):
        if step.skip and step.id != "site":
            continue
        for spec in SPECS[step.id]:
            if spec.when(draft) and spec.needed(draft) and not text_of(_shown(draft, spec.key)):
                found.append(Problem(step.id, spec.key, f"{spec.label} is required. {spec.help}"))
    return found + _meaning_problems(draft)


def _shown(draft: Draft, key: str) -> Any:
    chosen = _chosen(draft, key)
    return defaults.default_of(draft, key)[0] if chosen in (None, "") else chosen


def _meaning_problems(draft: Draft) -> list[Problem]:
    found: list[Problem] = []
    if draft.cluster is not None:
        found += [
            Problem("site", "site.run_root", s) for s in sites.problems(draft.site) if "run folder" not in s
        ]
    try:
        if draft.cluster is not None:
            check_local_size(draft.cluster, draft.profile.resources.gpus)
        machine = machine_of(draft.profile, draft.site, draft.cluster)
    except UserError as error:
        return [*found, Problem("gpus", "resources.gpus", str(error))]
    if (
        request.always_planned(draft.recipe)
        and draft.cluster is not None
        and not has_gpus(draft.cluster, machine.partition)
    ):
        where = f"Partition {machine.partition.name}" if machine.partition else draft.cluster.name
        found.append(
            Problem(
                "training",
                "recipe",
                f"{where} has no GPUs and {draft.recipe} needs them: choose smoke, or plan only.",
            )
        )
    try:
        models.get(model_of(draft))
    except UserError as error:
        return [*found, Problem("model", "model.id", str(error))]
    return found + _recipe_problems(draft) + tuning_problems(draft, machine.gpus)


def _recipe_problems(draft: Draft) -> list[Problem]:
    """What the chosen job itself cannot run, at the question that the sentence names."""
    if draft.recipe not in recipes.names():
        return []
    asked = [spec.key for spec in SPECS["training"] if spec.when(draft)]
    return [
        Problem("training", next((key for key in asked if key in sentence), "recipe"), sentence)
        for sentence in recipes.get(draft.recipe).problems(draft.profile)
    ]


def plan_request(draft: Draft, top: int = 10) -> PlanRequest:
    """The planner's question for this draft. UserError while something it needs is wrong."""
    return request.plan_request(draft.profile, draft.site, draft.cluster, top)


def choose(draft: Draft, plan: Plan, request: PlanRequest | None = None) -> Draft:
    """The draft with a layout chosen; profile_of fixes one that is not the planner's first.

    request: the question the plan answers, where numbers of it (GPUs, batch, sequence length) were turned too.
    UserError when the draft's machine cannot take one of them.
    """
    if tunes(draft.profile):
        return replace(tuned(draft, plan, request), plan=plan)
    if request is not None:
        draft = _asked_differently(draft, request)
    if plan.layout.precision not in ("fp8", draft.profile.training.precision):
        draft = put(draft, "training.precision", plan.layout.precision)
    return replace(draft, plan=plan)


def _asked_differently(draft: Draft, request: PlanRequest) -> Draft:
    """The draft with the numbers of a question answered as that question has them."""
    before = plan_request(draft)
    for key, old, new in (
        ("resources.gpus", before.gpus, request.gpus),
        ("training.global_batch_size", before.global_batch_size, request.global_batch_size),
        ("model.seq_length", before.seq_length, request.seq_length),
        (
            "trainer.gradient_accumulation_dtype",
            before.trainer.gradient_accumulation_dtype or "",
            request.trainer.gradient_accumulation_dtype or "",
        ),
    ):
        if old != new:
            draft = put(draft, key, str(new))
    return draft


def settings_of(draft: Draft) -> tuple[Setting, ...]:
    """Every setting that is not left at its default, with where it comes from; the cluster's site too."""
    of_site = "kept for this cluster" if draft.site_known else "found on this cluster"
    profile = profile_of(draft)
    whole = replace(profile, site=sites.merge(draft.site, draft.profile.site))
    said = {**origins_of(replace(Profile(), site=draft.site), of_site), **draft.origins}
    if profile.model != draft.profile.model:
        said = {k: words for k, words in said.items() if not k.startswith("model.")}
    if profile.layout != draft.profile.layout:
        said["layout.fixed"] = CHOSEN
    if tunes(profile):
        whole, said = tuning_settings(draft, whole, said)
    return table(whole, said)


def save_site(draft: Draft) -> Draft:
    """Keep the site for this cluster, so that it is not asked again."""
    name = draft.cluster.name if draft.cluster else draft.profile.cluster
    scheduler = draft.cluster.scheduler if draft.cluster else "slurm"
    site = replace(draft.site, cluster=name, scheduler="local" if scheduler == "local" else "slurm")
    sites.save(site)
    return replace(draft, site=site, site_known=True)


def from_profile(name_or_path: str, changes: Iterable[str] = ()) -> Draft:
    """A draft with the choices of a profile (a name or a file) and of the layers around it."""
    layered = store.load_layered(name_or_path, changes)
    return start(layered.profile, base=name_or_path, origins=layered.origins)


def from_run(record: RunRecord) -> Draft:
    """A draft with the choices and the layout of an earlier run; its site is the cluster's own again."""
    profile = again(record).profile
    if sites.load(record.cluster) is not None:
        profile = replace(profile, site=Site())
    said = {"recipe": f"run {record.name}", **origins_of(profile, f"run {record.name}")}
    return start(profile, cluster=record.cluster, base=record.name, origins=said)


def from_profile_text(text: str, base: str) -> Profile:
    """The profile kept with a run, to start another from it."""
    return from_dict(Profile, toml.parse(text, base), base)
