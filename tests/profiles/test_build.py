"""Tests of strict reading and short writing of profiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gpt_tune import toml
from gpt_tune.errors import UserError
from gpt_tune.profiles import build, settings
from gpt_tune.profiles.build import from_dict, to_dict
from gpt_tune.profiles.schema import Profile, Site, Training


def refused(data: dict[str, Any], cls: type = Profile) -> str:
    with pytest.raises(UserError) as error:
        from_dict(cls, data, "x.toml")
    return str(error.value)


def test_an_empty_table_is_the_defaults() -> None:
    assert from_dict(Profile, {}, "x") == Profile()
    assert to_dict(Profile()) == {"schema": 1}


def test_everything_round_trips() -> None:
    whole = to_dict(Profile(), everything=True)
    assert from_dict(Profile, toml.parse(toml.dump(whole), "x"), "x") == Profile()
    assert set(whole) >= {"resources", "model", "training", "trainer", "smoke", "custom", "site"}


# A busy machine draws slowly; that says nothing about the code under test.
@hypothesis_settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.builds(
        Training,
        data=st.text(
            st.characters(codec="utf-8", exclude_characters="\x00", exclude_categories=["Cc", "Cs"]),
            max_size=30,
        ),
        iterations=st.none() | st.integers(1, 10**9),
        learning_rate=st.floats(0, 10),
        dropout=st.floats(0, 0.99),
        precision=st.sampled_from(["bf16", "fp16", "fp32"]),
    )
)
def test_any_training_round_trips(training: Training) -> None:
    profile = Profile(training=training)
    assert from_dict(Profile, toml.parse(toml.dump(to_dict(profile)), "x"), "x") == profile


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"trainig": {}}, "'training'"),
        ({"training": {"lerning_rate": 1.0}}, "'learning_rate'"),
        ({"training": {"lerning_rate": 1.0}}, "[training] of x.toml"),
        ({"site": {"environment": {"imge": "a"}}}, "'image'"),
        ({"site": {"environment": {"imge": "a"}}}, "[site.environment]"),
        ({"training": {"precision": "bf61"}}, "'bf16'"),
        ({"training": {"iterations": "50"}}, "training.iterations in x.toml must be a whole number"),
        ({"training": {"iterations": 50.5}}, "a whole number"),
        ({"training": {"iterations": True}}, "a whole number"),
        ({"training": {"learning_rate": float("nan")}}, "finite"),
        ({"training": {"learning_rate": float("inf")}}, "finite"),
        ({"training": {"learning_rate": -1.0}}, "at least 0"),
        ({"training": {"dropout": 1.0}}, "below 1"),
        ({"training": {"data": 5}}, "text in quotes"),
        ({"training": []}, "a table"),
        ({"resources": {"gpus": 0}}, "at least 1"),
        ({"site": {"exclude_nodes": "n1"}}, "a list"),
        ({"site": {"exclude_nodes": ["n1", 2]}}, "exclude_nodes[1]"),
        ({"training": {"iterations": 5, "tokens": 1e9}}, "Keep one"),
        ({"smoke": {"hidden": 65, "heads": 4}}, "64"),
        ({"schema": 99}, "Upgrade"),
        ({"schema": 0}, "schema"),
        ({"schema": "1"}, "schema"),
    ],
)
def test_what_does_not_belong_is_refused_with_its_place(data: dict[str, Any], words: str) -> None:
    assert words in refused(data)


def test_a_whole_number_serves_as_a_number() -> None:
    assert from_dict(Profile, {"training": {"learning_rate": 1}}, "x").training.learning_rate == 1.0


def test_migration_runs_once_for_each_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "SCHEMA", 3)
    monkeypatch.setitem(build.MIGRATIONS, 1, lambda table: {**table, "description": "one"})
    monkeypatch.setitem(
        build.MIGRATIONS, 2, lambda table: {**table, "description": table["description"] + " two"}
    )
    assert build.migrated({"name": "a"}, "x") == {"name": "a", "description": "one two", "schema": 3}
    assert build.migrated({"schema": 2, "description": "kept"}, "x")["description"] == "kept two"


SECRETS: list[dict[str, Any]] = [
    {"site": {"environment": {"variables": {"HF_TOKEN": "abc"}}}},
    {"site": {"environment": {"variables": {"WANDB_API_KEY": "0123456789abcdef"}}}},
    {"site": {"environment": {"variables": {"AWS_SECRET_ACCESS_KEY": "x/y+z"}}}},
    {"site": {"environment": {"variables": {"AWS_ACCESS_KEY_ID": "AKIA0123456789ABCDEF"}}}},
    {"site": {"environment": {"variables": {"DB_PASSWORD": "hunter2"}}}},
    {"site": {"environment": {"variables": {"MY_APIKEY": "a1"}}}},
    {"site": {"environment": {"variables": {"ANY": "hf_abcdefghijklmnopqrstuvwxyz"}}}},
    {"site": {"environment": {"variables": {"ANY": "ghp_abcdefghijklmnopqrstuvwxyz0123456789"}}}},
    {"site": {"environment": {"image": "docker://user:pa55word@registry/image"}}},
    {"custom": {"command": "HF_TOKEN=abc python train.py"}},
    {"custom": {"command": "python train.py --api-key abc"}},
    {"trainer": {"extra_arguments": ["--wandb-api-key=abc"]}},
    {"site": {"extra_sbatch": ["--export=ALL,WANDB_API_KEY=abc"]}},
    {"description": "key sk-abcdefghijklmnopqrstuvwxyz"},
]


@pytest.mark.parametrize("data", SECRETS)
def test_secrets_are_refused_and_never_shown(data: dict[str, Any]) -> None:
    message = refused(data)
    assert "secret" in message
    for value in ("hunter2", "abc python", "pa55word", "x/y+z", "0123456789abcdef", "AKIA0123456789ABCDEF"):
        assert value not in message


@pytest.mark.parametrize(
    "variables",
    [
        {"TOKENIZERS_PARALLELISM": "false"},
        {"HF_TOKEN_PATH": "/home/me/.hf"},
        {"MAX_TOKENS": "5"},
        {"HF_TOKEN": "$HF_TOKEN"},
        {"NCCL_DEBUG": "INFO"},
        {"PATH": "/usr/bin:/bin"},
        {"KEYBOARD": "us"},
    ],
)
def test_harmless_variables_pass(variables: dict[str, str]) -> None:
    data = {"site": {"environment": {"variables": variables}}}
    assert from_dict(Profile, data, "x").site.environment.variables == variables


def test_tokens_of_training_are_no_secret() -> None:
    assert (
        from_dict(Profile, {"training": {"tokens": 3e11, "tokenizer": "gpt2"}}, "x").training.tokens == 3e11
    )


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("training.data=/data/a=b", "training.data", "/data/a=b"),
        ("training.tokens=300B", "training.tokens", 3e11),
        ("training.tokens=2.5e9", "training.tokens", 2.5e9),
        ("training.iterations=4_000", "training.iterations", 4000),
        ("training.iterations=1e3", "training.iterations", 1000),
        ("training.iterations=", "training.iterations", None),
        ("training.iterations=none", "training.iterations", None),
        ("site.exclude_nodes=n1, n2", "site.exclude_nodes", ("n1", "n2")),
        ('site.extra_sbatch=["--a=1,2", "--b"]', "site.extra_sbatch", ("--a=1,2", "--b")),
        ("site.environment.variables.A=1", "site.environment.variables", {"A": "1"}),
        ("site.environment.variables=A=1,B=2", "site.environment.variables", {"A": "1", "B": "2"}),
        ("layout.fixed.recompute.granularity=full", "layout.fixed", {"recompute.granularity": "full"}),
        ("layout.fixed.tensor_parallel=8", "layout.fixed", {"tensor_parallel": 8}),
        ("layout.fixed.sequence_parallel=true", "layout.fixed", {"sequence_parallel": True}),
        ("resources.gpus=64", "resources.gpus", 64),
        ("training.precision=fp16", "training.precision", "fp16"),
        ("custom.script=", "custom.script", ""),
    ],
)
def test_settings_take_the_fields_type(setting: str, key: str, value: Any) -> None:
    assert build.value_at(settings.with_settings(Profile(), [setting]), key) == value


def test_the_last_setting_wins() -> None:
    profile = settings.with_settings(Profile(), ["resources.gpus=8", "resources.gpus=16"])
    assert profile.resources.gpus == 16


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("training.data", "no '='"),
        ("trainig.data=x", "training.data"),
        ("training.dta=x", "training.data"),
        ("training=x", "group of settings"),
        ("training.data.more=x", "training.data"),
        ("training.iterations=1.5", "whole number"),
        ("training.iterations=many", "whole number"),
        ("training.learning_rate=nan", "must be a number"),
        ("training.learning_rate=1e999", "number"),
        ("training.precision=bf61", "bf16"),
        ("resources.gpus=-8", "at least 1"),
        ("site.environment.variables=A", "NAME=VALUE"),
        ('site.extra_sbatch=["a', "JSON"),
        ("site.environment.variables.HF_TOKEN=x", "secret"),
    ],
)
def test_bad_settings_name_the_cure(setting: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        settings.with_settings(Profile(), [setting])
    assert words in str(error.value)


def test_every_key_can_be_set_to_its_own_default() -> None:
    from gpt_tune.workflows.choices import text_of

    for key in settings.known_keys(Profile):
        if key in ("schema",):
            continue
        text = text_of(build.value_at(Profile(), key))
        assert settings.with_value(Profile(), key, text) == Profile(), key


def test_keys_of_a_site() -> None:
    assert "environment.image" in settings.known_keys(Site)
    assert settings.with_value(Site(), "run_root", "/x") == replace(Site(), run_root="/x")


WHOLE = [k for k in settings.known_keys(Profile) if settings.type_of(Profile, k) in (int, int | None)]


@pytest.mark.parametrize("key", [k for k in WHOLE if k != "schema"])
@pytest.mark.parametrize(
    "text",
    [
        "99999999999999999999999",
        "1e999999999",
        "1e23",
        "9" * 5000,
        "999999999999t",
        "inf",
        "nan",
        "1e-999999999",
    ],
)
def test_no_whole_number_is_mangled_or_without_a_limit(key: str, text: str) -> None:
    with pytest.raises(UserError) as error:
        settings.with_settings(Profile(), [f"{key}={text}"])
    assert key in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("key", [k for k in WHOLE if k != "schema"])
def test_every_whole_number_has_an_upper_limit(key: str) -> None:
    with pytest.raises(UserError, match=f"{key} in --set must be at most"):
        settings.with_settings(Profile(), [f"{key}=99999999999999999"])
    table: dict[str, Any] = {key.split(".")[0]: {key.split(".")[1]: 10**400}}
    with pytest.raises(UserError, match=f"{key} in x must be at most .* more than 30 digits"):
        from_dict(Profile, table, "x")


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_a_whole_number_is_read_to_its_last_digit(number: int) -> None:
    assert settings.parse(int, str(number), "x", "n") == number
    assert settings.parse(int, f"{number:,}", "x", "n") == number


def test_whole_numbers_may_be_written_with_a_point_or_suffix() -> None:
    for text, number in (("1.5k", 1500), ("2e3", 2000), ("4.0", 4), ("0.3b", 300_000_000), ("+7", 7)):
        assert settings.parse(int, text, "x", "n") == number
