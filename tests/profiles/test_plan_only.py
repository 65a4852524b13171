"""Planning for a cluster that is not here: its files can be read, and nothing can be submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune import planner
from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger
from gpt_tune.workflows import choices, launch
from gpt_tune.workflows.draft import Draft

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def draft() -> Draft:
    made = choices.start(cluster=choices.PLAN_ONLY)
    for key, text in (
        ("resources.gpu", "p6-b200"),
        ("resources.gpus", "64"),
        ("model.id", "gpt-145b"),
        ("trainer.path", "/opt/mds"),
    ):
        made = choices.put(made, key, text)
    return choices.choose(made, planner.search(choices.plan_request(made)).plans[0])


def test_its_files_are_those_of_a_slurm_job(draft: Draft) -> None:
    preview = launch.preview(draft)
    script = next(f.content for f in preview.rendered.files if f.path == preview.rendered.script).decode()
    assert (preview.spec.nodes, preview.spec.gpus) == (8, 64)
    assert "#SBATCH --nodes=8\n" in script
    assert preview.gpu_hours


def test_it_cannot_be_submitted_either_way(draft: Draft) -> None:
    with pytest.raises(UserError, match="planning only"):
        launch.launch_draft(draft)
    with pytest.raises(UserError, match="planning only"):
        launch.submit(launch.preview(draft))
    assert Ledger.open().runs() == []
    assert not Path("/shared/gpt-tune-runs").exists()
