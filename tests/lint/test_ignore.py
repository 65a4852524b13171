"""`# gpt-tune: ignore RULE` switches off what it names, where it says, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.support import batch, findings, rules

LINE = "export MASTER_ADDR=$(hostname -i)"
OTHER = "export MASTER_PORT=$RANDOM"


def lines_of(folder: Path, text: str, rule: str = "host-address") -> list[int]:
    return [f.line for f in findings(folder, {"job.sbatch": text}) if f.rule == rule]


def test_on_the_line(tmp_path: Path) -> None:
    assert lines_of(tmp_path, batch(f"{LINE} # gpt-tune: ignore host-address\n{LINE}\nsrun x")) == [6]


def test_on_the_line_above(tmp_path: Path) -> None:
    body = f"echo a\n# gpt-tune: ignore host-address\n{LINE}\n{LINE}\nsrun x"
    assert lines_of(tmp_path, batch(body)) == [8]


def test_over_a_command_of_several_lines(tmp_path: Path) -> None:
    several = "export A=1 \\\n  MASTER_ADDR=$(hostname -i) \\\n  B=2"
    body = f"echo a\n# gpt-tune: ignore host-address\n{several}\n{LINE}\nsrun x"
    assert lines_of(tmp_path, batch(body)) == [10]


@pytest.mark.parametrize(
    "mark",
    [
        "# gpt-tune: ignore host-address",
        "#gpt-tune:ignore host-address",
        "# why: x. gpt-tune: ignore host-address, no-trap",
    ],
)
def test_at_the_head_for_the_file(mark: str, tmp_path: Path) -> None:
    text = batch(f"{LINE}\n{LINE}\nsrun x").replace("#!/bin/bash\n", f"#!/bin/bash\n{mark}\n")
    assert lines_of(tmp_path, text) == []


def test_anywhere_for_the_file(tmp_path: Path) -> None:
    assert lines_of(tmp_path, batch(f"{LINE}\nsrun x\n# gpt-tune: ignore-file host-address")) == []


def test_several_rules_and_all(tmp_path: Path) -> None:
    both = batch(
        f"{LINE} {OTHER.removeprefix('export ')} # gpt-tune: ignore host-address random-port\nsrun x"
    )
    assert not rules(tmp_path / "a", {"job.sbatch": both}) & {"host-address", "random-port"}
    everything = batch(f"{LINE} {OTHER.removeprefix('export ')} # gpt-tune: ignore\nsrun x")
    assert not rules(tmp_path / "b", {"job.sbatch": everything}) & {"host-address", "random-port"}


def test_other_rules_go_on(tmp_path: Path) -> None:
    text = batch(f"{OTHER} # gpt-tune: ignore host-address\n{LINE}\nsrun x")
    assert {"random-port", "host-address"} <= rules(tmp_path, {"job.sbatch": text})


def test_in_other_kinds_of_file(tmp_path: Path) -> None:
    files = {
        "Dockerfile": "FROM ubuntu # gpt-tune: ignore image-unpinned\n",
        "README.md": "<!-- gpt-tune: ignore clone-unpinned -->\n\n```bash\ngit clone https://github.com/a/b\n```\n",
        "parse.py": "TFLOPS = 1\n\n\ndef f(B, s, h, L, t):\n    return 8 * B * s * h**2 * L / t  # "
        "gpt-tune: ignore tflops-formula\n",
        "requirements.txt": "deepspeed  # gpt-tune: ignore deepspeed-range packages-unpinned\n",
    }
    assert rules(tmp_path, files) == set()


def test_a_misspelt_rule_is_told(tmp_path: Path) -> None:
    found = findings(tmp_path, {"job.sbatch": batch(f"{LINE} # gpt-tune: ignore host-adress\nsrun x")})
    told = [f for f in found if f.rule == "unknown-ignore"]
    assert [f.line for f in told] == [5]
    assert "host-address" in told[0].fix
    assert "host-address" in {f.rule for f in found}
