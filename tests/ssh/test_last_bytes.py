"""The scheduler's word that a job has ended may be quicker than the last bytes of its log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.workflows import remote_logs
from gpt_tune.workflows.remote_logs import SshReader


def reader(there: int | None, arrived: int, error: bool = False) -> SshReader:
    """A reader of one file with `there` bytes over there, of which `arrived` have come."""

    def stat(_: str) -> Any:
        if error:
            raise UserError("away")
        return None if there is None else SimpleNamespace(size=there)

    made: Any = SshReader.__new__(SshReader)
    made._files = SimpleNamespace(stat=stat)
    made._tail = SimpleNamespace(paths=lambda: ("/log",), arrived=lambda _: arrived)
    made._more, made._give_up = [], None
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("there", "arrived", "complete"),
    [(100, 100, True), (100, 40, False), (100, -1, False), (0, 0, True), (None, -1, True), (10, 20, True)],
)
def test_all_has_arrived(there: int | None, arrived: int, complete: bool) -> None:
    assert reader(there, arrived).has_all() is complete


def test_a_line_that_is_down_has_not_brought_all() -> None:
    assert not reader(100, 100, error=True).has_all()


def test_it_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    late = reader(100, 40)
    assert not late.has_all()
    monkeypatch.setattr(remote_logs, "_LAST_SECONDS", 0.0)
    late._give_up = 0.001  # long ago
    assert late.has_all()
