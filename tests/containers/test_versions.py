"""Which versions are offered, which are refused and why, and that nobody's word is made up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpt_tune import recipes
from gpt_tune.containers import catalogue, choices, pairs, render
from gpt_tune.errors import UserError
from gpt_tune.lint.tables import table
from tests.containers.support import container
from tests.lint.support import findings

KNOWN = catalogue.load()


@pytest.mark.parametrize("name", KNOWN.images)
def test_every_part_has_a_version_and_a_source(name: str) -> None:
    image = KNOWN.images[name]
    assert set(image.sources) == set(image.python)
    assert set(image.recipes) <= set(recipes.names())
    for part in render.parts(choices.default(name)):
        assert part.version
        assert len(part.source) > 10, part
    for checkout in image.checkouts:
        assert re.fullmatch(r"[0-9a-f]{40}", checkout.commit)


def test_the_defaults_are_offered_and_work() -> None:
    assert KNOWN.default["base"] in KNOWN.bases
    assert KNOWN.default["efa"] in KNOWN.efa
    assert KNOWN.default["nccl"] in KNOWN.nccl
    assert KNOWN.default["gdrcopy"] in KNOWN.gdrcopy
    for name in KNOWN.images:
        assert pairs.problems(choices.default(name)) == []


def test_images_share_what_they_share() -> None:
    """Two images of one project with two DeepSpeeds would train differently."""
    versions = {image.python["deepspeed"] for image in KNOWN.images.values()}
    assert len(versions) == 1


REFUSED = [
    (("nccl=2.28.9",), "deadlock", "2.29.3"),
    (("nccl=2.29.2",), "deadlock", "2.29.3"),
    (("nccl=2.28.9-1", "nodes=1"), "deadlock", "2.29.3"),
    (("nccl=2.28.9", "efa=1.51.0"), "deadlock", "2.29.3"),
    (("efa=1.48.0",), "broadcasts between nodes", "1.49.0"),
    (("efa=1.47.0", "nodes=64"), "on 64 nodes", "1.49.0"),
    (("efa=1.43.2",), "nobody tests older ones", "1.49.0"),
    (("base=26.03-py3", "nccl=2.29.3"), "packages for CUDA 12.9", "nccl=base"),
]
ACCEPTED = [
    (),
    ("efa=1.50.0",),
    ("efa=1.51.0", "nccl=2.30.7"),
    ("nccl=2.29.3",),
    ("nccl=2.27.7",),
    ("efa=1.48.0", "nodes=1"),
    ("nccl=2.28.9", "network=none"),
    ("efa=1.47.0", "network=none"),
    ("base=26.03-py3",),
    ("nccl=base",),
]


@pytest.mark.parametrize(("settings", "why", "fix"), REFUSED, ids=str)
@pytest.mark.parametrize("name", KNOWN.images)
def test_known_bad_versions_are_refused_in_one_sentence(
    name: str, settings: tuple[str, ...], why: str, fix: str
) -> None:
    chosen = container(name, *settings)
    found = pairs.problems(chosen)
    assert why in found[0].text, found
    assert fix in found[0].fix
    assert found[0].source
    assert found[0].text.rstrip(".").count(". ") == 0
    with pytest.raises(UserError, match=re.escape(found[0].text)):
        render.files(chosen, "/build")


@pytest.mark.parametrize("settings", ACCEPTED, ids=str)
def test_good_versions_are_accepted(settings: tuple[str, ...]) -> None:
    assert pairs.problems(container("pretraining", *settings)) == []
    assert render.files(container("pretraining", *settings), "/build")


def test_refusals_come_from_the_list_that_lint_reads(tmp_path: Path) -> None:
    """What is refused here is an error in a hand-written Dockerfile, in the same words."""
    chosen = container("pretraining", "efa=1.48.0", "nccl=2.28.9")
    text = f"""FROM nvcr.io/nvidia/pytorch:25.04-py3
