"""The user's own keys: named, checked, and followed by footer, `?` and palette; copying; leaving on purpose only."""

from __future__ import annotations

import base64
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from textual.binding import Binding
from textual.widget import Widget

from gpt_tune.errors import UserError
from tests.tui.conftest import until
from tests.tui.fakes import FakeEngine, FakePlanner, run
from tests.tui.flow import Driver
from tests.tui.test_notify import write
from tests.tui.test_plan_screen import opened, planning
from tui import keys
from tui.app import GptTune
from tui.widgets.rows import RowList


def bound_classes() -> list[type]:
    """Every class of ours that binds keys: screens, windows and widgets."""
    for package in ("tui.screens", "tui.widgets"):
        for module in iter_modules(import_module(package).__path__):
            import_module(f"{package}.{module.name}")
    found = [cls for cls in keys._below(Widget) if cls.__module__.startswith("tui.")]
    return [cls for cls in found if "BINDINGS" in cls.__dict__]


def test_every_binding_of_every_screen_window_and_widget_has_one_name() -> None:
    classes = bound_classes()
    assert {"PlanStep", "Knobs", "RowList", "LogPane", "Entry", "Form", "Confirm", "CureDialog"} <= {
        cls.__name__ for cls in classes
    }
    known = keys.known()
    for cls in classes:
        actions: dict[str, str] = {}
        for binding in cls.__dict__["BINDINGS"]:
            assert isinstance(binding, Binding), f"{cls.__name__}: {binding}"
            assert binding.id, f"{cls.__name__}: {binding.key}"
            assert actions.setdefault(binding.id, binding.action) == binding.action
            assert binding.id in known, f"{cls.__name__}: {binding.id} is not listed by `gpt-tune keys`"


async def test_the_keys_of_a_widget_can_be_moved(home: Any) -> None:
    write('[keys]\n"list.down" = "f6"\n"what-if.up" = "plus"\n"confirm.yes" = "o"\n')
    app = planning(FakePlanner())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("f6")
        await until(pilot, lambda: app.screen.query_one("#plans", RowList).key == "2", "the next row")
        await driver.press("down")
        assert app.screen.query_one("#plans", RowList).key == "2", "the old key does nothing"
        await driver.press("right", "right", "right", "right", "plus")
        await driver.see("‹2›")


def test_the_defaults_are_a_legal_choice() -> None:
    for name, named in keys.known().items():
        if named.keys not in keys._UNUSABLE:
            assert keys.keymap({name: named.keys}, "f") == {name: named.keys}


@pytest.mark.parametrize(
    ("name", "key", "kept"),
    [
        ("queue.hold", "x", "x"),
        ("queue.hold", "X", "X"),
        ("queue.hold", "ctrl+x", "ctrl+x"),
        ("queue.hold", "F5, alt+h", "f5,alt+h"),
        ("queue.hold", "+", "plus"),
        ("queue.hold", "/", "slash"),
        ("queue.hold", "space", "space"),
        ("home.quit", "f10", "f10"),
        ("theme", "f9", "f9"),
    ],
)
def test_keys_in_the_users_words(name: str, key: str, kept: str) -> None:
    assert keys.keymap({name: key}, "f") == {name: kept}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"queue.hodl": "x"}, "Did you mean 'queue.hold'?"),
        ({"queue.hold": "pagup"}, "Did you mean pageup?"),
        ({"queue.hold": ""}, "there is no key"),
        ({"queue.hold": "ctrl+"}, "there is no key"),
        ({"queue.hold": "strg+x"}, "no modifier"),
        ({"queue.hold": "ctrl+s"}, "stops the output"),
        ({"queue.hold": "c"}, "is the key of queue.cancel-job already"),
        ({"queue.hold": "escape"}, "is the key of back already"),
        ({"theme": "ctrl+y"}, "already"),
        ({"queue.hold": "x", "queue.release": "x"}, "already"),
        ({"plan.compare": "up"}, "already"),
        ({"list.down": "m"}, "already"),
        ({"what-if.up": "left"}, "what-if.left already"),
    ],
)
def test_what_will_not_do_names_what_will(wanted: dict[str, str], words: str) -> None:
    with pytest.raises(UserError) as refused:
        keys.keymap(wanted, "settings.toml")
    assert words in str(refused.value)
    assert "settings.toml" in str(refused.value)


def test_two_may_swap_and_other_screens_do_not_matter() -> None:
    swapped = {"queue.hold": "c", "queue.cancel-job": "h"}
    assert keys.keymap(swapped, "f") == swapped
    assert keys.keymap({"queue.hold": "d"}, "f") == {"queue.hold": "d"}  # d is another screen's


async def test_footer_help_and_palette_follow(home: Any) -> None:
    write('[keys]\n"home.quit" = "f10"\n"help" = "f12"\n"theme" = "f9"\n')
    app = GptTune(FakeEngine())
    async with app.run_test(size=(80, 60), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        assert "f10 Quit" in driver.text.replace("F10", "f10")
        await driver.press("q", "question_mark")
        assert driver.page == "Home", "the old keys do nothing"
        await driver.press("f12")
        await driver.reach("Help")
        assert "F9" in driver.text.upper()
        assert "^t" not in driver.text
        await driver.press("escape", "f9")
        await driver.see("Theme: light")
        await driver.press("f10")
        await until(pilot, lambda: not app.is_running or app._exit, "the end")


async def test_a_wrong_file_is_one_sentence_before_the_screen(home: Any) -> None:
    write('[keys]\n"home.qiut" = "x"\n')
    with pytest.raises(UserError, match=r"home\.quit"):
        GptTune(FakeEngine())


async def test_esc_on_the_first_screen_never_quits_and_says_what_does() -> None:
    app = GptTune(FakeEngine())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        await driver.press("escape", "escape", "escape")
        await driver.see("q quits")
        assert not app._exit
        await driver.press("q")
        await until(pilot, lambda: app._exit, "the end")


async def test_copy_goes_through_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    app = GptTune(FakeEngine([run("one"), run("two")]))
    written: list[str] = []
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        assert app._driver is not None
        monkeypatch.setattr(app._driver, "write", written.append)
        app.open("runs")
        await driver.see("one")
        await driver.press("ctrl+y")
        await driver.see("Copied")
        (sent,) = [w for w in written if w.startswith("\x1b]52;c;")]
        assert "one" in base64.b64decode(sent[7:-1]).decode()
        app.open("doctor")
        await driver.reach("Doctor")
        app.screen.set_focus(None)
        await driver.press("ctrl+y")
        await driver.see("Nothing to copy")
