"""Owns what launchers say about the number of nodes and the batch, which trainers do not print."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpt_tune.logs.formats.base import Fact, Format, Item, Line

_ELASTIC = re.compile(r"^\s{0,8}(max_nodes|nproc_per_node)\s{1,20}: (\d{1,6})\s*$")
_DEEPSPEED = re.compile(r"\bnnodes=(\d{1,6}), num_local_procs=(\d{1,6})\b")
_OWN = re.compile(r"^job \S{1,40}: ranks \d{1,7}, nodes (\d{1,6}), start ")
_BATCH = re.compile(r"accumulation steps = (\d{1,9}) examples a step\b")
NODES, LOCAL_RANKS = "launcher_nodes", "launcher_local_ranks"


class Launch(Format):
    """torchrun's configuration, DeepSpeed's launcher, and the first line of a job of ours."""

    name = "launch"
    triggers = ("max_nodes   ", "nproc_per_node   ", "num_local_procs=", ": ranks ", " examples a step")

    def feed(self, line: Line) -> Iterable[Item]:
        elastic = _ELASTIC.match(line.text)
        if elastic is not None:
            yield Fact(NODES if elastic.group(1) == "max_nodes" else LOCAL_RANKS, elastic.group(2))
            return
        deepspeed = _DEEPSPEED.search(line.text)
        if deepspeed is not None:
            yield Fact(NODES, deepspeed.group(1))
            yield Fact(LOCAL_RANKS, deepspeed.group(2))
            return
        batch = _BATCH.search(line.text)
        if batch is not None:
            yield Fact("global_batch_size", batch.group(1))
        own = _OWN.match(line.text)
        if own is not None:
            yield Fact(NODES, own.group(1))
