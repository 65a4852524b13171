"""What is news about runs, and how each terminal is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import jobs
from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers.local import Local
from tests.jobs.helpers import prepared, rendered
from tests.tui.fakes import run
from tests.tui.terminal import Terminal
from tui import settings
from tui.notify import changes, sequence
from tui.settings import Notify


@pytest.mark.parametrize(
    ("was", "state", "kind"),
    [
        ("PENDING", "RUNNING", "start"),
        ("RUNNING", "COMPLETED", "end"),
        ("PENDING", "COMPLETED", "end"),
        ("RUNNING", "FAILED", "fail"),
        ("RUNNING", "TIMEOUT", "fail"),
        ("RUNNING", "OUT_OF_MEMORY", "fail"),
        ("PENDING", "NODE_FAIL", "fail"),
        ("RUNNING", "CANCELLED", "end"),
        ("RUNNING", "RUNNING", None),
        ("RUNNING", "COMPLETING", None),
        ("RUNNING", "UNKNOWN", None),
        ("UNKNOWN", "RUNNING", None),
    ],
)
def test_what_is_news(was: str, state: str, kind: str | None) -> None:
    found = changes([run(state=was)], [run(state=state)])
    assert [c.kind for c in found] == ([kind] if kind else [])


def test_neither_a_new_run_nor_what_the_user_did_is_news() -> None:
    assert changes([], [run(state="RUNNING")]) == []
    assert changes([run()], [run(state="CANCELLED", cancel_requested=True)]) == []


def test_several_at_once_are_each_said() -> None:
    before = [run("a"), run("b"), run("c", "PENDING")]
    after = [replace(before[0], state="FAILED"), before[1], replace(before[2], state="RUNNING")]
    assert [c.text.split(" ")[0] for c in changes(before, after)] == ["a", "c"]


@pytest.mark.parametrize(
    ("environ", "begin"),
    [
        ({"TERM": "xterm-256color"}, "\x1b]9;"),
        ({"TERM": "xterm-kitty"}, "\x1b]9;"),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7000"}, "\x1b]777;notify;gpt-tune;"),
        ({"TERM": "rxvt-unicode-256color"}, "\x1b]777;"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x"}, "\x1bPtmux;\x1b\x1b]9;"),
        ({"TERM": "linux"}, "\a"),
        ({"TERM": "dumb"}, "\a"),
        ({}, "\a"),
    ],
)
def test_each_terminal_is_told_in_its_way(environ: dict[str, str], begin: str) -> None:
    said = sequence("trial has completed.", Notify(), environ)
    assert said.startswith(begin)
    assert said.endswith("\a")


def test_the_bell_and_the_message_can_be_turned_off() -> None:
    assert sequence("x", Notify(bell=False, desktop="off"), {"TERM": "xterm"}) == ""
    assert sequence("x", Notify(bell=True, desktop="off"), {"TERM": "xterm"}) == "\a"
    assert (
        sequence("x", Notify(bell=False, desktop="osc777"), {"TERM": "xterm"})
        == "\x1b]777;notify;gpt-tune;x\x07"
    )


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07", "a\x07b\x9c", "4;1;50", "x" * 5000, "a;b", "\n\r"])
@pytest.mark.parametrize("kind", ["osc9", "osc777"])
def test_a_hostile_name_cannot_write_to_the_terminal(name: str, kind: str) -> None:
    said = sequence(f"{name} has failed.", Notify(bell=False, desktop=kind), {"TERM": "xterm"})  # type: ignore[arg-type]
    inner = said[2:-1]
    assert said.startswith("\x1b]")
    assert said.endswith("\x07")
    assert inner.isprintable()
    assert len(said) < 200
    assert not inner.startswith("9;4;"), "ConEmU reads that as a progress bar"


def write(text: str) -> Path:
    path = settings.path_of()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_a_file_the_defaults_hold(home: Path) -> None:
    assert settings.load() == settings.Settings()


def test_the_file_is_read(home: Path) -> None:
    write('[notify]\nwhen = ["fail"]\nbell = false\n[keys]\n"monitor.cancel" = "ctrl+x"\n')
    found = settings.load()
    assert (found.notify.when, found.notify.bell, found.keys) == (
        ("fail",),
        False,
        {"monitor.cancel": "ctrl+x"},
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[notfy]\n", "notify"),
        ("[notify]\nbel = true\n", "bell"),
        ("[notify]\nbell = 3\n", "true or false"),
        ('[notify]\ndesktop = "osc8"\n', "osc9"),
        ('[notify]\nwhen = ["strat"]\n', "start"),
        ("[keys]\nx = 3\n", "text in quotes"),
        ("[notify\n", "not valid TOML"),
    ],
)
def test_a_wrong_setting_names_the_nearest(home: Path, text: str, words: str) -> None:
    path = write(text)
    with pytest.raises(UserError) as refused:
        settings.load()
    assert words in str(refused.value)
    assert path.name in str(refused.value)


@pytest.mark.terminal
def test_the_end_of_a_run_rings_in_a_real_terminal(home: Path, tmp_path: Path) -> None:
    scheduler, ledger = Local(), Ledger.open()
    spec = prepared(scheduler, tmp_path / "runs")
    go = tmp_path / "go"
    body = f"until [ -e {go} ]; do sleep 0.1; done"
    record = jobs.submit(spec, rendered(spec, body), scheduler, ledger)
    try:
        with Terminal(columns=120, TMUX="", VTE_VERSION="") as terminal:
            terminal.see("1 live")
            terminal.press("c")  # a screen that shows no states: the news comes all the same
            terminal.see("Clusters")
            terminal.press("escape")  # alone: with a letter behind it, it would be Alt and that letter
            terminal.see("Plan, submit")
            terminal.press("r")
            terminal.see("RUNNING")
            assert b"\x1b]9;" not in terminal.raw
            go.touch()
            terminal.until(lambda: b"\x1b]9;" in terminal.raw, "the terminal's message")
            message = terminal.raw.partition(b"\x1b]9;")[2].partition(b"\x07")[0]
            assert message.startswith(record.name.encode())
            assert b"has completed" in message
            terminal.see("has completed")
    finally:
        jobs.cancel(record.run_id, ledger)
