"""Owns the queue as a person asks about it: my jobs, free GPUs by type, why jobs wait, what could start now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.hardware.sizes import nodes_of
from gpt_tune.jobs import clock, reasons
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.profiles.schema import Site
from gpt_tune.schedulers import hostlist, slurm_starts, slurm_words
from gpt_tune.schedulers.base import ENDED, Cluster, JobStatus, NodeGroup, Partition, Scheduler
from gpt_tune.schedulers.slurm_cli import SlurmCli
from gpt_tune.schedulers.slurm_jobs import base_of, span
from gpt_tune.words import seconds_words

_NOW_SECONDS = 90.0  # a start within this is "now": schedulers look once a minute
_SWEEP_TAG = "sweep="
_MOST_QUESTIONS = 8  # to the controller, for one look


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request to look for. gpu: the scheduler's own word, "" for any. time_limit: Slurm's notation."""

    partition: str = ""
    gpus: int = 1
    gpus_per_node: int = 8
    gpu: str = ""
    time_limit: str = ""

    @property
    def nodes(self) -> int:
        return nodes_of(self.gpus, self.gpus_per_node)

    def words(self) -> str:
        kind = f" {self.gpu}" if self.gpu else ""
        time = f" for {self.time_limit}" if self.time_limit else ""
        return f"{self.gpus}{kind} GPUs on {self.nodes} node{'s' if self.nodes > 1 else ''} of {self.partition}{time}"


@dataclass(frozen=True, slots=True)
class Offer:
    """A request and when it could start (RFC 3339), None when never. free_now: as the nodes stand."""

    wanted: Wanted
    at: str | None
    now: bool
    different: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class MyJob:
    """One of my jobs. run_id: None when gpt-tune did not submit it. starts: yes | no | maybe, while it waits.
    sweep: the sweep it belongs to, "" for none."""

    status: JobStatus
    run_id: str | None
    why: str = ""
    starts: str = ""
    fix: str = ""
    sweep: str = ""

    @property
    def adoptable(self) -> bool:
        """Whether it can be taken into the ledger."""
        return self.run_id is None and self.status.state not in ENDED

    @property
    def tasks(self) -> int:
        """Tasks that this line of the queue stands for: waiting ones of an array share one, as `7_[2-5]`."""
        inside = re.search(r"_\[([^%\]]*)", self.status.job_id)
        return max(1, sum(len(span(s)) for s in inside[1].split(","))) if inside else 1

    @property
    def held(self) -> bool:
        """Whether it waits because somebody holds it."""
        return self.status.reason.startswith("JobHeld")


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that are shown as one line: those of a sweep, or the tasks of an array. A job alone is a group of one."""

    key: str
    jobs: tuple[MyJob, ...]

    @property
    def words(self) -> str:
        """`3 RUNNING, 5 PENDING`."""
        counts: dict[str, int] = {}
        for job in self.jobs:
            counts[job.status.state] = counts.get(job.status.state, 0) + job.tasks
        return ", ".join(f"{count} {state}" for state, count in counts.items())

    @property
    def tasks(self) -> int:
        return sum(j.tasks for j in self.jobs)

    @property
    def gpus(self) -> int:
        return sum((j.status.gpus or 0) * j.tasks for j in self.jobs)


@dataclass(frozen=True, slots=True)
class Free:
    """GPUs of one type in one partition."""

    partition: str
    gpu: str
    free: int
    total: int
    whole_nodes: int
    gpus_per_node: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """One look. free_at: when the nodes were looked at, "" for then, too."""

    cluster: Cluster
    jobs: tuple[MyJob, ...]
    free: tuple[Free, ...]
    as_of: str
    free_at: str = ""


def look(scheduler: Scheduler, ledger: Ledger) -> QueueView:
    """My jobs and the free GPUs: two controller calls (and one more the first time)."""
    cluster = scheduler.discover()
    return view_of(cluster, scheduler.my_jobs(), scheduler.cluster, ledger)


def view_of(cluster: Cluster, listed: Sequence[JobStatus], name: str, ledger: Ledger) -> QueueView:
    """What was heard as a queue. name: the cluster's, as the ledger knows it."""
    known = {job_id: r for r in ledger.runs() if r.cluster == name for job_id in r.job_ids}
    mine = sorted((s for s in listed if s.state not in ENDED), key=_order)
    return QueueView(cluster, tuple(_my_job(s, known) for s in mine), free_gpus(cluster), clock.now())


def _order(status: JobStatus) -> tuple[int, str]:
    return (0 if status.state == "RUNNING" else 1, status.submitted_at or "")


def _my_job(status: JobStatus, known: dict[str, RunRecord]) -> MyJob:
    record = known.get(status.job_id) or known.get(base_of(status.job_id))
    run_id = record.run_id if record is not None else None
    sweep = sweep_of(record) if record is not None else ""
    if status.state != "PENDING":
        return MyJob(status, run_id, sweep=sweep)
    reason = reasons.explain(status.reason)
    return MyJob(status, run_id, reason.text, reason.starts, reason.fix, sweep)


