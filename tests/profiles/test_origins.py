"""Where each value comes from: in the wizard's fields, in `profiles show`, and when a run starts another."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import toml
from gpt_tune.errors import UserError
from gpt_tune.ledger import RunRecord
from gpt_tune.profiles import store
from gpt_tune.profiles.build import to_dict
from gpt_tune.profiles.schema import Profile
from gpt_tune.resources import state_dir
from gpt_tune.workflows import choices
from gpt_tune.workflows.origins import table
from tui.cli.run import run as cli


@pytest.fixture(autouse=True)
def folders(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site's, a user's and a project's settings, each with a key of its own and one that all set."""
    work = tmp_path / "project" / "deeper"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "etc"))
    site = tmp_path / "etc" / "gpt-tune" / "defaults.toml"
    user = Path(os.environ["XDG_CONFIG_HOME"]) / "gpt-tune" / "defaults.toml"
    for path, text in (
        (site, "seed = 1\niterations = 11\nweight_decay = 0.2"),
        (user, "seed = 2\niterations = 22"),
        (tmp_path / "project" / "gpt-tune.toml", "seed = 3"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"[training]\n{text}\n")


def sources(draft: choices.Draft) -> dict[str, tuple[str, str]]:
    return {f.key: (f.value, f.source) for f in choices.fields(draft, "training")}


def test_a_new_run_starts_from_the_settings_around_it_and_says_so() -> None:
    draft = choices.start(cluster=choices.PLAN_ONLY, available=())
    shown = sources(draft)
    assert shown["training.weight_decay"] == ("0.2", "site defaults")
    assert shown["training.iterations"] == ("22", "your defaults")
    assert shown["training.seed"] == ("3", "project file")
    assert shown["training.dropout"] == ("0", "default")
    assert sources(choices.put(draft, "training.seed", "9"))["training.seed"] == ("9", "you")


def test_a_profile_lies_between_the_users_and_the_projects_settings() -> None:
    store.save(replace(Profile(), training=replace(Profile().training, iterations=33, seed=4)), "mine")
    shown = sources(choices.from_profile("mine", ["training.dropout=0.1"]))
    assert shown["training.iterations"] == ("33", "profile mine")
    assert shown["training.seed"] == ("3", "project file")
    assert shown["training.weight_decay"] == ("0.2", "site defaults")
    assert shown["training.dropout"] == ("0.1", "command line")


def test_a_run_started_again_says_that_its_values_are_that_runs() -> None:
    profile = replace(Profile(), recipe="smoke", smoke=replace(Profile().smoke, seconds=90))
    record = RunRecord(
        run_id="r1", token="t", cluster="local", scheduler="local", name="night", recipe="smoke", run_dir="/r",
        script="/r/j", created_at="2026-11-30T07:15:31Z", profile=toml.dump(to_dict(profile)),
    )  # fmt: skip
    shown = sources(choices.from_run(record))
    assert shown["smoke.seconds"] == ("90", "run night")


def test_the_table_names_every_setting_that_somebody_set() -> None:
    layered = store.load_layered("smoke", ["smoke.seconds=5"])
    rows = {s.key: s.origin for s in table(layered.profile, layered.origins)}
    assert rows["smoke.seconds"] == "command line"
    assert rows["recipe"] == "starter smoke"
    assert "training.dropout" not in rows
    everything = table(layered.profile, layered.origins, everything=True)
    assert {s.key: s.origin for s in everything}["training.dropout"] == "default"


def test_the_command_line_shows_origins_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["profiles", "show", "smoke", "--origins", "--json"]) == 0
    item: dict[str, Any] = json.loads(capsys.readouterr().out)["profiles"][0]
    rows = {s["key"]: (s["value"], s["origin"]) for s in item["settings"]}
    assert rows["training.seed"] == (3, "project file")
    assert rows["training.dropout"] == (0.0, "default")


def test_a_broken_layer_is_named_and_nothing_starts() -> None:
    Path("gpt-tune.toml").write_text("[training]\niterashuns = 3\n")
    with pytest.raises(UserError, match="iterashuns") as caught:
        choices.start(cluster=choices.PLAN_ONLY, available=())
    assert "iterations" in caught.value.hint
    assert "gpt-tune.toml" in caught.value.message


@pytest.mark.parametrize(
    ("change", "kept"),
    [("s/recipe/recipie/", True), ("s/recipe/HF_TOKEN/", False), ("s/recipe = .*/x = [/", True)],
)
def test_what_was_typed_in_the_editor_is_kept_unless_it_is_a_secret(
    change: str, kept: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDITOR", f"sed -i '{change}'")
    monkeypatch.setenv("VISUAL", "")
    assert cli(["profiles", "edit", "smoke"]) == 2
    file = state_dir() / "edits" / "smoke.toml"
    assert file.exists() is kept
    assert (str(file) in capsys.readouterr().err) is kept
    assert not store.is_own("smoke")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gpt 1.3b", "gpt-1.3b"),
        ("../../etc/passwd", "etc-passwd"),
        ("\x1b[31mred", "31mred"),
        ("läufe/nacht.toml", "l-ufe-nacht"),
        ("x" * 200, "x" * 64),
        ("日本", ""),
        ("", ""),
        ("-rf", "rf"),
    ],
)
def test_any_text_becomes_a_good_profile_name_or_none(text: str, name: str) -> None:
    assert store.name_for(text) == name
    if name:
        store.check_name(name)
