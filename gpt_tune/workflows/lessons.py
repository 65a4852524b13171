"""Owns what an ended run teaches: its model, layout and machine as planned, and the time and memory it took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpt_tune.errors import UserError
from gpt_tune.hardware import catalogue
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.layouts.trainers import is_finetune
from gpt_tune.ledger import RunRecord
from gpt_tune.logs.types import RankMemory
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Profile
from gpt_tune.strict import from_dict
from gpt_tune.timing.fitting import Measured
from gpt_tune.workflows import results
from gpt_tune.workflows.records import profile_of, seq_length_of, shape_of
from gpt_tune.workflows.request import trainer_of

# Steps after warm-up below which a median is no measurement.
FEWEST_STEPS = 5


@dataclass(frozen=True, slots=True)
class Lesson:
    """One run. reserved_gib: the most any rank said it reserved, None where the log does not say."""

    run_id: str
    model: ModelShape
    node: Node
    trainer: Trainer
    layout: Layout
    seq_length: int
    seconds: float
    steps: int
    reserved_gib: float | None = None

    @property
    def measured(self) -> Measured:
        return Measured(self.model, self.node, self.trainer, self.layout, self.seq_length, self.seconds)

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two runs the same measurement, made twice."""
        return (
            replace(self.model, id="", aliases=(), notes=()),
            self.node.id,
            self.trainer,
            self.layout,
            self.seq_length,
        )


def lessons_of(records: Iterable[RunRecord]) -> tuple[list[Lesson], list[tuple[str, str]]]:
    """What the runs teach, and (run id, reason) of those that teach nothing."""
    found, skipped = [], []
    for record in records:
        try:
            found.append(lesson_of(record))
        except UserError as error:
            skipped.append((record.run_id, error.message))
    return found, skipped


def lesson_of(record: RunRecord) -> Lesson:
    """UserError says in one sentence why a run teaches nothing."""
    if record.active or record.phase != "ended":
        raise UserError("It has not ended.")
    layout_data = (record.plan or {}).get("layout")
    model = shape_of(record)
    if not layout_data or model is None:
        raise UserError("It has no planned layout.")
    where = f"run {record.run_id}"
    profile = profile_of(record)
    trainer = _trainer(record, profile)
    if is_finetune(trainer):
        raise UserError("It is a fine-tuning run, whose predictions have no constants to fit.")
    parsed = results.parsed(record)
    if parsed is None:
        raise UserError("Its log is gone.")
    steps, median = parsed.summary.steps - parsed.summary.warmup_steps, parsed.summary.median_step_time_ms
    if median is None or steps < FEWEST_STEPS:
        raise UserError(f"It has {max(steps, 0)} steps after warm-up, and {FEWEST_STEPS} are needed.")
    return Lesson(
        run_id=record.run_id,
        model=model,
        node=_node(record, profile),
        trainer=trainer,
        layout=from_dict(Layout, layout_data, where),
        seq_length=seq_length_of(record, model) or model.seq_length,
        seconds=median / 1000.0,
        steps=steps,
        reserved_gib=_most_reserved(parsed.memory),
    )


def _trainer(record: RunRecord, profile: Profile) -> Trainer:
    """As the plan has it; dropout, which a plan does not state, as the profile has it."""
    known = (record.plan or {}).get("trainer") or {}
    changes = {k: known[k] for k in ("version", "deepspeed", "gradient_accumulation_dtype") if k in known}
    return replace(trainer_of(profile), **changes)


def _node(record: RunRecord, profile: Profile) -> Node:
    name = (record.plan or {}).get("node") or profile.resources.node or profile.resources.gpu
    if not name:
        raise UserError("It does not say on which GPUs it ran.")
    return catalogue.node_for(str(name))


def _most_reserved(memory: Iterable[RankMemory]) -> float | None:
    figures = [m.max_reserved_gib or m.reserved_gib for m in memory]
    return max((f for f in figures if f), default=None)
