"""Windows with a filter: what is typed is what Enter chooses, even where other names contain it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tui.fakes import FakeEngine
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.screens.pick_dialog import PickDialog

OPTIONS = [
    ("gb200-nvl72", "gb200-nvl72", "4 x gb200"),
    ("p6-b200", "p6-b200", "8 x b200"),
    ("gb200", "gb200", "NVIDIA GB200"),
    ("b200", "b200", "NVIDIA B200"),
    ("h100", "h100", "NVIDIA H100"),
]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("b200", "b200"),
        ("gb", "gb200-nvl72"),
        ("GB200", "gb200"),
        ("p6", "p6-b200"),
        ("nvidia b", "gb200"),
        ("", "h100"),
    ],
)
async def test_enter_takes_the_option_of_that_name(text: str, chosen: str) -> None:
    app = GptTune(FakeEngine())
    got: list[Any] = []
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        app.push_screen(PickDialog(OPTIONS, "h100"), got.append)
        await driver.reach("PickDialog")
        await driver.type(text)
        await driver.press("enter")
        await driver.reach("Home")
    assert got == [chosen]
