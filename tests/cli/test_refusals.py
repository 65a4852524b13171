"""What is refused with one sentence and exit code 2, where it used to be taken silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

STEP = " iteration        1/      10 | consumed samples:  8 | elapsed time per iteration (ms): 100.0 | lm loss: 1.0 |\n"


@pytest.mark.parametrize("options", [("--csv",), ("--format", "csv"), ("--format", "text")])
def test_parse_prints_one_format(gpt_tune: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    log = tmp_path / "a.log"
    log.write_text(STEP, encoding="utf-8")
    done = gpt_tune("parse", log, *options, "--json")
    assert (done.code, done.error["code"]) == (2, 2)
    assert gpt_tune("parse", log, *options).code == 0


def test_an_empty_log_format(gpt_tune: Run, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(STEP, encoding="utf-8")
    assert "--log-format" in gpt_tune("parse", log, "--log-format", "", "--json").error["message"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x7fELF\x00\x01\x02\n\x00"])
def test_what_cannot_be_replayed(gpt_tune: Run, tmp_path: Path, content: bytes) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(content)
    done = gpt_tune("replay", log, "--json")
    assert (done.code, done.error["code"]) == (2, 2)


def test_weights_are_no_model_file(gpt_tune: Run, tmp_path: Path) -> None:
    weights = tmp_path / "sparse.log"
    with weights.open("wb") as file:
        file.truncate(1 << 30)
    done = gpt_tune("plan", "--model", weights, "--gpus", "8", "--gpu", "b200", "--json")
    assert done.code == 2
    assert "64 MiB" in done.error["message"]


def test_a_sweep_names_the_option_that_is_wrong(gpt_tune: Run) -> None:
    both = gpt_tune("sweep", "smoke", "--top", "3", "--vary", "a=1", "--json").error["message"]
    assert "do not go together" in both
    unknown = gpt_tune("sweep", "smoke", "--vary", "seconds=1,2", "--json").error["message"]
    assert "--vary" in unknown
    assert "--set" not in unknown
