"""Owns how many whole nodes a number of GPUs is, and which numbers are legal."""

from __future__ import annotations

from gpt_tune.errors import UserError

_MOST_PROCESSES = 1024  # the job script starts no more on one machine


def nodes_of(gpus: int, gpus_per_node: int) -> int:
    """Whole nodes for a number of GPUs. UserError naming the nearest legal numbers.

    Legal is at most one node's worth, or a multiple of it.
    """
    if gpus < 1:
        raise UserError(f"{gpus} GPUs are too few.", "Ask for 1 or more.")
    if gpus <= gpus_per_node:
        return 1
    nodes, rest = divmod(gpus, gpus_per_node)
    if rest:
        below, above = nodes * gpus_per_node, (nodes + 1) * gpus_per_node
        raise UserError(
            f"{gpus} GPUs are no whole number of nodes of {gpus_per_node} GPUs.",
            f"Take {below} ({nodes} node{'s' if nodes > 1 else ''}) or {above} ({nodes + 1} nodes).",
        )
    return nodes


def most_processes(cpus: int) -> int:
    """Processes that a machine without GPUs may start at once: a few for each CPU, so that it stays usable."""
    return min(_MOST_PROCESSES, max(8, 4 * cpus))
