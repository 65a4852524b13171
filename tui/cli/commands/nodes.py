"""Owns `gpt-tune nodes`: one row a node of a job, and samples of its hardware on request."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from gpt_tune.errors import EXIT_DONE, UserError
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show_table

if TYPE_CHECKING:
    from gpt_tune.ledger import RunRecord
    from gpt_tune.workflows.nodes.rows import NodeRow
    from gpt_tune.workflows.nodes.samples import NodeSample
    from gpt_tune.workflows.nodes.sampling import Sampling
    from tui.cli.targets import Target

POLL_SECONDS = 0.2
WAIT_SECONDS = 30.0  # for the first samples of every node


@click.command(
    help="One row a node of a run (ID: run id or job id) or of log files: last line, steps behind, silent ranks. "
    "--sample adds GPU use, memory, power, temperature and Xids, by one small step of the job that ends with it."
)
@click.argument("names", nargs=-1, required=True, metavar="ID | LOGFILE...")
@click.option("--sample", is_flag=True, help="Start the sampler of its nodes, unless it runs already.")
@click.option("--interval", type=float, default=10.0, show_default=True, help="Seconds between two samples.")
@click.option("--stop", is_flag=True, help="End the sampler.")
@json_option
def command(names: tuple[str, ...], sample: bool, interval: float, stop: bool, as_json: bool) -> int:
    from gpt_tune.workflows.nodes import sampling
    from tui.cli.targets import target_of

    if sample and stop:
        raise UserError("--sample and --stop contradict each other.", "Give one of them.")
    target = target_of(names, fetch=False, fresh=True)
    record = target.record
    if (sample or stop) and record is None:
        raise UserError(
            "Only the nodes of a run of gpt-tune can be sampled: the samples are kept in its run folder.",
            "Without --sample the log alone is shown.",
        )
    if record is not None and record.job_id is None:
        raise UserError(f"{record.run_id} has no job yet.", "Submit it first.")
    if stop and record is not None:
        sampling.attach(record).stop()
        say(f"The sampler of {record.run_id} ends within two seconds.")
        return EXIT_DONE
    samples, problem = _samples(record, sample, interval) if record is not None else ({}, "")
    rows = _rows(target, samples)
    run_id, state = (record.run_id, record.state) if record is not None else (None, None)
    if as_json:
        emit_json(
            {"schema": "gpt-tune/nodes/1", "run_id": run_id, "state": state,
             "problem": problem or None, "nodes": [row.to_json() for row in rows]}
        )  # fmt: skip
        return EXIT_DONE
    if problem:
        say(problem)
    if not rows:
        say("Nothing is known of its nodes: no line of the log says who wrote it.")
        return EXIT_DONE
    show_table(_COLUMNS, [_row(row) for row in rows], "2,3,4,5,6,7,8,9")
    return EXIT_DONE


def _samples(record: RunRecord, sample: bool, interval: float) -> tuple[dict[str, NodeSample], str]:
    """The newest samples by node, and why there are none."""
    from gpt_tune.workflows.nodes import sampling

    if not sample:
        attached = sampling.attach(record)
        return attached.poll(), ""
    started = sampling.start(record, interval)
    return _first(started, max(1, record.nodes))


def _first(started: Sampling, nodes: int) -> tuple[dict[str, NodeSample], str]:
    until = time.monotonic() + WAIT_SECONDS
    while True:
        found = started.poll()
        if len(found) >= nodes or started.problem or time.monotonic() > until:
            break
        time.sleep(POLL_SECONDS)
    missing = f"{len(found)} of {nodes} nodes have sent samples so far." if len(found) < nodes else ""
    return found, started.problem or missing


def _rows(target: Target, samples: dict[str, NodeSample]) -> list[NodeRow]:
    from gpt_tune.schedulers import hostlist
    from gpt_tune.workflows.records import status_of, watch_of
    from gpt_tune.workflows.watch import Watch

    record, foreign = target.record, target.foreign
    if record is not None:
        status = status_of(record)
        watch = watch_of(record, state_source=lambda: status)
    else:
        watch = Watch(target.paths, gpus=foreign.status.gpus if foreign is not None else None)
    while watch.poll().history < 1.0:
        pass
    known = record or (foreign.status if foreign is not None else None)
    return watch.nodes(hostlist.expand(known.node_list) if known is not None else (), samples)


_COLUMNS = (
    "node", "ranks", "seen s ago", "iteration", "behind", "GPU %", "GPU GiB", "W", "C", "CPU %", "stands out",
    "last line",
)  # fmt: skip


def _row(row: NodeRow) -> tuple[Any, ...]:
    sample = row.sample
    gpus = sample.gpus if sample is not None else ()
    return (
        row.node, _span(row.ranks), None if row.seen_seconds_ago is None else round(row.seen_seconds_ago),
        row.iteration, row.lag, _mean([g.utilisation for g in gpus], 100.0), _most([g.memory_used_gib for g in gpus]),
        _sum([g.watts for g in gpus]), _most([g.celsius for g in gpus]),
        round(100 * sample.cpu) if sample is not None and sample.cpu is not None else None, row.words,
        row.last_line[:60],
    )  # fmt: skip


def _span(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return ""
    whole = ranks[-1] - ranks[0] + 1 == len(ranks)
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}" if whole else f"{len(ranks)} ranks"


def _known(values: list[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def _mean(values: list[float | None], scale: float) -> int | None:
    known = _known(values)
    return round(scale * sum(known) / len(known)) if known else None


def _most(values: list[float | None]) -> float | None:
    known = _known(values)
    return round(max(known), 1) if known else None


def _sum(values: list[float | None]) -> int | None:
    known = _known(values)
    return round(sum(known)) if known else None
