"""Owns `gpt-tune calibrate`: predictions fitted to a cluster's own ended runs."""

from __future__ import annotations

import click

from gpt_tune.errors import EXIT_DONE, UserError
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show, show_table


@click.command(help="Fit predictions to a cluster's ended runs; plans then say how sure they are there.")
@click.option("--cluster", default=None, help="Whose runs; not needed when all are of one cluster.")
@click.option("--from-jobs", is_flag=True, help="From ended runs in the ledger (the only way so far).")
@click.option("--nodes", type=int, default=None, help="Only runs on this many nodes.")
@click.option("--dry-run", is_flag=True, help="Show what would change; save nothing.")
@click.option("--forget", is_flag=True, help="Go back to the calibration that comes with gpt-tune.")
@json_option
def command(
    cluster: str | None, from_jobs: bool, nodes: int | None, dry_run: bool, forget: bool, as_json: bool
) -> int:
    from gpt_tune import calibration
    from gpt_tune.ledger import Ledger
    from gpt_tune.workflows import calibrate

    del from_jobs  # said or not, ended runs are what there is
    if nodes is not None and nodes < 1:
        raise UserError(f"--nodes is {nodes}.", "Give 1 or more.")
    if forget:
        return _forget(cluster, as_json)
    with Ledger.open() as ledger:
        result = calibrate.calibrate(ledger, cluster, nodes)
    path = None if dry_run else str(calibration.save(result.calibration, result.cluster))
    if as_json:
        emit_json(calibrate.to_json(result, path))
        return EXIT_DONE
    _show(result)
    if path is None:
        say("nothing saved (--dry-run)")
    else:
        say(f"saved in {path}; `gpt-tune calibrate --forget --cluster {result.cluster}` takes it back")
    return EXIT_DONE


def _forget(cluster: str | None, as_json: bool) -> int:
    from gpt_tune import calibration

    if not cluster:
        raise UserError("--forget needs --cluster.", "Say whose calibration to remove.")
    removed = calibration.forget(cluster)
    if as_json:
        emit_json({"schema": "gpt-tune/calibrate/1", "cluster": cluster, "removed": removed, "calibrate": []})
    else:
        show(
            f"the calibration of {cluster} is gone" if removed else f"{cluster} has no calibration of its own"
        )
    return EXIT_DONE


def _show(result: object) -> None:
    from gpt_tune.workflows.calibrate import Calibrated, Figure

    assert isinstance(result, Calibrated)

    def words(figure: Figure | None) -> tuple[str, str, str, str]:
        if figure is None:
            return ("0", "", "", "the log states none")
        kept = "used" if figure.kept else "shipped constants stay"
        return (str(figure.rows), f"{figure.before:.1%}", f"{figure.after:.1%}", kept)

    show(f"{result.cluster}: {len(result.run_ids)} ended runs, {len(result.skipped)} skipped")
    for run, reason in result.skipped[:5]:
        show(f"  skipped {run}: {reason}")
    rows = [
        (f"{part.trainer} on {part.gpu}: {what}", str(part.layouts), *words(figure))
        for part in result.parts
        for what, figure in (("step time", part.time), ("memory", part.memory))
    ]
    show_table(("what", "layouts", "runs", "error before", "after, blind", ""), rows, "1,2,3,4")
