"""Owns the way from a profile to a job: site, cluster, plan, files, submission. Every face goes this way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpt_tune import clusters, jobs, planner, recipes
from gpt_tune.errors import UserError
from gpt_tune.jobs.preparing import check_local_size
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.recipes import qlora_model
from gpt_tune.recipes.base import JobSpec, Rendered
from gpt_tune.schedulers.base import Cluster, Scheduler
from gpt_tune.words import gpu_hours_words, seconds_words
from gpt_tune.workflows import edits
from gpt_tune.workflows.chosen import profile_of, without_model
from gpt_tune.workflows.draft import Draft
from gpt_tune.workflows.machine import Machine, has_gpus, machine_of
from gpt_tune.workflows.request import always_planned, iterations_of, needs_plan, plan_optional, plan_request
from gpt_tune.workflows.trainer_here import trainer_path, trainer_variable

PLANNING_ONLY = "This run is for planning only: it names no cluster to submit to."
PLANNING_HINT = "Save it as a profile and submit that where the cluster is, or choose a cluster."
# The tag of a run whose files the user changed by hand.
EDITED = "edited"


@dataclass(frozen=True, slots=True)
class Launch:
    """A job with everything decided and nothing written yet.

    warnings: sentences the user should read first. gpu_hours: None when nobody can tell. seconds: how long the
    job is expected to run. edited: files that carry the user's own changes. lost: (path, why) of changes that no
    longer fit.
    """

    spec: JobSpec
    rendered: Rendered
    scheduler: Scheduler
    cluster: Cluster
    plan: Plan | None
    warnings: tuple[str, ...]
    gpu_hours: float | None
    seconds: float | None = None
    edited: tuple[str, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()

    @property
    def node_hours(self) -> float | None:
        """Hours of whole nodes, which many sites charge by."""
        return None if self.seconds is None else self.spec.nodes * self.seconds / 3600

    @property
    def thousand_steps(self) -> float | None:
        """GPU-hours of 1,000 steps, where only the data tells how many there will be."""
        if self.plan is None or self.seconds is not None:
            return None
        return _gpu_hours(self.spec, 1000 * self.plan.step.seconds)

    @property
    def rate(self) -> str:
        """The same in words, with the time they take; "" where the whole run is known, or nothing is."""
        if self.plan is None or self.thousand_steps is None:
            return ""
        takes = seconds_words(1000 * self.plan.step.seconds)
        return f"{gpu_hours_words(self.thousand_steps)} and about {takes} for each 1,000 steps"


def prepare(
    profile: Profile,
    plan: Plan | None = None,
    cluster: Cluster | None = None,
    site: Site | None = None,
    run_dir: str | None = None,
    scheduler: Scheduler | None = None,
) -> Launch:
    """Decide and render everything. UserError or SchedulerError says what is in the way; nothing is written.

    plan: a layout chosen before, else the planner's first. cluster, site, scheduler: where they are known already.
    run_dir: another run folder than a new one under the site's.
    """
    scheduler = scheduler or clusters.connect(profile.cluster or None)
    found = cluster or scheduler.discover()
    profile = qlora_model.settled(profile)
    full_site, warnings = _site(profile, found, site)
    if not always_planned(profile.recipe) or has_gpus(found, None):
        check_local_size(found, profile.resources.gpus)
    machine = machine_of(profile, full_site, found)
    _refuse_what_cannot_run(profile, found, machine)
    request = _question(profile, full_site, found)
    chosen = plan or _best_plan(request, plan_optional(profile.recipe))
    settled = _settled(profile, found, machine, full_site)
    spec = jobs.prepare(settled, full_site, found, chosen, scheduler=scheduler, run_dir=run_dir)
    rendered = recipes.render(spec)
    warnings += tuple(str(w) for w in rendered.summary.get("warnings", ()))
    seconds = _expected_seconds(spec, rendered, request)
    return Launch(spec, rendered, scheduler, found, chosen, warnings, _gpu_hours(spec, seconds), seconds)


def check_trainer(launch: Launch) -> None:
    """UserError for a job that would end at once because nothing says where its trainer is."""
    profile = launch.spec.profile
    variable = trainer_variable(profile.recipe)
    if variable and not profile.trainer.path and variable not in launch.spec.site.environment.variables:
        raise UserError(
            f"trainer.path is empty, and a {profile.recipe} job cannot start without its trainer.",
            "Set the folder as the job sees it: --set trainer.path=/path.",
        )


def submit(launch: Launch, ledger: Ledger | None = None) -> RunRecord:
    """Write the files and submit, once. UserError when the job could not even start."""
    check_trainer(launch)
    if launch.cluster.scheduler != "local" and launch.scheduler.kind == "local":
        raise UserError(PLANNING_ONLY, PLANNING_HINT)
    refuse_secrets(launch)
    tags = (EDITED,) if launch.edited else ()
    return jobs.submit(launch.spec, launch.rendered, launch.scheduler, ledger or Ledger.open(), tags)


def generated(draft: Draft) -> Launch:
    """What submitting a draft would write without the user's own changes of files; also for a cluster elsewhere."""
    profile = profile_of(draft)
    if draft.plan_only:
        from gpt_tune.workflows.offline import prepare_elsewhere  # builds on this module

        return prepare_elsewhere(profile, draft.plan)
    return prepare(profile, draft.plan, draft.cluster, draft.site)


