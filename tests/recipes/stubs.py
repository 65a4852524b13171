"""Programs that a job script starts, replaced by ones that only write down how they were started."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# A shell starts Python: the path of a Python may hold a space, which no #! line can.
_RECORDER = f"""#!/bin/sh
'''exec' {shlex.quote(sys.executable)} "$0" "$@"
' '''
import os, sys
rank = os.environ.get("RANK", "once")
name = os.path.basename(sys.argv[0])
path = os.path.join(os.environ["STUB_OUT"], f"{{name}}-{{rank}}-{{os.getpid()}}")
with open(path + ".argv", "wb") as file:
    file.write(b"\\0".join(os.fsencode(a) for a in sys.argv[1:]))
with open(path + ".env", "wb") as file:
    file.write(b"\\0".join(k + b"=" + os.environb[k] for k in os.environb))
"""

_SRUN = """#!/bin/bash
# The part of srun that job scripts use: one task, with the variables Slurm would set.
[[ $1 != --help ]] || { echo "  --container-image=IMAGE --container-env=NAMES"; exit 0; }
printf '%s\\0' "$@" >"$STUB_OUT/srun-$$.argv"
output=/dev/stdout nodes=1
while [[ $1 == --* ]]; do
  case $1 in --output=*) output=${1#*=} ;; --nodes=*) nodes=${1#*=} ;; esac
  shift
done
export SLURM_PROCID=0 SLURM_LOCALID=0
[[ " $* " == *"/preflight.sh look "* ]] || exec "$@"
for ((node = 1; node <= nodes; node++)); do SLURMD_NODENAME=node$node "$@" || exit; done >"$output"
"""

_APPTAINER = """#!/bin/bash
printf '%s\\0' "$@" >"$STUB_OUT/apptainer-$$.argv"
shift
while [[ $1 == --* ]]; do [[ $1 != --bind ]] || shift; shift; done
shift
exec "$@"
"""


@dataclass(frozen=True)
class Started:
    """One start of the recorder: its arguments and its environment."""

    arguments: list[str]
    environment: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """A finished job script and every program it started, by rank ("once": before the ranks)."""

    code: int
    output: str
    ranks: dict[str, list[Started]]
    folder: Path

    @property
    def arguments(self) -> list[str]:
        """What rank 0 was started with."""
        return self.ranks["0"][0].arguments

    def calls(self, program: str) -> list[list[str]]:
        """Argument lists of a stub other than the recorder."""
        files = sorted(self.folder.glob(f"{program}-*.argv"))
        return [os.fsdecode(f.read_bytes()).split("\0")[:-1] for f in files]


_MODULE = """#!/bin/bash
printf '%s\\0' "$@" >"$STUB_OUT/module-$$-$RANDOM.argv"
"""


# Eight healthy GPUs, and EFA before sockets.
NVIDIA_SMI = """#!/bin/bash
if [[ $* == *--query-gpu=* ]]; then
  for n in 0 1 2 3 4 5 6 7; do echo "$n, 4, 580.95.05"; done
else
  echo "| NVIDIA-SMI 580.95.05    Driver Version: 580.95.05    CUDA Version: 13.0 |"
fi
"""
FI_INFO = """#!/bin/bash
printf 'provider: efa\\n    fabric: efa\\n    domain: rdmap0s6-rdm\\n'
"""


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(script: Path, folder: Path, slurm: bool = False, **environment: str) -> Outcome:
    """Run a job script with PYTHON, srun and apptainer replaced, in `folder` (made; not the run folder)."""
    stubs, out = folder / "bin", folder / "out"
    stubs.mkdir(parents=True)
    out.mkdir()
    python = _program(stubs / "recorder", _RECORDER)
    _program(stubs / "srun", _SRUN)
    _program(stubs / "apptainer", _APPTAINER)
    _program(stubs / "module", _MODULE)
    _program(stubs / "nvidia-smi", NVIDIA_SMI)
    _program(stubs / "fi_info", FI_INFO)
    _program(
        stubs / "scontrol",
        "#!/bin/bash\nfor ((n = 1; n <= SLURM_JOB_NUM_NODES; n++)); do echo node$n; done\n",
    )
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("SLURM_", "NCCL_", "FI_", "OMP_")) and k not in ("RANK", "WORLD_SIZE", "PYTHON")
    }
    inside = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "16"} if slurm else {}
    inside |= {"SLURM_JOB_NODELIST": "node[1-2]"} if slurm else {}
    done = subprocess.run(
        ["bash", str(script)],
        env={
            **clean,
            "PATH": f"{stubs}:{os.environ['PATH']}",
            "PYTHON": str(python),
            "STUB_OUT": str(out),
            **inside,
            **environment,
        },
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    ranks: dict[str, list[Started]] = {}
    for file in sorted(out.glob("recorder-*.argv")):
        pairs = (os.fsdecode(p).partition("=") for p in file.with_suffix(".env").read_bytes().split(b"\0"))
        started = Started(
            os.fsdecode(file.read_bytes()).split("\0"), {name: value for name, _, value in pairs}
        )
        ranks.setdefault(file.name.split("-")[1], []).append(started)
    return Outcome(done.returncode, done.stdout.decode("utf-8", "replace"), ranks, out)


def trainer(folder: Path) -> str:
    """A folder that looks like a Megatron-DeepSpeed checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pretrain_gpt.py").write_text("")
    return str(folder)