ENV EFA_INSTALLER_VERSION={chosen.efa}
ENV NCCL_VERSION={chosen.nccl}
ENV AWS_OFI_NCCL_VERSION={chosen.plugin}
"""
    by_lint = {f.message for f in findings(tmp_path, {"Dockerfile": text}) if f.rule == "known-bad-version"}
    by_us = {p.text for p in pairs.problems(chosen)}
    pair = next(e for e in table("known-bad")["pair"] if e["from"] == "2.28.9")
    assert any(t.startswith(pair["name"]) for t in by_lint & by_us)
    assert any(t.startswith("EFA installer 1.48.0") for t in by_us)


@pytest.mark.parametrize(
    ("efa", "nccl", "bad"),
    [
        ("1.49.0", "2.28.9-1", True), ("1.43.2", "2.28.9-1", True), ("1.45.0", "2.29.2-1", True),
        ("1.37.0", "2.28.9-1", False), ("1.49.0", "2.29.3-1", False), ("1.50.0", "2.27.7-1", False),
    ],
)  # fmt: skip
def test_lint_knows_the_plugin_that_an_installer_brings(
    efa: str, nccl: str, bad: bool, tmp_path: Path
) -> None:
    text = (
        f"FROM nvcr.io/nvidia/pytorch:25.04-py3\nENV NCCL_VERSION={nccl}\nARG EFA_INSTALLER_VERSION={efa}\n"
    )
    found = [f for f in findings(tmp_path, {"Dockerfile": text}) if f.rule == "known-bad-version"]
    assert [f.line for f in found] == ([2] if bad else [])


BAD_SETTINGS = [
    ("efa", "no '='"),
    ("efa=", "exact version"),
    ("efa=1.49", "1.49.0"),
    ("efa=latest", "exact version"),
    ("nccl=2.29.*", "exact version"),
    ("nccl=>=2.29", "exact version"),
    ("base=latest", "25.04-py3"),
    ("base=25.4-py3", "25.04-py3"),
    ("base_digest=sha256:abc", "digest"),
    ("gdrcopy=2.4", "2.5"),
    ("nodes=0", "from 1"),
    ("nodes=two", "whole number"),
    ("nodes=1e3", "whole number"),
    ("network=ib", "none"),
    ("builder=buildah", "docker"),
    ("name=Upper", "image name"),
    ("name=a b", "image name"),
    ("name=$(id)", "image name"),
    ("tag=a/b", "image tag"),
    ("sqsh=relative.sqsh", "absolute"),
    ("sqsh=/a\nb", "line break"),
    ("time_limit=a\nb", "line break"),
    ("partition=dev", "Unknown setting"),
    ("python.torch=2.6.0", "base image's own"),
    ("python.Torch=2.6.0", "base image's own"),
    ("python.pytorch_triton=1.0", "base image's own"),
    ("python.peft=>=0.1", "exact version"),
    ("python.peft=0.18.1\ntorch==2.6.0", "exact version"),
    ("python.a b=1.0", "Python package"),
    ("effa=1.49.0", "efa"),
]


@pytest.mark.parametrize(("setting", "words"), BAD_SETTINGS, ids=[repr(s) for s, _ in BAD_SETTINGS])
def test_bad_settings_say_what_would_do(setting: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        container("qlora", setting)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_settings_win_in_order_and_can_be_taken_back() -> None:
    chosen = container("qlora", "efa=1.50.0", "efa=1.51.0", "python.Peft=0.17.1", "python.wandb=0.22.0")
    assert (chosen.efa, chosen.plugin) == ("1.51.0", "1.22.0")
    assert (chosen.python["peft"], chosen.python["wandb"]) == ("0.17.1", "0.22.0")
    assert "wandb" not in container("qlora", "python.wandb=0.22.0", "python.wandb=").python
    assert container("qlora", "base=26.03-py3").tag == "26.03-py3"
    assert container("qlora", "tag=mine", "base=26.03-py3").tag == "mine"
    assert container("qlora", "base=26.03-py3").nccl_version == "2.29.7"


def test_an_unknown_container_names_the_nearest() -> None:
    with pytest.raises(UserError, match="pretraining"):
        choices.default("pretrain")
