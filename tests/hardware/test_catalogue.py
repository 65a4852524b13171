"""Tests of the hardware catalogue: figures are whole, names are found, bad files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.hardware import catalogue
from gpt_tune.hardware.sizes import nodes_of

REQUIRED_GPUS = frozenset(
    {"a100-40", "a100-80", "a800", "h100", "h800", "h200", "h20", "gh200", "b200", "b300", "gb200", "gb300", "l40s",
     "a10g", "mi300x", "mi325x", "mi355x"}
)  # fmt: skip
REQUIRED_NODES = frozenset(
    {"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200", "dgx-a100", "dgx-h100", "dgx-h200",
     "dgx-b200", "dgx-b300", "gb200-nvl72", "jean-zay-a100", "alibaba-gpu-hpn", "g5", "g6"}
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own hardware files."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "gpt-tune" / "hardware"
    folder.mkdir(parents=True)
    return folder


def test_every_named_thing_is_there() -> None:
    assert set(catalogue.gpus()) >= REQUIRED_GPUS
    assert set(catalogue.nodes()) >= REQUIRED_NODES


def test_figures_make_sense_and_have_sources() -> None:
    for gpu in catalogue.gpus().values():
        assert 0 < gpu.bf16_achievable_tflops <= gpu.bf16_tflops, gpu.id
        assert (
            gpu.memory_gib_torch is None
            or gpu.memory_mib_driver is None
            or (0 < gpu.memory_gib_torch <= gpu.memory_mib_driver / 1024)
        ), gpu.id
        figures = {s.partition(":")[0] for s in gpu.sources}
        needed = {"bf16_tflops", "bf16_achievable_tflops", "memory_gb", "memory_bandwidth_gbs", "nvlink_gbs"}
        needed |= {"memory_mib_driver"} if gpu.memory_mib_driver else set()
        needed |= {"memory_gib_torch"} if gpu.memory_gib_torch else set()
        assert needed <= figures, gpu.id
    for node in catalogue.nodes().values():
        assert node.nvlink_domain_gpus % node.gpus_per_node == 0, node.id
        figures = {s.partition(":")[0] for s in node.sources}
        assert {"gpus_per_node", "network_gbs_per_gpu"} <= figures, node.id
        assert node.intra_busbw_gbs is None or "intra_busbw_gbs" in figures, node.id
        assert node.inter_busbw_gbs is None or "inter_busbw_gbs" in figures, node.id


def test_measured_h200_memory() -> None:
    h200 = catalogue.get_gpu("h200")
    assert (h200.memory_mib_driver, h200.memory_gib_torch) == (143771, 139.80)


def test_unknown_memory_stays_unknown() -> None:
    assert catalogue.get_gpu("gh200-144").memory_gib_torch is None


def test_names_and_aliases_are_unique() -> None:
    for things in (catalogue.gpus(), catalogue.nodes()):
        names = [n.lower() for t in things.values() for n in (t.id, *t.aliases)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("word", "gpu"),
    [
        ("b200", "b200"),
        ("nvidia_b200", "b200"),
        ("H100-80GB", "h100"),
        ("nvidia_h100_80gb_hbm3", "h100"),
        ("NVIDIA-H200", "h200"),
        ("gpu:h200", "h200"),
        ("nvidia_a100-sxm4-80gb", "a100-80"),
        ("A100-SXM4-40GB", "a100-40"),
        ("h20", "h20"),
        ("nvidia_gh200_480gb", "gh200"),
        ("gb300", "gb300"),
        ("tesla_v100-sxm2-32gb", "v100-32"),
        ("amd_instinct_mi300x", "mi300x"),
        ("l40s", "l40s"),
        ("nvidia_l4", "l4"),
        ("h100_pcie", "h100-pcie"),
        ("a100_1g.5gb", None),
        ("nvidia_h100_80gb_hbm3_3g.40gb", None),
        ("rtx4090", None),
        ("gpu", None),
        ("", None),
    ],
)
def test_scheduler_words(word: str, gpu: str | None) -> None:
    assert catalogue.guess_gpu(word) == gpu


def test_node_for_takes_gpus_and_nodes() -> None:
    assert catalogue.node_for("p6-b200").id == "p6-b200"
    assert catalogue.node_for("p6-b200.48xlarge").id == "p6-b200"
    assert catalogue.node_for("b200").gpu.id == "b200"
    assert catalogue.node_for("nvidia_h100_80gb_hbm3").gpu.id == "h100"


def test_resizing_keeps_the_rate_per_gpu() -> None:
    whole, half = catalogue.node_for("h100"), catalogue.node_for("h100", 4)
    assert (half.gpus_per_node, half.nvlink_domain_gpus) == (4, 4)
    assert half.network_gbs_per_gpu == whole.network_gbs_per_gpu
    assert catalogue.node_for("gb200", 4).nvlink_domain_gpus == 72
    assert catalogue.node_for("h100", 8) == whole


def test_every_gpu_has_a_node() -> None:
    for name in catalogue.gpus():
        node = catalogue.node_for(name)
        assert node.gpu.id == name
        assert node.network_gbs_per_gpu > 0


@pytest.mark.parametrize(("name", "near"), [("b20", "b200"), ("p6-b20", "p6-b200"), ("dgxh100", "dgx-h100")])
def test_unknown_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UserError) as error:
        catalogue.node_for(name)
    assert near in error.value.hint


def test_own_gpu_and_node(own: Path) -> None:
    (own / "x9.toml").write_text(
        'id = "x9"\nname = "X9"\nbf16_tflops = 1000\nmemory_bandwidth_gbs = 4000\naliases = ["x-nine"]\n'
    )
    (own / "box.toml").write_text(
        'id = "x9-box"\nname = "Box"\ngpu = "x-nine"\ngpus_per_node = 4\nnetwork_gbs_per_gpu = 12.5\n'
    )
    gpu = catalogue.get_gpu("X-Nine")
    assert gpu.bf16_achievable_tflops == pytest.approx(800)
    assert gpu.memory_gib_torch is None
    assert catalogue.get_node("x9-box").nvlink_domain_gpus == 4
    assert catalogue.node_for("x9-box").gpu is catalogue.get_node("x9-box").gpu


def test_own_file_wins_over_a_shipped_one(own: Path) -> None:
    (own / "b200.toml").write_text(
        'id = "b200"\nname = "Mine"\nbf16_tflops = 2000.0\nmemory_bandwidth_gbs = 7000.0\n'
    )
    assert catalogue.get_gpu("b200").name == "Mine"
    assert catalogue.get_node("p6-b200").gpu.name == "Mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('id = "x"\nname = "x"\nbf16_tflop = 1.0\nmemory_bandwidth_gbs = 1.0\n', "bf16_tflops"),
        ('id = "x"\nname = "x"\nbf16_tflops = 1.0\n', "memory_bandwidth_gbs"),
        ('id = "x"\nname = "x"\nbf16_tflops = -1.0\nmemory_bandwidth_gbs = 1.0\n', "above 0"),
        ('id = "x"\nname = "x"\nbf16_tflops = nan\nmemory_bandwidth_gbs = 1.0\n', "finite"),
        ('id = "x"\nname = "x"\nbf16_tflops = "fast"\nmemory_bandwidth_gbs = 1.0\n', "a number"),
        ('id = "x"\nname = "x"\ngpu = "b20"\ngpus_per_node = 8\nnetwork_gbs_per_gpu = 50.0\n', "b200"),
        ("id = \n", "TOML"),
    ],
)
def test_bad_own_file_says_where(own: Path, text: str, words: str) -> None:
    (own / "bad.toml").write_text(text)
    with pytest.raises(UserError) as error:
        catalogue.gpus()
    assert words in str(error.value)
    assert "bad.toml" in str(error.value)


@pytest.mark.parametrize(
    ("gpus", "per_node", "nodes"), [(1, 8, 1), (8, 8, 1), (3, 8, 1), (64, 8, 8), (72, 4, 18)]
)
def test_whole_nodes(gpus: int, per_node: int, nodes: int) -> None:
    assert nodes_of(gpus, per_node) == nodes


def test_sixty_three_gpus_names_both_neighbours() -> None:
    with pytest.raises(UserError) as error:
        nodes_of(63, 8)
    assert "56" in error.value.hint
    assert "64" in error.value.hint


@pytest.mark.parametrize("gpus", [0, -8])
def test_no_gpus(gpus: int) -> None:
    with pytest.raises(UserError):
        nodes_of(gpus, 8)


def test_every_figure_of_a_link_has_its_source() -> None:
    for node in catalogue.nodes().values():
        stated = {source.partition(":")[0] for source in node.sources}
        assert {"gpus_per_node", "nvlink_domain_gpus", "nics", "network_gbs_per_gpu"} <= stated, node.id
        for figure in ("intra_busbw_gbs", "inter_busbw_gbs"):
            assert getattr(node, figure) is None or figure in stated, (node.id, figure)
    for gpu in catalogue.gpus().values():
        stated = {source.partition(":")[0] for source in gpu.sources}
        figures = (
            "bf16_tflops",
            "bf16_achievable_tflops",
            "fp8_tflops",
            "memory_gb",
            "memory_bandwidth_gbs",
            "nvlink_gbs",
        )
        missing = [f for f in figures if getattr(gpu, f) is not None and f not in stated]
        assert not missing, (gpu.id, missing)
