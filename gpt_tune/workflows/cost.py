"""Owns what a layout costs: how long a run takes and the GPU-hours of it, with how far off that may be."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.profiles.schema import Profile
from gpt_tune.words import count_words, gpu_hours_words, seconds_words
from gpt_tune.workflows.request import iterations_of

# Where only the data tells how many steps there are.
STEPS_OF_UNKNOWN = 1000


@dataclass(frozen=True, slots=True)
class Cost:
    """Of so many steps. known: whether the run asked for that many. low_hours and high_hours hold in 9 of 10 cases."""

    steps: int
    known: bool
    seconds: float
    gpu_hours: float
    low_hours: float
    high_hours: float
    tokens_a_day: float

    @property
    def words(self) -> str:
        """In one line: what, how long, how many GPU-hours between what, and the pace."""
        many = f"{self.steps:,} steps" + ("" if self.known else " (say)")
        between = f"{_hours(self.low_hours)} to {_hours(self.high_hours)}"
        hours = gpu_hours_words(self.gpu_hours)
        pace = f"{count_words(self.tokens_a_day)} tokens/day"
        return f"{many}: {seconds_words(self.seconds)}, {hours} ({between}); {pace}"


def cost_of(request: PlanRequest, plan: Plan, steps: int | None = None) -> Cost:
    """The cost of so many steps of a layout; of a thousand where nobody knows how many."""
    count = STEPS_OF_UNKNOWN if steps is None else steps
    step = plan.step
    hours = count * plan.layout.gpus / 3600
    tokens = plan.layout.global_batch_size * request.seq_length
    return Cost(
        steps=count,
        known=steps is not None,
        seconds=count * step.seconds,
        gpu_hours=hours * step.seconds,
        low_hours=hours * step.low,
        high_hours=hours * step.high,
        tokens_a_day=86_400 * tokens / step.seconds if step.seconds > 0 else 0.0,
    )


def cost_of_run(profile: Profile, request: PlanRequest, plan: Plan) -> Cost:
    """The cost of the run that a profile asks for."""
    return cost_of(request, plan, iterations_of(profile, request))


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"
