"""Owns other versions of Slurm for the matrix: Debian's, each in a folder of its own, run by chroot.

`python -m tests.cluster.other prepare|run VERSION -- COMMAND...`: needs root and debootstrap.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# Debian's release for each of Slurm's versions beside this machine's own.
RELEASES = {"24.11": "trixie", "26.05": "sid"}
CACHE = Path("/var/tmp/gpt-tune-slurm")
_MIRROR = "http://deb.debian.org/debian"
# The smoke job trains in NumPy; accounting's database itself is this machine's.
_PACKAGES = "slurm-wlm,munge,python3-numpy,slurmdbd"
# Seen inside under the same names, so that paths in scripts and configuration mean the same.
_CHECKOUT = str(Path(__file__).resolve().parents[2])
_SHARED = ("/proc", "/dev", "/tmp", "/root", "/home", "/run", "/opt", "/usr/local", _CHECKOUT)
_COMMANDS = (
    "sbatch", "squeue", "sinfo", "scontrol", "scancel", "sacct", "srun", "sdiag", "slurmctld", "slurmd", "munged",
    "mungekey", "sacctmgr", "slurmdbd",
)  # fmt: skip


def missing_reason() -> str | None:
    """Why no other version can be set up here, or None."""
    if os.getuid() != 0:
        return "root is needed for chroot"
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    return None


def folder_of(version: str) -> Path:
    """Where a version's files are kept."""
    return CACHE / RELEASES[version]


def prepare(version: str) -> Path:
    """Install a version (2.5 minutes and 760 MB the first time); the folder with commands for PATH."""
    root = folder_of(version)
    ready = root / ".ready"
    if ready.exists() and ready.read_text() != _PACKAGES:
        _add_packages(root)
        ready.write_text(_PACKAGES)
    if not ready.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", RELEASES[version], str(root), _MIRROR],
            check=True, stdout=subprocess.DEVNULL, timeout=1200,
        )  # fmt: skip
        ready.write_text(_PACKAGES)
    commands = CACHE / f"bin-{RELEASES[version]}"
    commands.mkdir(parents=True, exist_ok=True)
    for name in _COMMANDS:
        (commands / name).write_text(_wrapper(root, name))
        (commands / name).chmod(0o755)
    return commands


def _add_packages(root: Path) -> None:
    """Install what an older checkout of this file did not ask for. No service starts in a folder."""
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    (root / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *_PACKAGES.split(",")]
    # A mirror that lags behind is good enough here.
    update = ["apt-get", "update", "-qq", "-o", "Acquire::Check-Valid-Until=false"]
    for command in (update, install):
        subprocess.run(
            ["chroot", str(root), *command],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
            timeout=900,
        )


def _wrapper(root: Path, name: str) -> str:
    """A command that runs inside: mounts in a name space of its own, which ends with it."""
    mounts = "\n".join(
        f"[ ! -d {path} ] || {{ mkdir -p {root}{path}; mount --rbind {path} {root}{path}; }}"
        for path in _SHARED
    )
    # The daemons' own user names and groups are those of this machine.
    inside = (
        f"{mounts}\nfor f in passwd group hosts hostname resolv.conf; do\n"
        f"  [ ! -e /etc/$f ] || {{ touch {root}/etc/$f; mount --bind /etc/$f {root}/etc/$f; }}\ndone\n"
        f'where=$PWD\n[ -d "{root}$where" ] || where=/\n'
        f'exec chroot {root} /bin/sh -c \'cd "$1" && shift && exec "$@"\' sh "$where" "$@"'
    )
    return (
        f"#!/bin/sh\nexec unshare --mount --propagation=private sh -c '{_quoted(inside)}' sh {name} \"$@\"\n"
    )


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")


def run(version: str, command: list[str]) -> int:
    """Run a command with that version's Slurm first on the PATH."""
    commands = prepare(version)
    environment = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "GPT_TUNE_SLURM_VERSION": version,
    }
    return subprocess.run(command, env=environment, check=False).returncode


def main(argv: list[str]) -> int:
    """The command line."""
    reason = missing_reason()
    if reason:
        print(f"left out: {reason}", file=sys.stderr)
        return 0
    match argv:
        case ["prepare", version] if version in RELEASES:
            prepare(version)
            return 0
        case ["run", version, "--", *command] if version in RELEASES and command:
            return run(version, command)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
