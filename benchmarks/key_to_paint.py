"""Owns measuring how soon a key shows on the monitor in a real terminal, and what watching a job sends to it.

Run `python -m benchmarks.key_to_paint [--lines 10000] [--rounds 12]`: a real log grows beside a real monitor in a
pseudo-terminal. Goals: p95 below 50 ms while 10,000 lines/s stream; below 5,000 bytes/s for one healthy job at one step
a second.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parent.parent
GOAL_MS, GOAL_BYTES = 50.0, 5000.0
SETTLED_SECONDS = 0.004
APP = "from benchmarks.key_to_paint_app import main; raise SystemExit(main({log!r}))"
BARE = "from benchmarks.key_to_paint_app import bare; raise SystemExit(bare())"
BARE_KEYS = (("q", "a bare window", ""), ("\x1b", "", "a bare window"))
WRITER = "from benchmarks.key_to_paint_app import write; write({log!r}, {rate}, {steps})"
# (key, what must then stand on screen, what must not): every kind of work a key can start
KEYS: tuple[tuple[str, str, str], ...] = (
    ("?", "Charts: the measured", ""),
    ("\x1b", "", "Charts: the measured"),
    ("/", "Find in the log", ""),
    ("N", "N", ""),
    ("\x1b", "", "Find in the log"),
    ("\x1b[5~", "", ""),
    ("\x1b[5~", "", ""),
    ("f", "follow", ""),
    ("g", "", "── log"),
    ("u", "smooth", ""),
    ("+", "in part", ""),
    ("a", "", "in part"),
    ("u", "", "smooth"),
    ("g", "── log", ""),
    ("w", "", "── log"),
    ("w", "── log", "step time"),
    ("w", "step time", ""),
)


class Screen:
    """The program in a pseudo-terminal of its own. `sent`: bytes it wrote."""

    def __init__(self, code: str, columns: int, rows: int) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.sent = 0
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve(sys.executable, [sys.executable, "-c", code], environment)
        ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def read(self, seconds: float) -> tuple[float, bytes] | None:
        """What comes within so many seconds, and when it came."""
        ready, _, _ = select.select([self.file], [], [], seconds)
        if not ready:
            return None
        data = os.read(self.file, 1 << 20)
        self.sent += len(data)
        return time.perf_counter(), data

    def until(self, shown: str, gone: str, seconds: float = 30.0) -> float:
        """When the screen first shows one text and not the other."""
        stop = time.perf_counter() + seconds
        waiting: list[tuple[float, bytes]] = [(time.perf_counter(), b"")]
        while time.perf_counter() < stop:
            # What stands on screen is worked out once nothing more comes: that takes longer than to write it.
            while (more := self.read(SETTLED_SECONDS)) is not None:
                waiting.append(more)
            found: float | None = None
            for came, data in waiting:
                self._stream.feed(data)
                text = self.text()
                if found is None and shown in text and not (gone and gone in text):
                    found = came
            if found is not None:
                return found
            waiting = []
        raise SystemExit(f"{shown!r} without {gone!r} did not come; the terminal shows:\n{self.text()}")

    def feed(self, data: bytes) -> None:
        self._stream.feed(data)

    def quiet(self, seconds: float) -> None:
        """Read for a while."""
        stop = time.perf_counter() + seconds
        while (left := stop - time.perf_counter()) > 0:
            if (more := self.read(left)) is not None:
                self._stream.feed(more[1])

    def cpu(self) -> float:
        """Milliseconds of processor time the program has used, all threads (Linux: a clock per process)."""
        return 1000 * time.clock_gettime((~self.pid << 3) | 2)

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.file)


def press(screen: Screen, key: str, shown: str, gone: str) -> tuple[float, float]:
    """Milliseconds from a key to what it brings (with nothing to look for: to the next bytes), by the clock and on the
    processor."""
    while (more := screen.read(0.0)) is not None:
        screen.feed(more[1])
    used, began = screen.cpu(), time.perf_counter()
    os.write(screen.file, key.encode())
    if shown or gone:
        came = screen.until(shown, gone)
    else:
        came, data = screen.read(5.0) or (time.perf_counter(), b"")
        screen.feed(data)
    return 1000 * (came - began), screen.cpu() - used


def keys(log: Path, rate: int, rounds: int, size: tuple[int, int]) -> dict[str, list[tuple[float, float]]]:
    """Times of each key while so many lines a second come."""
    log.write_text("")
    writer = _writer(log, rate, 0)
    screen = Screen(APP.format(log=str(log)), *size)
    try:
        return pressed(screen, KEYS, rounds)
    finally:
        screen.close()
        writer.kill()
        writer.wait()


def yardstick(rounds: int, size: tuple[int, int]) -> dict[str, list[tuple[float, float]]]:
    """The same of a bare app's window: what of it is Textual's, and the machine's at this moment."""
    screen = Screen(BARE, *size)
    try:
        return pressed(screen, BARE_KEYS, rounds)
    finally:
        screen.close()


