"""Owns one private Slurm cluster: start, stop, and what a test does to it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import accounting, config, ports, processes

_COMMANDS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scontrol")
_SBIN = "/usr/sbin:/usr/local/sbin:/sbin"  # an ordinary user's PATH lacks them
# The socket's path must fit in sockaddr_un (108 bytes).
_LONGEST_FOLDER = 80


def missing_reason() -> str | None:
    """Why no private cluster can be started here, or None."""
    missing = [c for c in _COMMANDS if shutil.which(c, path=_path()) is None]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)} missing): apt-get install slurm-wlm munge"
    return None


def accounting_missing_reason() -> str | None:
    """Why no private cluster with slurmdbd can be started here, or None."""
    return missing_reason() or accounting.missing_reason(_path())


def _path() -> str:
    return os.environ.get("PATH", "/usr/bin:/bin") + ":" + _SBIN


def base_folder() -> Path:
    """Where clusters without a folder of their own go. Short and without blanks, as slurm.conf needs."""
    root = Path(tempfile.gettempdir())
    if " " in str(root) or len(str(root)) > 40:
        root = Path("/tmp")
    base = root / f"gpt-tune-slurm-{os.getuid()}"
    base.mkdir(mode=0o755, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        raise RuntimeError(f"{base} belongs to another user")
    return base


@dataclass
class SlurmCluster:
    """A running private cluster. Everything it writes is under `folder`."""

    folder: Path
    name: str
    guardian: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def env(self) -> dict[str, str]:
        """This process's environment, pointed at the cluster."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SQUEUE_"))}
        # Commands of another Slurm version may lie in the cluster's own folder.
        return {**clean, "SLURM_CONF": str(self.conf), "PATH": f"{self.folder}/bin:{_path()}"}

    def run(self, *argv: str, check: bool = True, timeout: float = 30) -> str:
        """A command's stdout, blanks stripped."""
        done = subprocess.run(
            argv, env=self.env, capture_output=True, text=True, timeout=timeout, check=False
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def job_state(self, job_id: str) -> str:
        """What squeue says, "" once forgotten."""
        return self.run("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T", check=False)

    def wait_for_state(self, job_id: str, *states: str, seconds: float = 30) -> None:
        processes.wait_until(lambda: self.job_state(job_id) in states, seconds, f"job {job_id} in {states}")

    def cancel_all(self) -> None:
        """End every job, and wait until the nodes are free of them."""
        if self.run("squeue", "-h", "-o", "%i"):
            self.run("scancel", "-u", config.user_name())
        processes.wait_until(self._is_quiet, 30, "the end of all jobs")

    def _is_quiet(self) -> bool:
        """No job, and no node still tidying up after one."""
        states = self.run("sinfo", "-h", "-o", "%T").split()
        return not self.run("squeue", "-h", "-o", "%i") and not any(
            s.startswith(("alloc", "mix", "comp")) for s in states
        )

    # -- the controller, for tests of its absence -------------------------------------------------
    @property
    def controller_pid(self) -> int | None:
        return processes.read_pid(self.folder / "slurmctld.pid")

    def stop_controller(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End slurmctld; SIGTERM lets it save its state, SIGKILL does not."""
        pid = self.controller_pid
        if pid is not None:
            processes.kill([pid], (number, signal.SIGKILL))
        (self.folder / "slurmctld.pid").unlink(missing_ok=True)

    def start_controller(self) -> None:
        self._daemon("slurmctld")
        processes.wait_until(self.is_up, 10, "the controller's answer")

    @contextmanager
    def controller_down(self, number: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        self.stop_controller(number)
        try:
            yield
        finally:
            self.start_controller()

    @contextmanager
    def controller_frozen(self) -> Iterator[None]:
        """A controller that accepts connections and never answers."""
        pid = self.controller_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def accounting_down(self) -> Iterator[None]:
        """Without slurmdbd."""
        pid = processes.read_pid(self.folder / "slurmdbd.pid")
        assert pid is not None
        processes.kill([pid], (signal.SIGTERM, signal.SIGKILL))
        try:
            yield
        finally:
            self._daemon("slurmdbd")
            processes.wait_until(
                lambda: self.run("sacctmgr", "-n", "show", "cluster", check=False), 30, "slurmdbd's answer"
            )

    def is_up(self) -> bool:
        return "is UP" in self.run("scontrol", "ping", check=False)

    # -- start and stop ---------------------------------------------------------------------------
    def _daemon(self, *argv: str) -> None:
        done = subprocess.run(
            argv,
            env={**self.env, "SLURM_CONF": str(self.conf)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=20,
            check=False,
            start_new_session=True,
            cwd=self.folder,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)} failed: {done.stderr.strip()}")

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        folder.mkdir(mode=0o755)
        self._daemon("mungekey", "-c", "-k", f"{folder}/key")
        self._daemon(
            "munged", "--force", "--num-threads=2", f"--key-file={folder}/key", f"--socket={folder}/socket",
            f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed",
        )  # fmt: skip

    def _all_idle(self) -> bool:
        names = config.node_names()  # a test may have configured many more that never come up
        said = self.run("sinfo", "-h", "-p", "dev,long", "-n", ",".join(names), "-o", "%P %T %D", check=False)
        idle = [line.split() for line in said.splitlines() if line.split()[1] == "idle"]
        return sum(int(count) for partition, _, count in idle if partition == "long") >= len(names)

    def stop(self) -> None:
        """End every process of the cluster and remove its folder."""
        stop_folder(self.folder)
        if self.guardian is not None:
            if self.guardian.stdin is not None:
                self.guardian.stdin.close()
            self.guardian.wait(timeout=20)
            self.guardian = None


def start(
    folder: Path | None = None, *, extra: str = "", name: str = "testbed", owned: bool = True,
    with_accounting: bool = False, enforce: bool = True,
) -> SlurmCluster:  # fmt: skip
    """Start a cluster in a new folder and wait until its nodes are idle (about 1 s; with accounting about 4 s).

    owned: the cluster ends with this process, even when it is killed. Raises RuntimeError with the reason.
    with_accounting: with slurmdbd; enforce: associations, limits and QOS are enforced.
    """
    base = base_folder()
    remove_stale(base)
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="c", dir=base))
    folder = folder.absolute()
    if any(c in str(folder) for c in ' \t,#"') or len(str(folder)) > _LONGEST_FOLDER:
        raise RuntimeError(
            f"{folder}: slurm.conf needs a folder of at most {_LONGEST_FOLDER} characters without blanks"
        )
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if (folder / "slurm.conf").exists():
        raise RuntimeError(f"{folder} already holds a cluster: stop it first")
    folder.chmod(0o755)
    cluster = SlurmCluster(folder, name)
    if owned:
        cluster.guardian = _start_guardian(folder)
    try:
        with ports.claimed_block(base, config.PORTS + accounting.PORTS) as first_port:
            after = first_port + config.PORTS
            if with_accounting:
                extra = f"{extra}\n{accounting.slurm_conf(folder, after + 1, enforce)}"
            settings = config.Settings(folder, name, first_port, _version(cluster), extra)
            _start_daemons(cluster, settings, after if with_accounting else None)
    except (RuntimeError, subprocess.TimeoutExpired, OSError):
        cluster.stop()
        raise
    return cluster


def _start_daemons(cluster: SlurmCluster, settings: config.Settings, database_port: int | None) -> None:
    config.write(settings)
    for child in ("state", "spool"):
        (cluster.folder / child).mkdir(mode=0o755)
    cluster._start_munge()
    if database_port is not None:
        accounting.start(cluster.folder, database_port, config.user_name(), cluster._daemon, _path())
        accounting.fill(settings.name, config.user_name(), cluster.env)
    cluster._daemon("slurmctld")
    for node in config.node_names():
        cluster._daemon("slurmd", "-N", node)
    processes.wait_until(cluster._all_idle, 40, "all nodes idle")
    pid_files = [cluster.folder / f"slurmd-{n}.pid" for n in config.node_names()]
    pid_files.append(cluster.folder / "slurmctld.pid")
    processes.wait_until(lambda: all(map(processes.read_pid, pid_files)), 5, "the pid files")
    cluster.run("scontrol", "update", f"nodename={config.DRAINED_NODE}", "state=drain", "reason=fan failure")


def _version(cluster: SlurmCluster) -> tuple[int, ...]:
    """Slurm's version as numbers: `slurm-wlm 22.05.8` is (22, 5, 8)."""
    found = re.search(r"\d+(\.\d+)*", cluster.run("slurmctld", "-V"))
    return tuple(int(n) for n in found.group().split(".")) if found else ()


def _start_guardian(folder: Path) -> subprocess.Popen[bytes]:
    """A process that outlives this one just long enough to stop the cluster."""
    me = os.getpid()
    (folder / "owner.json").write_text(json.dumps({"pid": me, "start": processes.start_time(me)}))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "guard", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).resolve().parents[2],
        start_new_session=True,
    )


def stop_folder(folder: Path) -> None:
    """Stop the cluster in `folder`: daemons by pid file, then whatever of it is left; remove the folder."""
    if not (folder / "slurm.conf").exists() and not (folder / "owner.json").exists():
        return
    ours = set(processes.of_cluster(folder))
    named = [processes.read_pid(p) for p in [*sorted(folder.glob("*.pid")), folder / "munge" / "pid"]]
    processes.kill([pid for pid in named if pid in ours], (signal.SIGKILL,))
    # A daemon may have been starting a job just then: look until nothing new turns up.
    for _ in range(50):
        left = processes.of_cluster(folder)
        processes.kill(left, (signal.SIGKILL,))
        shutil.rmtree(folder, ignore_errors=True)
        if not left and not folder.exists():
            return


def remove_stale(base: Path) -> None:
    """Stop clusters whose owner was killed together with its guardian."""
    for owner in base.glob("*/owner.json"):
        try:
            data = json.loads(owner.read_text())
        except (OSError, ValueError):
            continue
        if processes.start_time(data["pid"]) != data["start"]:
            stop_folder(owner.parent)
