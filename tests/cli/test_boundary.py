"""Tests of the outermost boundary: exit codes, errors as sentences and JSON, imports, pipes."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tui.cli.output as output
from gpt_tune import __version__
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.models import catalogue
from tests.cli.conftest import ROOT, STEP_LINE, Run, in_process
from tui.cli.app import COMMANDS, cli


def test_version(gpt_tune: Run) -> None:
    for given in (["--version"], ["-V"], ["--json", "--version"]):
        done = gpt_tune(*given)
        assert (done.code, done.out) == (0, f"gpt-tune {__version__}\n")


def test_help_lists_every_command_that_exists(gpt_tune: Run) -> None:
    done = gpt_tune("--help")
    assert done.code == 0
    for name in ("clusters", "models", "hardware", "plan", "estimate", "site", "render", "submit", "jobs", "cancel",
                 "watch", "parse", "profiles"):  # fmt: skip
        assert f"\n  {name} " in done.out
        assert gpt_tune(name, "--help").code == 0
        assert "--json" in gpt_tune(name, "--help").out


@pytest.mark.parametrize("place", ["before", "after"])
def test_json_may_stand_before_or_after(gpt_tune: Run, place: str) -> None:
    done = gpt_tune("--json", "models") if place == "before" else gpt_tune("models", "--json")
    assert done.json["schema"] == "gpt-tune/models/1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["modles"], "'models'"),
        (["models", "--jsn"], "--json"),
        (["models", "a", "b"], "b"),
        (["plan", "--gpus", "8", "--gpu", "b200"], "--model"),
        (["plan", "--model", "gpt-1.3b", "--gpus", "x", "--gpu", "b200"], "x"),
        (["plan", "--model", "gpt-1.3b", "--gpus", "8"], "--gpu"),
        (["profiles", "shw"], "show"),
        (["cancel"], "ID"),
        (["--dry-run", "models"], "--dry-run"),
    ],
)
def test_wrong_use_exits_2_in_words_and_in_json(gpt_tune: Run, arguments: list[str], words: str) -> None:
    done = gpt_tune(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert words in done.err
    assert "Traceback" not in done.err
    assert words in str(gpt_tune("--json", *arguments).error)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("Wrong.", "Do right."), 2),
        (SchedulerError("Refused."), 3),
        (KeyboardInterrupt(), 130),
        (EOFError(), 130),
        (ZeroDivisionError("oops"), 70),
        (RecursionError("deep"), 70),
    ],
)
def test_every_failure_has_its_exit_code(
    gpt_tune: Run, monkeypatch: pytest.MonkeyPatch, home: Path, error: BaseException, code: int
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(catalogue, "all_models", fail)
    done = gpt_tune("models", "--json")
    assert done.code == code
    assert done.error["message"]
    assert "Traceback" not in done.err
    reports = list((home / ".local/state/gpt-tune/bugs").glob("*.txt"))
    assert bool(reports) == (code == 70)
    if reports:
        assert type(error).__name__ in reports[0].read_text()
        assert str(reports[0]) in done.err


def test_the_wizard_without_a_terminal_says_what_to_do(gpt_tune: Run) -> None:
    for given in ([], ["--plain"]):
        done = gpt_tune(*given)
        assert done.code == 2
        assert "terminal" in done.err
        assert "--auto" in done.err
    assert gpt_tune("--json").error["code"] == 2


def test_numbers_that_json_does_not_know_become_null() -> None:
    data = {"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": -float("inf")}}
    assert output.plain(data) == {"a": None, "b": [None, 1.5], "c": {"d": None}}


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.bold("x") == "\x1b[1mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.bold("x") == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert output.bold("x") == "x"


# -- in a process of its own ------------------------------------------------------------------------

# Every command's module in one process, and what a few of them need to run.
_IMPORT_ALL = """
import sys
from tui.cli.app import COMMANDS, cli
import click
context = click.Context(cli)
for name in cli.list_commands(context):
    cli.get_command(context, name)
from tui.cli import main
main(["models", "gpt-1.3b"])
main(["plan", "--model", "gpt-1.3b", "--gpus", "8", "--gpu", "h100", "--top", "1"])
main(["profiles", "list"])
main(["jobs"])
heavy = [m for m in sys.modules if m.split(".")[0] in ("textual", "rich", "questionary", "prompt_toolkit", "plotext")]
print("HEAVY", sorted({m.split(".")[0] for m in heavy}))
"""


def test_no_command_imports_a_terminal_library(home: Path) -> None:
    done = in_process(python=("-c", _IMPORT_ALL))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_version_imports_next_to_nothing(home: Path) -> None:
    code = "import sys; from tui.cli import main; main(['--version']); print(sorted(sys.modules))"
    done = in_process(python=("-c", code))
    for heavy in ("click", "numpy", "jinja2", "gpt_tune.errors", "asyncio"):
        assert f"'{heavy}'" not in done.stdout


def test_help_imports_no_command(home: Path) -> None:
    code = "import sys; from tui.cli import main; main(['--help']); print([m for m in sys.modules if 'commands.' in m])"
    assert in_process(python=("-c", code)).stdout.splitlines()[-1] == "[]"


def test_a_reader_that_stops_is_no_failure(home: Path) -> None:
    script = f"{shlex.quote(sys.executable)} -m tui models | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_ctrl_c_exits_130(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "endless.log"
    log.write_text(STEP_LINE * 2)
    process = subprocess.Popen(
        [sys.executable, "-m", "tui", "watch", str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 60)
        assert ready, "no line within a minute"
        assert b"iteration 1" in os.read(process.stdout.fileno(), 4096)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_ascii_terminal_does_not_die(home: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "tui", "submit", "smök", "--json"],
        capture_output=True,
        env=environment,
        timeout=60,
    )
    assert done.returncode == 2
    assert "sm\\u00f6k" in done.stdout.decode("ascii")
    assert json.loads(done.stdout)["error"]["code"] == 2


def test_every_listed_command_has_a_module_or_is_hidden() -> None:
    import click

    listed = cli.list_commands(click.Context(cli))
    assert set(listed) <= set(COMMANDS)
    for name in listed:
        assert cli.get_command(click.Context(cli), name) is not None
