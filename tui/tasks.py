"""Owns running engine calls in threads: one message back per call, errors as sentences, stale results dropped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from textual.message import Message
from textual.worker import Worker, WorkerState

from gpt_tune.errors import UserError

T = TypeVar("T")
Then = Callable[[T], None]


class TaskDone(Message):
    """A call has ended. Exactly one of result (with error None) or error is meaningful."""

    def __init__(self, name: str, turn: int, result: Any, error: UserError | None) -> None:
        super().__init__()
        self.name = name
        self.turn = turn
        self.result = result
        self.error = error


class Tasks:
    """Mixed into a screen. `run_task` calls `job` in a thread; `done` or `failed` run on the screen's own loop.

    A second call with the same name makes the first one's answer stale: it is dropped when it comes.
    """

    _turns: dict[str, int]
    _calls: dict[str, tuple[Then[Any], Then[UserError]]]

    def run_task(
        self, name: str, job: Callable[[], T], done: Then[T], failed: Then[UserError] | None = None
    ) -> None:
        self._turns = getattr(self, "_turns", {})
        self._calls = getattr(self, "_calls", {})
        turn = self._turns[name] = self._turns.get(name, 0) + 1
        self._calls[name] = (done, failed or self.task_failed)
        self.run_worker(  # type: ignore[attr-defined]
            partial(self._do, name, turn, job),
            thread=True, exclusive=True, group=name, name=name, exit_on_error=False,
        )  # fmt: skip

    def task_running(self, name: str) -> bool:
        return name in getattr(self, "_calls", {})

    def _do(self, name: str, turn: int, job: Callable[[], Any]) -> None:
        try:
            message = TaskDone(name, turn, job(), None)
        except UserError as error:
            message = TaskDone(name, turn, None, error)
        self.post_message(message)  # type: ignore[attr-defined]

    def on_task_done(self, event: TaskDone) -> None:
        event.stop()
        # A screen that is being closed has nothing left to show an answer on.
        if self._turns.get(event.name) != event.turn or not self.children:  # type: ignore[attr-defined]
            return
        done, failed = self._calls.pop(event.name)
        if event.error is None:
            done(event.result)
        else:
            failed(event.error)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Anything but a UserError is our own bug; it is said, and the screen stays usable."""
        if event.state is WorkerState.ERROR:
            name = event.worker.name
            _, failed = getattr(self, "_calls", {}).pop(name, (None, self.task_failed))
            error = event.worker.error
            failed(
                UserError(f"Internal error in {name}: {type(error).__name__}: {error}", "Please report this.")
            )

    def task_failed(self, error: UserError) -> None:
        """Where errors go unless a call says otherwise."""
        raise NotImplementedError
