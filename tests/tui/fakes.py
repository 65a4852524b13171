"""Owns an engine with nothing behind it: fixed runs, fixed logs, fixed plans, and counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpt_tune.diagnosis.types import Diagnosis, Finding
from gpt_tune.layouts.layout import Layout, Recompute, Trainer
from gpt_tune.ledger.record import RunRecord
from gpt_tune.logs.summary import Summary
from gpt_tune.logs.types import Step
from gpt_tune.memory.types import MemoryEstimate, StageMemory
from gpt_tune.planner.types import EstimateResult, Plan, Problem, Reason, Rejected, SearchResult
from gpt_tune.timing.types import StepEstimate
from gpt_tune.workflows import whatif
from gpt_tune.workflows.watch import LogLine, Pace, Prediction, WatchUpdate
from tui.engine import Engine
from tui.poller import Answer


def run(name: str = "gpt-145b-b200", state: str = "RUNNING", **changes: Any) -> RunRecord:
    """A run on a Slurm cluster; times lie so far back that words for them do not change."""
    ended = state not in ("PENDING", "RUNNING")
    record = RunRecord(
        run_id=f"r20201130-000000-{sum(map(ord, name)) % 10_000:04d}",
        token="t",
        cluster="dev",
        scheduler="slurm",
        name=name,
        recipe="megatron-deepspeed",
        run_dir="/shared/runs/x",
        script="/shared/runs/x/job.sbatch",
        created_at="2020-11-30T00:00:00Z",
        phase="ended" if ended else "submitted",
        state=state,  # type: ignore[arg-type]
        job_ids=("4711",),
        gpus=64,
        nodes=8,
        partition="b200",
        submitted_at="2020-11-30T00:00:00Z",
    )
    return replace(record, **changes)


def steps(count: int, spike_at: int = 40) -> list[Step]:
    """Steps of about 3.7 s with one spike, and a loss that falls."""
    made: list[Step] = []
    for i in range(1, count + 1):
        wobble = 12.0 * ((i * 7) % 11 - 5) / 5
        spike = 450.0 if i == spike_at else 0.0
        made.append(
            Step(
                iteration=i,
                step_time_ms=3700.0 + wobble + spike,
                loss=11.0 * i**-0.25,
                grad_norm=0.94,
                model_tflops=498.0 - wobble / 8,
                total_iterations=5000,
            )
        )
    return made


class FakeWatch:
    """Gives one prepared update, then quiet ones."""

    def __init__(self, update: WatchUpdate, prediction: Prediction | None = None) -> None:
        self.prediction = prediction
        self._updates = [update]
        self._rest = replace(update, lines=(), steps=(), new_findings=())
        self._steps: list[Step] = list(update.steps)
        self.polls = 0
        self.parser = SimpleNamespace(events=[])
        self.sources = ["/shared/runs/x/out.log"]
        self.older: list[LogLine] = []
        self.happened: list[Any] = []
        self.judged: list[Any] = []
        self.node_rows: list[Any] = []
        self.closed = False

    def push(self, update: WatchUpdate) -> None:
        self._updates.append(update)
        self._rest = replace(update, lines=(), steps=(), new_findings=())

    def set_status(self, status: Any) -> None:
        """States are part of the prepared updates."""

    def poll(self) -> WatchUpdate:
        self.polls += 1
        return self._updates.pop(0) if self._updates else self._rest

    def series(self, name: str, axis: str = "iteration") -> tuple[Any, Any]:
        values = [getattr(s, name) for s in self._steps]
        scale = {"iteration": 1.0, "hours": 3.7 / 3600, "tokens": 131072.0}[axis]
        return (
            np.array([s.iteration * scale for s in self._steps]),
            np.array([np.nan if v is None else v for v in values], dtype=float),
        )

    def older_lines(self, source: str) -> list[LogLine]:
        lines, self.older = self.older, []
        return lines

    def marks(self, axis: str) -> list[Any]:
        return self.happened

    def nodes(self, names: Sequence[str] = (), samples: Any = None) -> list[Any]:
        return self.node_rows

    def set_judgements(self, judgements: Any) -> None:
        self.judged.append(judgements)

    def close(self) -> None:
        self.closed = True


def healthy(lines: Sequence[str] = (), count: int = 312) -> WatchUpdate:
    """A run in full swing."""
    made = steps(count)
    return WatchUpdate(
        lines=tuple(LogLine(line, "out") for line in lines),
        steps=tuple(made),
        state="RUNNING",
        summary=Summary(steps=count, warmup_steps=5, median_step_time_ms=3702.4, median_model_tflops=498.0),
        pace=Pace(
            iteration=count,
            total_iterations=5000,
            recent_step_time_ms=3702.4,
            recent_model_tflops=498.0,
            mfu=0.224,
            eta_seconds=17_400.0,
            elapsed_seconds=2562.0,
            gpu_hours=45.5,
            gpu_hours_total=355.0,
            gpus=64,
            slower_than_predicted=0.0006,
            max_reserved_gib=91.0,
        ),
        diagnosis=Diagnosis("running"),
        last_step=made[-1],
    )


PREDICTION = Prediction(
    step_time_ms=3700.0, low_ms=3450.0, high_ms=3950.0, model_tflops=500.0, reserved_gib=91.0
)

BROKEN = Finding(
    id="F12",
    severity="error",
    text="rank 17 on b200-3 ran out of GPU memory in the optimizer",
    fix="recompute.granularity=selective",
    excerpt="torch.OutOfMemoryError: CUDA out of memory",
)


class FakeEngine(Engine):
    """The engine's doors with prepared answers. `asked` counts polls of the scheduler."""

    planner: Any
    whatif: Any
    sure: Any

    def __init__(
        self, records: Sequence[RunRecord] = (), watch: FakeWatch | None = None, planner: Any = None
    ) -> None:
        super().__init__()
        if planner is not None:
            self.planner = planner
            if isinstance(planner, FakePlanner):
                self.whatif = FakeWhatIf(planner)
                self.sure = FakeSure()
        self.prepared = list(records)
        self.fake_watch = watch or FakeWatch(healthy())
        self.asked = 0
        self.error = ""

    def runs(self) -> list[RunRecord]:
        return self.prepared

    def ask_jobs(self, before: Sequence[RunRecord], forced: bool) -> Answer:
        self.asked += 1
        return Answer(self.prepared, 1, self.error, list(before) != self.prepared)

    def watch_of(self, record: RunRecord, state_source: Callable[[], Any]) -> Any:
        return self.fake_watch


