"""A finding in a line: ids that mean something to people, and none that do not."""

from __future__ import annotations

import pytest

from gpt_tune.diagnosis import Diagnoser
from gpt_tune.logs.parser import LogParser
from tui.cli.follow import finding_words


@pytest.mark.parametrize(
    ("reason", "start"), [("None", "info: the scheduler"), ("", "info: "), ("Priority", "info P-Priority: ")]
)
def test_no_reason_has_no_id(reason: str, start: str) -> None:
    (finding,) = Diagnoser().conclude(LogParser(), "PENDING", reason=reason).findings
    assert finding_words(finding).startswith(start)
