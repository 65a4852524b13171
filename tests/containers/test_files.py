"""The rendered folder: as it was reviewed (golden), pinned, clean for every linter, the same base in every image."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpt_tune.containers import catalogue, render
from gpt_tune.errors import UserError
from gpt_tune.lint.report import lint
from tests.containers.support import container, golden, put

IMAGES = tuple(catalogue.load().images)
VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "newest": ("efa=1.51.0", "nccl=2.30.7", "gdrcopy=2.5.1"),
    "cuda13": ("base=26.03-py3",),
    "base-nccl": ("nccl=base",),
    "one-node": ("nodes=1", "efa=1.43.2"),
    "no-efa": ("network=none", "nccl=base"),
    "digest": ("base_digest=sha256:" + "0123456789abcdef" * 4,),
    "podman": (
        "builder=podman",
        "name=team/image",
        "tag=v1",
        "sqsh=/fsx/a b.sqsh",
    ),
    "packages": ("python.wandb=0.22.0", "python.peft="),
}


def stage(text: str, name: str) -> str:
    """The lines of one stage of a Dockerfile."""
    found = re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize(
    "file", ["Dockerfile", "requirements.txt", "build.sbatch", "check.sbatch", "README.md", "versions.json"]
)
def test_files_are_as_reviewed(image: str, file: str) -> None:
    files = render.files(container(image), "/fsx/images/out")
    text = next(f.content for f in files if f.path == file).decode()
    assert text == golden(f"{image}/{file}", text)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("image", IMAGES)
def test_linters_find_nothing(tmp_path: Path, image: str, variant: str) -> None:
    folder = put(tmp_path / "out", image, *VARIANTS[variant])
    report = lint([str(folder)])
    assert len(report.files) >= 5
    assert [f"{f.file}:{f.line} {f.rule}: {f.message}" for f in report.findings] == []
    scripts = [
        str(folder / "build.sbatch"),
        str(folder / "check.sbatch"),
        *map(str, (folder / "scripts").glob("*.sh")),
    ]
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    json.loads((folder / "versions.json").read_text())


@pytest.mark.parametrize("variant", VARIANTS)
def test_images_share_their_base(tmp_path: Path, variant: str) -> None:
    bases = {
        stage((put(tmp_path / i, i, *VARIANTS[variant]) / "Dockerfile").read_text(), "base") for i in IMAGES
    }
    assert len(bases) == 1
    scripts = {tuple(p.read_bytes() for p in sorted((tmp_path / i / "scripts").iterdir())) for i in IMAGES}
    assert len(scripts) == 1


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("image", IMAGES)
def test_everything_is_pinned(tmp_path: Path, image: str, variant: str) -> None:
    folder = put(tmp_path / "out", image, *VARIANTS[variant])
    text = (folder / "Dockerfile").read_text()
    assert "latest" not in text
    assert re.search(
        r"^FROM nvcr\.io/nvidia/pytorch:\d\d\.\d\d-py3(@sha256:[0-9a-f]{64})? AS base$", text, re.MULTILINE
    )
    clones = re.findall(r"git clone .*", text)
    assert len(re.findall(r"\b[0-9a-f]{40}\b", text)) >= len(clones)
    packages = [x for x in (folder / "requirements.txt").read_text().splitlines() if not x.startswith("#")]
    assert packages
    assert all(re.fullmatch(r"[a-z0-9-]+==\d[\w.]*", p) for p in packages)
    assert not any(re.match(r"torch|triton", p) for p in packages)
    assert text.count("pip install") == text.count("--constraint /opt/gpt-tune/constraints.txt")
    assert not re.search(r"pip install[^\n]*torch|ssh-keygen|StrictHostKeyChecking|apt-get upgrade", text)


def test_the_plugin_cannot_be_missed(tmp_path: Path) -> None:
    text = (put(tmp_path / "out") / "Dockerfile").read_text()
    order = [
        "efa.sh",
        "plugin.sh",
        "ENV LD_LIBRARY_PATH=/opt/gpt-tune/nccl-plugin",
        "libnccl2=",
        "check.py --constraints",
    ]
    places = [text.index(word) for word in order]
    assert places == sorted(places)
    assert "--plugin" in text[places[-1] :]
    without = (put(tmp_path / "none", "pretraining", "network=none") / "Dockerfile").read_text()
    assert not re.search(r"(?i)efa[_.-]|/opt/amazon", stage(without, "base"))
    assert "--plugin" not in without


def test_the_readme_states_what_the_image_has(tmp_path: Path) -> None:
    folder = put(tmp_path / "out", "qlora", "python.peft=0.17.1")
    readme = (folder / "README.md").read_text()
    parts = json.loads((folder / "versions.json").read_text())["parts"]
    assert {p["kind"] for p in parts} == {"base", "network", "python"}
    for part in parts:
        assert part["version"].replace("_", r"\_") in readme
    assert "| peft | 0.17.1 | --set |" in readme.replace(r"\-", "-")


def test_a_folder_that_slurm_cannot_name_is_refused() -> None:
    for folder in ("/a%j", "relative", "/a\nb"):
        with pytest.raises(UserError):
            render.files(container("qlora"), folder)
