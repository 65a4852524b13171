"""Owns the choice of a block of free TCP ports that no other test cluster takes meanwhile."""

from __future__ import annotations

import fcntl
import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Below the kernel's ephemeral range (32768 up), so that no outgoing connection takes one by chance.
_FIRST, _LAST, _BLOCK = 17000, 32000, 16


@contextmanager
def claimed_block(lock_folder: Path, count: int) -> Iterator[int]:
    """The first port of `count` free ones, kept from other test clusters until the block is left.

    By then the daemons listen on them, which is what keeps later callers away.
    """
    starts = list(range(_FIRST, _LAST, _BLOCK))
    random.shuffle(starts)
    for start in starts:
        lock = os.open(lock_folder / f"ports-{start}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _lock(lock) and all(_is_free(start + i) for i in range(count)):
                yield start
                return
        finally:
            os.close(lock)
    raise RuntimeError(f"no {count} free ports between {_FIRST} and {_LAST}")


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
