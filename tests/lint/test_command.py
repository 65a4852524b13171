"""`gpt-tune lint` from the command line: exit codes, JSON, diffs, the list of rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.lint.rules import RULES
from tests.lint.support import batch, write
from tui.cli import main

Run = Callable[..., tuple[int, str, str]]
FAULTY = batch("export NCCL_BUFFERSIZE=8388608 NCCL_DEBUG=INFO\nsrun python3 train.py")


@pytest.fixture
def run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["lint", *arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def objects(out: str) -> Any:
    return json.loads(out)


def test_findings_exit_1_and_say_where(run: Run) -> None:
    write(Path.cwd(), {"job.sbatch": FAULTY})
    code, out, err = run("job.sbatch")
    assert code == 1
    assert "job.sbatch:5: error: NCCL reads no variable NCCL_BUFFERSIZE" in out
    assert "[unknown-variable]" in out
    assert "fix: Write NCCL_BUFFSIZE" in out
    assert err.strip() == "1 files, 1 error"


def test_clean_files_exit_0(run: Run) -> None:
    write(Path.cwd(), {"job.sbatch": batch("srun python3 train.py")})
    code, out, err = run("job.sbatch", ".")
    assert (code, out) == (0, "")
    assert "nothing found" in err


@pytest.mark.parametrize("arguments", [["missing.sh"], [], ["--wrong"], ["a\0b"]])
def test_wrong_use_exits_2(arguments: list[str], run: Run) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err


def test_json_is_the_contract(run: Run) -> None:
    write(Path.cwd(), {"job.sbatch": FAULTY, "data.bin": "x"})
    code, out, _ = run("job.sbatch", "data.bin", "--json")
    assert code == 1
    data = objects(out)
    assert data["schema"] == "gpt-tune/lint/1"
    assert data["files"] == ["job.sbatch"]
    (finding,) = data["findings"]
    assert finding["file"] == "job.sbatch"
    assert (finding["line"], finding["rule"], finding["severity"]) == (5, "unknown-variable", "error")
    assert finding["message"]
    assert finding["fix"]
    assert finding["source"]
    assert [s["file"] for s in data["skipped"]] == ["data.bin"]


def test_a_json_failure_is_the_error_object(run: Run) -> None:
    code, out, _ = run("missing.sh", "--json")
    assert code == 2
    assert objects(out)["schema"] == "gpt-tune/error/1"
    assert objects(out)["error"]["code"] == 2


def test_fix_shows_what_it_changes(run: Run) -> None:
    write(Path.cwd(), {"run.sh": "#!/bin/bash\nls"})
    code, out, err = run("run.sh", "--diff")
    assert code == 0
    assert "--- a/run.sh" in out
    assert "would change run.sh: final-newline" in err
    assert Path("run.sh").read_text() == "#!/bin/bash\nls"
    code, again, err = run("run.sh", "--fix")
    assert (code, again) == (0, out)
    assert "changed run.sh: final-newline" in err
    assert Path("run.sh").read_text() == "#!/bin/bash\nls\n"
    assert run("run.sh", "--fix")[1] == ""


def test_fix_leaves_exit_1_while_something_is_left(run: Run) -> None:
    write(Path.cwd(), {"job.sbatch": FAULTY.rstrip("\n")})
    code, out, _ = run("job.sbatch", "--fix", "--json")
    assert code == 1
    data = objects(out)
    assert [f["rule"] for f in data["findings"]] == ["unknown-variable"]
    assert data["fixed"][0]["rules"] == ["final-newline"]
    assert data["fixed"][0]["diff"].startswith("--- a/job.sbatch")


def test_control_characters_of_a_file_do_not_reach_the_terminal(run: Run) -> None:
    write(
        Path.cwd(),
        {
            "job.sbatch": batch("export MASTER_ADDR=$(hostname -i)\ncd $A\x1b[31m/b\nsrun x"),
            "e\x1b[2Jvil.sh": "ls",
        },
    )
    for arguments in (["."], [".", "--diff"]):
        _, out, err = run(*arguments)
        assert "\x1b" not in out + err
        assert out


def test_rules_are_listed(run: Run) -> None:
    code, out, _ = run("--rules", "--json")
    assert code == 0
    listed = objects(out)["rules"]
    assert {r["id"] for r in listed} == {r.id for r in RULES}
    assert all(r["source"] and r["why"] for r in listed)
    code, out, _ = run("--rules")
    assert code == 0
    assert len(out.splitlines()) == len(listed) + 1
