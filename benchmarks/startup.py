"""Owns measuring start-up: how long commands take against a bare Python that imports json and argparse, and how soon
the wizard's first frame is on a terminal against that of a Textual app with one label.

Usage: python benchmarks/startup.py [ROUNDS]. Prints one ratio a command; medians over interleaved rounds, so that a
busy machine slows all of them alike. Goals: `gpt-tune --version` at most 3, the first frame at most 1.3.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from fcntl import ioctl
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BARE = [sys.executable, "-c", "import json, argparse"]
GOALS = {"--version": 3.0, "first frame": 1.3}
# What a frame is known by once it is on the terminal.
LABEL = "one label and no more"
LABEL_APP = f"""
from textual.app import App
from textual.widgets import Label
class Bare(App):
    def compose(self):
        yield Label({LABEL!r})
Bare().run()
"""
FRAMES = {"one label": (["-c", LABEL_APP], LABEL), "first frame": (["-m", "tui"], "Plan, submit and watch")}
FRAME_SECONDS = 60.0  # after this long there will be none
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


def frame_seconds(arguments: list[str], words: str, environment: dict[str, str]) -> float:
    """From the start of a program in a terminal of 80x24 until words of its first frame have been written."""
    start = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen = b""
    try:
        while words.encode() not in seen:
            ready, _, _ = select.select(
                [terminal], [], [], max(0.0, start + FRAME_SECONDS - time.perf_counter())
            )
            if not ready:
                raise SystemExit(f"no first frame of {arguments} within {FRAME_SECONDS:.0f} s")
            seen += os.read(terminal, 65536)
        return time.perf_counter() - start
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def measure(rounds: int) -> dict[str, float]:
    """Median seconds of each command, "bare" among them, and of the frames."""
    commands = {"bare": BARE}
    commands |= {name: [sys.executable, "-m", "tui", *arguments] for name, arguments in COMMANDS.items()}
    with tempfile.TemporaryDirectory() as home:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPATH": str(ROOT), "HOME": home, "SLURM_CONF": "/dev/null"}
        environment |= dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME"), home)
        environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        tasks: dict[str, Callable[[], float]] = {
            name: partial(seconds, command, environment) for name, command in commands.items()
        }
        tasks |= {name: partial(frame_seconds, *what, environment) for name, what in FRAMES.items()}
        for task in tasks.values():
            task()  # fills the file cache and writes bytecode
        times: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(rounds):
            for name, task in tasks.items():
                times[name].append(task())
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    """Print the ratios; 1 when a goal is missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    medians = measure(rounds)
    bare, label = medians.pop("bare"), medians.pop("one label")
    print(f"python -c 'import json, argparse': {bare * 1000:.0f} ms (median of {rounds})")
    print(f"a Textual app with one label, its first frame: {label * 1000:.0f} ms")
    missed = False
    for name, value in medians.items():
        against = label if name in FRAMES else bare
        ratio, goal = value / against, GOALS.get(name)
        verdict = "" if goal is None else f"  goal <= {goal:g}: {'ok' if ratio <= goal else 'MISSED'}"
        missed |= goal is not None and ratio > goal
        print(f"gpt-tune {name}: {ratio:.2f} x ({value * 1000:.0f} ms){verdict}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
