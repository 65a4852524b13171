"""Owns what is known of a run while its log is read (shape, GPUs, batch), and the model TFLOPS it makes of a step."""

from __future__ import annotations

import numpy as np

from gpt_tune.logs import facts as run_facts
from gpt_tune.logs.columns import Column
from gpt_tune.logs.facts import RunFacts, flops_per_sample
from gpt_tune.logs.types import Step
from gpt_tune.units import TERA


class Known:
    """What was given beforehand (the ledger), and what the log's own arguments fill in."""

    def __init__(self, given: RunFacts) -> None:
        self.arguments: dict[str, str] = {}
        self._given = given
        self._facts: RunFacts | None = None
        self._flops_per_sample: float | None = None

    @property
    def facts(self) -> RunFacts:
        """What is known about the run: given beforehand, else as the log prints it."""
        if self._facts is None:
            self._facts = run_facts.prefer(self._given, run_facts.read_facts(self.arguments))
        return self._facts

    def take(self, name: str, value: str) -> None:
        """Keeps an argument that the log printed; of endless ones the first."""
        if len(self.arguments) < run_facts.MAX_ARGUMENTS:
            self.arguments[name] = value
            self._facts = self._flops_per_sample = None

    def learn(self, arguments: dict[str, str]) -> None:
        """Takes over what another parser read of the same run's arguments."""
        self.arguments = arguments
        self._facts = self._flops_per_sample = None

    def derive(self, step: Step) -> None:
        """Model TFLOPS per GPU from step time and shape."""
        facts, time = self.facts, step.step_time_ms
        batch = step.global_batch_size or facts.global_batch_size
        flops = self._flops()
        if flops and batch and time and time > 0 and facts.gpus:
            step.model_tflops = flops * batch / (time / 1000.0) / facts.gpus / TERA

    def derive_columns(self, columns: dict[str, Column]) -> None:
        """The same for steps read as columns."""
        facts, time = self.facts, columns.get("step_time_ms")
        flops = self._flops()
        if not flops or time is None or not facts.gpus:
            return
        batch = columns.get("global_batch_size")
        sizes = batch[0] if batch is not None else np.full(len(time[0]), float(facts.global_batch_size or 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = flops * sizes / (time[0] / 1000.0) / facts.gpus / TERA
        missing = ~((time[0] > 0) & (sizes > 0))
        columns["model_tflops"] = (np.where(missing, np.nan, values), missing)

    def _flops(self) -> float | None:
        if self._flops_per_sample is None:
            self._flops_per_sample = flops_per_sample(self.facts)
        return self._flops_per_sample
