"""Owns a sweep: short runs of several settings, submitted together, collected into one ranked table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpt_tune import clusters, jobs, planner
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.jobs.pacing import Pacer
from gpt_tune.jobs.preparing import new_run_id, run_root
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.logs.parse import parse_files
from gpt_tune.planner.types import Plan
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.schedulers.base import ENDED, Cluster, Scheduler
from gpt_tune.workflows import launch as launching
from gpt_tune.workflows.asking import marks_of, oldest_answer
from gpt_tune.workflows.launch import Launch
from gpt_tune.workflows.records import shape_of, training_gpus_of
from gpt_tune.workflows.remote_logs import logs_here
from gpt_tune.workflows.request import needs_plan, plan_request
from gpt_tune.workflows.resubmit import flat_layout
from gpt_tune.workflows.sweeping import array, grid, ranking
from gpt_tune.workflows.sweeping.grid import Task
from gpt_tune.workflows.sweeping.ranking import Measured, Row

SCHEMA = "gpt-tune/sweep/1"
_TAG, _TASK, _VALUE = "sweep=", "sweep-task=", "sweep-value:"


@dataclass(frozen=True, slots=True)
class Sweep:
    """Tasks with everything decided. launches: by task number; skipped: tasks that cannot run, and why.

    as_array: one array job; else a job each. folder: on the cluster.
    """

    sweep_id: str
    folder: str
    tasks: tuple[Task, ...]
    launches: dict[int, Launch]
    skipped: dict[int, str]
    as_array: bool
    at_once: int | None = None

    @property
    def gpu_hours_a_minute(self) -> float:
        """What one minute of all tasks together costs."""
        return sum(launch.spec.gpus for launch in self.launches.values()) / 60


def prepare(
    profile: Profile, vary: Sequence[str] = (), top: int | None = None, steps: int = grid.STEPS,
    at_once: int | None = None,
) -> Sweep:  # fmt: skip
    """Decide everything; nothing is written. UserError when no task can run."""
    if vary and top is not None:
        raise UserError(
            "--vary and --top do not go together: a sweep varies settings or takes the planner's best layouts.",
            "Leave one of them out.",
        )
    if not vary and top is None:
        raise UserError(
            "A sweep varies settings or takes the planner's best layouts.",
            "Give --vary KEY=a,b,c, or --top N.",
        )
    place = _place(profile)
    chosen: dict[int, Plan] = {}
    if top is not None:
        tasks, chosen = _best_layouts(profile, place.merged, place.cluster, top, steps)
    else:
        tasks = grid.tasks(profile, vary, steps)
    return _decided(place, tasks, chosen, at_once)


def prepare_tasks(profile: Profile, tasks: Sequence[Task], at_once: int | None = None) -> Sweep:
    """As prepare, for tasks that form no grid: each brings its own profile. profile: says on which cluster."""
    if not 1 <= len(tasks) <= grid.MOST_TASKS:
        raise UserError(
            f"A sweep of {len(tasks)} tasks is not possible.", f"It takes 1 to {grid.MOST_TASKS}."
        )
    return _decided(_place(profile), tasks, {}, at_once)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a sweep runs. site: as kept; merged: with the profile's own settings over it."""

    sweep_id: str
    folder: str
    cluster: Cluster
    site: Site | None
    merged: Site
    scheduler: Scheduler


def _place(profile: Profile) -> _Place:
    scheduler = clusters.connect(profile.cluster or None)
    cluster = scheduler.discover()
    site = sites.load(cluster.name)
    merged = replace(
        sites.merge(site or sites.guess(cluster), profile.site),
        cluster=cluster.name,
        scheduler="local" if cluster.scheduler == "local" else "slurm",
    )
    sweep_id = new_run_id().replace("r", "s", 1)
    return _Place(sweep_id, f"{run_root(merged)}/{sweep_id}", cluster, site, merged, scheduler)


def _best_layouts(
    profile: Profile, site: Site, cluster: Cluster, top: int, steps: int
) -> tuple[list[Task], dict[int, Plan]]:
    if not needs_plan(profile, site, cluster):
        raise UserError(
            f"The recipe {profile.recipe} has no layouts to choose from.",
            "Use --vary KEY=a,b,c instead of --top.",
        )
    if not 1 <= top <= grid.MOST_TASKS:
        raise UserError(f"{top} layouts are not possible.", f"Give --top from 1 to {grid.MOST_TASKS}.")
    found = planner.search(plan_request(profile, site, cluster, top=top)).plans
    if not found:
        raise UserError("No layout fits.", "`gpt-tune plan` says why, and what would.")
    short = grid.shortened(profile, steps)
    layouts = [flat_layout(plan.to_json()["layout"]) for plan in found]
    differing = [k for k in layouts[0] if len({str(layout.get(k)) for layout in layouts}) > 1]
    tasks = [
        Task(number, {k: str(layout.get(k)) for k in differing}, short)
        for number, layout in enumerate(layouts, 1)
    ]
    return tasks, dict(enumerate(found, 1))


