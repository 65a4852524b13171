"""Owns the database daemons of a private cluster: mariadbd without users or system tables, and slurmdbd on it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.cluster import processes

PORTS = 2  # mariadbd and slurmdbd, after the cluster's own
_COMMANDS = {"mariadbd": "mariadb-server-core", "slurmdbd": "slurmdbd", "sacctmgr": "slurm-client"}
_SYSTEM_TABLES = tuple(
    Path("/usr/share", name, f"{prefix}_system_tables.sql")
    for name, prefix in (
        ("mariadb", "mariadb"),
        ("mariadb", "mysql"),
        ("mysql", "mariadb"),
        ("mysql", "mysql"),
    )
)
_HOST = socket.gethostname().split(".")[0]

# EDIT HERE to change what the accounting database keeps.
_SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser={user}
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql_port}
StorageUser=any
StorageLoc=slurm_acct_db
CommitDelay=1
"""
# Lines of slurm.conf; {enforce}: associations,limits,qos or nothing.
_SLURM_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
AccountingStoragePass={folder}/munge/socket
AccountingStorageTRES=gres/gpu
{enforce}"""
# What tests may use: accounts, users and QOS with limits, by the words of `sacctmgr -i add`. closed: nobody's QOS.
_ENTITIES = (
    "qos tiny MaxTRESPerJob=node=1 flags=DenyOnLimit",
    "qos short MaxWall=10 flags=DenyOnLimit",
    "qos few MaxSubmitJobsPerUser=1 flags=DenyOnLimit",
    "qos slow MaxTRESPerUser=node=1",
    "qos spent GrpTRESMins=cpu=0",
    "qos closed",
    "account lab",
    "account other",
    "user {user} account=lab defaultqos=normal qos=normal,tiny,short,few,slow,spent",
    "user nobody account=lab defaultqos=normal qos=normal,tiny,short,few,slow,spent",
)
ENFORCED = "AccountingStorageEnforce=associations,limits,qos"


def missing_reason(path: str) -> str | None:
    """Why there can be no accounting here, or None."""
    missing = [package for command, package in _COMMANDS.items() if shutil.which(command, path=path) is None]
    if missing:
        return f"accounting needs more packages: apt-get install {' '.join(missing)} (make test-full does)"
    return None


def slurm_conf(folder: Path, dbd_port: int, enforce: bool) -> str:
    """Further lines of the cluster's slurm.conf."""
    return _SLURM_CONF.format(folder=folder, dbd_port=dbd_port, enforce=ENFORCED if enforce else "")


def fill(cluster: str, user: str, environment: dict[str, str]) -> None:
    """Put everything into a new database; before slurmctld starts, which then knows all of it."""
    words = [f"add cluster {cluster}", *(f"add {e.format(user=user)}" for e in _ENTITIES)]
    words.append(f"modify user where name={user} set defaultaccount=lab")
    subprocess.run(
        ["sacctmgr", "-i"], input="\n".join([*words, "quit", ""]), env=environment, text=True, capture_output=True,
        timeout=60, check=False,
    )  # fmt: skip
    shown = subprocess.run(
        ["sacctmgr", "-nP", "show", "assoc", "format=account,user,qos"],
        env=environment, text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    if "lab|nobody|few" not in shown.stdout:
        raise RuntimeError(
            f"the accounting database does not hold what it should: {shown.stdout} {shown.stderr}"
        )


def start(folder: Path, first_port: int, user: str, daemon: Callable[..., None], path: str) -> None:
    """Start both and wait until slurmdbd answers. daemon: runs a command that goes into the background by itself.

    path: where commands are looked for.
    """
    sql_port, dbd_port = first_port, first_port + 1
    data = folder / "mariadb"
    data.mkdir(mode=0o700)
    common = (
        "--no-defaults", f"--datadir={data}", f"--user={user}", "--innodb-buffer-pool-size=32M",
        "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin",
        "--performance-schema=OFF", f"--log-error={folder}/mariadbd.log",
    )  # fmt: skip
    _make_system_tables(common, path)
    # Without grants nobody needs a password; only this machine can reach it, on a port nobody knows.
    arguments = (
        *common, f"--socket={folder}/mariadb.sock", f"--pid-file={folder}/mariadbd.pid", f"--port={sql_port}",
        "--bind-address=127.0.0.1", "--skip-grant-tables",
    )  # fmt: skip
    daemon("sh", "-c", 'exec "$@" >/dev/null 2>&1 </dev/null &', "sh", "mariadbd", *arguments)
    processes.wait_until(lambda: _answers(sql_port), 30, "mariadbd's answer")
    conf = folder / "slurmdbd.conf"
    descriptor = os.open(conf, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # slurmdbd insists on that mode
    with os.fdopen(descriptor, "w") as stream:
        stream.write(
            _SLURMDBD_CONF.format(folder=folder, host=_HOST, dbd_port=dbd_port, user=user, sql_port=sql_port)
        )
    daemon("slurmdbd")
    processes.wait_until(lambda: _answers(dbd_port), 60, "slurmdbd's answer")


def _make_system_tables(common: tuple[str, ...], path: str) -> None:
    """slurmdbd keeps procedures in them. Debian's own script for this comes with a package that starts a service."""
    script = next(p for p in _SYSTEM_TABLES if p.exists())
    done = subprocess.run(
        [shutil.which("mariadbd", path=path) or "mariadbd", *common, "--bootstrap"],
        input=b"create database mysql;\nuse mysql;\n" + script.read_bytes(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"mariadbd --bootstrap failed: {done.stderr.decode()[-300:]}")


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
