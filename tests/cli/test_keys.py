"""`gpt-tune keys`: the names of keys, and a wrong file said in one sentence."""

from __future__ import annotations

from tests.cli.conftest import Run
from tests.tui.test_notify import write


def test_the_list_on_the_command_line(gpt_tune: Run) -> None:
    write('[keys]\n"queue.hold" = "x"\n')
    rows = {r["name"]: r for r in gpt_tune("keys", "--json").json["keys"]}
    assert rows["queue.hold"] == {
        "name": "queue.hold", "keys": ["x"], "what": "Keep a waiting job from starting", "yours": True
    }  # fmt: skip
    assert rows["help"]["keys"] == ["question_mark", "f1"]
    assert "x (yours)" in gpt_tune("keys").out
    write('[keys]\n"queue.hold" = "nokey"\n')
    done = gpt_tune("keys", "--json")
    assert done.code == 2
    assert done.error["message"].startswith("queue.hold")
