"""Which files are read, and that none of them can hurt."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.lint.kinds import kind_of
from gpt_tune.lint.report import lint
from gpt_tune.lint.walk import LARGEST_BYTES
from tests.lint.support import batch, write

JOB = batch("export NCCL_BUFFERSIZE=1 NCCL_DEBUG=INFO\nsrun x")


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.sh", "ls\n", "shell"),
        ("a.sbatch", "", "shell"),
        ("run", "#!/usr/bin/env bash\n", "shell"),
        ("job", "#SBATCH --nodes=1\n", "shell"),
        ("notes.txt", "#!/bin/sh\n#SBATCH -N 1\n", "shell"),
        ("a.sh", "#!/usr/bin/env python3\n", None),
        ("notes.txt", "hello\n", None),
        ("Dockerfile", "FROM a\n", "dockerfile"),
        ("0.deepspeed.dockerfile", "ARG A\nFROM a\n", "dockerfile"),
        ("Dockerfile.cuda", "FROM a\n", "dockerfile"),
        ("aws.Dockerfile", "FROM a\n", "dockerfile"),
        ("Dockerfile.md", "words\n", None),
        ("ds.json", '{"zero_optimization": {}}', "deepspeed"),
        ("package.json", '{"name": "x"}', None),
        ("requirements-dev.txt", "a\n", "requirements"),
        ("Makefile", "a:\n", "makefile"),
        ("rules.mk", "a:\n", "makefile"),
        ("parse.py", "TFLOPS = 1\n", "python"),
        ("setup.py", "x = 1\n", None),
        ("README.md", "x\n", "markdown"),
        ("CHANGES.md", "x\n", None),
        ("job.sbatch.j2", "#SBATCH {{ x }}\n", None),
    ],
)
def test_kinds(name: str, text: str, kind: str | None) -> None:
    assert kind_of(Path(name), text, named=False) == kind


def test_a_folder_is_walked_with_sense(tmp_path: Path) -> None:
    write(
        tmp_path,
        dict.fromkeys(
            ("a.sh", "b/c.sbatch", ".git/hook.sh", "node_modules/x.sh", ".venv/y.sh", "venv/z.sh"), JOB
        ),
    )
    (tmp_path / "big.sh").write_bytes(b"echo 1\n" * (LARGEST_BYTES // 7 + 1))
    (tmp_path / "bin.sh").write_bytes(b"#!/bin/bash\n\x00\x01\x02")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "broken.sh").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.sh")
    report = lint([str(tmp_path)])
    assert [str(Path(f).relative_to(tmp_path)) for f in report.files] == ["a.sh", "b/c.sbatch"]
    assert {Path(s.path).name for s in report.skipped} == {"big.sh", "broken.sh", "pipe.sh"}


def test_a_file_given_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.sh": JOB})
    monkeypatch.chdir(tmp_path)
    report = lint(["a.sh", ".", str(tmp_path / "a.sh")])
    assert report.files == ("a.sh",)
    assert {f.file for f in report.findings} == {"a.sh"}


@pytest.mark.parametrize("path", ["missing.sh", "bad\0name", "pipe"])
def test_bad_paths_are_told(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError) as error:
        lint([path])
    assert error.value.exit_code == 2
    assert repr(path) in error.value.message or path in error.value.message


def test_named_files_of_no_known_kind_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x00" * 5_000_000)
    (tmp_path / "b.txt").write_text("words\n")
    report = lint([str(tmp_path / "a.bin"), str(tmp_path / "b.txt")])
    assert report.files == ()
    assert len(report.skipped) == 2
    assert report.findings == ()


def test_text_that_is_no_utf8_and_empty_files(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_bytes(b"#!/bin/bash\n# caf\xe9\nexport NCCL_BUFFERSIZE=1\n")
    write(tmp_path, dict.fromkeys(["b.sh", "Makefile", "requirements.txt", "README.md"], ""))
    assert {f.rule for f in lint([str(tmp_path)]).findings} == {"unknown-variable"}


HOSTILE = {
    "substitutions": "$(" * 20_000,
    "quotes": "\"'`" * 20_000,
    "braces": "${a:-" * 20_000,
    "arithmetic": "$((" * 20_000,
    "parentheses": "(" * 60_000,
    "heredocs": "cat <<E\n" * 10_000,
    "ifs": "if a; then\n" * 6_000,
    "cases": "case a in\n" * 6_000,
    "words": "a " * 50_000,
    "one line": "a" * 100_000,
    "assignments": "A=$A$A\n" * 8_000,
    "chains": "".join(f"A{i}=$A{i - 1}\n" for i in range(1, 6_000)),
    "exports": "export NCCL_X=1\n" * 6_000,
    "flags": "srun x " + "--tensor-model-parallel-size 8 \\\n" * 4_000,
    "continuations": "a \\\n" * 20_000,
    "comments": "# 103B model\n" * 10_000,
    "directives": "#SBATCH --nodes=1\n" * 5_000,
    "loops": "for a in 1 2 3; do\n" * 300 + "X=$a sbatch b.sh\n" + "done\n" * 300,
    "redirects": "a > b.json\n" * 4_000,
    "submissions": "A=1 sbatch job.sbatch\n" * 2_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_scripts_take_time_in_proportion(kind: str, tmp_path: Path) -> None:
    """Twice the text may take about twice the time, never four times."""
    text = HOSTILE[kind]
    seconds = [_seconds(tmp_path, text[: len(text) // 4]), _seconds(tmp_path, text)]
    # 4 times the text: 16 times the time would be quadratic. A floor keeps tiny times from deciding.
    assert seconds[1] < max(10 * seconds[0], 2.0), seconds


def _seconds(folder: Path, text: str) -> float:
    write(folder, {"job.sbatch": f"#!/bin/bash\n#SBATCH --nodes=1\n{text}\n"})
    start = time.process_time()
    lint([str(folder)])
    return time.process_time() - start