def plan(rank: int, layout: Layout, seconds: float, gib: float, **memory: Any) -> Plan:
    """A plan whose parts add up."""
    rest = seconds - 2.6
    step = StepEstimate(
        seconds=seconds,
        low=seconds * 0.93,
        high=seconds * 1.07,
        compute=2.6,
        tensor_parallel=rest * 0.4,
        context_parallel=0.0,
        expert_parallel=0.0,
        pipeline_bubble=rest * 0.4,
        pipeline_p2p=rest * 0.1,
        data_parallel=0.0,
        optimizer=rest * 0.1,
        other=0.0,
        model_tflops=500.0,
        hardware_tflops=500.0,
        mfu=0.22,
        hfu=0.22,
        tokens_per_second_per_gpu=560.0,
    )
    stages = tuple(
        StageMemory(i, 20.0, 20.0, 1.0, act, logits, 1.0, 1.0, 3.0, 3.0, 49.0 + act + logits)
        for i, act, logits in ((0, gib - 49.0, 0.0), (layout.pipeline_parallel - 1, 11.0, 3.0))
    )
    estimate = MemoryEstimate(
        allocated_gib=gib - 6,
        reserved_gib=gib - 3,
        device_gib=gib,
        low_gib=gib * 0.92,
        high_gib=gib * 1.09,
        limit_gib=179.0,
        oom_probability=0.25 if gib > 130 else 0.0,
        peak_phase="forward_backward",
        stages=stages,
    )
    reasons = (
        Reason("zero-dp1", "ZeRO-0: one data-parallel rank, nothing to shard.", "test"),
        Reason("tp-within-node", "Tensor parallel 8 stays inside the node's fast link.", "test"),
    )
    return Plan(rank, Trainer(), layout, replace(estimate, **memory), step, reasons)


