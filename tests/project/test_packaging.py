"""The wheel stands alone: it carries the data folders, and a command works from it outside the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gpt_tune import resources

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


def test_wheel_carries_data_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for folder in ("profiles", "templates"):
        here = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*") if p.is_file()}
        here = {n for n in here if "__pycache__" not in n and not n.endswith(".pyc")}
        packed = {n.removeprefix("gpt_tune/_data/") for n in names if n.startswith("gpt_tune/_data/")}
        assert here <= packed
    assert any(n.endswith(".tcss") for n in names)
    assert not any(n.startswith("tests/") for n in names)


def test_commands_work_from_the_unpacked_wheel(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "a folder"
    zipfile.ZipFile(wheel).extractall(site)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); sys.argv = ['gpt-tune', 'models', '--json'];"
        "import gpt_tune; assert gpt_tune.__file__.startswith(sys.path[0]), gpt_tune.__file__;"
        "from tui.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code] if sys.version_info >= (3, 11) else [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["models"]) >= 30


def test_the_advice_for_an_extra_fits_the_installation() -> None:
    assert resources.checkout() == ROOT
    assert resources.install_words("serve", ROOT) == f"In {ROOT}: .venv/bin/pip install '.[serve]'"
    assert resources.install_words("serve", None) == "pip install 'gpt-tune[serve]'"
