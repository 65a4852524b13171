"""Owns the text of the private cluster's slurm.conf and gres.conf."""

from __future__ import annotations

import os
import pwd
import socket
from dataclasses import dataclass
from pathlib import Path

NODES_B200 = 8
NODES_H100 = 4
DRAINED_NODE = "h100-4"
PORTS = 1 + NODES_B200 + NODES_H100  # slurmctld and one slurmd a node
HOST = socket.gethostname().split(".")[0]

# EDIT HERE to change how the test cluster behaves. Short waits keep tests quick; everything else is Slurm's
# default. Debian's build accepts several slurmd on one host.
_SLURM_CONF = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
GresTypes=gpu
SlurmdParameters=config_overrides
MessageTimeout=5
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=10000,bf_interval=2
NodeName=b200-[1-8] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{b200_ports}] CPUs=192 RealMemory=2000000 \
Gres=gpu:b200:8 Feature=p6-b200,efa
NodeName=h100-[1-4] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{h100_ports}] CPUs=192 RealMemory=2000000 \
Gres=gpu:h100:8 Feature=p5
PartitionName=dev Nodes=b200-[1-8] Default=YES DefaultTime=01:00:00 MaxTime=02:00:00
PartitionName=long Nodes=b200-[1-8],h100-[1-4] MaxTime=7-00:00:00
"""

# A count without File= leaves every node in state `inval`; the files are ordinary empty ones.
_GRES_CONF = """\
NodeName=b200-[1-8] Name=gpu Type=b200 File={folder}/gpu[0-7]
NodeName=h100-[1-4] Name=gpu Type=h100 File={folder}/gpu[0-7]
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where one private cluster lives and what it is called. first_port starts a block of PORTS ports.

    version: Slurm's, as numbers.
    """

    folder: Path
    name: str
    first_port: int
    version: tuple[int, ...] = (22, 5)
    extra: str = ""  # further slurm.conf lines; a repeated key of the text above replaces it


def user_name() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def node_names() -> list[str]:
    return [f"b200-{i + 1}" for i in range(NODES_B200)] + [f"h100-{i + 1}" for i in range(NODES_H100)]


def write(settings: Settings) -> Path:
    """Write both files and the make-believe GPU devices; the path of slurm.conf."""
    folder = settings.folder
    for gpu in range(8):
        (folder / f"gpu{gpu}").touch()
    (folder / "gres.conf").write_text(_GRES_CONF.format(folder=folder))
    if settings.version >= (23,):  # these insist on the file; older ones do not know the word
        (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    path = folder / "slurm.conf"
    path.write_text(_slurm_conf(settings))
    return path


def _slurm_conf(settings: Settings) -> str:
    first = settings.first_port
    text = _SLURM_CONF.format(
        name=settings.name,
        host=HOST,
        user=user_name(),
        folder=settings.folder,
        controller_port=first,
        b200_ports=f"{first + 1}-{first + NODES_B200}",
        h100_ports=f"{first + NODES_B200 + 1}-{first + NODES_B200 + NODES_H100}",
    )
    return _with_extra(text, settings.extra)


def _with_extra(text: str, extra: str) -> str:
    """`text` with the lines of `extra` added, each replacing the line that sets the same single key."""
    lines = text.splitlines()
    for added in filter(None, extra.splitlines()):
        key = added.split("=", 1)[0]
        if key not in ("NodeName", "PartitionName"):
            lines = [line for line in lines if line.split("=", 1)[0] != key]
        lines.append(added)
    return "\n".join(lines) + "\n"
