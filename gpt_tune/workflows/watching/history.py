"""Owns reading a log's past forwards, a little at a time, until it meets what is being followed."""

from __future__ import annotations

from typing import NamedTuple

from gpt_tune.logs.clean import MAX_LINE
from gpt_tune.logs.follow import Reader, Source

BLOCK_BYTES = 1024 * 1024


class Past(NamedTuple):
    """Whole raw lines of the past, and the number of the first of them."""

    block: bytes
    first_line: int


class History:
    """One file from its first byte to the place from which it is followed."""

    def __init__(self, source: Source, reader: Reader) -> None:
        self._source = source
        self._reader = reader
        self._at = 0
        self._rest = b""
        self.line = 1  # number of the next line

    @property
    def done(self) -> bool:
        """Whether the past has met the present."""
        return self._at >= self._end

    @property
    def read(self) -> int:
        """Bytes read so far."""
        return min(self._at, self._end)

    @property
    def _end(self) -> int:
        return self._source.offset - len(self._source.partial)

    def next(self) -> Past:
        """The next whole lines; none for a hole or the inside of an endless line."""
        block = self._reader.read(self._source.path, self._at, min(BLOCK_BYTES, self._end - self._at))
        if not block:
            self._at = self._end  # the file shrank: the follower will notice and start over
            return Past(b"", self.line)
        self._at += len(block)
        if block[0] == 0 and not block.strip(b"\0"):
            return Past(b"", self.line)
        end = len(block) - 1 if self.done else block.rfind(b"\n")
        if end < 0:
            self._rest = (self._rest + block)[: 4 * MAX_LINE]
            return Past(b"", self.line)
        whole, self._rest = self._rest + block[: end + 1], block[end + 1 :]
        first = self.line
        self.line += whole.count(b"\n")
        return Past(whole, first)
