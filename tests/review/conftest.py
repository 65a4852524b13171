"""A smoke job of this machine, prepared and not submitted, and runs that were submitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpt_tune.jobs.submitting import intent
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.rendering import write
from gpt_tune.schedulers.local_files import LocalFiles
from gpt_tune.workflows import choices, launch
from gpt_tune.workflows.draft import Draft
from gpt_tune.workflows.launch import Launch


@pytest.fixture
def draft(home: object) -> Draft:
    """A smoke job on this machine, with a name."""
    made = choices.load_cluster(choices.start(cluster="local", available=("local",)), "local")
    return replace(made, profile=replace(made.profile, name="quick"))


@pytest.fixture
def ready(draft: Draft) -> Launch:
    return launch.preview(draft)


def ran(ready: Launch, ledger: Ledger) -> RunRecord:
    """The run a submission would have left, without a job."""
    record = replace(intent(ready.spec, ready.rendered, ready.scheduler), phase="ended", state="COMPLETED")
    ledger.add(record)
    write(LocalFiles(), ready.spec.run_dir, ready.rendered.files)
    return record