def pressed(
    screen: Screen, wanted: tuple[tuple[str, str, str], ...], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Times of each key, once the first picture stands."""
    times: dict[str, list[tuple[float, float]]] = {}
    screen.until("┤", "")
    screen.quiet(3.0)
    for _ in range(rounds):
        for number, (key, shown, gone) in enumerate(wanted):
            name = f"{number:2d} {key!r}"
            times.setdefault(name, []).append(press(screen, key, shown, gone))
            screen.quiet(0.25)
    return times


def traffic(log: Path, seconds: float, size: tuple[int, int]) -> float:
    """Bytes a second that one healthy job with one step a second sends to the terminal."""
    log.write_text("")
    writer = _writer(log, 0, 1)
    screen = Screen(APP.format(log=str(log)), *size)
    try:
        screen.until("┤", "")
        screen.quiet(3.0)
        before = screen.sent
        screen.quiet(seconds)
        return (screen.sent - before) / seconds
    finally:
        screen.close()
        writer.kill()
        writer.wait()


def _writer(log: Path, rate: int, steps: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER.format(log=str(log), rate=rate, steps=steps)], cwd=ROOT
    )


def share(values: list[float], part: float) -> float:
    """A quantile by rank."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def line(name: str, values: list[tuple[float, float]]) -> str:
    """A row of the table."""
    clock, used = [c for c, _ in values], [u for _, u in values]
    return (
        f"{name:<18} {share(clock, 0.5):14.1f} {share(clock, 0.95):9.1f}"
        f" {share(used, 0.5):19.1f} {share(used, 0.95):9.1f}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lines", type=int, default=10_000, help="lines a second")
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--seconds", type=float, default=15.0, help="of watching, for the traffic")
    options.add_argument("--size", default="80x24")
    options.add_argument(
        "--urgent", action="store_true", help="ask for priority (root): a busy machine counts less"
    )
    chosen = options.parse_args()
    if chosen.urgent:
        os.nice(-15)
    columns, rows = map(int, chosen.size.split("x"))
    with tempfile.TemporaryDirectory() as name:
        os.environ.update(HOME=name, XDG_CONFIG_HOME=name, XDG_STATE_HOME=name)
        log = Path(name) / "job.log"
        times = keys(log, chosen.lines, chosen.rounds, (columns, rows))
        print("key                 clock: median    p95 ms   processor: median    p95 ms")
        for key, values in times.items():
            print(line(key, values))
        print(
            line("all keys", [t for values in times.values() for t in values]),
            f"  goal p95 < {GOAL_MS:.0f} ms",
        )
        bare = [t for values in yardstick(chosen.rounds, (columns, rows)).values() for t in values]
        print(line("bare app's window", bare))
        rate = traffic(log, chosen.seconds, (columns, rows))
        print(f"one healthy job, one step a second: {rate:,.0f} bytes/s   goal < {GOAL_BYTES:,.0f}")


if __name__ == "__main__":
    main()
