"""Charts as files: right bytes, every value in its place, whatever the runs and their names hold."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ElementTree
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from gpt_tune.errors import UserError
from gpt_tune.workflows.pictures.paint import Panel, picture
from gpt_tune.workflows.pictures.scales import number, scale_of
from gpt_tune.workflows.series import ChartMark, NamedSeries

X = np.arange(1.0, 101.0)
GOOD = NamedSeries("first", X, 10 / X)


def pixels(data: bytes) -> NDArray[np.uint8]:
    """A PNG file as an array; checks its structure on the way."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, body, size = 8, b"", (0, 0)
    kinds = []
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        content = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + content)
        kinds.append(kind)
        if kind == b"IHDR":
            size = struct.unpack(">II", content[:8])
            assert content[8:] == bytes([8, 2, 0, 0, 0])
        body += content if kind == b"IDAT" else b""
        at += 12 + length
    assert (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")
    rows = np.frombuffer(zlib.decompress(body), dtype=np.uint8).reshape(size[1], 1 + 3 * size[0])
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(size[1], size[0], 3)


def svg(*panels: Panel, **options: object) -> ElementTree.Element:
    return ElementTree.fromstring(picture(list(panels), "svg", "a title", **options))  # type: ignore[arg-type]


def texts(root: ElementTree.Element) -> list[str]:
    return [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}text")]


def test_svg_says_what_it_shows() -> None:
    marks = (ChartMark(50.0, "checkpoint", "c", 50), ChartMark(500.0, "restart", "outside", 500))
    root = svg(Panel("loss", (GOOD, NamedSeries("second", X, X)), marks), Panel("mfu", (GOOD,)))
    assert {"first", "second", "loss", "MFU", "iteration"} <= set(texts(root))
    lines = list(root.iter("{http://www.w3.org/2000/svg}polyline"))
    curve = next(e for e in lines if len(e.attrib["points"].split()) == 100)
    first = curve.attrib["points"].split()[0].split(",")
    assert float(first[0]) == 84.0
    assert sum(e.attrib["stroke"] == "#2e8b57" and e.attrib["stroke-width"] == "1" for e in lines) == 1


def test_names_cannot_break_out() -> None:
    name = '</text><script>alert(1)</script>\x1b[2J\x00"&\u202e'
    root = svg(Panel("loss", (NamedSeries(name, X, X),)))
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert any("<script>" in t for t in texts(root))
    data = picture([Panel("loss", (NamedSeries(name, X, X),))], "png", name)
    assert pixels(data).shape == (370, 960, 3)


def test_png_draws_the_curve_where_svg_does() -> None:
    seen = pixels(picture([Panel("loss", (NamedSeries("up", X, X),))], "png", "t"))
    blue = np.argwhere((seen[:, :, 2] > 150) & (seen[:, :, 0] < 90))
    curve = blue[blue[:, 0] > 60]
    low, high = curve[curve[:, 1].argmin()], curve[curve[:, 1].argmax()]
    assert (low[1], high[1]) == (pytest.approx(84, abs=3), pytest.approx(936, abs=3))
    assert low[0] - high[0] > 180  # it rises: rows count downwards


@pytest.mark.parametrize("kind", ["svg", "png"])
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([1.0], [2.0]),
        ([1.0, 2.0], [np.nan, np.nan]),
        ([1.0, 2.0, 3.0], [np.inf, 1.0, -np.inf]),
        ([1.0, 2.0], [5.0, 5.0]),
        ([1.0, 2.0], [0.0, 0.0]),
        ([1.0, 2.0], [1e300, 1e-300]),
        ([1.0, 2.0], [-1.0, -2.0]),
        ([3.0, 1.0, 2.0], [1.0, 2.0, 3.0]),
        ([1e15, 1e15 + 1], [1.0, 2.0]),
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_strange_values(kind: str, x: list[float], y: list[float], log: bool) -> None:
    panel = Panel("loss", (NamedSeries("a", np.array(x), np.array(y)), GOOD))
    assert picture([panel], kind, "t", log=log)
    assert picture([Panel("loss", panel.series[:1])], kind, "t", log=log)


def test_a_million_points_make_a_small_file() -> None:
    x = np.arange(1_000_000.0)
    y = np.where(x == 777_777, 99.0, np.sin(x))
    data = picture([Panel("loss", (NamedSeries("a", x, y),))], "svg", "t")
    assert len(data) < 60_000


def test_wrong_kinds_and_sizes_are_refused() -> None:
    for kind in ("gif", "", "SVG"):
        with pytest.raises(UserError, match="cannot be written"):
            picture([], kind, "t")
    with pytest.raises(UserError, match="10 pixels"):
        picture([], "svg", "t", width=10)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (12500, "12.5k"), (3.2e6, "3.2M"), (0.25, "0.25"), (1e-5, "1e-05"), (-7, "-7")]
)  # fmt: skip
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("log", [False, True])
def test_ticks_are_round_and_in_range(log: bool) -> None:
    for low, high in ((0.1, 0.2), (1.0, 1e6), (3.0, 4.0), (1e-9, 1e9)):
        scale = scale_of([np.array([low, high])], log)
        places = [p for p, _ in scale.ticks(5)]
        assert 2 <= len(places) <= 12
        assert all(-1e-6 <= p <= 1 + 1e-6 for p in places)
