"""Tests that any word may stand where a name or a path is asked for: it is found, or it is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune import resources
from gpt_tune.errors import UserError, unknown_name
from tests.cli.conftest import Run

NO_FILE_NAMES = ("a" * 300, "a" * 5000, "a\0b", "~nobody-of-that-name/x", "x/" + "b" * 300, "\udcff" * 300)
COMMANDS = (
    ("models", "?"),
    ("plan", "--model", "?", "--gpus", "8", "--gpu", "h100"),
    ("parse", "?"),
    ("diagnose", "?"),
    ("watch", "?", "--once"),
    ("validate", "?"),
    ("lint", "?"),
    ("profiles", "show", "?"),
    ("profiles", "save", "?"),
    ("profiles", "save", "x", "--from", "?"),
    ("profiles", "import", "?"),
    ("profiles", "edit", "?", "--set", "model.id=gpt-1.3b"),
    ("profiles", "export", "smoke", "--out", "?"),
    ("render", "?"),
    ("submit", "?"),
    ("submit", "smoke", "--cluster", "?"),
)


@pytest.mark.parametrize("name", NO_FILE_NAMES, ids=("300", "5000", "nul", "home", "part", "surrogate"))
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_text_that_is_no_file_name(gpt_tune: Run, command: tuple[str, ...], name: str) -> None:
    done = gpt_tune(*(name if word == "?" else word for word in command))
    assert (done.code, done.out) == (2, "")
    assert len(done.err) < 1000


@pytest.mark.parametrize("name", ["a" * 300, "~nobody-of-that-name/x"])
def test_a_folder_to_write_that_cannot_be(gpt_tune: Run, name: str) -> None:
    done = gpt_tune("render", "smoke", "--out", name)
    assert (done.code, "cannot be a path" in done.err) == (2, True)


def test_existing_answers_for_every_word() -> None:
    assert [resources.existing(n) for n in NO_FILE_NAMES] == [None] * len(NO_FILE_NAMES)
    assert resources.existing_dir("/") is not None
    assert resources.existing_file("/") is None
    with pytest.raises(UserError):
        resources.path_of("a" * 300)


def test_a_long_name_is_cut_in_the_message() -> None:
    message = unknown_name("model", "a" * 5000, ["gpt"]).message
    assert "…' (5000 characters)" in message
    assert len(message) < 100


@pytest.mark.parametrize("key", ["model.id", "recipe", "site.run_root", "cluster", "resources.gpu"])
@pytest.mark.parametrize("name", NO_FILE_NAMES, ids=("300", "5000", "nul", "home", "part", "surrogate"))
def test_an_answer_that_is_no_file_name(home: object, key: str, name: str) -> None:
    """The wizard's check runs at every key press, so it answers for every text."""
    from gpt_tune.profiles.schema import Profile
    from gpt_tune.workflows import answers
    from gpt_tune.workflows.draft import Draft

    said = answers.check(Draft(profile=Profile()), key, name)
    assert said is None or len(said) < 1000


@pytest.mark.parametrize(
    "command", [("parse",), ("diagnose",), ("lint",), ("render",), ("watch",), ("submit",), ("validate",),
                ("profiles", "show"), ("profiles", "import")], ids=" ".join,
)  # fmt: skip
def test_an_empty_name(gpt_tune: Run, command: tuple[str, ...]) -> None:
    for empty in ("", " "):
        done = gpt_tune(*command, empty)
        assert (done.code, "No name given" in done.err) == (2, True)


@pytest.mark.parametrize("command", ["validate", "render", "submit", "parse"])
def test_a_folder_where_a_file_is_asked_for(gpt_tune: Run, command: str) -> None:
    done = gpt_tune(command, "/")
    assert (done.code, "is a folder" in done.err) == (2, True)


@pytest.mark.parametrize("command", [("models",), ("profiles", "import"), ("render",)], ids=" ".join)
def test_a_program_where_a_text_is_asked_for(gpt_tune: Run, command: tuple[str, ...]) -> None:
    done = gpt_tune(*command, "/bin/ls")
    assert (done.code, "is not text" in done.err) == (2, True)


def test_a_folder_of_logs_stands_for_them(gpt_tune: Run, tmp_path: Path) -> None:
    for rank in range(3):
        path = tmp_path / "attempt_0" / str(rank) / "stdout.log"
        path.parent.mkdir(parents=True)
        path.write_text("".join(f"iter {i}: loss 2.5, time {100 + rank}.00ms\n" for i in range(1, 6)))
    done = gpt_tune("parse", str(tmp_path))
    assert (done.code, "5 steps in 1 run segment" in done.out) == (0, True)
    assert gpt_tune("watch", "--once", str(tmp_path)).code == 0
    assert gpt_tune("diagnose", str(tmp_path)).code == 0
