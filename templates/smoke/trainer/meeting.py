"""How the ranks of one attempt find each other: small files in a shared folder. Standard library only.

mode       rank 0 says whether it trains alone (cpu) or all ranks train (cuda)
heartbeat  rank 0 counts up while it lives
done       rank 0 has ended, with its exit code
node-*     one file a node, rewritten now and then by the node's first rank
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

POLL_SECONDS = 1.0
BEAT_SECONDS = 10.0
NODE_BEAT_SECONDS = 60.0
START_SECONDS = 300.0  # how long other ranks wait for rank 0 to appear
SILENCE_SECONDS = 120.0  # how long they wait for the next beat


class Meeting:
    """The shared folder of one attempt of a job."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._beats = 0
        self._next_beat = 0.0

    def write(self, name, value):
        """Put a value where others read it, never half of it."""
        temporary = self.folder / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(value), encoding="utf-8")
        temporary.replace(self.folder / name)

    def read(self, name):
        """The value, or None while it is not there."""
        try:
            # Listing first makes NFS clients look again instead of remembering that a file was missing.
            os.listdir(self.folder)  # noqa: PTH208
            return json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def beat(self, every=BEAT_SECONDS, name="heartbeat"):
        """Say that this process lives, at most once per `every` seconds."""
        now = time.monotonic()
        if now >= self._next_beat:
            self._beats += 1
            self._next_beat = now + every
            self.write(name, self._beats)


def await_mode(meeting, alive):
    """What rank 0 decided: "cpu" or "cuda"; None when it ended or never came. `alive()` false stops the wait."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and alive():
        mode = meeting.read("mode")
        if mode is not None:
            return mode
        if meeting.read("done") is not None:
            return None
        time.sleep(POLL_SECONDS)
    return None


def await_end(meeting, place, clock=time.monotonic, sleep=time.sleep):
    """Wait until rank 0 has ended; its exit code, or 1 with a line when it fell silent."""
    last, heard = None, clock()
    while True:
        done = meeting.read("done")
        if done is not None:
            return int(done)
        beats = meeting.read("heartbeat")
        if beats != last:
            last, heard = beats, clock()
        if clock() - heard > SILENCE_SECONDS:
            print(f"rank {place.rank} on {place.host}: no sign of rank 0 for {SILENCE_SECONDS:.0f} s, ending")
            return 1
        if place.local_rank == 0:
            meeting.beat(NODE_BEAT_SECONDS, f"node-{place.host}")
        sleep(POLL_SECONDS)
