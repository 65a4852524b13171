"""Owns the doors from the screens to the engine. Each is imported at its first use: the first frame comes before."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import ClassVar


class Engine:
    """The engine's modules by name. Tests hand the app one with fakes in it."""

    _rooms: ClassVar[dict[str, str]] = {
        "choices": "gpt_tune.workflows.choices",
        "launch": "gpt_tune.workflows.launch",
        "watch": "gpt_tune.workflows.watch",
        "planner": "gpt_tune.planner",
        "jobs": "gpt_tune.jobs",
        "ledger": "gpt_tune.ledger",
        "clusters": "gpt_tune.clusters",
        "profiles": "gpt_tune.profiles.store",
    }

    def __getattr__(self, room: str) -> ModuleType:
        if room not in self._rooms:
            raise AttributeError(room)
        module = import_module(self._rooms[room])
        setattr(self, room, module)
        return module

    def cluster_words(self, name: str) -> str:
        """What a cluster has, in one line. Slow; SchedulerError when it does not answer."""
        cluster = self.clusters.discover(name)
        words = [
            part
            for p in cluster.partitions
            for part in [f"{p.name} {p.gpus_free} of {p.gpus_total} GPUs free"]
            if p.gpus_total
        ]
        version = (
            f"{cluster.scheduler.capitalize()} {cluster.version}"
            if cluster.scheduler != "local"
            else "this machine"
        )
        return f"{version}: {', '.join(words) if words else 'no GPUs'}"
