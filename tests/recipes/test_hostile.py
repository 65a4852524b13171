"""Whatever is typed into a profile or site arrives as data, byte for byte, or is refused with a sentence."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.profiles.schema import (
    Custom,
    Environment,
    Profile,
    Resources,
    Site,
    Smoke,
    TrainerChoice,
    Training,
)
from gpt_tune.recipes.base import JobSpec
from tests.recipes import stubs
from tests.recipes.plans import plan_for, training_job
from tests.recipes.specs import job, put

VALUES = {
    "spaces": "two words  and more ",
    "single quotes": "it's 'quoted' '",
    "double quotes": 'say "hi" "',
    "substitution": "$(touch PWNED) `touch PWNED` ${HOME} $HOME",
    "operators": "a; touch PWNED & b | c > PWNED && (d) #e",
    "commas": "a,b,,c=d,ALL",
    "unicode": "ünïcödé 漢字 🚀 \u00a0",
    "backslashes": '\\ \\n \\\\ \\"',
    "braces": "} {{ x }} {% raw %} {# c #} ${#x} }",
    "globs": "* ? [a-z] ~ !x",
    "option": "--output=/etc/passwd",
    "percent": "%x-%j %s %% %n",
    "long": "x" * 4096,
    "line break": "one\ntouch PWNED\n#SBATCH --account=theirs",
    "return": "one\rtwo",
    "escape": "\x1b[31mred\x07",
    "nul": "a\0b",
}


def refused_or(render: Any) -> Any:
    """The rendering, or None when it was refused with one short sentence."""
    try:
        return render()
    except UserError as error:
        refusal = str(error)
    assert "\n" not in refusal
    assert len(refusal) < 600
    return None


def check_clean(rendered: Any, run_dir: Path) -> Path:
    """Write it: valid shell, and nobody's text became an option of the scheduler."""
    script = put(rendered, run_dir)
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text()
    options = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    names = [o.split("--", 1)[1].split("=")[0].split(" ")[0] for o in options]
    assert len(names) == len(set(names)), names
    assert not any("account=theirs" in o for o in options)
    return script


@pytest.fixture(scope="module")
def plan() -> Any:
    return plan_for("gpt-1.3b", 8, fix=("zero_stage=1", "pipeline_parallel=1"))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("field", ["extra_arguments", "checkpoint_dir", "vocab_file", "trainer.path"])
def test_profile_text_reaches_the_trainer(tmp_path: Path, plan: Any, kind: str, field: str) -> None:
    value = VALUES[kind]
    training, trainer = Training(checkpoint_interval=5), TrainerChoice()
    wanted = value
    if field == "extra_arguments":
        trainer = TrainerChoice(extra_arguments=(value, "", "--last"))
    elif field == "checkpoint_dir":
        # A path that can exist: 4 kB and slashes are cut to what a file system takes.
        wanted = str(tmp_path / "save" / value.replace("/", "_")[:60])
        training = Training(checkpoint_interval=5, checkpoint_dir=wanted)
    elif field == "vocab_file":
        data = tmp_path / "data"
        for ending in (".idx", ".bin"):
            data.with_suffix(ending).write_bytes(b"x")
        training = Training(data=str(data), vocab_file=value, merge_file=value)
    else:
        wanted = str(tmp_path / "mds" / value.replace("/", "_")[:60])
        trainer = TrainerChoice(path=wanted)
    spec = training_job(tmp_path / "run", plan, training=training, profile={"trainer": trainer})
    rendered = refused_or(lambda: recipes.render(spec))
    if rendered is None:
        assert kind == "nul"
        return
    script = check_clean(rendered, tmp_path / "run")
    checkout = stubs.trainer(Path(wanted)) if field == "trainer.path" else stubs.trainer(tmp_path / "mds")
    environment = {} if field == "trainer.path" else {"MEGATRON_PATH": checkout}
    outcome = stubs.run(script, tmp_path / "start", slurm=True, **environment)
    assert outcome.code == 0, outcome.output
    words = outcome.arguments
    if field == "extra_arguments":
        assert words[-3:] == [value, "", "--last"]
    elif field == "checkpoint_dir":
        assert words[words.index("--save") + 1] == wanted
        assert Path(wanted).is_dir()
    elif field == "vocab_file":
        assert words[words.index("--vocab-file") + 1] == words[words.index("--merge-file") + 1] == value
    else:
        assert words[1] == f"{wanted}/pretrain_gpt.py"
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(
    "field",
    ["name", "account", "partition", "qos", "time_limit", "exclude", "extra_sbatch", "group",
     "variable", "variable name", "venv", "image", "mount", "module"],
)  # fmt: skip
def test_site_text_stays_where_it_belongs(tmp_path: Path, kind: str, field: str) -> None:
    value = VALUES[kind]
    site = Site(run_root=str(tmp_path))
    environment = Environment()
    name = "smoke"
    if field == "name":
        name = value
    elif field == "extra_sbatch":
        site = dataclasses.replace(site, extra_sbatch=(f"--constraint={value}",))
    elif field == "exclude":
        site = dataclasses.replace(site, exclude_nodes=(value,))
    elif field in ("account", "partition", "qos", "time_limit", "group"):
        changes: dict[str, Any] = {field: value}
        site = dataclasses.replace(site, **changes)
    elif field == "variable":
        environment = Environment(variables={"MY_VALUE": value})
    elif field == "variable name":
        environment = Environment(variables={value: "x"})
    else:
        environment = {
            "venv": Environment(kind="venv", path="/nowhere/" + value),
            "image": Environment(kind="apptainer", image="/nowhere/" + value),
            "mount": Environment(kind="apptainer", image="img", mounts=("/nowhere/" + value,)),
            "module": Environment(kind="modules", modules=(value,)),
        }[field]
    profile = Profile(
        name=name, recipe="smoke", smoke=Smoke(steps=1, layers=1, hidden=8, heads=1, seq_length=8)
    )
    spec = job(tmp_path / "run", profile, site=dataclasses.replace(site, environment=environment))
    rendered = refused_or(lambda: recipes.render(spec))
    if rendered is None:
        return
    script = check_clean(rendered, tmp_path / "run")
    outcome = stubs.run(script, tmp_path / "start")
    assert not list(tmp_path.rglob("PWNED"))
    if field == "variable":
        assert outcome.code == 0, outcome.output
        assert outcome.ranks["0"][-1].environment["MY_VALUE"] == value
    elif field == "module":
        assert ["load", value] in outcome.calls("module")
    elif field in ("venv", "image"):
        assert outcome.code == 2  # not on this machine, said with its name
        assert value[:20] in outcome.output