def _decided(place: _Place, tasks: Sequence[Task], chosen: dict[int, Plan], at_once: int | None) -> Sweep:
    launches: dict[int, Launch] = {}
    skipped: dict[int, str] = {}
    for task in tasks:
        if task.problem:
            skipped[task.number] = task.problem
            continue
        try:
            launches[task.number] = launching.prepare(
                task.profile,
                chosen.get(task.number),
                place.cluster,
                place.site,
                f"{place.folder}/task-{task.number}",
                place.scheduler,
            )
        except SchedulerError:
            raise
        except UserError as error:
            if len(tasks) == 1:
                raise
            skipped[task.number] = str(error)
    if not launches:
        first = next(iter(skipped.values()))
        raise UserError(f"None of the {len(tasks)} combinations can run; the first: {first}", "")
    # An array numbers its tasks from 1 without holes.
    as_array = not skipped and array.fits(list(launches.values()))
    return Sweep(place.sweep_id, place.folder, tuple(tasks), launches, skipped, as_array, at_once)


def check(sweep: Sweep) -> None:
    """UserError for a sweep whose tasks would end at once because nothing says where their trainer is."""
    for launch in sweep.launches.values():
        launching.check_trainer(launch)


# -- submit ---------------------------------------------------------------------------------------
def submit(sweep: Sweep, ledger: Ledger) -> list[RunRecord]:
    """Submit all tasks; on this machine the first one, since they would slow each other down."""
    check(sweep)
    numbers = sorted(sweep.launches)
    if sweep.as_array:
        launches = [sweep.launches[n] for n in numbers]
        name = f"sweep-{sweep.sweep_id[-4:]}"
        return array.submit(
            launches, sweep.folder, name, [_tags(sweep, n) for n in numbers], ledger, sweep.at_once
        )
    if sweep.launches[numbers[0]].spec.scheduler == "local":
        numbers = numbers[:1]
    return [_submit_one(sweep, number, ledger) for number in numbers]


def _submit_one(sweep: Sweep, number: int, ledger: Ledger) -> RunRecord:
    launch = sweep.launches[number]
    return jobs.submit(launch.spec, launch.rendered, launch.scheduler, ledger, _tags(sweep, number))


def _tags(sweep: Sweep, number: int) -> tuple[str, ...]:
    task = next(t for t in sweep.tasks if t.number == number)
    return (
        f"{_TAG}{sweep.sweep_id}", f"{_TASK}{number}", *(f"{_VALUE}{k}={v}" for k, v in task.values.items()),
    )  # fmt: skip


# -- follow ---------------------------------------------------------------------------------------
def follow(
    sweep: Sweep, ledger: Ledger, *, stop_losers: bool = False, told: Callable[[list[Row]], None] | None = None,
    pause_seconds: float = 5.0, pacer: Pacer | None = None,
) -> list[Row]:  # fmt: skip
    """Wait for the end of all tasks; the ranked table. told: called after each look at their logs.

    The scheduler is asked at the engine's pace. On this machine the tasks run one after the other.
    """
    scheduler = next(iter(sweep.launches.values())).scheduler
    waiting = [
        n for n in sorted(sweep.launches) if n not in {task_of(r) for r in runs(sweep.sweep_id, ledger)}
    ]
    asks = _Asks(scheduler, pacer or Pacer())
    while True:
        asks.look(runs(sweep.sweep_id, ledger), ledger)
        records = runs(sweep.sweep_id, ledger)
        rows = table(sweep.sweep_id, ledger, sweep)
        if stop_losers and _stop(ranking.losers(rows), ledger):
            asks.pacer.acted()
        if told is not None:
            told(rows)
        active = [r for r in records if r.active]
        if waiting and not active:
            _submit_one(sweep, waiting.pop(0), ledger)
            asks.pacer.acted()
        elif not active:
            return rows
        time.sleep(min(1.0, pause_seconds) if scheduler.kind == "local" else pause_seconds)


