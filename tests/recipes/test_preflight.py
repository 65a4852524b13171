"""The look at every node before a job starts: each fault named with its node and cure, healthy nodes let through."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.diagnosis.engine import diagnose
from gpt_tune.profiles.schema import Custom, Preflight, Profile, Site, Smoke
from gpt_tune.recipes.base import JobSpec
from gpt_tune.resources import data_dir
from tests.recipes import stubs
from tests.recipes.plans import plan_for, training_job
from tests.recipes.specs import job, put, with_environment

PROGRAM = data_dir("templates") / "common" / "preflight.sh"
STOPPED = 71
TINY = Smoke(steps=2, layers=1, hidden=16, heads=2, seq_length=16, micro_batch_size=2)


class Nodes:
    """Nodes with stub programs, each in its own environment, and the judge over what they say."""

    def __init__(self, folder: Path, **programs: str) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.run = folder / "run dir"
        self.run.mkdir()
        (self.run / "nonce").write_text("job1\n")
        self.program("nvidia-smi", stubs.NVIDIA_SMI)
        self.program("fi_info", stubs.FI_INFO)
        self.report = folder / "report"
        self.started = int(time.time())

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def look(self, node: str, *arguments: str, folder: Path | None = None, **env: Any) -> None:
        subprocess.run(
            ["bash", str(PROGRAM), "look", "all", "--folder", str(folder or self.run), "--nonce", "job1",
             "--report", str(self.report), *(arguments or ("--gpus", "8"))],
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "SLURMD_NODENAME": node, **env},
            check=True, timeout=60,
        )  # fmt: skip

    def judge(self, *nodes: str, checks: str = "all", more: tuple[str, ...] = ()) -> tuple[int, str]:
        expect = [word for node in nodes for word in ("--expect", node)]
        done = subprocess.run(
            ["bash", str(PROGRAM), "judge", checks, "--folder", str(self.run), "--nonce", "job1", "--report",
             str(self.report), "--seconds", "55", "--started", str(self.started), "--ended", str(int(time.time())),
             *expect, *more],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.stderr == ""
        return done.returncode, done.stdout.rstrip("\n")


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def test_healthy_nodes_say_nothing(nodes: Nodes, tmp_path: Path) -> None:
    data = tmp_path / "da ta.idx"
    data.write_bytes(b"12345")
    words = ("--gpus", "8", "--network", "efa", "--read", str(data), "--write", str(tmp_path / "save"))
    for node in ("n1", "n2"):
        nodes.look(node, *words)
    assert nodes.judge("n1", "n2", more=("--write", str(tmp_path / "save"))) == (0, "")


SEVEN = stubs.NVIDIA_SMI.replace("5 6 7", "5 6")
HOLDS = stubs.NVIDIA_SMI.replace('"$n, 4,', '"$n, 70000,')
# stub programs, arguments of the look, its environment, what is said.
FAULTS: dict[str, tuple[dict[str, str], tuple[str, ...], dict[str, str], str]] = {
    "a GPU is missing": (
        {"nvidia-smi": SEVEN}, ("--gpus", "8"), {},
        "preflight (gpus): bad: 7 of 8 GPUs are seen; exclude this node and tell the administrators.",
    ),
    "the driver is broken": (
        {"nvidia-smi": "#!/bin/sh\necho 'no communication with the NVIDIA driver'\nexit 9\n"}, ("--gpus", "8"), {},
        "preflight (gpus): bad: nvidia-smi ends with code 9: the driver does not work; "
        "exclude this node and tell the administrators.",
    ),
    "fewer GPUs are given": (
        {}, ("--gpus", "8"), {"CUDA_VISIBLE_DEVICES": "0,1"},
        "preflight (gpus): bad: CUDA_VISIBLE_DEVICES names 2 of 8 GPUs; ask for 8 GPUs a node, or start fewer ranks.",
    ),
    "the software is newer than the driver": (
        {"nvidia-smi": stubs.NVIDIA_SMI.replace("13.0", "12.4")},
        ("--gpus", "8", "--python", "/nowhere"), {"CUDA_VERSION": "13.0.1"},
        "preflight (cuda): bad: the software needs CUDA 13.0.1 and the driver offers 12.4; "
        "use software built for CUDA 12, or nodes with a newer driver.",
    ),
    "libfabric chooses sockets": (
        {"fi_info": "#!/bin/sh\necho 'provider: tcp;ofi_rxm'\n"}, ("--gpus", "8", "--network", "efa"), {},
        "preflight (network): bad: libfabric chooses tcp;ofi_rxm instead of EFA; "
        "exclude this node and tell the administrators; check the EFA driver and the security group.",
    ),
    "no EFA device": (
        {"fi_info": "#!/bin/sh\nexit 61\n"}, ("--gpus", "8", "--network", "efa"), {},
        "preflight (network): bad: libfabric chooses nothing instead of EFA; "
        "exclude this node and tell the administrators; check the EFA driver and the security group.",
    ),
    "no InfiniBand": (
        {}, ("--gpus", "8", "--network", "infiniband"), {"PREFLIGHT_SYS": "/nowhere"},
        "preflight (network): bad: no InfiniBand port is active; exclude this node and tell the administrators.",
    ),
    "no image": (
        {}, ("--image", "/nowhere/a b.sqsh"), {},
        "preflight (image): bad: the image /nowhere/a\\ b.sqsh cannot be read; "
        "put it on a file system that every node mounts.",
    ),
    "no data": (
        {}, ("--read", "/nowhere/x.idx"), {},
        "preflight (data): bad: /nowhere/x.idx cannot be read; "
        "mount its file system on this node, or correct its permissions.",
    ),
    "no room": (
        {}, ("--write", "SAVE", "--save-mib", "999999999"), {},
        "free some space there, or choose another folder.",
    ),
    "checkpoints cannot be written": (
        {}, ("--write", "/proc/none"), {},
        "preflight (checkpoints): bad: checkpoints cannot be written to /proc/none; "
        "mount its file system on this node, or correct its permissions.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_one_sentence_names_the_node_and_the_cure(nodes: Nodes, fault: str, tmp_path: Path) -> None:
    programs, arguments, environment, words = FAULTS[fault]
    nodes.look("good")
    for name, text in programs.items():
        nodes.program(name, text)
    nodes.look(
        "bad", *(str(tmp_path / a) if a == "SAVE" else a for a in arguments), folder=None, **environment
    )
    code, said = nodes.judge("good", "bad")
    assert code == STOPPED
    assert said.endswith(words)
    assert said.count("\n") == 0


def test_small_shared_memory_and_a_full_disk(nodes: Nodes) -> None:
    nodes.program("df", '#!/bin/sh\necho head\n[ "${2##*/}" = shm ] && echo x 64 0 64 || echo x 9 0 9000\n')
    nodes.look("bad")
    assert nodes.judge("bad") == (
        STOPPED,
        "preflight (shm): bad: /dev/shm has 64 MiB free and NCCL needs 512; "
        "empty it, or give the container a larger one (--shm-size, or the host's).",
    )
    nodes.program("df", "#!/bin/sh\necho head\necho x 9 0 900 0% /\n")
    nodes.look("full")
    assert "preflight (disk): full: the run folder has 900 MiB free and needs 1024;" in nodes.judge("full")[1]


def test_a_node_that_does_not_answer_is_named(nodes: Nodes) -> None:
    nodes.look("n1")
    code, said = nodes.judge("n1", "n2", "n3", "n4")
    assert code == STOPPED
    assert said == (
        "preflight (silent): n2: no answer within 55 s (n3 and 1 more nodes too); "
        "exclude this node and tell the administrators."
    )
    with nodes.report.open("a") as file:
        file.write("preflight\tn2\thello\tfact\tall\t\npreflight\tn2\tclock\tfact\t5\t\n")
    assert "n2: no end within 55 s, the last thing it told was clock" in nodes.judge("n1", "n2")[1]


def test_a_hanging_driver_is_not_waited_for(nodes: Nodes) -> None:
    nodes.program(
        "timeout", '#!/bin/bash\n[[ $* != *nvidia-smi* ]] || exit 124\nexec /usr/bin/timeout "$@"\n'
    )
    nodes.look("bad")
    assert "bad: nvidia-smi does not answer;" in nodes.judge("bad")[1]


@pytest.mark.parametrize(("seconds", "words"), [(-100, "behind"), (400, "ahead")])
def test_a_clock_that_is_off(nodes: Nodes, seconds: int, words: str) -> None:
    nodes.look("good")
    nodes.program("date", f"#!/bin/sh\necho $(($(/usr/bin/date +%s) + {seconds}))\n")
    nodes.look("bad")
    code, said = nodes.judge("good", "bad")
    assert code == STOPPED
    assert said.startswith("preflight (clock): bad: its clock is ")
    assert f" s {words} the first node's; exclude this node" in said


def test_folders_that_are_not_shared(nodes: Nodes, tmp_path: Path) -> None:
    nodes.look("good")
    other = tmp_path / "other"
    other.mkdir()
    nodes.look("bad", folder=other)
    assert "preflight (run-folder): bad: the run folder" in nodes.judge("good", "bad")[1]
    assert "is not there; mount" in nodes.judge("good", "bad")[1]
    (other / "nonce").write_text("another job\n")
    nodes.report.unlink()
    nodes.look("good")
    nodes.look("bad", folder=other)
    assert "is not the one of the first node; set site.run_root" in nodes.judge("good", "bad")[1]


def test_what_a_node_wrote_must_be_seen(nodes: Nodes, tmp_path: Path) -> None:
    save = tmp_path / "save"
    nodes.look("n1", "--write", str(save))
    (save / ".preflight-job1-n1").unlink()
    code, said = nodes.judge("n1", more=("--write", str(save)))
    assert code == STOPPED
    assert f"n1: {save} is a folder of its own; choose a checkpoint folder that all nodes share." in said
    (nodes.run / "seen-n1").unlink()
    assert "is not seen by the first node" in nodes.judge("n1")[1]


def test_data_of_another_size(nodes: Nodes, tmp_path: Path) -> None:
    data = tmp_path / "x.idx"
    data.write_bytes(b"12345")
    nodes.look("n1", "--read", str(data))
    data.write_bytes(b"123")
    nodes.look("n2", "--read", str(data))
    assert f"n2: {data} has 3 bytes and 5 on another node; copy the same data" in nodes.judge("n1", "n2")[1]


def test_the_same_fault_on_many_nodes_is_one_sentence(nodes: Nodes) -> None:
    nodes.program("nvidia-smi", SEVEN)
    for node in ("n1", "n2", "n3"):
        nodes.look(node)
    assert "n1: 7 of 8 GPUs are seen (n2 and 1 more nodes too); exclude" in nodes.judge("n1", "n2", "n3")[1]


def test_memory_that_somebody_holds_is_a_warning(nodes: Nodes) -> None:
    nodes.program("nvidia-smi", HOLDS)
    nodes.look("n1")
    code, said = nodes.judge("n1")
    assert code == 0
    assert said.startswith("preflight warns (gpus): n1: GPU 0 has 70000 MiB in use already;")


def test_a_slow_image_is_no_fault(nodes: Nodes) -> None:
    nodes.report.touch()
    code, said = nodes.judge("n1", checks="software")
    assert (code, said) == (0, "preflight warns: the image did not start on n1 within 55 s")


def test_the_cuda_of_torch_is_read_without_importing_it(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "torch" / "version.py").write_text("cuda: Optional[str] = '14.1'\nhip = None\n")
    nodes.look("n1", "--gpus", "8", "--python", sys.executable, PYTHONPATH=str(tmp_path), CUDA_VERSION="12.0")
    assert "the software needs CUDA 14.1 and the driver offers 13.0;" in nodes.judge("n1")[1]


# -- in the job script --------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def plan() -> Any:
    return plan_for("gpt-1.3b", 16, fix=("zero_stage=1", "pipeline_parallel=1", "tensor_parallel=1"))


def megatron(run_dir: Path, plan: Any, run: Any = "auto", **changes: Any) -> JobSpec:
    return training_job(run_dir, plan, profile={"preflight": Preflight(run=run)}, **changes)


def start(spec: JobSpec, folder: Path, **environment: str) -> stubs.Outcome:
    script = put(recipes.render(spec), spec.run_dir)
    ready = {"MEGATRON_PATH": stubs.trainer(folder.parent / "checkout"), **environment}
    return stubs.run(script, folder, slurm=True, **ready)


def test_several_nodes_are_looked_at_unless_told_otherwise(tmp_path: Path, plan: Any) -> None:
    outcome = start(megatron(tmp_path / "run it", plan), tmp_path / "a")
    assert outcome.code == 0, outcome.output
    assert "preflight: 2 node(s) ready after" in outcome.output
    assert not list((tmp_path / "run it").glob(".preflight*"))
    off = start(megatron(tmp_path / "run2", plan, "off"), tmp_path / "b")
    assert "preflight" not in off.output
    assert not (tmp_path / "run2" / "preflight.sh").exists()
    assert "preflight" not in start(megatron(tmp_path / "run3", plan), tmp_path / "c", PREFLIGHT="0").output


def test_the_smoke_job_looks_only_when_asked(tmp_path: Path) -> None:
    spec = job(tmp_path / "r", Profile(recipe="smoke", smoke=TINY), nodes=2, gpus=2, gpus_per_node=1)
    assert "preflight.sh" not in [f.path for f in recipes.render(spec).files]
    asked = dataclasses.replace(
        spec, profile=dataclasses.replace(spec.profile, preflight=Preflight(run="on"))
    )
    outcome = start(asked, tmp_path / "a", PYTHON=sys.executable, SLURM_NTASKS="2")
    assert "preflight: 2 node(s) ready" in outcome.output


def test_on_this_machine_without_slurm(tmp_path: Path) -> None:
    profile = Profile(recipe="custom", custom=Custom(command="true"), preflight=Preflight(run="on"))
    script = put(recipes.render(job(tmp_path / "r", profile)), tmp_path / "r")
    outcome = stubs.run(script, tmp_path / "a")
    assert outcome.code == 0, outcome.output
    assert "preflight: 1 node(s) ready" in outcome.output
    (tmp_path / "a" / "bin" / "nvidia-smi").write_text(SEVEN)
    gpus = put(recipes.render(job(tmp_path / "r", profile, gpus=8, gpus_per_node=8)), tmp_path / "r")
    done = subprocess.run(
        ["bash", str(gpus)], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PATH": f"{tmp_path / 'a' / 'bin'}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == STOPPED, done.stderr
    assert "7 of 8 GPUs are seen" in done.stderr
    assert (tmp_path / "r" / "exit_code").read_text() == "71\n"


@pytest.mark.parametrize("kind", ["pyxis", "apptainer"])
def test_images_are_looked_into_after_the_node(tmp_path: Path, plan: Any, kind: str) -> None:
    image = tmp_path / "i.sqsh"
    image.write_bytes(b"x")
    site = Site(run_root=str(tmp_path), node="p6-b200")
    spec = with_environment(megatron(tmp_path / "run", plan, site=site), kind=kind, image=str(image))
    outcome = start(spec, tmp_path / "a", PREFLIGHT_SECONDS="30")
    assert outcome.code == 0, outcome.output
    looks = [c for c in outcome.calls("srun") if "look" in c]
    contained = [c for c in looks if any("container-image" in w for w in c)]
    assert {c[c.index("look") + 1] for c in looks} == {"node", "software"}
    assert [c[c.index("look") + 1] for c in contained] == (["software"] if kind == "pyxis" else [])
    assert all(c[c.index("--network") + 1] == "efa" for c in looks)


@pytest.mark.parametrize(
    ("line", "finding", "host"),
    [
        ("preflight (gpus): b200-3: 7 of 8 GPUs are seen; exclude this node and tell somebody.", "F230", "b200-3"),
        ("preflight (data): b200-3: /x;y.idx cannot be read; mount its file system.", "F231", "b200-3"),
        ("preflight (silent): n-1: no answer in 55 s (n-2 and 6 more nodes too); exclude this node.", "F230", "n-1"),
    ],
)  # fmt: skip
def test_diagnose_knows_what_stopped_the_job(tmp_path: Path, line: str, finding: str, host: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"job 4711: ranks 64, nodes 8, start 0, first node b200-1\njob 4711: {line}\n")
    found = diagnose([log], state="FAILED", exit_code=STOPPED)
    assert found.status == "failed"
    assert found.root_cause is not None
    assert (found.root_cause.id, found.root_cause.host) == (finding, host)


# -- on a real Slurm ----------------------------------------------------------------------------------
def wait_for(what: Callable[[], bool], words: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"never: {words}"
        time.sleep(0.1)


@pytest.mark.slurm
def test_a_bad_node_among_eight_stops_the_job_at_once(slurm: Any, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(
        stubs.NVIDIA_SMI.replace("if [[", "[[ $SLURMD_NODENAME != b200-6 ]] || exit 9\nif [[", 1)
    )
    (programs / "nvidia-smi").chmod(0o755)
    profile = Profile(name="look", recipe="smoke", smoke=TINY, preflight=Preflight(run="on"))
    site = Site(partition="dev", time_limit="10")

    def ended(run: Path, name: str) -> tuple[str, str]:
        spec = job(run, profile, scheduler="slurm", gpus=16, gpus_per_node=2, nodes=8, token=name, site=site)
        rendered = recipes.render(spec)
        done = subprocess.run(
            ["sbatch", "--parsable", str(put(rendered, run))], capture_output=True, text=True, check=True, cwd="/",
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHON": sys.executable},
        )  # fmt: skip
        log = rendered.log_paths[0].replace("%x", rendered.summary["name"]).replace("%j", done.stdout.strip())
        wait_for(lambda: (run / "exit_code").exists(), "the end of the job")
        return (run / "exit_code").read_text().strip(), Path(log).read_text()

    code, text = ended(tmp_path / "bad run", "t1")
    assert code == str(STOPPED), text
    sentence = (
        "preflight (gpus): b200-6: nvidia-smi ends with code 9: the driver does not work; exclude this node"
    )
    assert sentence in text
    assert " iteration " not in text
    (programs / "nvidia-smi").write_text(stubs.NVIDIA_SMI)
    code, text = ended(tmp_path / "good run", "t2")
    assert code == "0", text
    assert "preflight: 8 node(s) ready after" in text
    assert " iteration        2/       2 |" in text