def preview(draft: Draft) -> Launch:
    """What submitting a draft would write, and what it would cost."""
    return with_edits(generated(draft), draft.edits)


def with_edits(launch: Launch, changes: Mapping[str, edits.Edit]) -> Launch:
    """The job with the user's own changes made in its files, and what those mean for the plan as warnings."""
    if not changes:
        return launch
    done = edits.apply(launch.spec, launch.rendered, changes)
    warnings = (*launch.warnings, *edits.warnings(launch.rendered, done.rendered))
    return replace(launch, rendered=done.rendered, warnings=warnings, edited=done.kept, lost=done.lost)


def refuse_secrets(launch: Launch) -> None:
    """UserError for a key or token that the user wrote into a file: files are kept, and others may read them."""
    if not launch.edited:
        return
    from gpt_tune.workflows.file_findings import findings  # lint is slow to load

    for found in findings(launch.spec, launch.rendered):
        if found.rule == "secret" and found.file in launch.edited:
            raise UserError(
                f"Line {found.line} of {found.file}, which you edited, holds a secret; the run folder would keep it.",
                "Take it out and export it in the shell that submits: jobs inherit the environment.",
            )


def launch_draft(draft: Draft, ledger: Ledger | None = None) -> RunRecord:
    """Submit a draft of the wizard."""
    if draft.plan_only:
        raise UserError(PLANNING_ONLY, PLANNING_HINT)
    return submit(preview(draft), ledger)


def _site(profile: Profile, cluster: Cluster, given: Site | None) -> tuple[Site, tuple[str, ...]]:
    """The cluster's site with the profile's own settings over it, and a warning when it is a guess."""
    kept = given or sites.load(cluster.name)
    merged = sites.merge(kept or sites.guess(cluster), profile.site)
    merged = replace(
        merged, cluster=cluster.name, scheduler="local" if cluster.scheduler == "local" else "slurm"
    )
    for sentence in sites.problems(merged):
        raise UserError(sentence, f"Set it with `gpt-tune site {cluster.name} --set KEY=VALUE`.")
    if kept is None and not profile.site.run_root and cluster.scheduler != "local":
        return merged, (
            f"The site of {cluster.name} is not known yet; the run folder {merged.run_root} is a guess "
            f"(`gpt-tune site {cluster.name} --save` keeps it, --set run_root=/path changes it).",
        )
    return merged, ()


def _refuse_what_cannot_run(profile: Profile, cluster: Cluster, machine: Machine) -> None:
    for sentence in recipes.get(profile.recipe).problems(profile):
        raise UserError(sentence, "")
    if always_planned(profile.recipe) and not has_gpus(cluster, machine.partition):
        where = f"partition {machine.partition.name} of {cluster.name}" if machine.partition else cluster.name
        raise UserError(
            f"{profile.recipe} needs GPUs, and {where} has none.",
            "Choose another partition or cluster, or try the job with recipe=smoke.",
        )


def _question(profile: Profile, site: Site, cluster: Cluster) -> PlanRequest | None:
    if not needs_plan(profile, site, cluster):
        return None
    return plan_request(profile, site, cluster, top=1)


def _best_plan(request: PlanRequest | None, optional: bool) -> Plan | None:
    """The planner's first. optional: where nothing fits, the profile's own numbers count, with a warning."""
    if request is None:
        return None
    result = planner.search(request)
    if result.plans or optional:
        return result.plans[0] if result.plans else None
    near = result.rejected[0] if result.rejected else None
    raise UserError(
        f"No layout of {request.model.id} fits {request.gpus} {request.node.gpu.id}"
        + (f": {near.text}" if near else "."),
        (near.fix if near and near.fix else "") or "Use more GPUs, a smaller batch, or a smaller model.",
    )


def _settled(profile: Profile, cluster: Cluster, machine: Machine, site: Site) -> Profile:
    """The profile with what was open filled in, so that the run's record says what really ran."""
    partition = "" if cluster.scheduler == "local" or machine.partition is None else machine.partition.name
    resources = replace(
        profile.resources,
        gpus=machine.gpus,
        gpus_per_node=machine.gpus_per_node,
        partition=profile.resources.partition or partition,
        node=profile.resources.node
        or (machine.node.id if machine.node and site.node == machine.node.id else ""),
        gpu=profile.resources.gpu or (machine.node.gpu.id if machine.node else ""),
    )
    trainer = replace(profile.trainer, path=profile.trainer.path or trainer_path(profile.recipe, site))
    if profile.recipe == "smoke":
        profile = without_model(profile)
    return replace(profile, cluster=cluster.name, resources=resources, trainer=trainer)


def _gpu_hours(spec: JobSpec, seconds: float | None) -> float | None:
    """GPUs the job holds, used or not, times the hours it is expected to hold them."""
    held = spec.nodes * spec.gpus_per_node if spec.gpus else 0
    if not held:
        return 0.0
    return None if seconds is None else held * seconds / 3600


def _expected_seconds(spec: JobSpec, rendered: Rendered, request: PlanRequest | None) -> float | None:
    if spec.plan is not None and request is not None:
        steps = iterations_of(spec.profile, request)
        return None if steps is None else steps * spec.plan.step.seconds
    expected = rendered.prediction
    if spec.profile.recipe == "smoke" and spec.profile.smoke.steps is None:
        return float(spec.profile.smoke.seconds)  # it trains by the clock
    if expected.total_steps is None or expected.step_seconds is None:
        return None
    return expected.total_steps * expected.step_seconds
