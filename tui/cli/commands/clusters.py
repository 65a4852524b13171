"""Owns `gpt-tune clusters`: what can be reached from here."""

from __future__ import annotations

import click

from gpt_tune.errors import EXIT_DONE
from gpt_tune.schedulers.base import Cluster
from tui.cli.options import json_option
from tui.cli.output import emit_json, show, show_table


@click.command(help="Partitions, nodes, free GPUs and limits of each cluster that can be reached from here.")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> int:
    from gpt_tune import clusters

    found = [clusters.discover(n) for n in ([name] if name else clusters.available())]
    silent = {} if name else clusters.silent()
    if as_json:
        for error in silent.values():
            raise error
        emit_json({"schema": "gpt-tune/clusters/1", "clusters": [c.to_json() for c in found]})
        return EXIT_DONE
    for i, one in enumerate(found):
        if i:
            show()
        _show(one)
    for error in silent.values():  # what answers is shown first, then what does not
        raise error
    return EXIT_DONE


def _show(cluster: Cluster) -> None:
    from gpt_tune.words import seconds_words

    version = f" {cluster.version}" if cluster.version else ""
    show(f"{cluster.name} ({cluster.scheduler}{version})")
    for note in cluster.notes:
        show(f"  note: {note}")
    rows = []
    for p in cluster.partitions:
        for i, g in enumerate(p.groups):
            states = ", ".join(f"{n} {state}" for state, n in g.nodes_by_state.items() if n)
            limit = seconds_words(p.time_limit_seconds) if p.time_limit_seconds is not None else "none"
            rows.append(
                (
                    (p.name + ("*" if p.default else "")) if i == 0 else " ",
                    limit if i == 0 else " ",
                    g.nodes,
                    states,
                    f"{g.gpus_per_node} x {g.gpu or 'GPU'}" if g.gpus_per_node else "none",
                    f"{g.gpus_free}/{g.nodes * g.gpus_per_node}" if g.gpus_per_node else "",
                    g.cpus_per_node,
                    g.memory_mib_per_node // 1024,
                )
            )
    show_table(
        ("partition", "limit", "nodes", "states", "GPUs a node", "free", "CPUs", "GiB"), rows, "2,5,6,7"
    )
