"""Owns small jobs for tests: specs, scripts that keep the run folder's promises, and made-up clusters."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpt_tune import jobs
from gpt_tune.jobs.pacing import Pacer
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.profiles.schema import Profile, Resources, Site
from gpt_tune.recipes.base import JobSpec, Prediction, Rendered, RenderedFile
from gpt_tune.schedulers.base import Cluster, NodeGroup, Partition, Scheduler
from tests.cluster import wait_until

if TYPE_CHECKING:
    from tui.engine import Engine
    from tui.poller import Poller


def group(gpu: str = "b200", nodes: int = 8, per_node: int = 8, **states: int) -> NodeGroup:
    return NodeGroup(
        nodes=nodes,
        nodes_by_state=states or {"idle": nodes},
        gpu=gpu,
        gpus_per_node=per_node,
        gpus_free=nodes * per_node,
        cpus_per_node=192,
        memory_mib_per_node=2_000_000,
        names=f"{gpu or 'cpu'}-[1-{nodes}]",
    )


def partition(name: str = "dev", *groups: NodeGroup, **changes: object) -> Partition:
    values: dict[str, object] = {
        "name": name, "default": name == "dev", "state": "up", "time_limit_seconds": 7200, "default_time_seconds": 3600,
        "groups": groups or (group(),), "max_nodes": None,
    }  # fmt: skip
    return Partition(**{**values, **changes})  # type: ignore[arg-type]


def cluster(*partitions: Partition, name: str = "testbed", scheduler: str = "slurm") -> Cluster:
    return Cluster(name=name, scheduler=scheduler, version="22.05.8", partitions=partitions or (partition(),))


def smoke(**resources: object) -> Profile:
    return Profile(name="trial", recipe="smoke", resources=Resources(**resources))  # type: ignore[arg-type]


def prepared(scheduler: Scheduler, run_root: Path, gpus: int | None = None, **site: object) -> JobSpec:
    full = Site(run_root=str(run_root), **site)  # type: ignore[arg-type]
    return jobs.prepare(smoke(gpus=gpus), full, scheduler.discover(), scheduler=scheduler)


def rendered(spec: JobSpec, body: str = "true", *options: str) -> Rendered:
    """A job that keeps the promises of the run folder: `started` first, `exit_code` last."""
    started = f'{{"token":"{spec.token}","job_id":"%s","time":"now"}}\\n'
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=trial",
        f"#SBATCH --output={spec.run_dir}/logs/%x-%j.out",
        f"#SBATCH --nodes={spec.nodes}",
        f"#SBATCH --ntasks-per-node={spec.tasks_per_node}",
        *([f"#SBATCH --gres=gpu:{spec.gpus_per_node}"] if spec.gpus else []),
        *(f"#SBATCH {option}" for option in options),
        f"cd '{spec.run_dir}'",
        f"printf '{started}' \"${{SLURM_JOB_ID:-$GPT_TUNE_JOB_ID}}\" >> started",
        "trap 'echo $? > exit_code' EXIT",
        "echo hello",
        body,
    ]
    return Rendered(
        script="job.sh",
        files=(
            RenderedFile("job.sh", "\n".join(lines).encode() + b"\n", executable=True),
            RenderedFile("inner/data.json", b"{}"),
        ),
        log_paths=(f"{spec.run_dir}/logs/%x-%j.out",),
        prediction=Prediction(step_seconds=1.5, source="test"),
    )


def refreshed_until(
    ledger: Ledger, run_id: str, condition: Callable[[RunRecord], bool], scheduler: Scheduler | None = None
) -> RunRecord:
    """Refresh until the run satisfies the condition."""

    def check() -> bool:
        jobs.refresh(ledger, scheduler)
        return condition(ledger.get(run_id))

    wait_until(check, 40, f"the awaited state of {run_id}")
    return ledger.get(run_id)


class Impatient(Pacer):
    """The engine's pace, many times as fast, and no answer of another gpt-tune is good enough."""

    max_age_seconds = 0.0

    def __init__(self, times: float = 60.0) -> None:
        super().__init__(lambda: times * time.monotonic())


def screens(engine: Engine) -> Poller:
    """The full-screen program without a terminal, with a screen that shows states: its workers run at once."""
    from tui import poller

    class Screens(poller.Poller):
        screen_stack = (SimpleNamespace(WANTS_JOBS=True),)

        def set_interval(self, *_: Any) -> None: ...

        def run_worker(self, work: Callable[[], None], **_: Any) -> None:
            work()

        def post_message(self, message: Any) -> None:
            self.on_jobs_polled(message)

    app = Screens()
    app.engine = engine
    return app
