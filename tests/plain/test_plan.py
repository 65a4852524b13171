"""The plan by plain questions: choose, show, compare, change numbers, try what was ruled out, order, narrow."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.workflows import choices, launch
from gpt_tune.workflows.draft import Draft
from tests.plain.test_flow import Script
from tui.plain.plan import plan_page

pytestmark = pytest.mark.usefixtures("home")


def draft_for(model: str = "gpt-145b", gpus: int = 64, kind: str = "p6-b200") -> Draft:
    made = choices.start(cluster=choices.PLAN_ONLY, available=())
    for key, text in (
        ("resources.gpu", kind),
        ("resources.gpus", str(gpus)),
        ("model.id", model),
        ("trainer.path", "/opt/mds"),
    ):
        made = choices.put(made, key, text)
    return made


def asked(draft: Draft, *answers: str) -> tuple[Draft, int, str]:
    user = Script(list(answers))
    done, move = plan_page(draft, user.lines)
    assert not user.answers, f"not asked for: {user.answers}\n{user.text}"
    return done, move, user.text


def test_enter_takes_the_first() -> None:
    done, move, _ = asked(draft_for(), "")
    assert move == 1
    assert done.plan is not None
    assert done.plan.rank == 1


def test_one_in_full_and_two_compared() -> None:
    done, move, text = asked(draft_for(), "show", "3", "compare", "1,3", "back")
    assert (done.plan, move) == (None, -1)
    for words in ("GPU-hours", "stage  weights", "how sure:", "number 3", "difference", "≠ "):
        assert words in text


def test_numbers_are_changed_estimated_and_taken_into_the_job() -> None:
    done, move, text = asked(
        draft_for(),
        "change",
        "1",
        "more",
        "tp=8 pp=4 batch=512",
        "more",
        "fusions.bias_gelu=off grads=fp32",
        "take",
    )
    assert move == 1
    assert "TP 8 PP 4" in text
    assert done.plan is not None
    assert (done.plan.layout.tensor_parallel, done.plan.layout.global_batch_size) == (8, 512)
    assert done.profile.trainer.gradient_accumulation_dtype == "fp32"
    ready = launch.preview(done)
    assert ready.plan is not None
    assert ready.plan.layout == done.plan.layout


def test_what_is_not_legal_is_explained_and_cannot_be_taken() -> None:
    done, move, text = asked(draft_for(), "change", "1", "more", "tp=7", "take", "back", "back")
    assert (done.plan, move) == (None, -1)
    assert "not legal:" in text
    assert "'take' is none of" in text


def test_what_cannot_be_read_is_asked_again() -> None:
    _, _, text = asked(draft_for(), "change", "99", "1", "more", "tq=8", "tp", "tp=8", "take")
    assert "Give a number from 1 to" in text
    assert "Unknown layout key 'tq'" in text
    assert "KEY=VALUE" in text


def test_a_near_miss_is_tried_with_its_change() -> None:
    done, move, text = asked(draft_for("gpt-1t", 8, "h100"), "try", "1", "take")
    assert "Nothing fits." in text
    assert move == 1
    assert done.plan is not None
    assert done.profile.resources.gpus == done.plan.layout.gpus > 8


def test_another_order_and_only_some() -> None:
    done, move, text = asked(draft_for(), "order", "memory", "only", "tp=8 zero=0", "")
    assert "memory first" in text
    assert "you fix 2 of its keys" in text
    assert move == 1
    assert done.plan is not None
    assert (done.plan.layout.tensor_parallel, done.plan.layout.zero_stage) == (8, 0)


def test_fewest_gpus_are_taken_over(home: Path) -> None:
    done, _, _ = asked(draft_for(), "order", "gpus", "")
    assert done.plan is not None
    assert done.plan.rank == 0
    assert done.profile.resources.gpus == done.plan.layout.gpus < 64


def test_nothing_fits_and_back() -> None:
    done, move, text = asked(draft_for("gpt-1t", 8, "h100"), "")
    assert (done.plan, move) == (None, -1)
    assert "[out-of-memory]" in text
