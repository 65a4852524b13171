"""Every theme that can be chosen, Textual's own among them, paints every role."""

from __future__ import annotations

import pytest
from rich.style import Style
from textual.theme import BUILTIN_THEMES

from tests.tui.fakes import FakeEngine, run
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.widgets.roles import ROLES, role_style


@pytest.mark.parametrize("theme", sorted(BUILTIN_THEMES))
async def test_a_theme_of_textuals_own_can_be_chosen(theme: str) -> None:
    app = GptTune(FakeEngine([run()]))
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        app.theme = theme
        app.open("runs")
        await driver.see("RUNNING")
        variables = app.theme_variables
        for role in ROLES:
            for base in (Style(), Style(color="#ffffff", bgcolor="#101010")):
                assert isinstance(role_style(role, base, variables, False, False), Style)
