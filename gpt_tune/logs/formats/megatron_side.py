"""Owns what Megatron-type trainers print beside their step lines: memory, arguments, checkpoints, ends."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpt_tune.logs.formats.base import Fact, Format, Item, Line, Mark, decimal
from gpt_tune.logs.types import RankMemory

_FIGURE = r"([\d.,]{1,32}?)(?=\s|\||$|\[|\()"
_MEMORY = re.compile(
    r"(?:\[Rank (\d{1,7})\] \()?after (\d{1,9}) iterations\)? memory \((MB|GB|MiB|GiB)\) \|([^\[]{1,600})"
)
_MEMORY_KEYS = {
    "allocated": "allocated_gib",
    "max allocated": "max_allocated_gib",
    "reserved": "reserved_gib",
    "max reserved": "max_reserved_gib",
    "mem-allocated-gigabytes": "allocated_gib",
    "mem-max-allocated-gigabytes": "max_allocated_gib",
    "mem-reserved-gigabytes": "reserved_gib",
    "mem-max-reserved-gigabytes": "max_reserved_gib",
}


class Memory(Format):
    """`memory (MB) | allocated: ..`; what Megatron calls MB is MiB. Two ranks may share one line."""

    name = "megatron-memory"
    triggers = (" memory (",)

    def feed(self, line: Line) -> Iterable[Item]:
        for match in _MEMORY.finditer(line.full):
            scale = 1024.0 if match.group(3).startswith("M") else 1.0
            values: dict[str, float] = {}
            for part in match.group(4).split("|"):
                key, _, value = part.partition(":")
                number = decimal(value.split()[0]) if value.split() else None
                name = _MEMORY_KEYS.get(key.strip())
                if name is not None and number is not None:
                    values.setdefault(name, number / scale)
            if values:
                rank = int(match.group(1)) if match.group(1) else line.prefix.rank
                yield RankMemory(
                    rank,
                    values.get("allocated_gib"),
                    values.get("reserved_gib"),
                    values.get("max_allocated_gib"),
                    values.get("max_reserved_gib"),
                )


_ARGUMENT = re.compile(r"^\s{0,8}([A-Za-z_][\w-]{0,79}) \.{2,64} ?((?![:.]).{0,512})$")


_OWN_VALUE = re.compile(r"\.{3,64}(?:updated|default)\s{0,4}$")


class Arguments(Format):
    """The argument dump every Megatron-type trainer prints when it starts."""

    name = "megatron-arguments"
    triggers = ("...... ", "end of arguments", "...updated", "...default")

    def feed(self, line: Line) -> Iterable[Item]:
        if "end of arguments" in line.text:
            yield Mark("start")
            return
        match = _ARGUMENT.match(line.text)
        if match is not None:
            # GPT-NeoX says behind each value whether it is its own: "44..........................updated".
            yield Fact(match.group(1), _OWN_VALUE.sub("", match.group(2)).strip())


_AT = re.compile(r"at iteration\s{1,16}(\d{1,12})|from iteration\s{1,16}(\d{1,12})")


class Events(Format):
    """Checkpoints loaded and saved, starts and clean ends."""

    name = "megatron-events"
    triggers = (
        "checkpoint",
        "start of training step]",
        "after training is done]",
        "[exiting program",
        "will restart worker group",
        "could not find the metadata file",
        "DUE TO JOB REQUEUE",
        "DUE TO NODE FAILURE",
        "DUE TO PREEMPTION",
    )

    def feed(self, line: Line) -> Iterable[Item]:
        text = line.text
        at = _AT.search(text)
        iteration = int(at.group(1) or at.group(2)) if at else None
        if "successfully loaded checkpoint" in text:
            yield Mark("resumed", iteration)
        elif "successfully saved checkpoint" in text or "saving checkpoint at iteration" in text:
            yield Mark("saved", iteration)
        elif "start of training step]" in text or "will restart worker group" in text or "DUE TO " in text:
            yield Mark("start")
        elif "after training is done]" in text or "[exiting program" in text:
            yield Mark("ended", iteration)
        elif "could not find the metadata file" in text:
            yield Mark("fresh")
