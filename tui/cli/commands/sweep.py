"""Owns `gpt-tune sweep`: short runs of several settings, ranked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING
from tui.cli.options import json_option, set_option
from tui.cli.output import can_ask, emit_json, say, show_table

if TYPE_CHECKING:
    from gpt_tune.profiles.schema import Profile
    from gpt_tune.workflows.sweep import Sweep
    from gpt_tune.workflows.sweeping.comparing import Compared, SpeedUp
    from gpt_tune.workflows.sweeping.ranking import Row


@click.command(
    help="Short runs of several settings of a profile, ranked by measured speed with its 95 % interval."
)
@click.argument("profile", required=False)
@click.option(
    "--vary", multiple=True, metavar="KEY=a,b,c", help="Values to try; repeated: every combination."
)
@click.option("--top", type=int, default=None, help="Try the planner's N best layouts.")
@click.option(
    "--ladder", metavar="NAME", default=None,
    help="Try an ablation ladder, one more component a rung, and compare in order: acs, kernels, or a TOML file.",
)  # fmt: skip
@click.option("--steps", type=int, default=20, show_default=True, help="Steps of each run.")
@click.option("--stop-losers", is_flag=True, help="End runs as soon as they are surely slower than the best.")
@click.option(
    "--at-once", type=click.IntRange(min=1), default=None, help="At most so many tasks at the same time."
)
@click.option("--detach", is_flag=True, help="Submit, and do not wait for the end.")
@click.option(
    "--collect", metavar="SWEEP", default=None, help="The table of an earlier sweep; submits nothing."
)
@click.option("--cluster", default=None, help="Submit to this cluster; short for --set cluster=NAME.")
@set_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(
    profile: str | None, vary: tuple[str, ...], top: int | None, ladder: str | None, steps: int, stop_losers: bool,
    at_once: int | None, detach: bool, collect: str | None, cluster: str | None, changes: tuple[str, ...], yes: bool,
    as_json: bool,
) -> int:  # fmt: skip
    from gpt_tune import jobs
    from gpt_tune.ledger import Ledger
    from gpt_tune.profiles import store
    from gpt_tune.workflows import sweep as sweeps

    ledger = Ledger.open()
    if collect is not None:
        jobs.refresh(ledger)
        return _report(collect, sweeps.table(collect, ledger), None, as_json)
    if profile is None:
        raise click.UsageError("Name a profile, or --collect a sweep.", click.get_current_context())
    settings = [*changes, *([f"cluster={cluster}"] if cluster else [])]
    chosen = store.load_layered(profile, settings).profile
    if ladder is None:
        ready = sweeps.prepare(chosen, vary, top, steps, at_once)
    else:
        ready = _ladder(chosen, ladder, steps, at_once, alone=not (vary or top is not None or stop_losers))
    sweeps.check(ready)  # before anything is asked
    _describe(ready)
    asks = can_ask(yes, as_json)
    if asks and not click.confirm("Submit?", default=True, err=True):
        say("Not submitted.")
        return EXIT_DONE
    sweeps.submit(ready, ledger)
    if detach:
        say(f"Its table: gpt-tune sweep --collect {ready.sweep_id}")
        return _report(
            ready.sweep_id, sweeps.table(ready.sweep_id, ledger, ready), ready, as_json, begun=True
        )
    rows = sweeps.follow(ready, ledger, stop_losers=stop_losers, told=_Progress().tell)
    return _report(ready.sweep_id, rows, ready, as_json)


def _ladder(profile: Profile, name: str, steps: int, at_once: int | None, *, alone: bool) -> Sweep:
    from gpt_tune.workflows import ladder

    if not alone:
        raise click.UsageError(
            "--ladder goes without --vary, --top and --stop-losers: every rung is compared with the others.",
            click.get_current_context(),
        )
    return ladder.prepare(profile, name, steps, at_once)


def _describe(sweep: Sweep) -> None:
    kind = "one array job" if sweep.as_array else "a job each"
    gpus = max(launch.spec.gpus for launch in sweep.launches.values())
    need = f", up to {gpus} GPUs a task, {sweep.gpu_hours_a_minute:.2g} GPU-hours a minute" if gpus else ""
    say(f"Sweep {sweep.sweep_id}: {len(sweep.launches)} tasks as {kind}{need}. Folder {sweep.folder}")
    for number, why in sweep.skipped.items():
        label = next(t.label for t in sweep.tasks if t.number == number)
        say(f"  left out: {label}: {why}")
    for warning in dict.fromkeys(w for launch in sweep.launches.values() for w in launch.warnings):
        say(f"note: {warning}")


class _Progress:
    """One line when something changed."""

    def __init__(self) -> None:
        self._last = ""

    def tell(self, rows: Sequence[Row]) -> None:
        states = [r.state.lower() for r in rows]
        counted = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states))
        best = rows[0] if rows and rows[0].rank else None
        lead = f"; best so far {_values(best)}" if best else ""
        if counted + lead != self._last:
            self._last = counted + lead
            say(self._last)


def _report(
    sweep_id: str, rows: Sequence[Row], sweep: Sweep | None, as_json: bool, begun: bool = False
) -> int:
    """The table; exit code 1 when no task was measured."""
    from gpt_tune.workflows.sweep import sweep_json

    climbed = _climbed(rows)
    if as_json:
        listed = None if climbed is None else [c.to_json() for c in climbed]
        emit_json({**sweep_json(sweep_id, rows, sweep), "ladder": listed})
    elif climbed is not None:
        _show_ladder(climbed)
    else:
        show_table(
            ("#", "setting", "state", "steps", "step ms", "+-", "tok/s/GPU", "model TFLOPS", "predicted", "note"),
            [_cells(row) for row in rows], "0,3,4,5,6,7,8",
        )  # fmt: skip
    return EXIT_DONE if begun or any(r.rank for r in rows) else EXIT_FINDING


def _climbed(rows: Sequence[Row]) -> list[Compared] | None:
    """The rungs in order, when the sweep is a ladder."""
    from gpt_tune.workflows import ladder
    from gpt_tune.workflows.sweeping.comparing import compare

    return compare(rows, ladder.KEY) if ladder.is_ladder([r.values for r in rows]) else None


def _show_ladder(climbed: Sequence[Compared]) -> None:
    rows = [
        (one.rung, _figure(one.row.step_time_ms), _times(one.previous), _times(one.base), _ladder_note(one))
        for one in climbed
    ]
    show_table(("rung", "step ms", "x one before", "x base", "note"), rows, "1")
    say("x: times faster, with half of its 95 % interval; `cannot tell` where that reaches 1.")


def _times(speed: SpeedUp | None) -> str | None:
    if speed is None:
        return None
    half = "" if speed.low is None or speed.high is None else f" +-{(speed.high - speed.low) / 2:.3f}"
    return f"{speed.ratio:.3f}{half}"


def _ladder_note(one: Compared) -> str:
    if one.row.state != "COMPLETED":
        return f"{one.row.state.lower()}: {one.row.problem}" if one.row.problem else one.row.state.lower()
    return one.previous.verdict if one.previous else ""


def _cells(row: Row) -> tuple[object, ...]:
    half = None if row.high_ms is None or row.low_ms is None else (row.high_ms - row.low_ms) / 2
    note = row.problem or ("tied with the best" if row.tied and row.rank != 1 else "")
    return (
        row.rank, _values(row), row.state, row.steps or None, _figure(row.step_time_ms), _figure(half),
        _figure(row.tokens_per_second_per_gpu), _figure(row.model_tflops), _figure(row.predicted_step_time_ms), note,
    )  # fmt: skip


def _values(row: Row) -> str:
    return " ".join(f"{k}={v}" for k, v in row.values.items()) or "as it is"


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
