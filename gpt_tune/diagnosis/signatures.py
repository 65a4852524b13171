"""Owns the failure signatures: their shape, reading them from `profiles/failures/`, and filling in their sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from gpt_tune import toml
from gpt_tune.diagnosis.types import Action, Severity
from gpt_tune.errors import UserError, unknown_name
from gpt_tune.logs.scan import Scanner
from gpt_tune.resources import data_dir

# first: may be the root cause. echo: follows from something else. limit: like first, and what fails behind it is
# its echo. context: never reported, other entries ask for it. exception: only when nothing better fits.
# steps, stall: found in the series of steps or in what the log ends with, not by a pattern.
Role = Literal["first", "echo", "limit", "context", "exception", "steps", "stall"]
Tier = Literal[
    "hardware", "node", "host_memory", "gpu_memory", "numerics", "software", "exception", "config", "launch",
    "network", "timeout", "limit", "remote", "signal", "cancelled",
]  # fmt: skip
TIERS: tuple[str, ...] = get_args(Tier)


@dataclass(frozen=True, slots=True)
class Signature:
    """One failure as data; see profiles/failures/README.md for the keys."""

    id: str
    severity: Severity
    role: Role
    tier: Tier
    text: str
    fix: str
    needs: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()
    window: int = 0
    changes: Mapping[str, str] = field(default_factory=dict)
    action: Action | None = None
    ratio: tuple[str, str, float] | None = None
    at_least: Mapping[str, float] = field(default_factory=dict)
    hosts: int = 1
    wants: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    survivable: bool = False
    hangs: bool = False
    source: str = ""

    def match(self, full: str, text: str) -> dict[str, str] | None:
        """The named groups of the first pattern that fits; anchored patterns see the text without prefixes."""
        for pattern in self.patterns:
            found = pattern.search(text if pattern.pattern.startswith("^") else full)
            if found is not None:
                groups = {k: v.strip().rstrip(".") for k, v in found.groupdict().items() if v}
                if self._fits(groups):
                    return groups
        return None

    def _fits(self, groups: Mapping[str, str]) -> bool:
        if self.ratio is not None:
            part, whole = size_gib(groups.get(self.ratio[0])), size_gib(groups.get(self.ratio[1]))
            if part is None or not whole or part / whole < self.ratio[2]:
                return False
        sizes = ((size_gib(groups.get(name)), least) for name, least in self.at_least.items())
        return all(size is not None and size >= least for size, least in sizes)


_UNITS = {"": 1 / 2**30, "K": 1 / 2**20, "M": 1 / 2**10, "G": 1.0, "T": 2.0**10}


def size_gib(text: str | None) -> float | None:
    """`14.14 GiB`, `264.00 MiB`, `1024 bytes` in GiB; None when it is no size."""
    if not text:
        return None
    number, _, unit = text.partition(" ")
    try:
        return float(number) * _UNITS[unit[:1].upper() if unit and unit != "bytes" else ""]
    except (ValueError, KeyError):
        return None


_OPTIONAL = re.compile(r"\[\[(.{0,400}?)\]\]")
_GROUP = re.compile(r"\{(\w{1,40})\}")


def fill_in(sentence: str, groups: Mapping[str, str]) -> str:
    """The sentence with its groups; a part in [[ ]] goes when one of its groups is empty."""

    def optional(match: re.Match[str]) -> str:
        part = match.group(1)
        return part if all(groups.get(name) for name in _GROUP.findall(part)) else ""

    return _GROUP.sub(lambda m: groups.get(m.group(1)) or "?", _OPTIONAL.sub(optional, sentence))


@cache
def signatures() -> tuple[Signature, ...]:
    """All shipped signatures in the order in which they are tried. Raises UserError for a broken file."""
    folder = data_dir("profiles") / "failures"
    loaded = []
    for path in sorted(folder.glob("*.toml")):
        data = toml.load(path)
        order = int(data.get("order", 500))
        for index, entry in enumerate(data.get("signature", [])):
            loaded.append((order, path.name, index, _signature(entry, path)))
    return tuple(signature for _, _, _, signature in sorted(loaded, key=lambda item: item[:3]))


def by_id(wanted: str) -> Signature:
    """The first signature of an id (for the sentences of what is found elsewhere)."""
    for signature in signatures():
        if signature.id == wanted:
            return signature
    raise unknown_name("finding", wanted, {s.id for s in signatures()})


def candidates(line: str) -> Iterator[Signature]:
    """Signatures that can match this line at all, in order."""
    for signature, needs in _needed():
        for need in needs:
            if need in line:
                yield signature
                break


@cache
def _needed() -> tuple[tuple[Signature, tuple[str, ...]], ...]:
    return tuple((s, tuple(n.strip("\n") for n in s.needs)) for s in signatures() if s.patterns)


@cache
def scanner() -> Scanner:
    """Finds the lines that any signature can match."""
    return Scanner({need: 1 for s in signatures() for need in s.needs})


_FIELDS = frozenset(Signature.__dataclass_fields__)


def _signature(entry: Mapping[str, Any], path: Path) -> Signature:
    for name in entry:
        if name not in _FIELDS:
            raise unknown_name("signature key", name, _FIELDS, str(path))
    values = dict(entry)
    try:
        values["patterns"] = tuple(re.compile(p) for p in entry.get("patterns", ()))
    except re.error as error:
        raise UserError(f"{path}: {entry.get('id')} has a bad pattern: {error}.", "Correct it.") from error
    for name in ("needs", "wants", "covers"):
        values[name] = tuple(entry.get(name, ()))
    if "ratio" in entry:
        values["ratio"] = tuple(entry["ratio"])
    if entry.get("tier") not in TIERS or entry.get("role") not in get_args(Role):
        raise UserError(f"{path}: {entry.get('id')} has an unknown tier or role.", "See README.md beside it.")
    return Signature(**values)
