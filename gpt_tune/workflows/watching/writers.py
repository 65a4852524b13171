"""Owns who writes into a run's logs: the last line of each rank and host, and who has gone silent."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpt_tune.logs.file_ranks import NOBODY, Place, places
from gpt_tune.logs.follow import Batch
from gpt_tune.logs.prefixes import read as read_prefix

MAX_WRITERS = 65536
LOOKED_AT = 2000  # of a batch's newest lines: enough to see everyone who still writes


@dataclass(slots=True)
class Writer:
    """One process (or node), as the launcher's prefixes name it. seen: seconds since 1970."""

    label: str
    rank: int | None
    host: str | None
    text: str
    seen: float


class Writers:
    """The last line of each writer."""

    def __init__(self) -> None:
        self._by_label: dict[str, Writer] = {}
        self._sources: set[str] = set()
        self._places: dict[str, Place] = {}

    def place(self, files: Sequence[str]) -> None:
        """All files that are followed: their names may tell who writes them."""
        self._places = places(files)

    def note(
        self, batches: Sequence[Batch], now: float, written: Mapping[str, float | None] | None = None
    ) -> None:
        """Takes new lines into account. written: when each file was last written to (seconds since 1970).

        What a file held already when it was opened was written earlier than now: its newest line then, the others
        before by as much as their time stamps say.
        """
        several = len(self._sources.union(batch.source for batch in batches)) > 1
        for batch in batches:
            if not batch.lines:
                continue
            last = now
            if batch.source not in self._sources:
                self._sources.add(batch.source)
                last = min(now, (written or {}).get(batch.source) or now)
            # A job with a file a node (or rank) needs no labels: the file says who writes.
            place = self._places.get(batch.source, NOBODY)
            name = place.name or (posixpath.basename(batch.source) if several else "")
            self._note(batch.lines[-LOOKED_AT:], last, name, place)

    def _note(self, lines: Sequence[str], last: float, file: str, place: Place) -> None:
        prefixes = [read_prefix(text) for text in lines]
        newest = max((p.time for p in prefixes if p.time is not None), default=None)
        stamp: float | None = None
        for text, prefix in zip(lines, prefixes):
            stamp = prefix.time if prefix.time is not None else stamp
            label = prefix.label or file
            if not label:
                continue
            seen = last - max(0.0, newest - stamp) if newest is not None and stamp is not None else last
            known = self._by_label.get(label)
            if known is not None:
                known.text, known.seen = text, max(seen, known.seen)
                known.host = known.host or prefix.host
            elif len(self._by_label) < MAX_WRITERS:
                rank = prefix.rank if prefix.label else place.rank
                self._by_label[label] = Writer(label, rank, prefix.host or place.host, text, seen)

    def listed(self) -> list[Writer]:
        """Everyone, by rank, then by name."""
        return sorted(self._by_label.values(), key=lambda w: (w.rank is None, w.rank or 0, w.label))

    def silent(self, since: float, gpus: int | None) -> tuple[int, ...]:
        """Ranks that wrote nothing since then, when others did; only where ranks are told apart at all."""
        ranks: dict[int, float] = {}
        for writer in self._by_label.values():
            if writer.rank is not None:
                ranks[writer.rank] = max(ranks.get(writer.rank, 0.0), writer.seen)
        awake = {rank for rank, seen in ranks.items() if seen > since}
        if len(ranks) < 2 or not awake:
            return ()
        everyone = set(ranks) | (set(range(gpus)) if gpus and max(ranks) < gpus else set())
        return tuple(sorted(everyone - awake))
