"""Files for lint tests, and what lint says about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpt_tune.lint.finding import Finding
from gpt_tune.lint.report import lint

Files = Mapping[str, str]
DATA = Path(__file__).parents[1] / "data" / "lint"


def batch(body: str, *directives: str, head: str = "set -euo pipefail") -> str:
    """A job script without faults of its own around the body."""
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=job",
        "#SBATCH --output=%x-%j.out",
        *(f"#SBATCH {d}" for d in directives),
    ]
    return "\n".join([*lines, head, body.strip("\n"), ""])


def trainer(*flags: str, before: str = "") -> str:
    """A job that starts Megatron-DeepSpeed with these flags."""
    given = " ".join(flags)
    return batch(f"{before}\nsrun python3 pretrain_gpt.py --deepspeed {given} --save out --save-interval 100")


def megatron(*flags: str, before: str = "") -> str:
    """A job that starts Megatron-LM with these flags."""
    given = " ".join(flags)
    return batch(f"{before}\nsrun python3 pretrain_gpt.py --tensor-model-parallel-size 1 {given} --save out")


def write(folder: Path, files: Files) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))


def findings(folder: Path, files: Files) -> list[Finding]:
    """What lint finds in a folder with these files."""
    write(folder, files)
    return list(lint([str(folder)]).findings)


def rules(folder: Path, files: Files) -> set[str]:
    """The rules that find something in these files."""
    return {f.rule for f in findings(folder, files)}
