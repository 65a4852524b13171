"""Owns finding out what this machine and its cluster are missing. Each check is one function; it changes nothing."""

from __future__ import annotations

import locale
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpt_tune import clusters
from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger, file_system
from gpt_tune.profiles import sites
from gpt_tune.profiles.guess import SHARED_FILE_SYSTEMS
from gpt_tune.profiles.schema import Site
from gpt_tune.resources import config_dir, data_dir, state_dir
from gpt_tune.schedulers import hostlist
from gpt_tune.schedulers.base import Cluster

Status = Literal["ok", "info", "warning", "error"]
# Free space below which logs and checkpoints' pointers may soon fail, bytes.
_LEAST_FREE = 1 << 30


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. fix: what to do, "" when nothing need be done."""

    check: str
    status: Status
    text: str
    fix: str = ""


def examine(cluster: str | None = None) -> list[Check]:
    """Every check, in the order people should read them. cluster: look at this one instead of what is here."""
    return here() + list(_clusters(cluster))


def here() -> list[Check]:
    """The checks of this machine alone: no scheduler is asked, so they take a moment only."""
    found: list[Check] = []
    for look in (_python, _data, _folders, _ledger, _terminal, _gpus):
        found += list(look())
    return found


def in_words(checks: list[Check]) -> str:
    """The outcome in one sentence."""
    wrong = [c for c in checks if c.status in ("warning", "error")]
    if not wrong:
        return "All is well: nothing needs your attention."
    first = min(wrong, key=lambda c: c.status != "error")
    count = "One thing needs" if len(wrong) == 1 else f"{len(wrong)} things need"
    return f"{count} your attention{'' if len(wrong) == 1 else ', first'}: {first.text}"


def needs_attention(checks: list[Check]) -> bool:
    """Whether something is worth a user's time."""
    return any(c.status in ("warning", "error") for c in checks)


def next_step(
    checks: list[Check], otherwise: str = "Try the whole path in one minute: gpt-tune submit smoke"
) -> str:
    """The one thing to do next, in words. otherwise: when nothing is wrong."""
    for status in ("error", "warning"):
        for check in checks:
            if check.status == status and check.fix:
                return check.fix
    return otherwise


def _python() -> Iterator[Check]:
    version = ".".join(str(n) for n in sys.version_info[:3])
    yield Check("python", "ok", f"Python {version} in {sys.prefix}")


def _data() -> Iterator[Check]:
    try:
        folders = [data_dir("profiles"), data_dir("templates")]
    except UserError as error:
        yield Check("installation", "error", error.message, error.hint)
    else:
        yield Check("installation", "ok", f"catalogue and templates in {folders[0].parent}")


def _folders() -> Iterator[Check]:
    for name, folder in (("settings", config_dir()), ("state", state_dir())):
        trouble = _write_trouble(folder)
        if trouble:
            yield Check(
                name,
                "error",
                f"{folder}: {trouble}.",
                "Make it writable, or set XDG_CONFIG_HOME/XDG_STATE_HOME.",
            )
        else:
            yield Check(name, "ok", str(folder))


def _ledger() -> Iterator[Check]:
    try:
        with Ledger.open() as ledger:
            runs = len(ledger.runs())
    except UserError as error:
        yield Check("ledger", "error", error.message, error.hint)
    else:
        yield Check("ledger", "ok", f"{runs} run{'' if runs == 1 else 's'} remembered")
        if file_system.is_network(ledger.path):
            yield Check(
                "ledger",
                "info",
                f"{ledger.path} lies on a network file system: gpt-tune keeps it safe there by file locks, which some "
                "servers do not have.",
                "If it is ever said to be locked or damaged: set XDG_STATE_HOME to a folder on a local disk.",
            )


def _terminal() -> Iterator[Check]:
    encoding = locale.getpreferredencoding(False)
    if encoding.lower().replace("-", "") != "utf8":
        yield Check(
            "terminal",
            "warning",
            f"The text encoding is {encoding}.",
            "Set LANG=C.UTF-8 for charts and lines.",
        )
        return
    term = os.environ.get("TERM", "")
    if term in ("", "dumb", "unknown"):
        yield Check("terminal", "info", f"TERM is {term or 'not set'}: use gpt-tune --plain.")
    else:
        yield Check("terminal", "ok", f"{term}, {encoding}")


