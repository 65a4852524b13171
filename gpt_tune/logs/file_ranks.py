"""Owns who wrote a log file, as the names of a job's files tell: one file a rank, a task or a node.

torchrun --redirects (`attempt_0/3/stdout.log`), srun --output=%t, mpirun (`rank.3/stdout`), NeMo
(`globalrank-3`), DeepSpeed's launcher (`.._rank3.log`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpt_tune.logs.prefixes import Prefix

MAX_RANK = 1_000_000

_NAMED = re.compile(r"(?<![a-zA-Z])(?:global[_.-]?)?rank[._ -]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LOCAL = re.compile(r"local[_.-]?rank[._ -]?\d{1,7}", re.IGNORECASE)
_ELASTIC = re.compile(
    r"^(?P<run>.*?)/?attempt_(?P<attempt>\d{1,4})/(?P<local>\d{1,5})/std(?:out|err)\.log(?:\.gz)?$"
)
_ADAPTER = re.compile(r"(?:lora|low|dora|adapter)[._-]?$", re.IGNORECASE)
_NODE = re.compile(r"(?<![a-zA-Z])(?:node|host)[._-]?\d{1,7}(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,9}")
# Numbers behind these words count runs, not ranks.
_NO_RANK = re.compile(
    r"(?:attempt|restart|run|part|try|job|array|chunk|version|epoch|step|iter|\bv|node|host|gpu)[._-]?$",
    re.IGNORECASE,
)
_TASK = re.compile(r"(?:task|proc|process|worker|t)[._-]?$", re.IGNORECASE)


class Place(NamedTuple):
    """Who wrote a file. name: how to call it where no rank and no host is known. attempt: of torchrun, from 0.

    sure: the name says rank, or it is a launcher's own. A mere number may count experiments as well: it is a rank only
    where the files turn out to be one run.
    """

    name: str
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    attempt: int = 0
    sure: bool = True

    @property
    def is_rank(self) -> bool:
        """Whether the file is surely one rank's of a job of several."""
        return self.sure and (self.rank is not None or self.local_rank is not None)


NOBODY = Place("")


def places(paths: Sequence[str]) -> dict[str, Place]:
    """Who wrote each of a job's files, where there are several; a name of three or more at the least."""
    found: dict[str, Place] = {}
    runs = {m.group("run") for path in paths if (m := _ELASTIC.match(path)) is not None}
    named = {path: rank for path in paths if (rank := _named_rank(path)) is not None}
    ranks = sorted(set(named.values()))
    # Ranks begin at 0 or follow one another; 8, 16 and 32 are ranks of adapters.
    if ranks and ranks[0] != 0 and ranks != list(range(ranks[0], ranks[0] + len(ranks))):
        named = {}
    for path in paths:
        elastic = _ELASTIC.match(path)
        if elastic is not None:
            local = int(elastic.group("local"))
            # Of several nodes each counts its own ranks.
            where = elastic.group("run").rsplit("/", 2)
            host = None if len(runs) == 1 else where[-2] if len(where) > 1 else where[-1]
            name = f"Local rank {local} of {host}" if host else f"rank {local}"
            found[path] = Place(name, None if host else local, local, host, int(elastic.group("attempt")))
            continue
        if path in named:
            found[path] = Place(f"rank {named[path]}", named[path])
    rest = [path for path in paths if path not in found]
    found.update(_by_number(rest))
    nodes = {p: m.group() for p in rest if p not in found and (m := _last(_NODE, _base(p))) is not None}
    if len(set(nodes.values())) > 1:
        found.update({path: Place(node, host=node) for path, node in nodes.items()})
    rest = [path for path in rest if path not in found]
    if len(rest) > 2:
        found.update({path: Place(f"File {_base(path)}") for path in rest})
    return found if len(found) > 1 else {}


def apply(prefix: Prefix, place: Place) -> Prefix:
    """What a line's prefixes say, and where they do not, its file."""
    if place is NOBODY:
        return prefix
    if not place.sure:
        return prefix if prefix.host or not place.host else prefix._replace(host=place.host)
    rank = prefix.rank if prefix.rank is not None else place.rank
    local = prefix.local_rank if prefix.local_rank is not None else place.local_rank
    return prefix._replace(rank=rank, local_rank=local, host=prefix.host or place.host)


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007 (the last one)
        pass
    return found


def _named_rank(path: str) -> int | None:
    """The rank that a file's name, or its folder's, says in so many words."""
    for part in reversed(path.rsplit("/", 2)[-2:]):
        match = _last(_NAMED, _LOCAL.sub("", part))
        if (
            match is not None
            and int(match.group(1)) <= MAX_RANK
            and not _ADAPTER.search(part[: match.start()])
        ):
            return int(match.group(1))
    return None


def _by_number(paths: Sequence[str]) -> Mapping[str, Place]:
    """Files whose names differ in one number that counts from 0 without a gap: the ranks of srun's %t."""
    families: dict[tuple[str, str], dict[str, int]] = {}
    every = set(paths)
    for path in paths:
        head = path[: len(path) - len(_base(path))]
        for match in _NUMBER.finditer(_base(path)):
            before, after = _base(path)[: match.start()], _base(path)[match.end() :]
            families.setdefault((head + before, after), {})[path] = int(match.group())
    found: dict[str, Place] = {}
    for (before, _), members in families.items():
        numbers = sorted(members.values())
        counted = numbers == list(range(len(numbers)))
        enough = len(numbers) > 2 or (len(numbers) == 2 and _TASK.search(before) is not None)
        rotated = before.rstrip("._-") in every  # beside train.log.0 stands train.log
        if counted and enough and not rotated and not _NO_RANK.search(before):
            sure = _TASK.search(before) is not None
            found.update({path: Place(f"rank {rank}", rank, sure=sure) for path, rank in members.items()})
    return found
