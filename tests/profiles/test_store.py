"""Tests of where profiles live and how layers lie over each other."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.profiles import store
from gpt_tune.profiles.schema import Profile, Resources, Site
from gpt_tune.profiles.store import Layered


@pytest.fixture(autouse=True)
def _alone(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home, no site-wide settings, and a working folder of its own."""
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "etc"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


def config() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"]) / "gpt-tune"


def test_starters_load() -> None:
    assert {"smoke", "aws-gpt-145b-b200", "gpt-1.3b-1node", "llama-3.1-8b"} <= set(store.names())
    for entry in store.entries():
        assert entry.description, entry.name
        profile = store.load(entry.name)
        assert profile.name == entry.name
    assert store.load("aws-gpt-145b-b200").resources.gpus == 64


def test_saving_is_private_and_round_trips() -> None:
    profile = Profile(description="mine", resources=Resources(gpus=16), site=Site(account="a"))
    path = store.save(profile, "mine")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    loaded = store.load("mine")
    assert (loaded.description, loaded.resources.gpus, loaded.site.account) == ("mine", 16, "a")
    assert [p.name for p in path.parent.iterdir()] == ["mine.toml"]


def test_a_failed_save_keeps_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.save(Profile(description="old"), "mine")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left"):
        store.save(Profile(description="new"), "mine")
    assert "old" in path.read_text()
    assert [p.name for p in path.parent.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 65, "-n"])
def test_bad_names(name: str) -> None:
    with pytest.raises(UserError, match="no good profile name"):
        store.save(Profile(), name)


def test_own_hides_a_starter() -> None:
    store.save(Profile(description="my smoke", recipe="smoke"), "smoke")
    assert store.load("smoke").description == "my smoke"
    assert store.names().count("smoke") == 1
    store.remove("smoke")
    assert "One minute" in store.load("smoke").description


def test_removing() -> None:
    store.save(Profile(), "mine")
    store.remove("mine")
    with pytest.raises(UserError, match="Unknown profile"):
        store.load("mine")
    with pytest.raises(UserError, match="shipped starter"):
        store.remove("smoke")
    store.save(Profile(), "mini")
    with pytest.raises(UserError, match="Did you mean 'mini'"):
        store.remove("mine")


def test_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UserError, match="'smoke'"):
        store.load("smok")
    with pytest.raises(UserError, match="no profile file"):
        store.load("./nowhere.toml")


def layered_by_all() -> Layered:
    """site < user < own profile < project < command line, each setting one key of its own and all `account`."""
    site = Path(os.environ["XDG_CONFIG_DIRS"]) / "gpt-tune" / "defaults.toml"
    site.parent.mkdir(parents=True)
    site.write_text('[site]\naccount = "of-site"\nqos = "of-site"\n')
    config().mkdir(parents=True, exist_ok=True)
    (config() / "defaults.toml").write_text('[site]\naccount = "of-user"\npartition = "of-user"\n')
    store.save(Profile(site=Site(account="of-profile", group="of-profile")), "mine")
    Path("gpt-tune.toml").write_text('[site]\naccount = "of-project"\nnode = "of-project"\n')
    return store.load_layered("mine", ["site.account=of-line"])


def test_layers_and_origins() -> None:
    layered = layered_by_all()
    site = layered.profile.site
    assert (site.account, site.qos, site.partition, site.group, site.node) == (
        "of-line", "of-site", "of-user", "of-profile", "of-project"
    )  # fmt: skip
    assert layered.origins["site.account"] == "command line"
    assert layered.origins["site.qos"] == "site defaults"
    assert layered.origins["site.partition"] == "your defaults"
    assert layered.origins["site.group"] == "profile mine"
    assert layered.origins["site.node"] == "project file"
    assert "site.run_root" not in layered.origins


def test_project_file_of_a_folder_above(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("gpt-tune.toml").write_text("[resources]\ngpus = 32\n")
    below = Path("a/b")
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert store.load("smoke").resources.gpus == 32


def test_a_path_given_outright_counts_above_the_project_file() -> None:
    Path("gpt-tune.toml").write_text("[resources]\ngpus = 32\n")
    Path("job.toml").write_text("[resources]\ngpus = 8\n")
    assert store.load("job.toml").resources.gpus == 8


def test_tokens_above_replace_iterations_below() -> None:
    Path("job.toml").write_text("[training]\niterations = 5\n")
    store.save(store.load("job.toml"), "mine")
    Path("gpt-tune.toml").write_text("[training]\ntokens = 1e9\n")
    layered = store.load_layered("mine")
    assert (layered.profile.training.iterations, layered.profile.training.tokens) == (None, 1e9)
    assert "training.iterations" not in layered.origins


def test_a_broken_layer_is_named() -> None:
    Path("gpt-tune.toml").write_text("[resources]\ngpu = 32\n")
    with pytest.raises(UserError, match=r"gpt-tune\.toml"):
        store.load("smoke")


def test_a_broken_profile_does_not_hide_the_others() -> None:
    broken = store.own_path("broken")
    broken.parent.mkdir(parents=True)
    broken.write_text("nonsense = [")
    (entry,) = [e for e in store.entries() if e.name == "broken"]
    assert entry.description.startswith("broken:")


def test_export_and_import_for_a_colleague(tmp_path: Path) -> None:
    store.save(Profile(description="shared", resources=Resources(gpus=24)), "mine")
    Path("gpt-tune.toml").write_text("[resources]\ngpus = 32\n")
    file = tmp_path / "theirs.toml"
    file.write_text(store.export("mine"))
    path = store.import_(str(file), "copy")
    assert path.stem == "copy"
    assert "gpus = 24" in path.read_text(), "the project's layer of this machine must not travel"
    with pytest.raises(UserError, match="already exists"):
        store.import_(str(file), "copy")
    store.import_(str(file), "copy", overwrite=True)


def test_importing_a_secret_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "theirs.toml"
    file.write_text('[site.environment.variables]\nHF_TOKEN = "hf_x"\n')
    with pytest.raises(UserError, match="secret"):
        store.import_(str(file), "copy")
    assert "copy" not in store.names()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_unwritable_folder_says_so() -> None:
    config().mkdir(parents=True, exist_ok=True)
    config().chmod(0o500)
    try:
        with pytest.raises(UserError, match="Cannot write"):
            store.save(Profile(), "mine")
    finally:
        config().chmod(0o700)
