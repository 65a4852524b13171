"""Owns testing which calibration is found, that files survive a round trip, and what bad ones say."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import calibration, toml
from gpt_tune.calibration import Calibration
from gpt_tune.errors import UserError
from gpt_tune.hardware.catalogue import gpus, node_for, nodes
from gpt_tune.memory.constants import CONSTANTS
from gpt_tune.resources import data_dir
from gpt_tune.timing.constants import DEFAULTS

SHIPPED = sorted((data_dir("profiles") / "clusters").glob("*.toml"))
MINE = Calibration(
    name="mine",
    source="a test",
    fitted_at="2026-01-02",
    memory={"cluster_gib": 1.5},
    timing={"gemm_fraction": 0.5, "megatron-lm@nemo.overlap": 0.9},
    memory_error=0.03,
    memory_rows=4,
    time_error=0.05,
    time_rows=7,
)


def test_a_cluster_by_name_a_node_by_id_a_gpu_by_type() -> None:
    assert calibration.load(node_for("h100"), "vtrain-multi").name == "vtrain-multi"
    assert calibration.load(node_for("jean-zay-a100")).name == "jean-zay"
    assert calibration.load(node_for("dgx-a100")).name == "a100-80"
    assert calibration.load(node_for("p6-b200")).name == "b200"


def test_a_gpu_nobody_measured_gets_the_defaults() -> None:
    plain = node_for("h100")
    strange = replace(plain, id="x", gpu=replace(plain.gpu, id="x9000"))
    assert calibration.load(strange) == Calibration()
    assert calibration.load(strange, "no-such-cluster") == Calibration()


def test_the_users_own_lies_over_the_shipped(home: Path) -> None:
    path = calibration.save(MINE, "dev")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = calibration.load(node_for("h200"), "dev")
    shipped = calibration.load(node_for("h200"))
    assert found.name == "mine"
    assert found.timing["gemm_fraction"] == 0.5
    assert found.timing["megatron-deepspeed.host_us"] == shipped.timing["megatron-deepspeed.host_us"]
    assert found.time_error == 0.05
    assert calibration.load(node_for("h200"), "other") == shipped


def test_a_round_trip_keeps_everything(home: Path) -> None:
    path = calibration.save(MINE, "dev")
    assert calibration.read(path) == MINE
    assert not list(path.parent.glob("*.tmp"))
    nothing = Calibration(name="n")
    assert calibration.read(calibration.save(nothing, "n")) == nothing


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x\n"])
def test_names_that_are_no_file_names_are_refused(home: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot name"):
        calibration.save(MINE, name)
    assert calibration.load(node_for("h200"), name) == calibration.load(node_for("h200"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nmae = 'x'", "Unknown key 'nmae'"),
        ("[timing.constants]\ngemm_fraction = 'fast'", "gemm_fraction in timing of .* must be a number"),
        ("[timing.constants]\ngemm_fraction = true", "must be a number"),
        ("[timing.constants.megatron-lm]\ngemm_fraction = nan", "megatron-lm.gemm_fraction"),
        ("[timing]\nerror = 'big'", "timing.error"),
        ("timing = 3", "must be a table"),
        ("memory = [1]", "must be a table"),
        ("[timing\n", "not valid TOML"),
    ],
)
def test_bad_files_name_the_key(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=says) as caught:
        calibration.read(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_files_are_sound(path: Path) -> None:
    data = toml.load(path)
    found = calibration.read(path)
    assert found.name == path.stem
    assert found.source
    assert found.fitted_at
    assert found.time_error is not None
    assert 0 < found.time_error < 0.5
    assert found.time_rows > 0
    assert data.get("gpu") in {None, *gpus()}
    assert set(data.get("nodes", ())) <= set(nodes())
    for key, x in found.timing.items():
        assert key.rpartition(".")[2] in DEFAULTS, key
        assert x > 0, key
    for key in found.memory:
        assert key.rpartition(".")[2] in CONSTANTS, key


def test_there_is_one_for_each_gpu_the_project_is_about() -> None:
    covered = {toml.load(path).get("gpu") for path in SHIPPED}
    assert {"a100-80", "h100", "h200", "b200"} <= covered
