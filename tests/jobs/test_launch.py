"""Tests that a job which could not find its trainer is shown but never submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger
from gpt_tune.profiles.schema import Environment, ModelChoice, Profile, Resources, Site, TrainerChoice
from gpt_tune.schedulers.local import Local
from gpt_tune.workflows import chain, launch
from tests.jobs.helpers import cluster


@pytest.fixture
def ready(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> launch.Launch:
    """A planned job whose trainer is nowhere."""
    monkeypatch.setattr(launch, "trainer_path", lambda recipe, site: "")
    return _launch(tmp_path)


def _launch(root: Path, trainer: TrainerChoice | None = None, **variables: str) -> launch.Launch:
    profile = Profile(
        recipe="megatron-deepspeed",
        model=ModelChoice(id="gpt-1.3b"),
        resources=Resources(gpus=8),
        trainer=trainer or TrainerChoice(),
    )
    site = Site(run_root=str(root), environment=Environment(variables=variables))
    return launch.prepare(profile, cluster=cluster(), site=site, scheduler=Local())


def test_without_its_trainer_a_job_is_not_submitted(ready: launch.Launch) -> None:
    assert any("trainer.path is empty" in w for w in ready.warnings)
    for submit in (launch.submit, chain.submit):
        with pytest.raises(UserError, match=r"trainer\.path is empty") as caught:
            submit(ready, Ledger.open())
        assert caught.value.exit_code == 2
    assert Ledger.open().runs() == []
    assert not Path(ready.spec.run_dir).exists()


def test_a_trainer_that_is_named_is_enough(ready: launch.Launch, tmp_path: Path) -> None:
    launch.check_trainer(_launch(tmp_path, TrainerChoice(path="/opt/trainer")))
    launch.check_trainer(_launch(tmp_path, MEGATRON_PATH="/opt/trainer"))