RUN_DIRS = {
    k: v
    for k, v in VALUES.items()
    if k in ("spaces", "single quotes", "substitution", "unicode", "operators", "globs")
}


@pytest.mark.parametrize("kind", RUN_DIRS)
def test_run_folders_with_any_name_work(tmp_path: Path, kind: str) -> None:
    run_dir = tmp_path / RUN_DIRS[kind].strip()
    profile = Profile(recipe="smoke", smoke=Smoke(steps=1, layers=1, hidden=8, heads=1, seq_length=8))
    rendered = recipes.render(job(run_dir, profile))
    outcome = stubs.run(check_clean(rendered, run_dir), tmp_path / "start")
    assert outcome.code == 0, outcome.output
    words = outcome.ranks["0"][-1].arguments
    assert words[words.index("--save") + 1] == f"{run_dir}/checkpoints"
    assert (run_dir / "exit_code").read_text() == "0\n"
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.parametrize("kind", ["line break", "return", "escape", "percent", "backslashes"])
def test_run_folders_slurm_cannot_carry_are_refused(tmp_path: Path, kind: str) -> None:
    profile = Profile(recipe="smoke", smoke=Smoke(steps=1))
    with pytest.raises(UserError):
        recipes.render(job(f"{tmp_path}/{VALUES[kind]}", profile))


def words_of_command(spec: JobSpec, tmp_path: Path) -> list[str]:
    outcome = stubs.run(check_clean(recipes.render(spec), Path(spec.run_dir)), tmp_path / "start")
    assert outcome.code == 0, outcome.output
    return outcome.ranks["once"][0].arguments


@pytest.mark.parametrize("kind", [k for k in VALUES if k != "nul"])
def test_a_quoted_word_of_a_command_arrives(tmp_path: Path, kind: str) -> None:
    value = VALUES[kind]
    quoted = "'" + value.replace("'", "'\\''") + "'"
    profile = Profile(recipe="custom", custom=Custom(command=f"recorder first {quoted} last"))
    assert words_of_command(job(tmp_path / "run", profile), tmp_path) == ["first", value, "last"]
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.parametrize(
    "command", ["a; b", "a | b", "a > b", "a && b", "a $HOME", "a `id`", 'a "$(id)"', "(a)", "a\nb", "'a", ""]
)
def test_a_command_that_needs_a_shell_is_refused(tmp_path: Path, command: str) -> None:
    profile = Profile(recipe="custom", custom=Custom(command=command))
    assert recipes.get("custom").problems(profile)
    with pytest.raises(UserError):
        recipes.render(job(tmp_path, profile, gpus=0))


def test_overrides_in_the_environment_are_data_too(tmp_path: Path, plan: Any) -> None:
    spec = training_job(
        tmp_path / "run", plan, profile={"resources": Resources(gpus=8, gpus_per_node=8, gpu="h200")}
    )
    script = check_clean(recipes.render(spec), tmp_path / "run")
    checkout = stubs.trainer(tmp_path / "mds $(touch PWNED)")
    save = str(tmp_path / "save `touch PWNED`")
    outcome = stubs.run(
        script, tmp_path / "start", slurm=True, MEGATRON_PATH=checkout, SAVE_DIR=save, SAVE_INTERVAL="3",
        DATA_SPLIT="1,2,$(touch PWNED)", RANKS="8",
    )  # fmt: skip
    assert outcome.code == 0, outcome.output
    words = outcome.arguments
    assert words[words.index("--save") + 1] == save
    assert not list(tmp_path.rglob("PWNED"))
