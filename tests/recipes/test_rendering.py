"""Text that users type ends up as data in every kind of file, or is refused with a reason."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune import rendering
from gpt_tune.errors import UserError
from gpt_tune.recipes.base import RenderedFile
from tests.recipes.specs import DiskFiles

# Everything an argument can hold: no NUL, no lone surrogates.
ANY_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY_TEXT, min_size=1, max_size=5))
def test_quoted_text_reaches_a_program_unchanged(words: list[str]) -> None:
    line = "printf '%s\\0' " + " ".join(rendering.quote(w) for w in words)
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout.decode("utf-8").split("\0")[:-1] == words


@pytest.mark.parametrize("text", ["a\0b", "lone \ud800 surrogate"])
def test_what_no_argument_can_hold_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        rendering.quote(text)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("dev", "--partition=dev"),
        ("a b", '--partition="a b"'),
        ('say "hi"', '--partition="say \\"hi\\""'),
        ("back\\slash", '--partition="back\\\\slash"'),
        ("x # y", '--partition="x # y"'),
        ("$(id)", '--partition="$(id)"'),
        (5, "--partition=5"),
    ],
)
def test_sbatch_values_are_quoted_as_sbatch_reads_them(value: object, line: str) -> None:
    assert rendering.sbatch_option("partition", value) == line


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "tab\there", "\x1b[31m", "a\u2028b", "x" * 1001])
def test_sbatch_values_that_break_the_line_are_refused(value: str) -> None:
    with pytest.raises(UserError, match="--account"):
        rendering.sbatch_option("account", value)


@pytest.mark.parametrize("path", ["relative/run", "/with\nline", "/with%percent", "/back\\slash"])
def test_run_folders_that_slurm_would_change_are_refused(path: str) -> None:
    with pytest.raises(UserError):
        rendering.run_folder(path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gpt-145b", "gpt-145b"),
        ("my run; rm -rf /", "my-run-rm-rf"),
        ("日本語", "smoke"),
        ("", "smoke"),
        ("../../etc", "etc"),
        ("x" * 100, "x" * 64),
    ],
)
def test_names_are_safe_in_file_names(text: str, name: str) -> None:
    assert rendering.slug(text, "smoke") == name


@pytest.mark.parametrize("name", ["A B", "1A", "", "A=B", "A-B", "é", "A\n"])
def test_names_no_shell_takes_are_refused(name: str) -> None:
    with pytest.raises(UserError):
        rendering.variable_name(name)


def test_a_value_nobody_gave_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        rendering.render("smoke/README.md.j2", name="x")


def test_table_cells_cannot_start_anything_of_their_own() -> None:
    cell = rendering.markdown_cell("a|b\n# head `code` [x](y)")
    assert "\n" not in cell
    assert all(c in cell for c in (r"\|", r"\#", r"\`", r"\["))


def test_json_keeps_what_it_is_given() -> None:
    data = {"a": [1, 2.5, None, "ünïcode"], "b": {"c": True}}
    assert json.loads(rendering.json_bytes(data)) == data


@pytest.mark.parametrize(
    ("group", "folder", "plain", "program"), [(False, 0o700, 0o600, 0o700), (True, 0o770, 0o660, 0o770)]
)
def test_files_are_private_unless_the_site_shares(
    tmp_path: Path, group: bool, folder: int, plain: int, program: int
) -> None:
    files = (RenderedFile("a/b/c.txt", b"x"), RenderedFile("job.sh", b"y", executable=True))
    rendering.write(DiskFiles(), str(tmp_path / "run"), files, group=group)

    def mode(name: str) -> int:
        return (tmp_path / "run" / name).stat().st_mode & 0o777

    assert [mode(n) for n in (".", "a", "a/b", "logs")] == [folder] * 4
    assert mode("a/b/c.txt") == plain
    assert mode("job.sh") == program
