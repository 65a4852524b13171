"""Owns reading back what the ledger keeps as JSON: shape, prediction, profile of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpt_tune import toml
from gpt_tune.errors import UserError
from gpt_tune.hardware import catalogue
from gpt_tune.jobs import chains, clock
from gpt_tune.jobs.reasons import BY_YOU
from gpt_tune.ledger import KeptFinding, Ledger, RunRecord
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.build import from_dict
from gpt_tune.profiles.schema import Profile
from gpt_tune.schedulers.base import JobStatus
from gpt_tune.strict import from_dict as strictly
from gpt_tune.workflows.watching.attempts import earlier_seconds
from gpt_tune.workflows.watching.pace import Prediction

if TYPE_CHECKING:
    from gpt_tune.workflows.told import Told
    from gpt_tune.workflows.watch import Watch, WatchUpdate


# Between two looks at a run's state in the ledger and at its files; the scheduler is asked less often.
_LOOK_SECONDS = 1.0


def shape_of(record: RunRecord) -> ModelShape | None:
    """The model that a run trains."""
    if not record.shape:
        return None
    try:
        return strictly(ModelShape, record.shape, f"run {record.run_id}")
    except UserError:
        return None  # kept by another version of gpt-tune: the log itself still says most of it


def speed_shape_of(record: RunRecord) -> ModelShape | None:
    """The model that a run's TFLOPS follow from; None where its steps are of no fixed size.

    Fine-tuning on examples of different lengths computes less than its cut-off length says, and frozen weights
    have no gradients: any figure would be made up.
    """
    return None if record.recipe == "qlora" else shape_of(record)


def profile_of(record: RunRecord) -> Profile:
    """The choices a run was made with."""
    where = f"run {record.run_id}"
    return from_dict(Profile, toml.parse(record.profile, where), where)


def prediction_of(record: RunRecord) -> Prediction | None:
    """What the run was expected to do, in the monitor's units."""
    kept = record.prediction or {}
    seconds: dict[str, Any] = {k: kept.get(k) for k in ("step_seconds", "step_low", "step_high")}
    ms = {k: 1000.0 * v if isinstance(v, (int, float)) else None for k, v in seconds.items()}
    if ms["step_seconds"] is None and not record.plan:
        return None
    from_plan = Prediction.from_plan(record.plan) if record.plan else Prediction()
    if record.recipe == "qlora":  # as for speed_shape_of
        from_plan = replace(from_plan, model_tflops=None, mfu=None, tokens_per_second_per_gpu=None)
    return Prediction(
        step_time_ms=ms["step_seconds"] or from_plan.step_time_ms,
        low_ms=ms["step_low"] or from_plan.low_ms,
        high_ms=ms["step_high"] or from_plan.high_ms,
        model_tflops=kept.get("model_tflops") or from_plan.model_tflops,
        mfu=from_plan.mfu,
        device_gib=kept.get("memory_gib") or from_plan.device_gib,
        reserved_gib=from_plan.reserved_gib,
        tokens_per_second_per_gpu=from_plan.tokens_per_second_per_gpu,
    )


def peak_tflops_of(record: RunRecord) -> float | None:
    """The dense peak of the run's GPU, None where unknown: then there is no MFU."""
    kept = (record.prediction or {}).get("peak_tflops")
    if isinstance(kept, (int, float)):
        return float(kept)
    try:
        profile = profile_of(record)
        name = profile.resources.node or profile.resources.gpu
        return catalogue.node_for(name).gpu.bf16_tflops if name and record.gpus else None
    except UserError:
        return None


def log_format_of(record: RunRecord) -> str:
    """The line that the user taught for this run's log (see logs.formats.taught), else `auto`."""
    try:
        return profile_of(record).custom.log_format if record.recipe == "custom" else "auto"
    except UserError:
        return "auto"


