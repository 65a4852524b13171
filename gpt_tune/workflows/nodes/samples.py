"""Owns reading node samples back: lines of JSON that anything may have written, so nothing in them is trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpt_tune.logs.clean import split_lines
from gpt_tune.logs.follow import Follower, Reader
from gpt_tune.logs.lines import shown

MAX_GPUS = 64
MAX_XIDS = 64  # kept of a node, newest last
MAX_NODES = 65536
MIB_PER_GIB = 1024.0


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU. utilisation is a share of the time since the last sample; None is "it does not say"."""

    index: int
    utilisation: float | None = None
    memory_used_gib: float | None = None
    memory_total_gib: float | None = None
    watts: float | None = None
    celsius: float | None = None


@dataclass(frozen=True, slots=True)
class Xid:
    """A GPU error that the driver reported. gpu: its index or PCI address. time: seconds since 1970."""

    time: float
    gpu: str
    code: int


@dataclass(frozen=True, slots=True)
class NodeSample:
    """One node at one time (seconds since 1970). cpu: share of all cores. xids: all since the sampler began."""

    node: str
    time: float
    cpu: float | None = None
    memory_used_gib: float | None = None
    memory_total_gib: float | None = None
    gpus: tuple[GpuSample, ...] = ()
    xids: tuple[Xid, ...] = ()
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "time": self.time,
            "cpu": self.cpu,
            "memory_used_gib": self.memory_used_gib,
            "memory_total_gib": self.memory_total_gib,
            "gpus": [{name: getattr(g, name) for name in g.__dataclass_fields__} for g in self.gpus],
            "xids": [{"time": x.time, "gpu": x.gpu, "code": x.code} for x in self.xids],
            "problem": self.problem,
        }


def read_sample(line: str) -> NodeSample | None:
    """One line of a sampler; None when it is no sample."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, Mapping):
        return None
    node, time = data.get("node"), _number(data.get("time"))
    if not isinstance(node, str) or not node.strip() or time is None:
        return None
    used, total = _pair(data.get("memory"))
    return NodeSample(
        node=shown(node)[:64],
        time=time,
        cpu=_share(data.get("cpu"), 1.0),
        memory_used_gib=_gib(used),
        memory_total_gib=_gib(total),
        gpus=tuple(g for row in _rows(data.get("gpus"), MAX_GPUS) if (g := _gpu(row)) is not None),
        xids=tuple(x for row in _rows(data.get("xids"), MAX_XIDS) if (x := _xid(row)) is not None),
        problem=shown(data["problem"])[:200] if isinstance(data.get("problem"), str) else "",
    )


def _gpu(row: list[Any]) -> GpuSample | None:
    if len(row) != 6 or not isinstance(row[0], int) or not 0 <= row[0] < 1024:
        return None
    return GpuSample(
        row[0], _share(row[1], 100.0), _gib(row[2]), _gib(row[3]), _number(row[4]), _number(row[5])
    )


def _xid(row: list[Any]) -> Xid | None:
    time = _number(row[0]) if len(row) == 3 else None
    if time is None or not isinstance(row[2], int) or not 0 <= row[2] < 10_000:
        return None
    return Xid(time, shown(str(row[1]))[:32] if isinstance(row[1], (int, str)) else "?", row[2])


def _rows(value: Any, most: int) -> list[list[Any]]:
    return [row for row in value[:most] if isinstance(row, list)] if isinstance(value, list) else []


def _pair(value: Any) -> tuple[Any, Any]:
    return (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else (None, None)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0 <= number < 1e12 else None


def _share(value: Any, whole: float) -> float | None:
    number = _number(value)
    return None if number is None or number > whole else number / whole


def _gib(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else number / MIB_PER_GIB


class SampleReader:
    """The newest sample of each node, from files that grow; or from lines that somebody else fetches."""

    def __init__(self, pattern: str = "", reader: Reader | None = None) -> None:
        self._follower = Follower([pattern] if pattern else [], reader)
        self.latest: dict[str, NodeSample] = {}

    def poll(self) -> dict[str, NodeSample]:
        """Reads what is new; the newest sample by node."""
        for batch in self._follower.poll():
            self._take(batch.lines)
        return self.latest

    def take(self, raw: bytes) -> None:
        """Lines of any number of samplers."""
        self._take(split_lines(raw)[0])

    def _take(self, lines: Iterable[str]) -> None:
        for line in lines:
            sample = read_sample(line)
            if sample is None:
                continue
            before = self.latest.get(sample.node)
            if before is not None and before.time > sample.time:
                sample, before = before, sample
            if before is None and len(self.latest) >= MAX_NODES:
                continue
            if before is not None:
                sample = replace(sample, xids=_joined(before.xids, sample.xids))
            self.latest[sample.node] = sample


def _joined(old: tuple[Xid, ...], new: tuple[Xid, ...]) -> tuple[Xid, ...]:
    """The kernel's log and the driver report the same error twice, under two names of the GPU."""
    found = list(old)
    for xid in new:
        again = any(x.code == xid.code and abs(x.time - xid.time) <= 2.0 and x.gpu != xid.gpu for x in found)
        if not again and xid not in found:
            found.append(xid)
    return tuple(found[-MAX_XIDS:])
