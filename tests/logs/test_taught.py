"""A log format that the user teaches by example."""

from __future__ import annotations

import pytest

from gpt_tune.errors import UserError
from gpt_tune.logs.formats.taught import taught
from gpt_tune.logs.parse import LogParser


def test_a_taught_line_gives_steps() -> None:
    parser = LogParser(
        more_formats=[taught("step {iteration}/{total_iterations} | loss={loss} took {step_time_s}s")]
    )
    parser.feed(
        [
            "12: step    7/100 | loss=2.50 took 0.25s (rank 3)",
            "step 8 nothing",
            "step 9/100 | loss=nan took 1s",
        ]
    )
    seen = [(s.iteration, s.total_iterations, s.step_time_ms) for s in parser.best.steps()]
    assert seen == [(7, 100, 250.0), (9, 100, 1000.0)]
    assert parser.trainer == "custom"
    assert next(iter(parser.best.steps())).loss == 2.5


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("loss {loss}", "lacks {iteration}"),
        ("step {iteration} {los}", "Unknown figure 'los'"),
        ("{iteration}", "no word"),
    ],
)
def test_a_bad_template_is_one_sentence(template: str, words: str) -> None:
    with pytest.raises(UserError, match=words.replace("{", r"\{")):
        taught(template)


def test_figures_with_nothing_between_them_are_refused() -> None:
    with pytest.raises(UserError, match="nothing between"):
        taught("step {iteration}{loss}")
