"""Owns what this machine is: CPUs, memory and NVIDIA GPUs, as a cluster of one node."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from pathlib import Path

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers.base import Cluster, NodeGroup, Partition
from gpt_tune.schedulers.commands import Commands

NAME = "local"
# A GPU holding less than this is free: an idle one shows up to a few hundred MiB of driver and display use.
_FREE_BELOW_MIB = 1024
_SMI_SECONDS = 20.0


def discover(commands: Commands) -> Cluster:
    """This machine as a cluster; without nvidia-smi it has no GPUs."""
    names, used, note = _gpus(commands)
    kinds = sorted(set(names), key=names.count, reverse=True)
    main = kinds[0] if kinds else ""
    group = NodeGroup(
        nodes=1,
        nodes_by_state={"idle": 1},
        gpu=main.lower().replace(" ", "_"),
        gpus_per_node=names.count(main),
        gpus_free=sum(1 for n, u in zip(names, used) if n == main and u < _FREE_BELOW_MIB),
        cpus_per_node=len(os.sched_getaffinity(0)),
        memory_mib_per_node=_memory_mib(),
        names=socket.gethostname(),
    )
    others = [f"{names.count(k)} x {k}" for k in kinds[1:]]
    notes = [note] if note else []
    if others:
        notes.append(f"Also here, and not counted: {', '.join(others)}.")
    partition = Partition(
        name=NAME,
        default=True,
        state="up",
        time_limit_seconds=None,
        default_time_seconds=None,
        groups=(group,),
    )
    return Cluster(
        name=NAME,
        scheduler="local",
        version=f"{platform.system()} {platform.release()}",
        partitions=(partition,),
        notes=tuple(notes),
    )


def _memory_mib() -> int:
    """MemTotal of /proc/meminfo, which is in KiB."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 0


def _gpus(commands: Commands) -> tuple[list[str], list[float], str]:
    """Names and used MiB of each GPU, and a note when they could not be asked."""
    if shutil.which("nvidia-smi") is None:
        return [], [], ""
    query = ["nvidia-smi", "--query-gpu=name,memory.used", "--format=csv,noheader,nounits"]
    try:
        done = commands.run(query, _SMI_SECONDS)
    except SchedulerError as error:
        return [], [], error.message
    if done.returncode != 0:
        first = (done.words.splitlines() or ["no reason given"])[0].rstrip(".")
        return [], [], f"nvidia-smi does not work here: {first}."
    return *_parse_smi(done.text), ""


def _parse_smi(text: str) -> tuple[list[str], list[float]]:
    names, used = [], []
    for line in text.splitlines():
        name, _, memory = line.rpartition(",")
        if name.strip():
            names.append(name.strip())
            used.append(float(memory) if memory.strip().replace(".", "", 1).isdigit() else 0.0)
    return names, used
