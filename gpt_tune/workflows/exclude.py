"""Owns leaving broken nodes out: which one a finding is about, and the cluster's list with date and reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from gpt_tune import clusters
from gpt_tune.diagnosis.types import Finding
from gpt_tune.errors import UserError, nearest
from gpt_tune.ledger import RunRecord
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Site
from gpt_tune.schedulers import hostlist


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A node to leave out. why: the finding in words."""

    cluster: str
    node: str
    why: str

    @property
    def option(self) -> str:
        """What it comes to for the scheduler."""
        return f"--exclude={self.node}"


def offers(record: RunRecord, findings: Sequence[Finding]) -> list[Exclusion]:
    """Nodes of a run that findings about hardware point to; one offer a node, the first finding's."""
    nodes = hostlist.expand(record.node_list)
    found: dict[str, Exclusion] = {}
    if record.scheduler == "local":
        return []
    for finding in findings:
        if finding.action != "exclude_host" or finding.echo_of is not None:
            continue
        node = node_of(finding, nodes, _per_node(record))
        if node is not None and node not in found:
            found[node] = Exclusion(record.cluster, node, f"{finding.id}: {finding.text}")
    return list(found.values())


def node_of(finding: Finding, nodes: Sequence[str], per_node: int | None) -> str | None:
    """The run's node that a finding is about: by its host, else by its rank; None when it does not say."""
    if finding.host:
        # Logs may carry the full name, or a name the scheduler does not use.
        for name in (finding.host, finding.host.split(".")[0]):
            if name in nodes:
                return name
    if finding.rank is not None and per_node and finding.rank // per_node < len(nodes):
        return nodes[finding.rank // per_node]
    return nodes[0] if len(nodes) == 1 else None


def _per_node(record: RunRecord) -> int | None:
    """Ranks of one node, as launched in blocks."""
    return record.gpus // record.nodes if record.gpus and record.nodes else None


def exclude(exclusion: Exclusion, today: str | None = None) -> Site:
    """Leave the node out of all further jobs on its cluster; the site as it is kept then."""
    site = sites.load(exclusion.cluster)
    if site is None:
        site = sites.guess(clusters.discover(exclusion.cluster))
    date = today or datetime.now(timezone.utc).strftime("%Y-%m-%d")
    nodes = tuple(dict.fromkeys([*site.exclude_nodes, exclusion.node]))
    reasons = {**site.exclude_reasons, exclusion.node: f"{date} {exclusion.why}"[:300]}
    site = replace(site, cluster=exclusion.cluster, exclude_nodes=nodes, exclude_reasons=reasons)
    sites.save(site)
    return site


def include(cluster: str, node: str) -> Site:
    """Take a node off the list again."""
    site = sites.load(cluster)
    if site is None or node not in site.exclude_nodes:
        close = nearest(node, site.exclude_nodes) if site else None
        raise UserError(
            f"{node} is not excluded on {cluster}.", f"Did you mean {close}?" if close else "Nothing to do."
        )
    reasons = {k: v for k, v in site.exclude_reasons.items() if k != node}
    site = replace(
        site, exclude_nodes=tuple(n for n in site.exclude_nodes if n != node), exclude_reasons=reasons
    )
    sites.save(site)
    return site
