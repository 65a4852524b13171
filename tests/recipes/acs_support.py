"""ACS jobs for tests, and their scripts run with docker, srun, the image's programs and nvidia-smi replaced."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_tune import recipes
from gpt_tune.models import catalogue
from gpt_tune.profiles.acs import Acs
from gpt_tune.profiles.schema import ModelChoice, Profile, Resources, Site
from gpt_tune.recipes.base import JobSpec
from tests.recipes.specs import job, put

SCRIPT = Acs(work="script", script="/workspace/train.py")
IMAGE = "egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com/egslingjun/training-nv-pytorch:25.10-serverless"

# Writes down its arguments and environment, whatever it is called.
_RECORDER = f"""#!/bin/sh
'''exec' {shlex.quote(sys.executable)} "$0" "$@"
' '''
import os, sys
path = os.path.join(os.environ["STUB_OUT"], f"{{os.path.basename(sys.argv[0])}}-{{os.getpid()}}")
with open(path + ".env", "wb") as file:
    file.write(b"\\0".join(k + b"=" + os.environb[k] for k in os.environb))
with open(path + ".argv", "wb") as file:
    file.write(b"\\0".join(os.fsencode(a) for a in sys.argv[1:]))
"""
# Writes down its arguments, then runs the command behind the image in an empty environment, as docker does.
_DOCKER = """#!/bin/bash
printf '%s\\0' "$@" >"$STUB_OUT/docker-$$.argv"
shift
passed=("STUB_OUT=$STUB_OUT" "PATH=$PATH")
while [[ $1 == --* ]]; do
  case $1 in
    --env) passed+=("$2=${!2}"); shift 2 ;;
    --name | --workdir | --gpus | --volume) shift 2 ;;
    *) shift ;;
  esac
done
shift
exec env -i "${passed[@]}" "$@"
"""
_SRUN = """#!/bin/bash
[[ $1 != --help ]] || { [[ -n ${NO_PYXIS:-} ]] || echo "  --container-image=IMAGE"; exit 0; }
printf '%s\\0' "$@" >"$STUB_OUT/srun-$$.argv"
while [[ $1 == --* ]]; do shift; done
SLURM_PROCID=0 SLURM_LOCALID=0 exec "$@"
"""
_NVIDIA_SMI = '#!/bin/bash\n[[ -n ${DRIVER:-} ]] || exit 9\nprintf "%s\\n" "$DRIVER" "$DRIVER"\n'


def acs_job(
    run_dir: Path | str, acs: Acs = SCRIPT, gpus: int = 8, per_node: int = 8, **changes: Any
) -> JobSpec:
    """A job of whole nodes of `per_node` GPUs. changes: of the profile (profile=) or of the spec."""
    per_node = min(gpus, per_node)
    profile = Profile(
        **{
            "name": "acs job", "recipe": "acs", "acs": acs, "model": ModelChoice(id="llama-3-8b"),
            "resources": Resources(gpus=gpus, gpus_per_node=per_node), **changes.pop("profile", {}),
        }
    )  # fmt: skip
    values: dict[str, Any] = {
        "scheduler": "slurm",
        "model": catalogue.get(profile.model.id),
        "gpus": gpus,
        "gpus_per_node": per_node,
        "nodes": max(1, gpus // max(1, per_node)),
        "site": Site(run_root=str(run_dir), partition="dev", time_limit="2:00:00"),
    }
    return job(run_dir, profile, **{**values, **changes})


def written(spec: JobSpec) -> Path:
    """The run folder on disk."""
    return put(recipes.render(spec), spec.run_dir).parent


@dataclass(frozen=True)
class Outcome:
    """A finished script. folder: what the stubs wrote."""

    code: int
    output: str
    folder: Path

    def calls(self, program: str) -> list[list[str]]:
        """Argument lists of a program, in no order."""
        found = []
        for file in sorted(self.folder.glob(f"{program}-*.argv")):
            text = os.fsdecode(file.read_bytes())
            found.append(text.removesuffix("\0").split("\0") if text else [])
        return found

    def environment(self, program: str) -> dict[str, str]:
        """The environment of a recorded program."""
        file = next(iter(self.folder.glob(f"{program}-*.env")))
        pairs = (os.fsdecode(p).partition("=") for p in file.read_bytes().split(b"\0"))
        return {name: value for name, _, value in pairs}


def run(script: Path, folder: Path, slurm: int = 0, ranks: int = 8, **environment: str) -> Outcome:
    """Run one script of a run folder. slurm: nodes of the allocation, 0 is one machine without Slurm."""
    stubs, out = folder / "bin", folder / "out"
    stubs.mkdir(parents=True)
    out.mkdir()
    programs = {
        "python3": _RECORDER, "ljperf": _RECORDER, "docker": _DOCKER, "srun": _SRUN, "nvidia-smi": _NVIDIA_SMI,
        "scontrol": "#!/bin/bash\necho node1\necho node2\n",
    }  # fmt: skip
    for name, text in programs.items():
        (stubs / name).write_text(text)
        (stubs / name).chmod(0o755)
    clean = {
        k: v for k, v in os.environ.items()
        if not k.startswith(("SLURM_", "NCCL_", "OMP_")) and k not in ("RANK", "RANKS", "WORLD_SIZE", "JOB_ID")
    }  # fmt: skip
    inside = {
        "SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": str(slurm), "SLURM_NTASKS": str(ranks),
        "SLURM_JOB_NODELIST": "node[1-2]", "PREFLIGHT": "0",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", str(script)],
        env={
            **clean, "PATH": f"{stubs}:{os.environ['PATH']}", "STUB_OUT": str(out), **(inside if slurm else {}),
            **environment,
        },
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout.decode("utf-8", "replace"), out)
