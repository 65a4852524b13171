"""Owns PNG pictures: lines drawn into an array, letters made of strokes, and the file format itself."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gpt_tune.workflows.pictures.canvas import Anchor, Point

_FINER = 2  # drawn so many times larger and averaged, so that slanted lines are smooth
_ADVANCE = 7.0  # pixels from one letter to the next
_CELL = (5.0, 9.0)  # width and height of a letter in pixels
# Strokes on a grid of 5 x 7 points, "xy xy ...", y downwards; small letters are drawn as large ones.
_STROKES = {
    "0": "10 30 41 45 36 16 05 01 10", "1": "11 20 26|16 36", "2": "01 10 30 41 42 06 46",
    "3": "00 40 22 32 43 45 36 16 05", "4": "36 30 04 44", "5": "40 00 03 33 44 45 36 06",
    "6": "30 10 01 05 16 36 45 44 33 03", "7": "00 40 16", "9": "16 36 45 41 30 10 01 02 13 43",
    "8": "10 30 41 42 33 13 02 01 10|13 04 05 16 36 45 44 33",
    "A": "06 02 20 42 46|04 44", "B": "00 06 36 45 44 33 03|00 30 41 42 33", "C": "41 30 10 01 05 16 36 45",
    "D": "00 06 26 44 42 20 00", "E": "40 00 06 46|03 33", "F": "40 00 06|03 33",
    "G": "41 30 10 01 05 16 36 45 43 23", "H": "00 06|40 46|03 43", "I": "10 30|20 26|16 36",
    "J": "40 45 36 16 05", "K": "00 06|40 03 46", "L": "00 06 46", "M": "06 00 23 40 46", "N": "06 00 46 40",
    "O": "10 30 41 45 36 16 05 01 10", "P": "06 00 30 41 42 33 03", "Q": "10 30 41 45 36 16 05 01 10|34 46",
    "R": "06 00 30 41 42 33 03|23 46", "S": "41 30 10 01 02 13 33 44 45 36 16 05", "T": "00 40|20 26",
    "U": "00 05 16 36 45 40", "V": "00 26 40", "W": "00 16 23 36 40", "X": "00 46|40 06", "Y": "00 23 40|23 26",
    "Z": "00 40 06 46", ".": "25 26", ",": "25 17", "-": "13 33", "+": "13 33|22 24", "/": "40 06",
    "%": "40 06|00 11|35 46", "(": "30 12 14 36", ")": "10 32 34 16", ":": "21 22|24 25", "=": "02 42|04 44",
    "_": "06 46", "#": "11 15|31 35|02 42|04 44", "<": "40 03 46", ">": "00 43 06", "'": "20 22",
    "[": "30 10 16 36", "]": "10 30 36 16", "|": "20 26", "*": "13 33|11 35|31 15", " ": "",
    "@": "33 22 24 44 41 30 10 01 05 16 46",
    "!": "20 24|26 26", "?": "01 10 30 41 23 24|26 26", '"': "10 11|30 31", ";": "21 22|24 16", "~": "04 12 34 42",
}  # fmt: skip
_UNKNOWN = "00 40 46 06 00"


class Png:
    """A picture of 8-bit colours."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
        self._title = title
        self._pixels: NDArray[np.uint8] = np.full((height * _FINER, width * _FINER, 3), 255, dtype=np.uint8)

    def line(self, points: Sequence[Point], colour: str, width: float, dash: tuple[float, ...] = ()) -> None:
        rgb = _rgb(colour)
        for start, stop in _dashed(points, dash) if dash else pairwise(points):
            self._segment(start, stop, rgb, width)

    def text(self, at: Point, words: str, colour: str, anchor: Anchor = "start", bold: bool = False) -> None:
        length = len(words) * _ADVANCE
        left = at[0] - {"start": 0.0, "middle": length / 2, "end": length}[anchor]
        top = at[1] - _CELL[1]
        for index, letter in enumerate(words):
            strokes = _STROKES.get(letter.upper(), _UNKNOWN)
            for stroke in strokes.split("|") if strokes else ():
                places = [
                    (left + index * _ADVANCE + int(p[0]) * _CELL[0] / 4, top + int(p[1]) * _CELL[1] / 6)
                    for p in stroke.split()
                ]
                self.line(places, colour, 1.6 if bold else 1.0)

    def finish(self) -> bytes:
        width, height = self._size
        fine = self._pixels.reshape(height, _FINER, width, _FINER, 3)
        picture = fine.mean(axis=(1, 3)).round().astype(np.uint8)
        rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # each row begins with its filter: none
        rows[:, 1:] = picture.reshape(height, 3 * width)
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        title = b"Title\0" + self._title.encode("latin-1", "replace")[:79]
        return b"".join(
            (b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", header), _chunk(b"tEXt", title),
             _chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)), _chunk(b"IEND", b""))
        )  # fmt: skip

    def _segment(self, start: Point, stop: Point, rgb: tuple[int, int, int], width: float) -> None:
        if not all(map(math.isfinite, (*start, *stop))):
            return
        steps = max(1, math.ceil(max(abs(stop[0] - start[0]), abs(stop[1] - start[1])) * _FINER * 1.5))
        part = np.linspace(0.0, 1.0, steps + 1)
        half = width * _FINER / 2
        reach = np.arange(math.ceil(-half), math.floor(half) + 1) if half >= 1 else np.zeros(1, dtype=int)
        x = np.rint((start[0] + (stop[0] - start[0]) * part) * _FINER).astype(int)
        y = np.rint((start[1] + (stop[1] - start[1]) * part) * _FINER).astype(int)
        xs = (x[:, None, None] + reach[None, :, None] + 0 * reach[None, None, :]).ravel()
        ys = (y[:, None, None] + 0 * reach[None, :, None] + reach[None, None, :]).ravel()
        inside = (xs >= 0) & (ys >= 0) & (xs < self._pixels.shape[1]) & (ys < self._pixels.shape[0])
        self._pixels[ys[inside], xs[inside]] = rgb


def _dashed(points: Sequence[Point], dash: tuple[float, ...]) -> Iterator[tuple[Point, Point]]:
    """The drawn parts of a dashed line."""
    index, left = 0, dash[0]
    for (x0, y0), (x1, y1) in pairwise(points):
        length = math.hypot(x1 - x0, y1 - y0)
        at = 0.0
        while length - at > 1e-9:
            until = min(length, at + left)
            if index % 2 == 0:
                a, b = at / length, until / length
                yield (x0 + (x1 - x0) * a, y0 + (y1 - y0) * a), (x0 + (x1 - x0) * b, y0 + (y1 - y0) * b)
            left -= until - at
            at = until
            if left <= 1e-9:
                index += 1
                left = dash[index % len(dash)]


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
