"""The wizard on a real Slurm: 64 tasks on 8 nodes, charted, cancelled; what goes wrong is one sentence."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpt_tune.ledger import Ledger
from tests.cluster import SlurmCluster
from tests.tui.conftest import until
from tests.tui.flow import Driver, cancelling
from tui.app import GptTune
from tui.widgets.chart import Chart

pytestmark = pytest.mark.slurm


def squeue(*options: str) -> list[str]:
    """What Slurm itself says of the jobs here."""
    done = subprocess.run(
        ["squeue", "-h", *options], capture_output=True, text=True, check=True, env=os.environ
    )
    return done.stdout.split()


async def to_gpus(driver: Driver, cluster: str) -> None:
    await driver.ready()
    await driver.press("enter")
    await driver.reach("ClusterStep")
    await driver.see(cluster)
    for page in ("SiteStep", "GpusStep"):
        await driver.press("enter")
        await driver.reach(page)


async def to_training(driver: Driver, cluster: str, gpus: str) -> None:
    await to_gpus(driver, cluster)
    await driver.type(gpus)
    await driver.press("enter")
    await driver.reach("TrainingStep")  # the check trains a model of its own
    await driver.see("Train for")


async def choose_trainer(driver: Driver) -> None:
    await driver.see("MEGATRON_PATH")
    await driver.press("m")
    await driver.see("megatron-deepspeed")
    await driver.see("Trainer's folder")
    await driver.settled()


async def test_64_tasks_over_8_nodes_are_submitted_charted_and_cancelled(slurm: SlurmCluster) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        with cancelling(app):
            driver = Driver(app, pilot)
            await to_training(driver, slurm.name, "64")
            await driver.press("enter")
            await driver.reach("ReviewStep")
            await driver.see("64 GPUs on 8 nodes")
            assert squeue() == []
            await driver.press("enter")
            await driver.reach("Monitor")
            (run,) = Ledger.open().runs()
            assert squeue("-o", "%i %D") == [run.job_id, "8"]
            await driver.see("RUNNING")
            loss = app.screen.query_one("#chart-loss", Chart)
            await until(pilot, lambda: len(loss.data.series) > 1 and "┤" in loss.plain, "a loss chart")
            await driver.press("c")
            await driver.see("Cancel")
            await driver.press("y")
            await driver.see("CANCELLED")
            assert squeue("-t", "PENDING,RUNNING") == []


async def test_a_planned_job_goes_through_plan_and_review_to_the_monitor(slurm: SlurmCluster) -> None:
    """The trainer is not there, so the job ends at once: its end and why are on the screen."""
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        with cancelling(app):
            driver = Driver(app, pilot)
            await to_training(driver, slurm.name, "8")
            await choose_trainer(driver)
            await driver.press("enter")
            await driver.see("Trainer's folder is required")
            await driver.type("/no/such/checkout")
            await driver.press("enter")
            await driver.reach("PlanStep")
            await driver.settled()
            await driver.see("layouts in")
            await driver.press("down", "enter")
            await driver.reach("ReviewStep")
            await driver.see("GPU-hours")
            await driver.press("enter")
            await driver.reach("Monitor")
            await driver.see("FAILED")
            (run,) = Ledger.open().runs()
            assert run.plan is not None
            await driver.press("escape")
            await driver.reach("Home")


async def test_esc_goes_to_the_step_before_in_the_trail_whatever_the_job_asks(slurm: SlurmCluster) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await to_training(driver, slurm.name, "8")
        await choose_trainer(driver)
        await driver.press("escape")
        await driver.reach("ModelStep")  # the trainer has put it into the trail
        await driver.press("enter")
        await driver.reach("TrainingStep")
        await driver.press("s")
        await driver.see("Train for")
        await driver.settled()
        await driver.press("escape")
        await driver.reach("GpusStep")  # the check has taken it out again
        await driver.press("ctrl+u")
        await driver.type("16")
        await driver.see("16 GPUs on 2 nodes")
        assert app.draft.profile.model.id == "gpt-1.3b"
        for page in ("SiteStep", "ClusterStep", "Home"):
            await driver.press("escape")
            await driver.reach(page)


async def test_the_site_is_asked_once(slurm: SlurmCluster) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await to_gpus(driver, slurm.name)
        await driver.press("escape", "escape", "escape")
        await driver.reach("Home")
        await driver.ready()
        await driver.press("n")
        await driver.reach("ClusterStep")
        await driver.press("enter")
        await driver.reach("GpusStep")


@pytest.mark.parametrize(("typed", "said"), [("63", "56"), ("63", "64"), ("72", "64"), ("many", "many")])
async def test_an_impossible_number_of_gpus_is_one_sentence_and_stays(
    slurm: SlurmCluster, typed: str, said: str
) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await to_gpus(driver, slurm.name)
        await driver.type(typed)
        await driver.see("! ")
        await driver.press("enter")
        assert driver.page == "GpusStep"
        await driver.see(said)
        await driver.press("escape")
        await driver.reach("SiteStep")
        await driver.press("enter")
        await driver.reach("GpusStep")
        await driver.see(f" {typed} ")


async def test_an_unknown_model_names_the_nearest_and_stays(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGATRON_PATH", "/opt/Megatron-DeepSpeed")
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await to_gpus(driver, slurm.name)
        await driver.press("enter")
        await driver.reach("ModelStep")
        await driver.type("llama-3.1-8x")
        await driver.see("llama-3.1-8b")
        await driver.press("enter")
        assert driver.page == "ModelStep"
        await driver.see("Unknown model")
        assert "llama-3.1-8x" in driver.text


async def test_a_refusal_of_sbatch_is_shown_in_its_words_and_leaves_nothing(slurm: SlurmCluster) -> None:
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        with cancelling(app):
            driver = Driver(app, pilot)
            await to_training(driver, slurm.name, "8")
            assert app.put("site.extra_sbatch", "--reservation=no-such-thing") is None
            await driver.press("enter")
            await driver.reach("ReviewStep")
            await driver.see("#SBATCH")
            await driver.press("enter")
            await driver.see("! ")
            await driver.see("eservation")
            assert driver.page == "ReviewStep"
            assert squeue() == []


async def test_an_unwritable_run_folder_is_one_sentence_and_submits_nothing(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await to_training(driver, slurm.name, "8")
        assert app.put("site.run_root", str(tmp_path / "file" / "runs")) is None
        await driver.press("enter")
        await driver.reach("ReviewStep")
        await driver.settled()
        await driver.press("enter")
        await driver.see("! ")
        await driver.see(str(tmp_path / "file")[:40])
        assert squeue() == []


async def test_a_cluster_that_does_not_answer_is_one_sentence(
    home: Path, slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller's port is another one's: nobody listens there."""
    conf = home / "slurm.conf"
    lines = Path(slurm_cluster.conf).read_text().split("\n")
    conf.write_text(
        "\n".join("SlurmctldPort=1" if line.startswith("SlurmctldPort") else line for line in lines)
    )
    monkeypatch.setenv("SLURM_CONF", str(conf))
    app = GptTune()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        await driver.see("controller does not answer")
        assert "Traceback" not in driver.text
        await driver.press("enter")
        await driver.reach("ClusterStep")
        await driver.see("local")
