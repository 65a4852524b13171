"""Owns `gpt-tune queue`: my jobs in the queue and why they wait, free GPUs, and what could start now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpt_tune.errors import EXIT_DONE, UserError
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show, show_table

if TYPE_CHECKING:
    from gpt_tune.schedulers.base import Scheduler
    from gpt_tune.workflows.queue import Offer, QueueView, Wanted


@click.command(
    help="All my jobs in a cluster's queue, also those submitted elsewhere, with why they wait; free GPUs by type; and "
    "with --gpus or --for what could start now. `jobs --adopt ID` takes a job over; hold, release and cancel act on it."
)
@click.argument("cluster", required=False)
@click.option(
    "--for", "job", metavar="JOBID", help="When this waiting job could start, and what could start sooner."
)
@click.option("--gpus", type=click.IntRange(min=1), help="The same for so many GPUs.")
@click.option("--gpu", default="", help="With --gpus: the scheduler's word for their type.")
@click.option("--partition", default="", help="With --gpus: in this partition (default: the cluster's own).")
@click.option("--time", "time_limit", default="", help="With --gpus: for so long, as 2:00:00.")
@json_option
def command(
    cluster: str | None,
    job: str | None,
    gpus: int | None,
    gpu: str,
    partition: str,
    time_limit: str,
    as_json: bool,
) -> int:
    from gpt_tune import clusters
    from gpt_tune.ledger import Ledger
    from gpt_tune.profiles import sites
    from gpt_tune.workflows import queue

    if gpus is None and (gpu or partition or time_limit):
        raise click.UsageError("--gpu, --partition and --time go with --gpus.", click.get_current_context())
    if gpus is not None and job is not None:
        raise click.UsageError("Give --gpus or --for, not both.", click.get_current_context())
    scheduler = clusters.connect(cluster)
    with Ledger.open() as ledger:
        view = queue.look(scheduler, ledger)
    wanted = _wanted(scheduler, view, job, gpus, gpu, partition, time_limit)
    site = sites.load(view.cluster.name)
    expected = next((j.status.expected_start for j in view.jobs if j.status.job_id == job), None)
    offers = queue.offers(scheduler, view.cluster, wanted, site, expected) if wanted else []
    if as_json:
        from gpt_tune.workflows.queue_data import queue_json

        emit_json(queue_json(view, offers))
    else:
        _show(view, offers)
    return EXIT_DONE


def _wanted(
    scheduler: Scheduler,
    view: QueueView,
    job: str | None,
    gpus: int | None,
    gpu: str,
    partition: str,
    time: str,
) -> Wanted | None:
    from gpt_tune.errors import unknown_name
    from gpt_tune.schedulers import slurm_words
    from gpt_tune.workflows import queue

    if job is not None:
        found = next((j for j in view.jobs if j.status.job_id == job), None)
        if found is None:
            raise unknown_name(
                "waiting job", job, [j.status.job_id for j in view.jobs if j.status.state == "PENDING"]
            )
        if found.status.state != "PENDING":
            raise UserError(
                f"Job {job} does not wait: it is {found.status.state}.", "--for is for waiting jobs."
            )
        return queue.wanted_of(scheduler, found.status)
    if gpus is None:
        return None
    if time and slurm_words.seconds(time) is None:
        raise UserError(f"--time {time!r} is no time limit.", "Write it as 2:00:00 or 1-00:00:00.")
    known = [p.name for p in view.cluster.partitions]
    if partition and partition not in known:
        raise unknown_name("partition", partition, known)
    return queue.request(view.cluster, gpus, gpu, partition, time)


def _show(view: QueueView, offers: list[Offer]) -> None:
    from gpt_tune.workflows import queue

    if view.jobs:
        show_table(
            ("job", "run", "name", "state", "partition", "GPUs", "starts", "why"),
            [
                (j.status.job_id, j.run_id or "not ours", j.status.name, j.status.state, j.status.partition,
                 j.status.gpus, j.status.expected_start or j.starts, f"{j.why}{' ' + j.fix if j.fix else ''}")
                for j in view.jobs
            ],
            "5",
        )  # fmt: skip
    else:
        say(f"No job of yours is in the queue of {view.cluster.name}.")
    if view.free:
        show()
        rows = [(f.partition, f.gpu or "GPU", f.free, f.total, f.whole_nodes) for f in view.free]
        show_table(("partition", "type", "free", "GPUs", "whole nodes free"), rows, "2,3,4")
    if offers:
        show()
        for offer in offers:
            show(queue.offer_words(offer))
