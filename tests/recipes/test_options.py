"""Scheduler options, software environments and network variables of a job; every script passes shellcheck."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.profiles.schema import Custom, Environment, Profile, Site, Smoke, TrainerChoice, Training
from gpt_tune.recipes import network, script, slurm_time
from gpt_tune.recipes.base import JobSpec
from gpt_tune.resources import data_dir
from tests.recipes import stubs
from tests.recipes.plans import plan_for, training_job
from tests.recipes.specs import job, put, with_environment

TINY = Profile(name="t", recipe="smoke", smoke=Smoke(steps=1, layers=1, hidden=8, heads=1, seq_length=8))


def sbatch(spec: JobSpec) -> list[str]:
    return script.sbatch_options(spec, whole_nodes=True, requeue=False)


def test_everything_of_a_site_is_in_the_options(tmp_path: Path) -> None:
    site = Site(
        account="acc", partition="dev", qos="high", time_limit="2-12", exclude_nodes=("bad1", "bad[2-3]"),
        extra_sbatch=("--constraint=a&b", "--reservation dev week", "--contiguous"),
    )  # fmt: skip
    found = sbatch(job(tmp_path, TINY, site=site, gpus=16, gpus_per_node=8, nodes=2, gpu_type="b200"))
    for option in (
        "--job-name=t", "--account=acc", "--partition=dev", "--qos=high", "--time=2-12", "--exclude=\"bad1,bad[2-3]\"",
        '--constraint="a&b"', '--reservation="dev week"', "--contiguous", "--gres=gpu:b200:8", "--nodes=2",
        "--ntasks=16", "--ntasks-per-node=8", "--signal=B:USR1@600", "--no-requeue", "--exclusive", "--mem=0",
        "--open-mode=append", "--comment=tok-1234", f"--chdir={tmp_path}", f"--output={tmp_path}/logs/%x-%j.out",
    ):  # fmt: skip
        assert option in found, option
    assert len(found) == len({o.split("=")[0] for o in found})


def test_nothing_of_a_site_is_invented(tmp_path: Path) -> None:
    found = " ".join(sbatch(job(tmp_path, TINY)))
    for name in ("account", "partition", "qos", "time=", "exclude", "gres", "reservation", "constraint"):
        assert f"--{name}" not in found


def test_the_profiles_partition_wins_over_the_sites(tmp_path: Path) -> None:
    resources = dataclasses.replace(TINY.resources, partition="mine")
    found = sbatch(
        job(tmp_path, dataclasses.replace(TINY, resources=resources), site=Site(partition="theirs"))
    )
    assert "--partition=mine" in found
    assert "--partition=theirs" not in found


@pytest.mark.parametrize(
    "text",
    [
        "-C a",
        "constraint=a",
        "--output=/x",
        "--comment x",
        "--job-name=y",
        "--array=1-2",
        "--Bad=1",
        "",
        "--a=1\n--b=2",
    ],
)
def test_extra_options_that_would_break_a_job_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError):
        sbatch(job(tmp_path, TINY, site=Site(extra_sbatch=(text,))))


@pytest.mark.parametrize(
    ("text", "seconds", "warning"),
    [
        ("", None, 120), ("UNLIMITED", None, 120), ("90", 5400, 270), ("1", 60, 15), ("10:30", 630, 60),
        ("1:30:00", 5400, 270), ("2-12", 216000, 600), ("1-00:30", 88200, 600), ("1-02:03:04", 93784, 600),
        ("00:00:05", 5, 1),
    ],
)  # fmt: skip
def test_time_limits_and_how_early_they_warn(text: str, seconds: int | None, warning: int) -> None:
    assert slurm_time.seconds(text) == seconds
    assert slurm_time.warning_seconds(text) == warning


@pytest.mark.parametrize("text", ["0", "1h", "1:2:3:4", "-5", "one", "1-", "0:00"])
def test_time_limits_slurm_does_not_know_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="notation"):
        slurm_time.seconds(text)


# -- network ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("site", "profile"),
    [
        (Site(), "none"), (Site(node="p6-b200"), "efa"), (Site(node="dgx-h100"), "infiniband"),
        (Site(node="unheard-of"), "none"), (Site(node="p6-b200", network_profile="none"), "none"),
        (Site(network_profile="InfiniBand"), "infiniband"),
    ],
)  # fmt: skip
def test_the_network_follows_the_node_unless_stated(site: Site, profile: str) -> None:
    assert network.profile_of(site) == profile


def test_an_unknown_network_names_the_nearest() -> None:
    with pytest.raises(UserError) as caught:
        network.profile_of(Site(network_profile="infinband"))
    assert "infiniband" in caught.value.hint


def test_network_variables_are_few_and_each_says_why() -> None:
    found = network.variables(Site(node="p6-b200"), nodes=2, gpus=16)
    assert {v.name for v in found} == {
        "FI_PROVIDER", "FI_EFA_USE_HUGE_PAGE", "NCCL_SOCKET_IFNAME", "GPT_TUNE_NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"
    }  # fmt: skip
    assert all(len(v.why) > 20 for v in found)
    # Settings that current stacks advise against, and one that never existed.
    bad = re.compile(
        "NCCL_(ALGO|PROTO|BUFFSIZE|BUFFERSIZE|P2P_NET_CHUNKSIZE|TUNER)|RDMAV|FORK_SAFE|DEVICE_RDMA"
    )
    assert not any(bad.search(v.name) for v in found)
    assert network.variables(Site(node="p6-b200"), nodes=1, gpus=8) == ()


def test_variables_leave_the_users_own_alone(tmp_path: Path) -> None:
    spec = job(tmp_path / "run", TINY, gpus=16, gpus_per_node=8, nodes=2, site=Site(node="p6-b200"))
    path = put(recipes.render(spec), tmp_path / "run")
    plain = stubs.run(path, tmp_path / "a", slurm=True).ranks["0"][-1].environment
    assert (plain["FI_PROVIDER"], plain["NCCL_SOCKET_IFNAME"], plain["NCCL_DEBUG"]) == (
        "efa",
        "^docker,lo,veth",
        "INFO",
    )
    own = stubs.run(
        path, tmp_path / "b", slurm=True, FI_PROVIDER="tcp", NCCL_DEBUG="TRACE", NCCL_SOCKET_IFNAME=""
    )
    env = own.ranks["0"][-1].environment
    assert (env["FI_PROVIDER"], env["NCCL_SOCKET_IFNAME"], env["NCCL_DEBUG"]) == ("tcp", "", "TRACE")


# -- software -----------------------------------------------------------------------------------------
def started(spec: JobSpec, folder: Path, slurm: bool = True, **environment: str) -> stubs.Outcome:
    return stubs.run(put(recipes.render(spec), spec.run_dir), folder, slurm=slurm, **environment)


def test_a_venv_comes_first_on_the_path(tmp_path: Path) -> None:
    venv = tmp_path / "my venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python3").symlink_to("/bin/true")
    spec = with_environment(job(tmp_path / "run", TINY), kind="venv", path=str(venv))
    env = started(spec, tmp_path / "a", PYTHONHOME="/x").ranks["0"][-1].environment
    assert env["VIRTUAL_ENV"] == str(venv)
    assert env["PATH"].startswith(f"{venv}/bin:")
    assert "PYTHONHOME" not in env


def test_a_venv_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    spec = with_environment(job(tmp_path / "run", TINY), kind="venv", path="/nowhere/venv")
    outcome = started(spec, tmp_path / "a")
    assert outcome.code == 2
    assert "The virtual environment /nowhere/venv has no bin/python on this node." in outcome.output
    assert outcome.ranks == {}


def test_conda_with_and_without_its_command(tmp_path: Path) -> None:
    prefix = tmp_path / "envs" / "llm"
    (prefix / "bin").mkdir(parents=True)
    spec = with_environment(job(tmp_path / "run", TINY), kind="conda", path=str(prefix))
    bare = started(spec, tmp_path / "a", CONDA_EXE="/nowhere/conda").ranks["0"][-1].environment
    assert bare["CONDA_PREFIX"] == str(prefix)
    assert bare["PATH"].startswith(f"{prefix}/bin:")
    base = tmp_path / "conda"
    (base / "etc" / "profile.d").mkdir(parents=True)
    # Real conda reads unset variables, which a strict script would stop at.
    (base / "etc" / "profile.d" / "conda.sh").write_text('conda() { : "$NOT_SET"; export ACTIVATED=$2; }\n')
    (base / "conda").write_text(f"#!/bin/bash\necho {base}\n")
    (base / "conda").chmod(0o755)
    full = started(spec, tmp_path / "b", CONDA_EXE=str(base / "conda")).ranks["0"][-1].environment
    assert full["ACTIVATED"] == str(prefix)


def test_modules_are_loaded_in_order(tmp_path: Path) -> None:
    spec = with_environment(job(tmp_path / "run", TINY), kind="modules", modules=("cuda/12.9", "my module"))
    outcome = started(spec, tmp_path / "a")
    assert outcome.code == 0, outcome.output
    assert sorted(outcome.calls("module")) == [["load", "cuda/12.9"], ["load", "my module"]]


def test_pyxis_goes_to_srun_and_needs_slurm(tmp_path: Path) -> None:
    image = tmp_path / "my image.sqsh"
    image.write_bytes(b"x")
    spec = with_environment(
        job(tmp_path / "run x", TINY), kind="pyxis", image=str(image), mounts=("/data", "/a:/b")
    )
    outcome = started(spec, tmp_path / "a")
    assert outcome.code == 0, outcome.output
    (call,) = outcome.calls("srun")
    run_dir = tmp_path / "run x"
    assert f"--container-image={image}" in call
    assert f"--container-mounts={run_dir}:{run_dir},/data:/data,/a:/b" in call
    assert not any("auto-resume" in w for w in call)  # it does not work together with an image
    outside = started(spec, tmp_path / "b", slurm=False)
    assert (outside.code, outside.ranks) == (2, {})
    assert "A pyxis image needs Slurm" in outside.output
    image.unlink()
    gone = started(spec, tmp_path / "c")
    assert f"The image {image} is not on this node." in gone.output


def test_an_image_does_not_win_over_the_jobs_network(tmp_path: Path) -> None:
    """Images bake FI_PROVIDER or NCCL_DEBUG, and pyxis lets them win unless the names are given."""
    site = Site(node="p6-b200")
    spec = job(tmp_path / "run", TINY, gpus=16, gpus_per_node=8, nodes=2, site=site)
    spec = with_environment(spec, kind="pyxis", image="docker://img", variables={"HF_HOME": "/fsx/hf"})
    (call,) = started(spec, tmp_path / "a").calls("srun")
    (names,) = (w.partition("=")[2].split(",") for w in call if w.startswith("--container-env="))
    assert {"FI_PROVIDER", "NCCL_SOCKET_IFNAME", "HF_HOME"} <= set(names)
    assert not any(n.startswith("GPT_TUNE_") for n in names)
    plain = with_environment(job(tmp_path / "run2", TINY), kind="pyxis", image="docker://img")
    assert not any("container-env" in w for w in started(plain, tmp_path / "b").calls("srun")[0])


@pytest.mark.parametrize("gpus", [0, 8])
def test_apptainer_wraps_the_command_of_each_rank(tmp_path: Path, gpus: int) -> None:
    spec = job(tmp_path / "run", TINY, gpus=gpus, gpus_per_node=gpus)
    spec = with_environment(spec, kind="apptainer", image="docker://img", mounts=("/data",))
    outcome = started(spec, tmp_path / "a", RANKS="1")
    call = outcome.calls("apptainer")[-1]
    nv = ["--nv"] if gpus else []
    assert call[: 4 + len(nv)] == [
        "exec",
        *nv,
        "--bind",
        f"{tmp_path}/run:{tmp_path}/run,/data:/data",
        "docker://img",
    ]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (Environment(kind="venv"), "The venv environment has no path."),
        (Environment(kind="pyxis"), "The pyxis environment has no image."),
        (Environment(kind="modules"), "lists no modules"),
        (Environment(kind="apptainer", image="x", mounts=("/a,b",)), "holds a comma"),
        (Environment(kind="conad"), "Unknown environment kind 'conad'. Did you mean 'conda'?"),  # type: ignore[arg-type]
    ],
)
def test_environments_that_cannot_work_are_refused(
    tmp_path: Path, environment: Environment, words: str
) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        recipes.render(job(tmp_path, TINY, site=Site(environment=environment)))


# -- every structurally different script ----------------------------------------------------------------
ENVIRONMENTS = (
    Environment(), Environment(kind="venv", path="/v env"), Environment(kind="conda", path="/c"),
    Environment(kind="modules", modules=("a", "b c")), Environment(kind="pyxis", image="/i.sqsh", mounts=("/d",)),
    Environment(kind="apptainer", image="docker://x", variables={"A": "b c"}),
)  # fmt: skip


def _specs(run_dir: Path) -> list[JobSpec]:
    own = run_dir / "own.sh"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("#!/bin/bash\n#SBATCH --nodes=2\necho hi\n")
    dense = plan_for("gpt-1.3b", 16)
    full = plan_for("gpt-1.3b", 16, fix=("recompute=full", "zero_stage=2", "sequence_parallel=false"))
    block = plan_for(
        "gpt-1.3b", 16,
        fix=("recompute.granularity=full", "recompute.method=block", "recompute.layers=4", "zero_stage=2",
             "sequence_parallel=false"),
    )  # fmt: skip
    llama = plan_for("llama-3.1-8b", 16, fix=("zero_stage=1",))
    bases = [
        job(run_dir, TINY),
        job(run_dir, TINY, gpus=16, gpus_per_node=8, nodes=2, site=Site(node="p6-b200")),
        job(run_dir, Profile(recipe="custom", custom=Custom(script=str(own)))),
        job(run_dir, Profile(recipe="custom", custom=Custom(command="python 'train it.py'"))),
        training_job(run_dir, dense),
        training_job(run_dir, full, training=Training(checkpoint_interval=5, load="/some/where")),
        training_job(run_dir, block, profile={"trainer": TrainerChoice(extra_arguments=("--a", "b c"))}),
        training_job(run_dir, llama, "llama-3.1-8b", site=Site(node="p6-b200", group="team")),
    ]
    jobs = []
    for spec, environment in itertools.product(bases, ENVIRONMENTS):
        if spec.profile.custom.command and environment.kind == "pyxis":
            continue
        jobs.append(dataclasses.replace(spec, site=dataclasses.replace(spec.site, environment=environment)))
    return jobs


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("scripts")
    paths: dict[bytes, Path] = {}
    for number, spec in enumerate(_specs(folder / "run")):
        content = recipes.render(spec).files[0].content
        path = folder / f"{number}.sbatch"
        path.write_bytes(content)
        paths.setdefault(content, path)
    return list(paths.values())


def test_every_script_is_valid_bash_in_clean_form(scripts: list[Path]) -> None:
    assert len(scripts) >= 40
    for path in scripts:
        subprocess.run(["bash", "-n", str(path)], check=True)
        text = path.read_text()
        lines = text.splitlines()
        assert lines[0] == "#!/bin/bash"
        assert text.endswith("\n")
        assert not [line for line in lines if line != line.rstrip()], path
        assert "{{" not in text
        assert "{%" not in text
        header = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
        options = [line for line in header if line.startswith("#SBATCH")]
        assert all(re.fullmatch(r'#SBATCH --[a-z-]+(=("[^"]*"|\S+))?', line) for line in options), options
        assert not [line for line in lines[len(header) :] if line.startswith("#SBATCH")]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_every_script_passes_shellcheck(scripts: list[Path]) -> None:
    command: list[Any] = [
        "shellcheck",
        "--shell=bash",
        *scripts,
        data_dir("templates") / "common" / "rank.sh",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[:3000]


def test_the_readme_names_the_cluster_and_the_kind_of_node(tmp_path: Path) -> None:
    kinds = dataclasses.replace(TINY.resources, node="p6-b200")
    profile = dataclasses.replace(TINY, cluster="testbed", resources=kinds)
    spec = job(tmp_path, profile, scheduler="slurm", nodes=2, site=Site(partition="dev", account="a"))
    words = "testbed (slurm), partition dev, account a, 2 nodes of p6-b200"
    assert script.where_words(spec) == words
    assert script.where_words(job(tmp_path, dataclasses.replace(TINY, cluster="local"))) == "local, 1 node"
    (readme,) = [f for f in recipes.render(spec).files if f.path == "README.md"]
    assert f"| where | {words} |" in readme.content.decode()