def _gpus() -> Iterator[Check]:
    if shutil.which("nvidia-smi") is None and shutil.which("rocm-smi") is None:
        yield Check("gpus", "info", "No GPU driver on this machine; jobs find theirs on the cluster.")
    else:
        yield Check("gpus", "ok", "a GPU driver is here")


def _clusters(wanted: str | None) -> Iterator[Check]:
    for name, error in clusters.silent().items():
        yield Check("slurm", "error", f"{name}: {error.message}", error.hint)
    names = [wanted] if wanted else clusters.available()
    if names == [clusters.LOCAL] and not clusters.silent():
        yield Check(
            "slurm", "info", "No Slurm on this machine: jobs run here, and plans can be made for any cluster."
        )
    for name in names:
        try:
            cluster = clusters.discover(name)
        except UserError as error:
            yield Check("slurm", "error", f"{name}: {error.message}", error.hint)
            continue
        if cluster.scheduler != "local":
            yield from _slurm(cluster)


def gpus_of(cluster: Cluster) -> int:
    """GPUs of all nodes, each node once however many partitions it is in."""
    nodes = {
        node: group.gpus_per_node
        for partition in cluster.partitions
        for group in partition.groups
        for node in hostlist.expand(group.names)
    }
    return sum(nodes.values()) or max((p.gpus_total for p in cluster.partitions), default=0)


def _slurm(cluster: Cluster) -> Iterator[Check]:
    yield Check("slurm", "ok", f"{cluster.name}: Slurm {cluster.version}, {gpus_of(cluster)} GPUs")
    for note in cluster.notes:
        yield Check("slurm", "info", f"{cluster.name}: {note}")
    if shutil.which("sacct") is None:
        yield Check(
            "accounting", "info", "No sacct: the end of old jobs is known from their own records only."
        )
    site = sites.load(cluster.name)
    if site is None:
        fix = f"gpt-tune site {cluster.name} --set run_root=/a/shared/folder"
        yield Check("site", "warning", f"The site of {cluster.name} is not known yet.", fix)
        return
    yield from _site(site)


def _site(site: Site) -> Iterator[Check]:
    for sentence in sites.problems(site):
        yield Check("site", "error", sentence, f"gpt-tune site {site.cluster} --set KEY=VALUE")
    if site.run_root:
        yield _run_folder(Path(site.run_root), site.cluster)
    for tool in {"pyxis": ("enroot",), "apptainer": ("apptainer", "singularity")}.get(
        site.environment.kind, ()
    ):
        if shutil.which(tool):
            break
    else:
        if site.environment.kind in ("pyxis", "apptainer"):
            yield Check(
                "image", "info", f"{site.environment.kind} is not on this machine; nodes may have it."
            )
    for what, path in (("image", site.environment.image), ("environment", site.environment.path)):
        if path.startswith("/") and not Path(path).exists():
            yield Check(
                what,
                "warning",
                f"{path} does not exist here.",
                "Check the path, or whether only nodes see it.",
            )


def _run_folder(folder: Path, cluster: str) -> Check:
    trouble = _write_trouble(folder)
    if trouble:
        return Check(
            "run folder",
            "error",
            f"{folder}: {trouble}.",
            f"gpt-tune site {cluster} --set run_root=/a/shared/folder",
        )
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    if free < _LEAST_FREE:
        return Check(
            "run folder", "warning", f"{folder} has {free / 2**30:.1f} GiB free.", "Free some space."
        )
    kind = _file_system(existing)
    if kind not in SHARED_FILE_SYSTEMS:
        text = f"{folder} is on {kind or 'a file system of unknown kind'}: other nodes may not see it."
        return Check("run folder", "info", text, "")
    return Check("run folder", "ok", f"{folder} on {kind}")


def _write_trouble(folder: Path) -> str:
    """Why a file cannot be made in a folder (or in the nearest one above that exists), or ""."""
    existing = next((p for p in (folder, *folder.parents) if p.exists()), None)
    if existing is None or not existing.is_dir():
        return "it is no folder"
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _file_system(path: Path, mounts: Callable[[], str] | None = None) -> str:
    """The kind of file system a path is on, by the longest matching mount point."""
    try:
        text = mounts() if mounts else Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    best = ("", "")
    for line in text.splitlines():
        parts = line.split()
        if (
            len(parts) > 2
            and (path == Path(parts[1]) or Path(parts[1]) in path.parents)
            and len(parts[1]) >= len(best[0])
        ):
            best = (parts[1], parts[2])
    return best[1]
