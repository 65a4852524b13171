"""The shell reader sees what the shell sees: words, values, branches, here-documents; and survives anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_tune.lint.flags import Flags
from gpt_tune.lint.shell.reader import Reader, read
from gpt_tune.lint.shell.script import Script

ROOT = Path(__file__).resolve().parents[2]


def argv(text: str) -> list[list[str]]:
    return [[w.source for w in c.words] for c in read(text).commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c # d", [["a", "b", "c"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a#b c", [["a#b", "c"]]),
        ("a 'b # c' \"d $e\"", [["a", "'b # c'", '"d $e"']]),
        ("a && b || c; d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("for x in 1 2; do a $x; done", [[], ["a", "$x"]]),
        ("while read -r l; do a; done < f", [["read", "-r", "l"], ["a"], []]),
        ("case $x in a|b) c;; *) d;; esac; e", [["c"], ["d"], ["e"]]),
        ("f() { a; }; function g { b; }; c", [["a"], ["b"], ["c"]]),
        ("( a; b ) && { c; }", [["a"], ["b"], ["c"]]),
        ("[[ $a == b && ( -n $c || x < y ) ]]; d", [["[[", "$a", "==", "b", "&&", "(", "-n", "$c", "||", "x", "<",
        "y", ")", "]]"], ["d"]]),
        ("(( a > 1 )) && b", [["(( a > 1 ))"], ["b"]]),
        ("a $(b c) `d e`", [["b", "c"], ["d", "e"], ["a", "$(b c)", "`d e`"]]),
        ("a <<E\nb c\nE\nd", [["a"], ["d"]]),
        ("a <<'E' | b\n$(c)\nE\nd", [["a"], ["b"], ["d"]]),
        ("a > b 2>&1 < c", [["a"]]),
        ("x=1 y=(2 3) a", [["a"]]),
        ("a ${b:-c d} ${e}", [["a", "${b:-c d}", "${e}"]]),
        ("a $((1 + 2)) b", [["a", "$((1 + 2))", "b"]]),
        ("x=(a # b\n  c)\nd", [[], ["d"]]),
        ("a \\# b", [["a", "\\#", "b"]]),
    ],
)  # fmt: skip
def test_words(text: str, expected: list[list[str]]) -> None:
    assert argv(text) == expected


def test_commands_know_where_they_stand() -> None:
    text = 'if [ "$A" -ge 2 ]; then\n  one\nelse\n  two\nfi\ncase "$B" in\n  x) three ;;\nesac\nf() {\n  four\n}\n'
    by_name = {c.name: c for c in read(text).commands}
    assert [(b.kind, b.head) for b in by_name["one"].blocks] == [("if", '[ "$A" -ge 2 ]')]
    assert [b.kind for b in by_name["two"].blocks] == ["else"]
    assert by_name["one"].blocks[0].family == by_name["two"].blocks[0].family
    assert by_name["three"].blocks[-1].head == '"$B" = x'
    assert [(b.kind, b.head) for b in by_name["four"].blocks] == [("function", "f")]
    assert by_name["["].condition
    assert (by_name["one"].line, by_name["two"].line, by_name["four"].line) == (2, 4, 10)


def test_lines_and_offsets_lead_back_to_the_text() -> None:
    text = "#!/bin/bash\na \\\n  'b\nc' d\nexport X=1 Y=\"2\"\n"
    commands = read(text).commands
    assert [(c.line, c.end_line) for c in commands] == [(2, 4), (5, 5)]
    for command in commands:
        for word in command.words:
            assert text[word.start : word.end] == word.source
        for assignment in command.assignments:
            assert text[assignment.start :].startswith(assignment.name)


def test_embedded_scripts_are_read_in_place() -> None:
    script = Script("srun bash -c 'export A=1\npython3 x.py --b $C'\n")
    assert [c.name for c in script.commands] == ["export", "python3", "srun"]
    assert script.commands[1].line == 2


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("A=1", "A", "1"),
        ("A=1; A=2", "A", "2"),
        ("B=x; A=$B/y", "A", "x/y"),
        (': "${A:=5}"', "A", "5"),
        ('A="${A:-5}"', "A", "5"),
        ("A=$((2 * 3 + 1))", "A", "7"),
        ("B=4; A=$((B / 2 % 3))", "A", "2"),
        ("A=1; A+=2", "A", "12"),
        ("A=(1 2 3)", "A", "1 2 3"),
        ("if [ 1 -eq 1 ]; then A=1; else A=2; fi", "A", "1"),
        ("B=3; if ((B >= 4)); then A=1; else A=2; fi", "A", "2"),
        ("A=1; if [ -f x ]; then A=2; fi", "A", None),
        ("A=1; if [ -f x ]; then A=1; fi", "A", "1"),
        ("A=$(date)", "A", None),
        ("A=$A", "A", None),
        ("A=$B; B=$A", "A", None),
        ("case $X in a) A=1;; *) A=2;; esac", "A", None),
        ("export A=1", "A", "1"),
        ("A=1 cmd", "A", None),
    ],
)
def test_values(text: str, name: str, expected: str | None) -> None:
    assert Script(text).values.variable(name) == expected


names = st.sampled_from(["A", "B", "C"])
numbers = st.integers(0, 20).map(str)


@st.composite
def statements(draw: st.DrawFn) -> str:
    name, other, value = draw(names), draw(names), draw(numbers)
    return draw(
        st.sampled_from(
            [
                f"{name}={value}",
                f'{name}="{value}x{value}"',
                f"{name}=${{{other}}}",
                f'{name}="${{{other}:-{value}}}"',
                f': "${{{name}:={value}}}"',
                f"{name}+={value}",
                f"{name}='a b'",
                f"{name}=$(( {value} + 3 ))",
                f"export {name}={value}",
                f"if [ {value} -gt 10 ]; then {name}={value}; else {name}=no; fi",
                f"if (( {value} == 3 )); then\n  {name}=three\nfi",
            ]
        )
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(statements(), min_size=1, max_size=5))
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_what_is_said_about_a_value_is_what_bash_has(lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    values = Script(text).values
    shown = subprocess.run(
        ["bash", "-c", text + 'printf "%s\\n" "${A-unset}" "${B-unset}" "${C-unset}"'],
        capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}, timeout=20,
    ).stdout.split("\n")  # fmt: skip
    for name, real in zip("ABC", shown):
        known = values.variable(name)
        if known is not None:
            assert known == real, (name, text)


def test_flags_are_found_wherever_they_are_kept() -> None:
    text = (
        'A=(--one 1 --two="2")\nB="--three 3 \\\n --four"\nN=5\n'
        'if [ "$X" = y ]; then A+=(--five "$N"); fi\nsrun python3 t.py --six_six=6 $B "${A[@]}"\necho --seven\n'
    )
    flags = Flags(Script(text))
    assert {f.name: flags.text(f.name) for f in flags.all} == {
        "one": "1", "two": "2", "three": "3", "four": None, "five": "5", "six-six": "6",
    }  # fmt: skip
    assert flags.line("four") == 3


def test_branches_that_defaults_skip_are_left_out() -> None:
    text = ': "${Z:=1}"\nif [ "$Z" -ge 2 ]; then A=(--p 1); else A=(--p "$P"); fi\nP=4\n'
    flags = Flags(Script(text))
    assert flags.text("p") == "4"
    assert flags.given({"Z": "3"}).text("p") == "1"


SCRIPTS = sorted(
    p
    for p in (
        *ROOT.glob("scripts/*.sh"),
        *ROOT.glob("templates/**/*.sh"),
        *ROOT.glob("tests/data/lint/**/*.sbatch"),
    )
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_a_whole_script_leaves_nothing_open(path: Path) -> None:
    reader = Reader(path.read_text())
    reader.read()
    assert reader.blocks == []


PIECES = (
    "if then fi do done case in esac { } ( ) (( )) [[ ]] $( ` ${ ' \" \\ ; ;; && | <<E E <<'E' # = += a $a ${a:- "
    "$(( > <( for function f() while else elif --flag export é"
)
pieces = st.sampled_from([*PIECES.split(), "\n", " ", "\t", "\r\n", "\x00", "\udc80", "#SBATCH --x"])


@settings(max_examples=400, deadline=None)
@given(st.lists(pieces, max_size=60))
def test_nothing_makes_it_fail(parts: list[str]) -> None:
    script = Script("".join(parts))
    for command in script.commands:
        assert command.line >= 1
    for flag in Flags(script).all:
        script.values.expand(flag.value)
    for setting in script.settings:
        script.values.variable(setting.name)
