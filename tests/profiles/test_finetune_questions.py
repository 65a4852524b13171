"""What the wizard asks for fine-tuning: the recipe's own settings, and none that its trainer would not read."""

from __future__ import annotations

import pytest

from gpt_tune import clusters, recipes
from gpt_tune.profiles import settings
from gpt_tune.profiles.schema import Profile, Site
from gpt_tune.workflows import choices, fields
from gpt_tune.workflows.draft import Draft
from tests.profiles.test_choices import EVERYTHING

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def _clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "available", lambda: ["dev", "local"])
    monkeypatch.setattr(clusters, "silent", dict)
    monkeypatch.setattr(clusters, "discover", lambda name=None: EVERYTHING[name or "dev"])


def draft(recipe: str) -> Draft:
    return choices.put(choices.load_cluster(choices.start(), "dev"), "recipe", recipe)


def asked(recipe: str) -> dict[str, choices.Field]:
    return {f.key: f for f in choices.fields(draft(recipe), "training")}


def test_qlora_asks_its_own_and_none_of_pretrainings() -> None:
    found = asked("qlora")
    for key in ("finetune.weights", "finetune.data", "finetune.strategy", "finetune.lora_rank", "finetune.epochs",
                "finetune.learning_rate", "finetune.messages_field", "model.seq_length"):  # fmt: skip
        assert key in found, key
    theirs = {k for k in found if k.startswith("training.")}
    assert theirs == {"training.checkpoint_dir", "training.global_batch_size"}
    assert found["finetune.weights"].required
    assert found["finetune.data"].required
    assert "finetune.export" not in found


def test_the_llama_conversion_asks_for_weights_and_a_schedule_but_no_token_files() -> None:
    found = asked("llama2-finetune")
    for key in ("finetune.weights", "finetune.data", "finetune.export", "trainer.path", "training.learning_rate",
                "training.min_learning_rate", "training.iterations", "training.checkpoint_interval"):  # fmt: skip
        assert key in found, key
    for key in ("training.data", "training.tokenizer", "training.split", "training.load", "training.dropout",
                "training.eval_iterations", "finetune.strategy", "finetune.lora_rank"):  # fmt: skip
        assert key not in found, key


def test_megatron_lm_has_no_deepspeed_to_ask_about() -> None:
    assert "trainer.deepspeed" not in asked("megatron-lm")
    assert "trainer.deepspeed" in asked("megatron-deepspeed")
    assert not any(k.startswith("finetune.") for k in asked("megatron-lm"))


@pytest.mark.parametrize("recipe", recipes.names())
def test_every_slurm_job_may_look_at_its_nodes_first(recipe: str) -> None:
    field = asked(recipe)["preflight.run"]
    assert field.advanced
    assert [o.value for o in field.options] == ["auto", "on", "off"]


def test_every_question_is_a_setting_that_exists() -> None:
    for specs in fields.SPECS.values():
        for spec in specs:
            if spec.key not in ("cluster",):
                site = spec.key.startswith("site.")
                assert settings.type_of(Site if site else Profile, spec.key[5:] if site else spec.key)
