"""Small checkpoints: one file an iteration, a tracker file beside them, the last two kept."""

from __future__ import annotations

import pickle
import re
import time
import zipfile
from pathlib import Path

TRACKER = "latest_checkpointed_iteration.txt"
KEPT = 2
UNREADABLE = (
    OSError,
    KeyError,
    ValueError,
    RuntimeError,
    EOFError,
    zipfile.BadZipFile,
    pickle.UnpicklingError,
)
NAME = re.compile(r"iter_(\d{7,})\.ckpt$")


def save(folder, trainer, iteration, total, rank, say):
    """Save on rank 0, never half a file: a reader sees the old tracker or the new one."""
    if rank != 0:
        return
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"saving checkpoint at iteration {iteration:7d} to {folder}")
    begin = time.perf_counter()
    path = folder / f"iter_{iteration:07d}.ckpt"
    trainer.write(path.with_suffix(".part"), {"iteration": iteration, "total": total})
    path.with_suffix(".part").replace(path)
    tracker = folder / (TRACKER + ".part")
    tracker.write_text(str(iteration), encoding="utf-8")
    tracker.replace(folder / TRACKER)
    for old in sorted(p for p in folder.iterdir() if NAME.match(p.name))[:-KEPT]:
        old.unlink()
    say(f"  successfully saved checkpoint at iteration {iteration:7d} to {folder}")
    gigabytes, seconds = path.stat().st_size / 1e9, max(1e-9, time.perf_counter() - begin)
    say(
        f"Checkpoint Save GB: {gigabytes:.6f}, GB/Sec: {gigabytes / seconds:.3f}, Latency(second): {seconds:.3f}"
    )


def load(folder, trainer, say):
    """Continue from the newest checkpoint: (iterations done, total planned), or (0, 0) for a fresh start."""
    folder = Path(folder)
    try:
        done = int((folder / TRACKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0, 0
    path = folder / f"iter_{done:07d}.ckpt"
    say(f" loading checkpoint from {folder} at iteration {done}")
    try:
        facts = trainer.read(path)
    except UNREADABLE as error:
        raise SystemExit(
            f"smoke: {path} cannot be continued ({error}); remove {folder} to start afresh."
        ) from error
    say(f"  successfully loaded checkpoint from {folder} at iteration {done}")
    return int(facts["iteration"]), int(facts["total"])