def sweep_of(record: RunRecord) -> str:
    """The id of the sweep that a run is a task of, by its tag (see workflows.sweep); "" for none."""
    return next((t.removeprefix(_SWEEP_TAG) for t in record.tags if t.startswith(_SWEEP_TAG)), "")


def folded(jobs: Sequence[MyJob]) -> list[Group]:
    """The jobs with sweeps and arrays as one line each, in the order of their first job."""
    groups: dict[str, list[MyJob]] = {}
    for job in jobs:
        groups.setdefault(job.sweep or base_of(job.status.job_id), []).append(job)
    return [Group(key, tuple(found)) for key, found in groups.items()]


def free_gpus(cluster: Cluster) -> tuple[Free, ...]:
    """Free GPUs by partition and type, most free first."""
    found = [
        Free(
            partition.name, group.gpu, group.gpus_free, group.nodes * group.gpus_per_node,
            whole_nodes(group), group.gpus_per_node,
        )
        for partition in cluster.partitions
        for group in partition.groups
        if group.gpus_per_node
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda f: (-f.free, f.partition)))


def whole_nodes(group: NodeGroup) -> int:
    """Nodes that stand idle, as far as free GPUs allow."""
    return min(group.nodes_by_state.get("idle", 0), group.gpus_free // max(1, group.gpus_per_node))


# -- what could start -----------------------------------------------------------------------------
def wanted_of(scheduler: Scheduler, status: JobStatus) -> Wanted:
    """What a job asks for, in the scheduler's words where it still knows: one call."""
    from gpt_tune.workflows import adopt  # reads logs, so it is heavy

    shown = adopt.shown(scheduler, status.job_id)
    nodes = max(1, status.nodes)
    asked = [g for key in ("TresPerNode", "ReqTRES", "TRES") for g in slurm_words.gpus(shown.get(key, ""))]
    gpus = status.gpus or adopt.gpus_of(shown)
    limit = shown.get("TimeLimit", "")
    return Wanted(
        partition=status.partition.partition(",")[0],
        gpus=gpus,
        gpus_per_node=max(1, -(-gpus // nodes)),
        gpu=next((g.type for g in asked if g.type), ""),
        time_limit=limit if slurm_words.seconds(limit) else "",
    )


def request(cluster: Cluster, gpus: int, gpu: str = "", partition: str = "", time_limit: str = "") -> Wanted:
    """A request in terms of what the cluster has. UserError names the types of GPU when there is no such one."""
    home = [p for p in cluster.partitions if p.name == partition or (not partition and p.gpus_total)]
    home.sort(key=lambda p: not p.default)
    groups = [(p, g) for p in home for g in p.groups if g.gpus_per_node]
    fitting = [(p, g) for p, g in groups if gpu in ("", g.gpu)]
    if not fitting:
        types = {g.gpu for p in cluster.partitions for g in p.groups if g.gpu}
        if gpu and gpu not in types:
            raise unknown_name("GPU type", gpu, types)
        where = f"Partition {partition}" if partition else f"Cluster {cluster.name}"
        raise UserError(f"{where} has no {gpu or 'GPU'}.", "`gpt-tune clusters` shows what there is.")
    enough = [(p, g) for p, g in fitting if g.nodes * g.gpus_per_node >= gpus]
    if not enough:
        p, g = max(fitting, key=lambda pair: pair[1].nodes * pair[1].gpus_per_node)
        most = g.nodes * g.gpus_per_node
        raise UserError(f"{gpus} GPUs are more than the {most} of partition {p.name}.", f"Take {most}.")
    found, group = enough[0]
    per_node = group.gpus_per_node
    if gpus > per_node and gpus % per_node:
        raise UserError(
            f"{gpus} GPUs are no whole nodes of {per_node}.",
            "Take "
            + " or ".join(
                str(n)
                for n in (gpus // per_node * per_node, -(-gpus // per_node) * per_node)
                if n <= group.nodes * per_node
            )
            + ".",
        )
    return Wanted(found.name, gpus, per_node, gpu or group.gpu, time_limit)


def offer_words(offer: Offer, now: str | None = None) -> str:
    """`now: 16 b200 GPUs on 2 nodes of dev (smaller)`."""
    if offer.now:
        when = "now"
    elif offer.at is None:
        when = "never"
    else:
        when = f"in {starts_in(offer.at, now)}"
    different = f" ({offer.different})" if offer.different else ""
    refusal = f": {offer.refusal}" if offer.refusal else ""
    return f"{when}: {offer.wanted.words()}{different}{refusal}"


def starts_in(at: str, now: str | None = None) -> str:
    """How long until a time stamp, in words."""
    left = slurm_words.epoch(at) - slurm_words.epoch(now or clock.now())
    return seconds_words(left) if left >= 60 else "a moment"


def offers(
    scheduler: Scheduler,
    cluster: Cluster,
    wanted: Wanted,
    site: Site | None = None,
    expected: str | None = None,
) -> list[Offer]:
    """When the request could start, and, when not now, other requests that could: asked of Slurm itself.

    The first is the request as it is; expected: when Slurm said already that the job which asks will start.
    At most _MOST_QUESTIONS controller calls; none on this machine.
    """
    asked: list[Offer] = []
    for candidate, different in candidates(cluster, wanted):
        if len(asked) >= _MOST_QUESTIONS:
            break
        known = expected if not asked else None
        offer = (
            Offer(candidate, known, _is_soon(known)) if known else ask(scheduler, candidate, site, different)
        )
        asked.append(offer)
        if len(asked) == 1 and offer.now:
            return asked
    return (
        [asked[0], *sorted((o for o in asked[1:] if o.at), key=lambda o: (not o.now, o.at or ""))]
        if asked
        else []
    )


def ask(scheduler: Scheduler, wanted: Wanted, site: Site | None = None, different: str = "") -> Offer:
    """When one request could start."""
    if not isinstance(scheduler, SlurmCli):
        return Offer(wanted, clock.now(), True, different)
    start = slurm_starts.test_only(scheduler, options(wanted, site))
    return Offer(wanted, start.at, start.at is not None and _is_soon(start.at), different, start.refusal)


def _is_soon(at: str) -> bool:
    return slurm_words.epoch(at) - slurm_words.epoch(clock.now()) <= _NOW_SECONDS


def options(wanted: Wanted, site: Site | None) -> list[str]:
    """The request as options of sbatch."""
    per_node = min(wanted.gpus, wanted.gpus_per_node)
    kind = f"{wanted.gpu}:" if wanted.gpu else ""
    found = [f"--nodes={wanted.nodes}", f"--ntasks-per-node={max(1, per_node)}"]
    found += [f"--gres=gpu:{kind}{per_node}"] if per_node else []
    named = {"partition": wanted.partition, "time": wanted.time_limit}
    if site is not None:
        named |= {"account": site.account, "qos": site.qos, "exclude": ",".join(site.exclude_nodes)}
    return found + [f"--{name}={value}" for name, value in named.items() if value]


def candidates(cluster: Cluster, wanted: Wanted) -> list[tuple[Wanted, str]]:
    """The request, then others worth asking about, most alike first: shorter, other nodes, smaller."""
    found: list[tuple[Wanted, str]] = [(wanted, "")]
    home = next((p for p in cluster.partitions if p.name == wanted.partition), None)
    found += [(w, "shorter") for w in _shorter(wanted, home)]
    for partition in cluster.partitions:
        if partition.state != "up":
            continue
        for group in partition.groups:
            if group.gpus_per_node < min(wanted.gpus, wanted.gpus_per_node) or _is_own(
                group, partition, wanted, home
            ):
                continue
            if group.nodes * group.gpus_per_node >= wanted.gpus:
                other = Wanted(
                    partition.name, wanted.gpus, wanted.gpus_per_node, group.gpu, wanted.time_limit
                )
                found.append((other, f"other nodes: {group.gpu or 'GPUs'} of {partition.name}"))
    found += [(w, "smaller") for w in _smaller(wanted, home)]
    return list({w: (w, d) for w, d in reversed(found)}.values())[::-1]


def _is_own(group: NodeGroup, partition: Partition, wanted: Wanted, home: Partition | None) -> bool:
    """Whether these are nodes that the request may have already, be it by the name of another partition."""
    if partition.name == wanted.partition and wanted.gpu in ("", group.gpu):
        return True
    own = (
        {n for g in home.groups if wanted.gpu in ("", g.gpu) for n in hostlist.expand(g.names)}
        if home
        else set()
    )
    theirs = set(hostlist.expand(group.names))
    return bool(theirs) and theirs <= own


def _shorter(wanted: Wanted, home: Partition | None) -> list[Wanted]:
    """Backfill starts short jobs early."""
    limit = slurm_words.seconds(wanted.time_limit) if wanted.time_limit else None
    if limit is None and home is not None:
        limit = home.default_time_seconds or home.time_limit_seconds
    if limit is None:
        return []
    steps = [s for s in (limit // 4, 3600, 1800) if 600 <= s < limit]
    return [
        Wanted(wanted.partition, wanted.gpus, wanted.gpus_per_node, wanted.gpu, slurm_words.duration(s))
        for s in dict.fromkeys(steps[:2])
    ]


def _smaller(wanted: Wanted, home: Partition | None) -> list[Wanted]:
    """Half, and what stands free in whole nodes now."""
    sizes = []
    for group in home.groups if home else ():
        if wanted.gpu in ("", group.gpu) and whole_nodes(group):
            sizes.append(whole_nodes(group) * wanted.gpus_per_node)
    half = wanted.gpus // 2
    if half >= wanted.gpus_per_node:
        half -= half % wanted.gpus_per_node
    sizes.append(half)
    return [
        Wanted(wanted.partition, size, wanted.gpus_per_node, wanted.gpu, wanted.time_limit)
        for size in sorted({s for s in sizes if 0 < s < wanted.gpus}, reverse=True)
    ]
