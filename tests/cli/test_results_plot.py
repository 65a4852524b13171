"""`results plot`, and `results compare` of several runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.jobs.logs import resolved_log_paths
from gpt_tune.ledger import Ledger
from tests.cli.conftest import Run

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"
H200 = str(LOGS / "h200-pp2.log")
EMPTY = str(LOGS / "corpus" / "002-bloom-default3-cuda-unknown.log")


def test_in_the_terminal(gpt_tune: Run) -> None:
    done = gpt_tune("results", "plot", H200, EMPTY, "--figure", "loss", "--width", "60")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "loss, by iteration"
    assert "b: 002-bloom" in done.out
    assert "no steps with this figure" in done.out
    assert max(map(len, lines)) <= 60 + 30
    assert "\x1b" not in done.out


def test_runs_without_steps_say_so(gpt_tune: Run) -> None:
    done = gpt_tune("results", "plot", EMPTY)
    assert done.code == 0
    assert "no steps" in done.out


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_into_a_file(gpt_tune: Run, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"chart.{kind}"
    done = gpt_tune("results", "plot", H200, "--out", out, "--json")
    assert done.json["results"] == [{"file": str(out), "bytes": out.stat().st_size}]
    assert out.read_bytes()[:4] in (b"<svg", b"\x89PNG")


def test_as_data(gpt_tune: Run) -> None:
    loss, times = gpt_tune("results", "plot", H200, "--json").json["results"]
    assert (loss["figure"], times["figure"], len(loss["runs"][0]["x"])) == ("loss", "step_time_ms", 10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--figure", "colour"], "colour"),
        (["--axis", "parsecs"], "parsecs"),
        (["--out", "x.gif"], "gif"),
        (["--out", "x.svg", "--width", "3"], "3 pixels"),
        (["--out", "/nowhere/at/all/x.svg"], "Cannot write"),
        ([H200] * 5, "6 runs"),
        (["no-such-run"], "no-such-run"),
    ],
)
def test_wrong_use(gpt_tune: Run, options: list[str], words: str) -> None:
    done = gpt_tune("results", "plot", H200, *options, "--json")
    assert done.code == 2
    assert words in done.error["message"] + done.error["hint"]


def test_three_runs_side_by_side(gpt_tune: Run) -> None:
    runs = []
    for steps in ("2", "3", "4"):
        change = ("--set", f"smoke.steps={steps}", "--set", f"name=of {steps}")
        runs.append(gpt_tune("submit", "smoke", *change, "--json").json["run_id"])
        assert gpt_tune("watch", runs[-1], "--json").code == 0
    found = {d["key"]: d for d in gpt_tune("results", "compare", *runs, "--json").json["results"]}
    assert found["steps"]["values"] == [2, 3, 4]
    assert found["steps"]["ratios"] == [1.0, 1.5, 2.0]
    assert (found["steps"]["a"], found["steps"]["b"], found["steps"]["ratio"]) == (2, 3, 1.5)
    assert found["smoke.steps"]["values"] == [2, 3, 4]
    assert "(x 1.5)" in gpt_tune("results", "compare", *runs).out
    plotted = gpt_tune("results", "plot", *runs, "--figure", "loss", "--json").json["results"][0]
    assert [len(r["x"]) for r in plotted["runs"]] == [2, 3, 4]
    for wrong in (runs[:1], [*runs, *runs]):
        done = gpt_tune("results", "compare", *wrong, "--json")
        assert (done.code, "2 to 5" in done.error["hint"]) == (2, True)
    # A run whose log is gone spoils nobody else's export.
    with Ledger.open() as ledger:
        (log,) = resolved_log_paths(ledger.get(runs[0]))
    Path(log).unlink()
    exported = gpt_tune("results", "export", "--format", "benchmark")
    assert (exported.code, len(exported.json["results"])) == (0, 2)
    assert gpt_tune("results", "export", runs[0], "--format", "benchmark", "--json").code == 2


def test_a_format_of_ones_own(gpt_tune: Run, tmp_path: Path) -> None:
    log = tmp_path / "mine.log"
    log.write_text("".join(f"it#{i} err={3 - i / 10} took 0.5s\n" for i in range(1, 6)))
    assert gpt_tune("parse", log, "--json").json["steps"] == []
    form = "it#{iteration} err={loss} took {step_time_s}s"
    steps = gpt_tune("parse", log, "--log-format", form, "--json").json["steps"]
    assert [(s["iteration"], s["loss"], s["step_time_ms"]) for s in steps][-1] == (5, 2.5, 500.0)
    assert "5 steps" in gpt_tune("parse", log, "--log-format", form).out
    assert gpt_tune("watch", log, "--once", "--log-format", form).code == 0
    assert gpt_tune("watch", "some-run", "--log-format", form, "--json").code == 2
    assert gpt_tune("parse", log, "--log-format", "no figures", "--json").code == 2
