"""`gpt-tune queue` against a real Slurm: mine, free, what could start, and what is refused."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run
from tests.cluster import SlurmCluster

pytestmark = pytest.mark.slurm


@pytest.fixture
def waiting(slurm: SlurmCluster) -> str:
    """A job of 32 GPUs behind one that takes six of eight nodes."""
    for nodes, name in ((6, "big"), (4, "next")):
        job = slurm.run(
            "sbatch", "--parsable", f"-N{nodes}", "--exclusive", "--gres=gpu:b200:8", "-p", "dev", "-J", name,
            "-o", "/dev/null", "--wrap", "sleep 600",
        )  # fmt: skip
        slurm.wait_for_state(job, "RUNNING" if nodes == 6 else "PENDING")
    return job


def test_mine_free_and_what_could_start(waiting: str, gpt_tune: Run) -> None:
    data = gpt_tune("queue", "--for", waiting, "--json").json
    assert data["schema"] == "gpt-tune/queue/1"
    assert [(j["name"], j["run_id"], j["sweep"]) for j in data["queue"]] == [
        ("big", None, None),
        ("next", None, None),
    ]
    assert data["offers"][0]["wanted"]["gpus"] == 32
    assert not data["offers"][0]["now"]
    assert len(data["offers"]) > 1
    assert {f["gpu"] for f in data["free"]} == {"b200", "h100"}
    said = gpt_tune("queue")
    assert said.code == 0
    assert "not ours" in said.out
    assert "24" in said.out


def test_what_could_start_now_for_a_request(slurm: SlurmCluster, gpt_tune: Run) -> None:
    said = gpt_tune("queue", "--gpus", "16", "--time", "0:30:00")
    assert "now: 16 b200 GPUs on 2 nodes of dev for 0:30:00" in said.out
    assert "No job of yours" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpus", "12"), "Take 8 or 16"),
        (("--gpus", "8", "--gpu", "b20"), "b200"),
        (("--gpus", "8", "--partition", "dve"), "dev"),
        (("--gpus", "8", "--time", "soon"), "2:00:00"),
        (("--gpu", "b200"), "go with --gpus"),
        (("--for", "99999"), "Unknown waiting job"),
        (("--for", "1", "--gpus", "8"), "not both"),
        (("nowhere",), "Unknown cluster"),
    ],
)
def test_wrong_use_is_one_sentence(
    slurm: SlurmCluster, gpt_tune: Run, arguments: tuple[str, ...], words: str
) -> None:
    done = gpt_tune("queue", *arguments, "--json")
    assert done.code == 2
    assert words in done.error["message"] + done.error["hint"]
