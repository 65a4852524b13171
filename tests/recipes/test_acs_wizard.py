"""The wizard knows the recipe: what it asks for each kind of work, and that every answer it offers is legal."""

from __future__ import annotations

import pytest

from gpt_tune.profiles import store
from gpt_tune.workflows import choices
from gpt_tune.workflows.choices import PLAN_ONLY, Draft


def draft(*answers: tuple[str, str]) -> Draft:
    found = choices.put(choices.put(choices.start(), "cluster", PLAN_ONLY), "resources.gpu", "alibaba-hpn-8")
    for key, value in (("recipe", "acs"), *answers):
        found = choices.put(found, key, value)
    return found


SCRIPT = (("acs.work", "script"), ("acs.script", "/workspace/train.py"))


def asked(found: Draft) -> dict[str, bool]:
    """Keys of the training page, and whether they are advanced."""
    return {f.key: f.advanced for f in choices.fields(found, "training")}


def test_the_recipe_is_offered() -> None:
    field = next(f for f in choices.fields(draft(), "training") if f.key == "recipe")
    assert "acs" in [o.value for o in field.options]


def test_a_benchmark_is_asked_for_little() -> None:
    found = asked(draft())
    assert {k for k, advanced in found.items() if not advanced} == {
        "recipe", "acs.work", "acs.benchmark", "acs.checkpoint_optimization", "acs.release",
    }  # fmt: skip


def test_a_script_is_asked_for_its_numbers_and_not_for_data() -> None:
    found = asked(draft(*SCRIPT))
    assert {
        "acs.script",
        "acs.compile",
        "acs.zero_stage",
        "training.iterations",
        "training.learning_rate",
    } <= set(found)
    assert not {"training.data", "training.tokenizer", "acs.benchmark", "trainer.path"} & set(found)


@pytest.mark.parametrize("answers", [(), SCRIPT])
def test_every_value_and_option_is_legal(answers: tuple[tuple[str, str], ...]) -> None:
    found = draft(*answers)
    for field in choices.fields(found, "training"):
        assert field.help.endswith(".")
        if field.value or not field.required:
            assert choices.check(found, field.key, field.value) is None, field.key
        for option in field.options:
            assert choices.check(found, field.key, option.value) is None, (field.key, option)


def test_a_rule_is_a_problem_at_its_field() -> None:
    found = choices.problems(draft(("acs.work", "script")))
    assert [(p.step, p.key) for p in found] == [("training", "acs.script")]
    wrong = choices.problems(draft(*SCRIPT, ("acs.packages", "torch==2.6.0")))
    assert [(p.step, p.key) for p in wrong] == [("training", "acs.packages")]
    assert "patched" in wrong[0].text
    old = choices.problems(draft(*SCRIPT, ("acs.driver", "550.90.07")))
    assert "too old for CUDA 12.8" in old[0].text


def test_a_whole_draft_can_be_seen_and_kept(home: object) -> None:
    from gpt_tune.workflows.launch import preview

    ready = preview(draft(*SCRIPT, ("resources.gpus", "16"), ("training.iterations", "30")))
    assert "pytorchjob.yaml" in {f.path for f in ready.rendered.files}
    text = next(f.content for f in ready.rendered.files if f.path == "job.sbatch").decode()
    assert "#SBATCH --gres=gpu:8" in text
    store.save(choices.profile_of(draft(*SCRIPT)), "mine")
    assert store.load("mine").acs.script == "/workspace/train.py"
