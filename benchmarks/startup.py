"""Owns measuring start-up: how long commands take against a bare Python that imports json and argparse.

Usage: python benchmarks/startup.py [ROUNDS]. Prints one ratio a command; medians over interleaved rounds, so that a
busy machine slows all of them alike. Goal: `gpt-tune --version` at most 3.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BARE = [sys.executable, "-c", "import json, argparse"]
GOALS = {"--version": 3.0}
COMMANDS = {
    "--version": ["--version"],
    "--help": ["--help"],
    "models --json": ["models", "--json"],
    "profiles --json": ["profiles", "--json"],
    "jobs --json": ["jobs", "--json"],
    "plan --json": ["plan", "--model", "gpt-145b", "--gpus", "64", "--gpu", "b200", "--json"],
}


def seconds(command: list[str], environment: dict[str, str]) -> float:
    """One run's wall time."""
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(rounds: int) -> dict[str, float]:
    """Median seconds of each command, "bare" among them."""
    commands = {"bare": BARE}
    commands |= {name: [sys.executable, "-m", "tui", *arguments] for name, arguments in COMMANDS.items()}
    with tempfile.TemporaryDirectory() as home:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPATH": str(ROOT), "HOME": home, "SLURM_CONF": "/dev/null"}
        environment |= dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME"), home)
        for command in commands.values():
            seconds(command, environment)  # fills the file cache and writes bytecode
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                times[name].append(seconds(command, environment))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    """Print the ratios; 1 when a goal is missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    medians = measure(rounds)
    bare = medians.pop("bare")
    print(f"python -c 'import json, argparse': {bare * 1000:.0f} ms (median of {rounds})")
    missed = False
    for name, value in medians.items():
        ratio, goal = value / bare, GOALS.get(name)
        verdict = "" if goal is None else f"  goal <= {goal:g}: {'ok' if ratio <= goal else 'MISSED'}"
        missed |= goal is not None and ratio > goal
        print(f"gpt-tune {name}: {ratio:.2f} x ({value * 1000:.0f} ms){verdict}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
