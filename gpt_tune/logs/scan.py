"""Owns finding, in one pass over a block of bytes, the few lines that hold any of many literals.

Every fourth byte begins a 4-byte word that is looked up in a table. A literal of at least 7 bytes covers one such
word whatever its position, so the words at the 4 offsets of its rarest 7 bytes are put in the table; a word found
is checked against the whole 7 bytes. More literals therefore cost next to nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt_tune.logs.clean import is_safe

WORD = 4
WINDOW = 2 * WORD - 1
_HASH = np.uint32(2654435761)  # Knuth's multiplicative hash
_SHIFT = np.uint32(16)
_TABLE_SIZE = 1 << 16
_INDEX_BITS = (16, 18, 20)  # the smallest that has room: a small table stays in the cache
_TRIES = 200
ROOM = 512  # bytes behind a block
_PIECE = 1 << 16  # words at a time: what fits in the cache

_Owners = dict[int, dict[tuple[int, bytes], int]]  # word -> (its offset, the window) -> groups
Indexes = NDArray[np.int64]
Bits = NDArray[np.uint64]

# What logs are full of. Windows made of it would be found in every other line, so others are preferred.
_NOISE = (
    " iteration  elapsed time per iteration (ms): learning rate: global batch size: consumed samples: consumed tokens:"
    " lm loss: loss scale: grad norm: num zeros: actual seqlen: number of skipped iterations: number of nan iterations:"
    " samples per second: tokens per gpu per second (tgs): TFLOPs: throughput per GPU (TFLOP/s/GPU): params norm:"
    " time (ms) | forward-compute: backward-compute: optimizer: batch-generator: forward: backward: allreduce: reduce:"
    " rank NCCL INFO Channel comm send recv via NET/Libfabric/GDRDMA via NET/IB/ via SHM/direct via P2P/IPC/CUMEM"
    " [INFO] [logging.py:log_dist] [Rank [WARNING] [engine.py Warning: WARNING INFO:torch ERROR: root - INFO - "
    " step: loss: memory: GiB tps: mfu: steps: samples/sec: file: line: , in Traceback frame bucket parameters"
    " torch.distributed checkpoint node default number of the and for with from step train training batch data "
    " Warning: Warning: is no longer supported in torch script _do_optimizer_sanity_check bucket flushed after us"
    " comm rank nranks cudaDev busId Channel [send] [receive] forward-compute backward-compute batch-generator"
    " init.cpp: ProcessGroupNCCL.cpp: [rank0]: CUDA GPU model python3 lib site-packages worker process global local"
)
_COMMON_WORDS = Counter(_NOISE[i : i + WORD] for i in range(len(_NOISE) - WORD + 1))
_COMMON_CHARACTERS = {c: w for w, chars in ((3, " 0123456789etaoinsr"), (2, "lcdmupgfh:-./_")) for c in chars}


class Lines(NamedTuple):
    """Candidate lines of a block: [start, stop) of each, its number within the block, and its bits."""

    starts: Indexes
    stops: Indexes
    numbers: Indexes
    groups: Bits
    edges: Indexes  # places of all line feeds, with -1 before and the end behind
    total: int  # lines in the block

    def line(self, block: Block, number: int) -> bytes:
        """Any line of the block, without its line feed."""
        return bytes(block.text[int(self.edges[number]) + 1 : int(self.edges[number + 1])])


class Block:
    """Bytes of whole lines with room behind, so that any reader may look a little past the end, and its line feeds.

    plain: cleaning would change nothing, so lines may be cut out as they are.
    """

    def __init__(self, text: bytes | bytearray, size: int | None = None) -> None:
        """size None: room is added. Else the text is `size` bytes with ROOM zero bytes behind them."""
        self.size = len(text) if size is None else size
        self.text = text + bytes(ROOM) if size is None else text
        self.bytes = np.frombuffer(self.text, dtype=np.uint8)
        used = self.bytes[: self.size]
        controls = np.flatnonzero(used < 32)
        feeds = self.bytes[controls] == 10
        self.breaks = controls if feeds.all() else controls[feeds]
        safe = len(self.breaks) == len(controls) and self.text.find(b"\x7f", 0, self.size) < 0
        self.plain = safe and (not self.size or int(used.max()) < 128 or is_safe(self.text, self.size))

    def raw(self) -> bytes:
        """The text itself."""
        return bytes(self.text[: self.size])


class Scanner:
    """Looks for literals, each with bits (of 64) by which the finder is told what it may have found."""

    def __init__(self, literals: Mapping[str, int]) -> None:
        owners: _Owners = {}
        self._short: list[tuple[int, bytes, int]] = []
        for text, bits in literals.items():
            literal = text.encode()
            if len(literal) < WINDOW:
                self._short.append((min(literal, key=_commonness), literal, bits))
                continue
            start = min(range(len(literal) - WINDOW + 1), key=lambda i: _score(literal[i : i + WINDOW]))
            window = literal[start : start + WINDOW]
            for offset in range(WORD):
                word = int.from_bytes(window[offset : offset + WORD], "little")
                known = owners.setdefault(word, {})
                key = (offset, window)
                known[key] = known.get(key, 0) | bits
        self._build(owners)

    def _build(self, owners: _Owners) -> None:
        """Tables by word: how many windows it may belong to, and of each its offset, bytes and groups."""
        order = sorted(owners)
        self._words = np.array(order, dtype=np.uint32)
        self._owners = np.array([len(owners[w]) for w in order], dtype=np.int64)
        shape = (len(order), int(self._owners.max()) if order else 0)
        self._groups = np.zeros(shape, dtype=np.uint64)
        # What must stand in the word before and in the word after, and which of its bytes count.
        self._before = np.zeros(shape, dtype=np.uint32)
        self._before_mask = np.zeros(shape, dtype=np.uint32)
        self._after = np.zeros(shape, dtype=np.uint32)
        self._after_mask = np.zeros(shape, dtype=np.uint32)
        for row, word in enumerate(order):
            for column, ((offset, window), groups) in enumerate(owners[word].items()):
                head, tail = window[:offset], window[offset + WORD :]
                self._groups[row, column] = groups
                self._before[row, column] = int.from_bytes(head.rjust(WORD, b"\0"), "little")
                self._before_mask[row, column] = int.from_bytes(
                    (b"\xff" * len(head)).rjust(WORD, b"\0"), "little"
                )
                self._after[row, column] = int.from_bytes(tail.ljust(WORD, b"\0"), "little")
                self._after_mask[row, column] = int.from_bytes(
                    (b"\xff" * len(tail)).ljust(WORD, b"\0"), "little"
                )
        self._table = np.zeros(_TABLE_SIZE, dtype=bool)
        self._table[(self._words * _HASH) >> _SHIFT] = True
        self._multiplier, self._shift, self._index = _perfect_index(self._words)

    def lines(self, block: Block) -> Lines:
        """The candidate lines of a block (a last one without line feed counts)."""
        breaks, size = block.breaks, block.size
        places, groups = self._hits(block)
        count = len(breaks) + (1 if size and block.text[size - 1] != 10 else 0)
        edges = np.concatenate(([-1], breaks, [size]))
        if not len(places):
            return Lines(places, places, places, groups, edges, count)
        numbers, merged = _by_line(np.searchsorted(breaks, places), groups)
        return Lines(edges[numbers] + 1, edges[numbers + 1], numbers, merged, edges, count)

    def _hits(self, block: Block) -> tuple[Indexes, Bits]:
        """Where literals may stand, in order, and their groups."""
        places, groups = self._words_found(block)
        # One byte is found many times faster than two or three: the rarest of a short literal is asked first.
        short = [
            (literal, bits)
            for gate, literal, bits in self._short
            if block.text.find(gate, 0, block.size) >= 0
        ]
        extra = [(p, bits) for literal, bits in short for p in _find(block, literal)]
        if extra:
            places = np.concatenate((places, np.array([place for place, _ in extra], dtype=np.int64)))
            groups = np.concatenate((groups, np.array([bits for _, bits in extra], dtype=np.uint64)))
            order = np.argsort(places, kind="stable")
            places, groups = places[order], groups[order]
        return places, groups

    def _words_found(self, block: Block) -> tuple[Indexes, Bits]:
        length = block.size + -block.size % WORD
        words = block.bytes[: length + WORD].view("<u4")
        maybe = self._maybe(words[: length // WORD])
        found = words[maybe]
        index = self._index[(found * self._multiplier) >> self._shift]
        known = self._words[index] == found if len(self._words) else np.zeros(0, dtype=bool)
        at, index = maybe[known], index[known]
        groups = np.zeros(len(at), dtype=np.uint64)
        places = at * WORD
        if not len(at):
            return places, groups
        before, after = words.take(at - 1, mode="clip"), words.take(at + 1, mode="clip")
        owners = self._owners[index]
        for column in range(self._groups.shape[1]):
            rows = np.flatnonzero(owners > column) if column else np.arange(len(at))
            if not len(rows):
                break
            of = index[rows]
            fits = (before[rows] & self._before_mask[of, column]) == self._before[of, column]
            fits &= (after[rows] & self._after_mask[of, column]) == self._after[of, column]
            groups[rows[fits]] |= self._groups[of[fits], column]
        real = groups != 0
        return places[real], groups[real]

    def _maybe(self, words: NDArray[np.uint32]) -> Indexes:
        """Indexes of words that hash to one of ours, a cache-sized piece at a time."""
        hashed = np.empty(_PIECE, dtype=np.uint32)
        index = np.empty(_PIECE, dtype=np.intp)
        flags = np.empty(_PIECE, dtype=bool)
        parts = []
        for start in range(0, len(words), _PIECE):
            piece = words[start : start + _PIECE]
            n = len(piece)
            np.multiply(piece, _HASH, out=hashed[:n])
            np.right_shift(hashed[:n], _SHIFT, out=index[:n], casting="unsafe")
            np.take(self._table, index[:n], out=flags[:n], mode="clip")
            found = np.flatnonzero(flags[:n])
            if len(found):
                parts.append(found + start)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _perfect_index(words: NDArray[np.uint32]) -> tuple[np.uint32, np.uint32, NDArray[np.int16]]:
    """A multiplier and a shift under which no two words share a slot, and the table from slot to word."""
    multiplier = int(_HASH)
    for bits in _INDEX_BITS:
        shift = np.uint32(32 - bits)
        for _ in range(_TRIES):
            slots = (words * np.uint32(multiplier)) >> shift
            if len(np.unique(slots)) == len(words):
                table = np.zeros(1 << bits, dtype=np.int16)
                table[slots] = np.arange(len(words), dtype=np.int16)
                return np.uint32(multiplier), shift, table
            multiplier = (multiplier * 1664525 + 1013904223) % 2**32 | 1
    raise ValueError(f"{len(words)} words are too many for a table of 2^{_INDEX_BITS[-1]} slots")


def _find(block: Block, literal: bytes) -> list[int]:
    """Places of a short literal, one a line."""
    places = []
    text, size = block.text, block.size
    place = text.find(literal, 0, size)
    while place >= 0:
        places.append(place)
        newline = text.find(b"\n", place, size)
        place = text.find(literal, newline, size) if newline >= 0 else -1
    return places


def _by_line(numbers: Indexes, groups: Bits) -> tuple[Indexes, Bits]:
    """One entry a line, with the groups of all its places."""
    first = np.flatnonzero(np.concatenate(([True], np.diff(numbers) > 0)))
    return numbers[first], np.bitwise_or.reduceat(groups, first)


def _commonness(byte: int) -> int:
    return _COMMON_CHARACTERS.get(chr(byte), 0 if byte == ord("%") else 1)


def _score(window: bytes) -> int:
    """How often a window is likely to be met: its common 4-byte words first, then its common characters."""
    text = window.decode("latin-1")
    words = sum(_COMMON_WORDS[text[i : i + WORD]] for i in range(WORD))
    return 100 * words + sum(_COMMON_CHARACTERS.get(c, 1) for c in text)
