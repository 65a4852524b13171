"""Owns why a job waits, in plain words, and whether it will ever start by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Starts = Literal["yes", "no", "maybe"]
BY_YOU = "cancelled by you"  # of a job that gpt-tune itself was told to cancel


@dataclass(frozen=True, slots=True)
class PendingReason:
    """text: what it means. starts: whether the job starts without anybody doing something. fix: what to do."""

    id: str
    text: str
    starts: Starts
    fix: str = ""


_ALONE_TOO_LARGE = (
    "It starts when enough of them end; with none running it is larger than the limit, and never will."
)
# EDIT HERE to explain one more reason: (regular expression on Slurm's word, words, starts, fix).
# Meanings are Slurm's own (its "job reason codes" page), 20.11 to 26.05. The first match wins.
_TABLE: tuple[tuple[str, str, Starts, str], ...] = (
    (r"Priority", "jobs with higher priority are ahead of it", "yes", ""),
    (r"Resources", "next in line: it waits for nodes to become free", "yes", ""),
    (r"None|", "the scheduler has not looked at it yet", "yes", ""),
    (r"DependencyNeverSatisfied", "the job it depends on failed, so it can never start", "no",
     "Cancel it, and submit without the dependency."),
    (r"Dependency", "it waits for another job to end", "yes", ""),
    (r"BeginTime", "it waits for its start time (also for a while after a requeue)", "yes", ""),
    (r"(QOS|Assoc)(Max|Grp)(Submit)?Jobs?(PerUser|PerAccount)?(Limit)?|Max(Submit)?JobsPer\w*",
     "as many jobs run, yours or your group's, as may at once", "yes", "It starts when one of them ends."),
    (r"(QOSGrp|AssocGrp)\w*RunMinutes\w*|Max\w+RunMinsPer(Account|User)",
     "the jobs that run now may still use as much time as is allowed at once", "yes",
     "It starts when some of them end; a shorter time limit helps."),
    (r"(QOSGrp|AssocGrp|QOSGroup|AssocGroup)\w*Minutes\w*",
     "the group's budget of compute time is used up", "no", "Ask who manages the account for more."),
    (r"(QOSGrp|AssocGrp|QOSGroup|AssocGroup)\w*",
     "the group's running jobs leave it less than it asks for of what all may use at once", "yes",
     _ALONE_TOO_LARGE),
    (r"QOSMaxWallDurationPerJobLimit|AssocMaxWallDurationPerJobLimit|QOSTimeLimit|AssociationTimeLimit",
     "its time limit is longer than the QOS or account allows", "no", "Cancel it and lower site.time_limit."),
    (r"(QOS|Assoc)Max\w*PerJob\w*", "it asks for more than the QOS or account allows one job", "no",
     "Cancel it and ask for less, or use another QOS."),
    (r"(QOS|Assoc)Max\w*MinutesPerJob\w*|(QOS|Assoc)Max\w*MinutesPJ\w*",
     "it asks for more compute time than one job may use", "no", "Cancel it and lower size or time limit."),
    (r"(QOS|Assoc)Max\w*PerNode\w*|MaxMemPerLimit",
     "it asks for more of a node than the QOS, account or site allows", "no",
     "Cancel it and ask for less a node, or use another QOS."),
    (r"QOSMin\w*", "it asks for less than the QOS requires", "no", "Cancel it and ask for more, or use another QOS."),
    (r"QOSUsageThreshold", "the QOS's usage is below its threshold", "maybe", "Use another QOS."),
    (r"(QOS|Assoc)Max\w*|MaxJobsPer\w*|QOSResourceLimit|AssociationJobLimit|AssociationResourceLimit|QOSJobLimit",
     "your running jobs leave it less than it asks for of what you may use at once", "yes",
     _ALONE_TOO_LARGE),
    (r"Max\w+PerAccount",
     "your account's running jobs leave it less than it asks for of what it may use at once", "yes",
     _ALONE_TOO_LARGE),
    (r"AccountingPolicy", "a limit of its account or QOS keeps it waiting", "maybe",
     "`sacctmgr show assoc user=$USER` lists the limits."),
    (r"PartitionTimeLimit", "its time limit is longer than the partition allows", "no",
     "Cancel it and lower site.time_limit, or use another partition."),
    (r"PartitionConfig", "no node of the partition has as much as it asks for", "no",
     "Cancel it and ask for fewer CPUs, GPUs or less memory a node, or use another partition."),
    (r"PartitionNodeLimit", "it asks for more nodes than the partition allows (or too many of them are down)", "no",
     "Cancel it and ask for fewer nodes, or wait until nodes return."),
    (r"ReqNodeNotAvail.*(Reserved for maintenance|maint)",
     "its nodes are reserved for maintenance, and it could not end before", "maybe",
     "A shorter time limit may let it start before."),
    (r"ReqNodeNotAvail.*", "nodes it needs are down, drained or reserved", "maybe",
     "It starts when they return; a shorter time limit may help when they are reserved."),
    (r"Nodes.required.for.job.are.DOWN.*", "nodes it needs are down, drained or reserved", "maybe",
     "It starts when they return; see `gpt-tune clusters` for other nodes."),
    (r"Power(NotAvail|Reserved)", "there is no power for more nodes now", "yes", ""),
    (r"NodeDown", "a node it needs is down", "maybe", "It starts when the node returns."),
    (r"Reserved for maintenance|.*Maint.*", "a maintenance reservation overlaps its time limit", "maybe",
     "A shorter time limit may let it start before."),
    (r"ReservationDeleted|ReservationInvalid|InvalidReservation", "its reservation does not exist any more", "no",
     "Cancel it, and submit without the reservation."),
    (r"Reservation", "it waits for its reservation to begin", "yes", ""),
    (r"BadConstraints", "no node can ever satisfy its constraints", "no",
     "Cancel it and change the constraint, or the resources it asks for."),
    (r"Constraints", "no node satisfies its constraints now", "maybe", "Check its --constraint."),
    (r"InvalidAccount|AccountNotAllowed", "the account may not run here", "no", "Set site.account to one that may."),
    (r"InvalidQOS|QOSNotAllowed", "the QOS may not be used here", "no", "Set site.qos to one that may."),
    (r"JobHeldUser", "you hold it", "no", "Release it: gpt-tune release ID."),
    (r"JobHeldAdmin", "an administrator holds it", "no", "Ask the cluster's support why."),
    (r"JobHoldMaxRequeue", "it was requeued too often and is held", "no",
     "See why it fails to start, then: gpt-tune release ID"),
    (r"launch failed requeued held|JobLaunchFailure|.*requeued held.*",
     "it could not be started on its nodes and is held", "no",
     "A node or its prolog is broken: exclude that node, then gpt-tune release ID"),
    (r"JobArrayTaskLimit", "the array's own limit of tasks at once is reached", "yes", ""),
    (r"PartitionDown|PartitionInactive", "the partition is switched off", "no", "Use another partition."),
    (r"starting", "it is being started", "yes", ""),
    (r"Prolog", "its nodes are being prepared", "yes", ""),
    (r"Cleaning", "the rest of its earlier run is being cleaned up", "yes", ""),
    (r"Licenses", "it waits for licences", "yes", ""),
    (r"BurstBuffer\w*", "it waits for the burst buffer", "yes", ""),
    (r"MaxPoweredUpNodes", "no more nodes may be powered up now", "yes", ""),
    (r"NvidiaImexChannels", "it waits for NVLink channels between nodes", "yes", ""),
    (r"MpiPortsBusy", "it waits for free MPI ports", "yes", ""),
    (r"Nodes? .*(boot|configur).*|nodes are booting", "its nodes are booting", "yes", ""),
    (r"SchedDefer", "the scheduler starts jobs in batches here", "yes", ""),
    (r"DeadLine", "it can no longer end before its deadline", "no", "Cancel it and lower its time limit."),
    (r"FedJobLock|OriginCluster|RemoteCluster", "clusters of the federation agree on where it runs", "yes", ""),
    (r"InactiveLimit|SystemFailure", "the system failed", "no", "Ask the cluster's support."),
)  # fmt: skip


def explain(reason: str) -> PendingReason:
    """What Slurm's reason means. One that is not known comes back in Slurm's words."""
    bare = reason.strip().strip("()")
    identifier = f"P-{re.split(r'[ ,]', bare)[0] or 'None'}"
    for pattern, text, starts, fix in _TABLE:
        if re.fullmatch(pattern, bare, re.IGNORECASE):
            return PendingReason(identifier, text, starts, fix)
    return PendingReason(
        identifier, f"Slurm says: {bare}", "maybe", "The cluster's support knows this reason."
    )
