"""Owns the run of the Slurm tests on every version: `python -m tests.cluster.matrix [VERSION ...] [-- PYTEST...]`.

All versions are run, whatever fails; the table at the end says which passed, with and without accounting.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass

from tests.cluster import other, private

_ROOMS = (
    "tests/schedulers",
    "tests/jobs",
    "tests/chain",
    "tests/sweep",
    "tests/queue",
    "tests/ssh/test_cluster.py",
)
# They put a program in front of sbatch, which cannot see through the chroot around the other versions' own.
_HERE_ONLY = (
    "tests/jobs/test_once.py",
    "tests/ssh/test_cluster.py::test_the_line_breaks_while_sbatch_decides",
)
_HERE = "22.05"  # what Debian 12 has; the table says what was found
_LAST = re.compile(r"(=+ )?\d+ (passed|failed|skipped|error|deselected)\b.* in [\d.]+s")
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|error)")


@dataclass(frozen=True, slots=True)
class Result:
    """One version's run. counts: of pytest's last line. why: why it was not run, "" when it was."""

    version: str
    accounting: str
    counts: dict[str, int]
    seconds: float
    why: str = ""

    @property
    def good(self) -> bool:
        return not self.why and self.counts.get("passed", 0) > 0 and not self.bad

    @property
    def bad(self) -> int:
        return self.counts.get("failed", 0) + self.counts.get("error", 0)

    def words(self) -> str:
        if self.why:
            return f"{self.version:8} not run: {self.why}"
        told = ", ".join(f"{n} {what}" for what, n in self.counts.items()) or "no result"
        return f"{self.version:8} {told}; {self.accounting}; {self.seconds:.0f} s"


def main(argv: list[str]) -> int:
    """The command line: versions, then what pytest is to have more."""
    split = argv.index("--") if "--" in argv else len(argv)
    versions, more = argv[:split] or [_HERE, *other.RELEASES], argv[split + 1 :]
    unknown = [v for v in versions if v != _HERE and v not in other.RELEASES]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {_HERE}, {', '.join(other.RELEASES)}", file=sys.stderr)
        return 2
    results = [run(version, more) for version in versions]
    print("\nSlurm    result")
    for result in results:
        print(result.words())
    return 0 if all(r.good or r.why for r in results) and any(r.good for r in results) else 1


def run(version: str, more: list[str]) -> Result:
    """The tests on one version."""
    print(f"\n== Slurm {version}", flush=True)
    begin = time.monotonic()
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "slurm and not slow"]
    if version == _HERE:
        if reason := private.missing_reason():
            return Result(version, "", {}, 0.0, reason)
        command = [*pytest, *_ROOMS, *more]
    else:
        if reason := other.missing_reason():
            return Result(version, "", {}, 0.0, reason)
        command = [
            sys.executable, "-m", "tests.cluster.other", "run", version, "--", *pytest,
            *(f"--{'deselect' if '::' in path else 'ignore'}={path}" for path in _HERE_ONLY), *_ROOMS, *more,
        ]  # fmt: skip
    reason = private.accounting_missing_reason()
    counts = _told(command)
    told = f"without slurmdbd ({reason})" if reason else "with and without slurmdbd"
    return Result(version, told, counts, time.monotonic() - begin)


def _told(command: list[str]) -> dict[str, int]:
    """Run pytest, pass its lines on, and give the counts of its last one."""
    counts: dict[str, int] = {}
    # The project's own -q with one of the user's would leave the last line away.
    with subprocess.Popen(
        [*command, "-o", "addopts=--strict-markers"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if _LAST.match(line):
                counts = {what: int(n) for n, what in _COUNT.findall(line)}
    if child.returncode not in (0, 1):
        counts["error"] = counts.get("error", 0) + 1
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
