"""Owns joining a step time that names no iteration to the neighbouring step that took the same time."""

from __future__ import annotations

from gpt_tune.logs.types import Step

SAME_TIME = 0.02  # relative: 9.12 s and 9118.0 ms are one step


class Unnumbered:
    """The newest figure without a number, and the newest step: whichever comes second joins them."""

    def __init__(self) -> None:
        self._waiting: Step | None = None
        self._placed: Step | None = None

    def wait(self, step: Step) -> None:
        """A step without an iteration."""
        self._waiting = step
        self._join()

    def meet(self, placed: Step) -> None:
        """A step with one."""
        self._placed = placed
        self._join()

    def _join(self) -> None:
        waiting, placed = self._waiting, self._placed
        if waiting is None or placed is None or not placed.step_time_ms or not waiting.step_time_ms:
            return
        if abs(waiting.step_time_ms - placed.step_time_ms) > SAME_TIME * placed.step_time_ms:
            return
        self._waiting = None
        if placed.logged_tflops is None:
            placed.logged_tflops = waiting.logged_tflops
            placed.logged_tflops_kind = waiting.logged_tflops_kind
