"""`--fix`: safe changes only, shown whole, written at once or not at all, and then gone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.lint import fixing
from gpt_tune.lint.finding import Edit
from gpt_tune.lint.report import lint, mend
from tests.lint.support import batch, write

FAULTY = "\n" + batch(
    "export NCCL_ASYNC_ERROR_HANDLING=1 NCCL_DEBUG=INFO\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:true\n"
    "srun python3 train.py \\ \n  --lr 1"
).rstrip("\n")


def test_safe_faults_are_mended_and_shown(tmp_path: Path) -> None:
    write(tmp_path, {"job.sbatch": FAULTY})
    report = mend([str(tmp_path)])
    text = (tmp_path / "job.sbatch").read_text()
    assert text == batch(
        "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1 NCCL_DEBUG=INFO\n"
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nsrun python3 train.py \\\n  --lr 1"
    )
    (fix,) = report.fixed
    assert set(fix.rules) == {
        "shebang",
        "old-variable",
        "expandable-segments-case",
        "broken-continuation",
        "final-newline",
    }
    assert "-export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:true\n" in fix.diff
    assert "+export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in fix.diff
    assert "\\ No newline at end of file" in fix.diff
    assert [f.rule for f in report.findings] == [f.rule for f in lint([str(tmp_path)]).findings] == []


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"job.sbatch": FAULTY})
    mend([str(tmp_path)])
    before = (tmp_path / "job.sbatch").read_bytes()
    assert mend([str(tmp_path)]).fixed == ()
    assert (tmp_path / "job.sbatch").read_bytes() == before


def test_showing_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"job.sbatch": FAULTY})
    assert mend([str(tmp_path)], write=False).fixed
    assert (tmp_path / "job.sbatch").read_text() == FAULTY


@pytest.mark.parametrize(
    "text",
    [
        batch("export NCCL_BUFFERSIZE=8388608 NCCL_DEBUG=INFO\nsrun x"),
        batch("export MASTER_ADDR=$(hostname -i)\nsrun x"),
        batch('export NCCL_ASYNC_ERROR_HANDLING=1\nsrun x "$NCCL_ASYNC_ERROR_HANDLING"'),
        batch("export TRANSFORMERS_CACHE=/x\nsrun x"),
    ],
)
def test_what_changes_a_run_is_left_to_people(text: str, tmp_path: Path) -> None:
    write(tmp_path, {"job.sbatch": text})
    report = mend([str(tmp_path)])
    assert report.fixed == ()
    assert report.findings
    assert (tmp_path / "job.sbatch").read_text() == text


def test_mode_links_and_strange_bytes_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.sh"
    real.write_bytes(b"#!/bin/bash\n# caf\xe9\necho \xff\r\necho b")
    real.chmod(0o750)
    link = tmp_path / "link.sh"
    link.symlink_to(real)
    assert len(mend([str(link)]).fixed) == 1
    assert link.is_symlink()
    assert real.read_bytes() == b"#!/bin/bash\n# caf\xe9\necho \xff\necho b\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o750
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.sh", "real.sh"]


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text("new")
    with pytest.raises(UserError, match="changed while"):
        fixing.write(fixing.Fix(path, "a.sh", "old", "mended", ()))
    assert path.read_text() == "new"


def test_a_folder_that_refuses_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Cannot write"):
        fixing.write(fixing.Fix(tmp_path / "gone" / "a.sh", "a.sh", "old", "new", ()))


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ((Edit(0, 1, "x"), Edit(2, 3, "z")), "xbz"),
        ((Edit(2, 3, "z"), Edit(0, 1, "x")), "xbz"),
        ((Edit(0, 2, "x"), Edit(1, 3, "y")), "xc"),
        ((Edit(3, 3, "\n"), Edit(3, 3, "\n")), "abc\n"),
        ((Edit(0, 9, "x"),), "abc"),
        ((), "abc"),
    ],
)
def test_edits(edits: tuple[Edit, ...], expected: str) -> None:
    assert fixing.apply("abc", edits) == expected
