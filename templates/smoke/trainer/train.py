"""Smoke trainer: a real, small GPT training that checks a cluster's whole path in a minute.

Rank 0 trains in NumPy. With CUDA GPUs and PyTorch every rank trains, one process a GPU. Otherwise the
other ranks say where they are and wait, using the standard library only.

Exit codes: 0 done, or saved and left on SIGTERM or SIGUSR1; 2 bad arguments; 69 NumPy is missing; 1 else.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import meeting as meetings
import options

TORCH = {"cuda": "cuda", "torch-cpu": "cpu"}  # modes in which every rank trains, and torch's device
NO_NUMPY = 69  # EX_UNAVAILABLE of sysexits.h


def main(argv=None):
    """Run this rank; returns its exit code."""
    args = options.parse(argv)
    place = options.place_of()
    stop = []  # names of signals received; the loop looks after each step

    def on_signal(number, _frame):
        stop.append(signal.Signals(number).name)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGUSR1, on_signal)
    print(f"rank {place.rank} of {place.world} on {place.host}: pid {os.getpid()}", flush=True)
    meeting = meetings.Meeting(args.state_dir)
    if place.rank == 0:
        return _lead(args, place, meeting, stop)
    return _follow(args, place, meeting, stop)


def _lead(args, place, meeting, stop):
    code = 1
    try:
        mode = _mode(args)
        meeting.write("mode", mode)
        code = _train(args, place, meeting, stop, mode)
    finally:
        meeting.write("done", code)
    return code


def _follow(args, place, meeting, stop):
    mode = meetings.await_mode(meeting, alive=lambda: not stop)
    if mode in TORCH:
        return _train(args, place, meeting, stop, mode)
    if mode is None:
        done = meeting.read("done")
        if done is None and not stop:
            print(f"rank {place.rank} on {place.host}: rank 0 never started", flush=True)
            return 1
        return done or 0
    return meetings.await_end(meeting, place)


def _mode(args):
    """ "cuda" when this rank can really use a GPU, else "cpu"."""
    if args.device != "auto":
        return args.device
    # Importing PyTorch takes seconds: look for the driver's files first.
    driver = any(Path(p).exists() for p in ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version"))
    if not driver or importlib.util.find_spec("torch") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _train(args, place, meeting, stop, mode):
    shape = options.shape_of(args)
    if mode in TORCH:
        import torch_gpt

        trainer = torch_gpt.TorchTrainer(shape, args, place, TORCH[mode])
    else:
        limit_threads(args)
        keep_memory()
        if importlib.util.find_spec("numpy") is None:
            print(
                f"smoke: NumPy is not installed for {sys.executable} on {place.host}; "
                "give the site an environment that has it, or set PYTHON to a Python that does.",
                flush=True,
            )
            return NO_NUMPY
        import numpy_gpt

        trainer = numpy_gpt.NumpyTrainer(shape, args)
    import loop

    loop.Run(args, shape, place, trainer, meeting, stop).train()
    trainer.close()
    return 0


def limit_threads(args):
    """How many threads matrix products take; must be set before NumPy is imported.

    Small ones get slower with many. Half the cores, because a thread that waits for another one that has
    no core makes a step forty times slower on a machine that is shared.
    """
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = args.threads or (max(1, min(available // 2, 8)) if args.hidden >= 256 else 1)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)


def keep_memory():
    """Ask glibc to keep freed arrays: fetching their pages again every step costs a third of the time."""
    trim_threshold, mmap_threshold = -1, -3  # names in malloc.h
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, (1 << 31) - 1)
    except (OSError, AttributeError):
        return  # another C library: slower, not wrong


if __name__ == "__main__":
    sys.exit(main())