def training_gpus_of(record: RunRecord) -> int | None:
    """GPUs that a run's speed is divided by, None where only the log can say.

    A smoke job without PyTorch trains in rank 0 alone, whatever it holds: its log's `world_size` says so, and
    its prediction is for one process too.
    """
    return None if record.recipe == "smoke" else record.gpus or None


def watch_of(
    record: RunRecord, state_source: Callable[[], JobStatus | None] | None = None, told: Told | None = None
) -> Watch:
    """A monitor of one run: its logs, what was expected of it, and its state.

    state_source: where the job's state comes from; None asks the scheduler through the ledger. told: who looks at the
    run's files besides.
    """
    from gpt_tune.workflows import findings, remote_logs
    from gpt_tune.workflows import told as looking
    from gpt_tune.workflows.watch import Watch

    paths = remote_logs.paths_of(record, of_every_job=chains.chain_of(record) is not None)
    tokens = (record.prediction or {}).get("tokens_per_step")
    shape = speed_shape_of(record)
    length = seq_length_of(record, shape)
    reader = remote_logs.reader_of(record, paths)
    told = told or looking.Told()
    if reader is not None:
        told.through(record.run_id, reader.mark)
    watch = Watch(
        paths,
        reader=reader,
        prediction=prediction_of(record),
        shape=shape,
        gpus=record.gpus or (None if "adopted" in record.tags else 0),
        state_source=state_source or state_source_of(record.run_id, told),
        seq_length=length,
        global_batch_size=int(tokens / length) if isinstance(tokens, (int, float)) and length else None,
        peak_tflops=peak_tflops_of(record),
        run_id=record.run_id,
        state_seconds=_LOOK_SECONDS,
        keep=keeper_of(record.run_id),
        log_says_gpus=training_gpus_of(record) is None,
        log_format=log_format_of(record),
    )
    watch.set_judgements(findings.judgements(record.run_id))
    return watch


def state_source_of(run_id: str, told: Told | None = None) -> Callable[[], JobStatus | None]:
    """Tells a run's state each time it is asked; the scheduler is asked for it at the engine's pace only, and when
    the run's files tell of a change. told: who looks at these."""
    from gpt_tune.workflows.asking import Asking

    return Asking(run_id, told=told)


def keeper_of(run_id: str) -> Callable[[WatchUpdate], None]:
    """Writes how far a run has come and what was found into the ledger."""

    def keep(update: WatchUpdate) -> None:
        with Ledger.open() as ledger:
            if update.pace.iteration is not None:
                ledger.update(run_id, last_iteration=update.pace.iteration)
            ledger.put_findings(
                KeptFinding(
                    run_id=run_id,
                    id=finding.id,
                    severity=finding.severity,
                    text=finding.text,
                    fix=finding.fix,
                    line=finding.line,
                    rank=finding.rank,
                    host=finding.host,
                    found_at=clock.now(),
                )
                for finding in update.new_findings
            )

    return keep


def reason_of(record: RunRecord) -> str:
    """The scheduler's reason; of a cancel that gpt-tune was told to do, that."""
    return BY_YOU if record.state == "CANCELLED" and record.cancel_requested else record.reason


def status_of(record: RunRecord) -> JobStatus:
    """A run's state in the scheduler's form."""
    return JobStatus(
        job_id=record.job_id or "",
        name=record.name,
        state=record.state,
        reason=reason_of(record),
        nodes=record.nodes,
        node_list=record.node_list,
        gpus=record.gpus or None,
        partition=record.partition,
        submitted_at=record.submitted_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        exit_code=record.exit_code,
        log_paths=record.log_paths,
        expected_start=record.expected_start,
        earlier_seconds=earlier_seconds(record),
    )


def seq_length_of(record: RunRecord, shape: ModelShape | None) -> int | None:
    """Tokens of one sequence of a run, as far as is known."""
    try:
        profile = profile_of(record)
    except UserError:
        return shape.seq_length if shape else None
    if record.recipe == "smoke":
        return profile.smoke.seq_length
    return profile.model.seq_length or (shape.seq_length if shape else None)