def layout(tp: int, pp: int, dp: int, zero: int, mbs: int, recompute: Recompute | None = None) -> Layout:
    return Layout(
        tensor_parallel=tp,
        pipeline_parallel=pp,
        data_parallel=dp,
        zero_stage=zero,
        micro_batch_size=mbs,
        recompute=recompute or Recompute(),
    )


PLANS = (
    plan(1, layout(8, 2, 4, 1, 2, Recompute("selective")), 3.3, 112.0),
    plan(2, layout(8, 8, 1, 0, 1), 3.7, 91.0),
    plan(3, layout(4, 4, 4, 1, 1, Recompute("full", "uniform", 1)), 3.9, 139.0),
)
REJECTED = (
    Rejected(
        layout(8, 2, 4, 2, 2),
        "zero2-pipeline",
        "ZeRO-2 with PP 2: the pipeline engine refuses it.",
        "zero_stage=1",
    ),
    Rejected(layout(1, 1, 64, 3, 1), "memory", "It needs about 310 GiB of 179 GiB.", "tensor_parallel=8"),
)


def deep_plan(stages: int) -> Plan:
    """A plan of many stages, each of which holds fewer micro batches than the one before, as under 1F1B."""
    made = plan(1, layout(8, stages, 2, 1, 1), 3.3, 170.0)
    each = tuple(
        StageMemory(i, 16.0, 16.0, 8.0, 110.0 * (1 - i / stages), 4.0 if i == stages - 1 else 0.0, 1.0, 1.0, 12.0, 8.0,
                    62.0 + 110.0 * (1 - i / stages) + (4.0 if i == stages - 1 else 0.0))
        for i in range(stages)
    )  # fmt: skip
    return replace(
        made, memory=replace(made.memory, device_gib=172.0, high_gib=183.0, low_gib=158.0, stages=each)
    )


class FakePlanner:
    """Answers with the plans above. what_if turns a number without limits, and refuses ZeRO-3."""

    def __init__(self, result: SearchResult | None = None) -> None:
        self.result = result or SearchResult(PLANS, REJECTED, 2138, 2140, 0.8)
        self.searches = 0

    def search(self, request: Any) -> SearchResult:
        self.searches += 1
        return self.result

    def what_if(self, request: Any, before: Plan, key: str, direction: int) -> EstimateResult:
        if key == "zero_stage":
            stage = before.layout.zero_stage + direction
            changed = replace(before, layout=replace(before.layout, zero_stage=stage))
            if stage >= 2:
                problem = Problem(
                    "zero2-pipeline", f"ZeRO-{stage}: the pipeline engine refuses it.", "zero_stage=1"
                )
                return EstimateResult(False, (problem,), changed)
            return EstimateResult(True, (), changed)
        size = before.layout.micro_batch_size + direction
        return EstimateResult(True, (), plan(0, replace(before.layout, micro_batch_size=size), 4.4, 120.0))


class FakeWhatIf:
    """Numbers of the layout are the planner's; those of the question only change the question."""

    turnables = staticmethod(whatif.turnables)
    held = staticmethod(whatif.held)
    typed = staticmethod(whatif.typed)
    mended = staticmethod(whatif.mended)

    def __init__(self, planner: FakePlanner) -> None:
        self._planner = planner

    def turn(self, request: Any, before: Plan, key: str, by: int) -> whatif.Turned:
        if key in whatif.ASKED:
            asked = replace(request, **{key: getattr(request, key) * 2})
            return whatif.Turned(asked, EstimateResult(True, (), replace(before, rank=0)))
        return whatif.Turned(request, self._planner.what_if(request, before, key, by))


class FakeSure:
    """One calibration for ever: the shipped ones change with every fit."""

    def short_words(self, request: Any) -> str:
        return "calibrated here 3 d ago"

    def sure_words(self, request: Any) -> str:
        return "calibrated 3 days ago on this cluster: typical error step time 5 % off on 7 measured runs."
