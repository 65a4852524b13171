"""Command line of the smoke trainer. Standard library only: ranks that do not train import this too."""

from __future__ import annotations

import argparse
import collections
import os
import socket

VOCAB = 128  # the corpus is ASCII; one byte is one token

Shape = collections.namedtuple("Shape", "layers hidden heads ffn vocab seq_length")
Place = collections.namedtuple("Place", "rank world local_rank host")


def parse(argv=None):
    """Arguments of one rank. Exits with code 2 and one sentence on a bad shape."""
    parser = argparse.ArgumentParser(
        prog="smoke", description="Train a small GPT to check scheduler, file system, log and charts."
    )
    add = parser.add_argument
    add("--seconds", type=float, default=60.0, help="train about this long; the first steps set the total")
    add("--steps", type=int, default=0, help="train exactly this many iterations; 0 leaves it to --seconds")
    add("--layers", type=int, default=2)
    add("--hidden", type=int, default=64)
    add("--heads", type=int, default=4)
    add("--seq-length", type=int, default=64)
    add("--micro-batch-size", type=int, default=8, help="sequences per training process and iteration")
    add("--learning-rate", type=float, default=3e-3)
    add("--min-learning-rate", type=float, default=3e-4)
    add("--warmup", type=int, default=20, help="iterations over which the learning rate rises")
    add("--weight-decay", type=float, default=0.1)
    add("--clip", type=float, default=1.0, help="largest gradient norm; 0 switches clipping off")
    add("--beta1", type=float, default=0.9)
    add("--beta2", type=float, default=0.95)
    add("--epsilon", type=float, default=1e-8)
    add("--seed", type=int, default=1234)
    add("--log-interval", type=int, default=0, help="iterations per line; 0 prints about five lines a second")
    add("--save", default="checkpoints", help="folder for checkpoints")
    add("--save-interval", type=int, default=0, help="iterations between checkpoints; 0 saves four times")
    add("--state-dir", default="state", help="shared folder where ranks of this attempt find each other")
    add("--device", choices=("auto", "cpu", "cuda", "torch-cpu"), default="auto")
    add("--threads", type=int, default=0, help="threads of the matrix products; 0 chooses by size")
    args = parser.parse_args(argv)
    problem = _problem(args)
    if problem:
        parser.exit(2, "smoke: " + problem + "\n")
    return args


def _problem(args):
    at_least_one = ("layers", "hidden", "heads", "seq_length", "micro_batch_size")
    for name in at_least_one:
        if getattr(args, name) < 1:
            return "--{} is {}; it must be at least 1.".format(name.replace("_", "-"), getattr(args, name))
    if args.hidden % args.heads:
        return f"--hidden {args.hidden} is not a multiple of --heads {args.heads}."
    if args.steps < 0 or args.seconds <= 0:
        return "--steps must not be negative and --seconds must be positive."
    return ""


def shape_of(args):
    """The model's numbers."""
    return Shape(args.layers, args.hidden, args.heads, 4 * args.hidden, VOCAB, args.seq_length)


def place_of(environ=os.environ):
    """Which rank this process is: RANK and WORLD_SIZE where set, else Slurm's own variables."""

    def number(*names, default):
        for name in names:
            if environ.get(name, "").isdigit():
                return int(environ[name])
        return default

    return Place(
        rank=number("RANK", "SLURM_PROCID", default=0),
        world=number("WORLD_SIZE", "SLURM_NTASKS", default=1),
        local_rank=number("LOCAL_RANK", "SLURM_LOCALID", default=0),
        # Several Slurm nodes may share one machine (test clusters), so Slurm's name comes first.
        host=environ.get("SLURMD_NODENAME") or socket.gethostname(),
    )