class _Asks:
    """Asks for the states of a sweep's runs when it is time to."""

    def __init__(self, scheduler: Scheduler, pacer: Pacer) -> None:
        self.pacer = pacer
        self._scheduler = scheduler
        self._marks: list[tuple[int, ...]] = []
        pacer.acted()  # it has just been submitted

    def look(self, records: Sequence[RunRecord], ledger: Ledger) -> None:
        marks = [marks_of(r) for r in records]
        if self._marks and marks != self._marks:
            self.pacer.hinted()
        self._marks = marks
        if self._scheduler.kind != "local" and not self.pacer.due:
            return
        before = self._scheduler.calls
        jobs.refresh(ledger, self._scheduler, max_age_seconds=oldest_answer(self._scheduler, self.pacer))
        now = [ledger.get(r.run_id) for r in records]
        self.pacer.polled(
            [r.state for r in now if r.active],
            calls=self._scheduler.calls - before,
            changed=[r.state for r in now] != [r.state for r in records],
            failed=ledger.poll(self._scheduler.cluster).failures > 0,
        )


def _stop(rows: Sequence[Row], ledger: Ledger) -> bool:
    """End tasks that have lost; whether there were any."""
    for row in rows:
        with suppress(UserError):  # it ended meanwhile, or the cluster is away: the next look tries again
            jobs.cancel(str(row.run_id), ledger)
    return bool(rows)


def runs(sweep_id: str, ledger: Ledger) -> list[RunRecord]:
    """The runs of a sweep, by task number."""
    found = [r for r in ledger.runs() if f"{_TAG}{sweep_id}" in r.tags]
    return sorted(found, key=task_of)


def known(ledger: Ledger) -> list[str]:
    """Ids of all sweeps, newest first."""
    tags = (t for r in ledger.runs() for t in r.tags if t.startswith(_TAG))
    return list(dict.fromkeys(t.removeprefix(_TAG) for t in tags))


def task_of(record: RunRecord) -> int:
    """A run's task number."""
    return next((int(t.removeprefix(_TASK)) for t in record.tags if t.startswith(_TASK)), 0)


def table(sweep_id: str, ledger: Ledger, sweep: Sweep | None = None) -> list[Row]:
    """The ranked table, as far as the logs say. sweep: adds the tasks that were skipped or are still to come."""
    records = runs(sweep_id, ledger)
    if not records and sweep is None:
        names = known(ledger)
        raise UserError(f"There is no sweep {sweep_id!r}.", f"Known: {', '.join(names[:5]) or 'none'}.")
    rows = [_row(record) for record in records]
    there = {row.number for row in rows}
    for task in sweep.tasks if sweep else ():
        if task.number not in there:
            problem = sweep.skipped.get(task.number, "") if sweep else ""
            rows.append(Row(task.number, task.values, "SKIPPED" if problem else "WAITING", problem=problem))
    return ranking.ranked(rows)


def _row(record: RunRecord) -> Row:
    prediction = record.prediction or {}
    seconds, tokens = prediction.get("step_seconds"), prediction.get("tokens_per_step")
    values = dict(t.removeprefix(_VALUE).partition("=")[::2] for t in record.tags if t.startswith(_VALUE))
    row = Row(
        number=task_of(record),
        values=values,
        state=record.state,
        run_id=record.run_id,
        job_id=record.job_id,
        gpus=record.gpus,
        predicted_step_time_ms=1000 * seconds if isinstance(seconds, (int, float)) else None,
        tokens_per_step=int(tokens) if isinstance(tokens, (int, float)) else None,
        problem=_problem(record),
    )
    return ranking.with_interval(row, measured(record))


def measured(record: RunRecord) -> Measured:
    """What a run's log says so far."""
    with suppress(UserError):
        there = [path for path in logs_here(record) if Path(path).is_file()]
        if there:
            summary = parse_files(there, shape_of(record), training_gpus_of(record)).summary
            steady = summary.steps - summary.warmup_steps
            return Measured(
                max(0, steady), _finite(summary.mean_step_time_ms), _finite(summary.stdev_step_time_ms),
                _finite(summary.median_model_tflops),
            )  # fmt: skip
    return Measured()


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _problem(record: RunRecord) -> str:
    """Why a task failed, in one sentence."""
    if record.state not in ENDED or record.state in ("COMPLETED", "CANCELLED"):
        return ""
    from gpt_tune.diagnosis import diagnose

    with suppress(UserError):
        there = [path for path in logs_here(record) if Path(path).is_file()]
        root = diagnose(there, record.state, record.reason).root_cause
        if root is not None:
            return root.text
    return jobs.reason_text(record)


def sweep_json(sweep_id: str, rows: Sequence[Row], sweep: Sweep | None = None) -> dict[str, Any]:
    """The contract's `sweep` object."""
    return {
        "schema": SCHEMA,
        "sweep_id": sweep_id,
        "array": sweep.as_array if sweep else None,
        "folder": sweep.folder if sweep else None,
        "sweep": [row.to_json() for row in rows],
    }
