"""Owns testing `calibrate`: what a run teaches, and that a fit on few runs makes no other run worse."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpt_tune import calibration, memory, planner
from gpt_tune.errors import UserError
from gpt_tune.jsonable import as_json
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.planner.sure import days_ago, sure_words
from gpt_tune.timing import estimate as step_of
from gpt_tune.workflows import calibrate
from gpt_tune.workflows.calibrate import Calibrated
from gpt_tune.workflows.lessons import Lesson, lesson_of
from gpt_tune.workflows.runs_csv import Run, read
from tui.cli import main

RUNS = Path(__file__).resolve().parents[1] / "data" / "runs" / "h200.csv"
TODAY = datetime.date(2026, 11, 30)
MIB = 1024.0


@pytest.fixture(scope="module")
def measured() -> list[Run]:
    return [run for run in read(RUNS).runs if run.step_seconds and not run.host_bound]


def lesson(run: Run, slower: float = 1.0, more_gib: float = 0.0) -> Lesson:
    assert run.step_seconds
    reserved = None if run.reserved_gib is None else run.reserved_gib + more_gib
    return Lesson(
        run.id,
        run.model,
        run.node,
        run.trainer,
        run.layout,
        run.seq_length,
        run.step_seconds * slower,
        50,
        reserved,
    )


def fitted(lessons: Sequence[Lesson]) -> Calibrated:
    return calibrate.calibrate_with("dev", lessons, (), TODAY)


def errors(result: Calibrated | None, lessons: Sequence[Lesson]) -> tuple[float, float]:
    """Mean errors of step time and reserved memory, with the shipped constants or the fitted ones."""
    time, reserved = [], []
    for x in lessons:
        known = calibration.shipped(x.node, "dev")
        if result is not None:
            known = calibrate.changed_calibration(result, known)
        arguments = (x.model, x.node, x.trainer, x.layout, x.seq_length, known)
        time.append(abs(step_of(*arguments).seconds / x.seconds - 1))
        estimate = memory.estimate(*arguments)
        added = memory.constants.value(known, "cluster_gib", x.trainer.name)
        if x.reserved_gib:
            reserved.append(abs((estimate.reserved_gib + added) / x.reserved_gib - 1))
    return float(np.mean(time)), float(np.mean(reserved))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_fit_on_few_runs_makes_the_others_no_worse(measured: list[Run], count: int) -> None:
    lessons = [lesson(run) for run in measured]
    for start in range(0, len(lessons), 3):
        chosen = [lessons[(start + i) % len(lessons)] for i in range(count)]
        others = [x for x in lessons if x not in chosen]
        (time, reserved), (time_before, reserved_before) = (
            errors(fitted(chosen), others),
            errors(None, others),
        )
        assert time <= time_before + 0.02
        assert reserved <= reserved_before + 0.02


@pytest.mark.parametrize("count", [3, 6])
def test_a_slower_cluster_with_more_memory_taken_is_learnt(measured: list[Run], count: int) -> None:
    lessons = [lesson(run, slower=1.3, more_gib=5.0) for run in measured]
    chosen, others = lessons[:count], lessons[count:]
    (time, reserved), (time_before, reserved_before) = errors(fitted(chosen), others), errors(None, others)
    assert time < 0.7 * time_before
    assert reserved < 0.8 * reserved_before


def test_more_runs_move_the_constants_further(measured: list[Run]) -> None:
    lessons = [lesson(run, slower=1.3) for run in measured]
    left = [errors(fitted(lessons[:n]), lessons)[0] for n in (1, 3, 8)]
    assert left == sorted(left, reverse=True)


def test_the_same_run_again_is_no_second_layout(measured: list[Run]) -> None:
    one = lesson(measured[0], slower=1.3)
    again = [replace(one, run_id=f"r{i}") for i in range(8)]
    once, often = fitted([one]), fitted(again)
    assert once.parts[0].layouts == often.parts[0].layouts == 1
    assert errors(often, [one])[0] > 0.1  # eight repeats do not pull as eight layouts would


def test_constants_that_predict_the_other_runs_worse_are_thrown_away(measured: list[Run]) -> None:
    """Two layouts, one measured much too slow and one much too fast, teach nothing about each other."""
    pair = [lesson(measured[0], slower=2.5), lesson(measured[1], slower=0.4)]
    part = fitted(pair).parts[0]
    assert part.time.after > part.time.before
    assert not part.time.kept
    assert not part.constants


def test_runs_that_agree_with_the_shipped_constants_change_none(measured: list[Run]) -> None:
    """But they are counted: predictions are then known to hold on this cluster."""
    result = fitted([lesson(run) for run in measured])
    assert not result.parts[0].time.kept
    assert not result.calibration.timing
    assert result.calibration.time_rows == len(measured)
    assert result.calibration.time_error == pytest.approx(result.parts[0].time.before)


def test_the_interval_of_a_calibrated_cluster_holds_its_runs(measured: list[Run]) -> None:
    lessons = [lesson(run, slower=1.2) for run in measured]
    known = calibrate.changed_calibration(fitted(lessons), calibration.shipped(lessons[0].node, "dev"))
    inside = []
    for x in lessons:
        step = step_of(x.model, x.node, x.trainer, x.layout, x.seq_length, known)
        inside.append(step.low <= x.seconds <= step.high)
    assert np.mean(inside) >= 0.85


def record(run: Run, folder: Path, name: str = "r1", steps: int = 12, cluster: str = "dev") -> RunRecord:
    """The run as the ledger would have kept it, with a log that says what was measured."""
    assert run.step_seconds
    folder.mkdir(exist_ok=True)
    log = folder / f"{name}.out"
    lines = [
        f" iteration {n:8d}/ {steps} | consumed samples: {n} | elapsed time per iteration (ms): "
        f"{1000 * run.step_seconds:.1f} | learning rate: 1.000E-04 | global batch size: {run.layout.global_batch_size} "
        "| lm loss: 4.0E+00 |"
        for n in range(1, steps + 1)
    ]
    if run.reserved_gib and run.allocated_gib:
        a, r = run.allocated_gib * MIB, run.reserved_gib * MIB
        lines.insert(
            1,
            f"[Rank 0] (after 1 iterations) memory (MB) | allocated: {a} | max allocated: {a} | reserved: {r} | "
            f"max reserved: {r}",
        )
    log.write_text("\n".join(lines) + "\n")
    request = planner.build_request(
        "gpt-1.3b", run.layout.gpus, node=run.node, seq_length=run.seq_length, trainer=run.trainer
    )
    plan = planner.estimate(request, None).plan
    assert plan is not None
    data = json.loads(json.dumps(replace(plan, layout=run.layout, trainer=run.trainer).to_json()))
    return RunRecord(
        name, f"token-{name}", cluster, "slurm", name, "megatron-deepspeed", str(folder), "/r/j", "2026-11-29T07:15Z",
        phase="ended", state="COMPLETED", job_ids=("7",), log_paths=(str(log),), gpus=run.layout.gpus, nodes=1,
        profile=f'recipe = "megatron-deepspeed"\n[model]\nid = "gpt-1.3b"\nseq_length = {run.seq_length}\n',
        shape=as_json(run.model), plan=data,
    )  # fmt: skip


def test_a_run_of_the_ledger_teaches_what_was_measured(
    measured: list[Run], home: Path, tmp_path: Path
) -> None:
    run = next(r for r in measured if r.reserved_gib)
    found = lesson_of(record(run, tmp_path))
    assert found.layout == run.layout
    assert found.node.id == run.node.id
    assert replace(found.trainer, dropout=None) == replace(run.trainer, dropout=None, pipeline_engine=None)
    assert found.model == run.model
    assert found.seconds == pytest.approx(run.step_seconds, rel=0.001)
    assert found.reserved_gib == pytest.approx(run.reserved_gib, rel=0.001)


def test_runs_that_teach_nothing_say_why(measured: list[Run], home: Path, tmp_path: Path) -> None:
    good = record(measured[0], tmp_path)
    cases = {
        "not ended": replace(good, phase="submitted", state="RUNNING"),
        "no planned layout": replace(good, plan=None),
        "log is gone": replace(good, log_paths=(str(tmp_path / "gone.out"),)),
        "steps after warm-up": record(measured[0], tmp_path, "short", steps=3),
    }
    for words, bad in cases.items():
        with pytest.raises(UserError, match=words):
            lesson_of(bad)


def test_from_the_ledger_to_the_plan(
    measured: list[Run], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.open() as ledger:
        for i, run in enumerate(measured[:4]):
            ledger.add(record(run, tmp_path, f"r{i}"))
    assert main(["calibrate", "--from-jobs", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["cluster"] == "dev"
    assert len(data["runs"]) == 4
    assert Path(data["path"]).is_file()
    node = measured[0].node
    mine = calibration.load(node, "dev")
    assert mine.here
    assert mine.time_rows == 4
    assert days_ago(mine) == 0
    assert "calibrated today on this cluster: typical error step time" in sure_words(mine)
    assert not calibration.load(node).here
    request = replace(planner.build_request("gpt-1.3b", 1, node=node), cluster="dev")
    shown = planner.estimate_json(request, planner.estimate(request, None))["calibration"]
    assert shown["here"] is True
    assert shown["time_error"] == pytest.approx(mine.time_error)
    assert main(["calibrate", "--forget", "--cluster", "dev"]) == 0
    assert not calibration.load(node, "dev").here


def test_a_dry_run_saves_nothing(
    measured: list[Run], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.open() as ledger:
        ledger.add(record(measured[0], tmp_path))
    assert main(["calibrate", "--dry-run"]) == 0
    assert "1 ended runs" in capsys.readouterr().out
    assert not calibration.user_path("dev").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "No run has ended"),
        (["--cluster", "nowhere"], "no run on nowhere"),
        (["--nodes", "0"], "--nodes is 0"),
        (["--forget"], "--forget needs --cluster"),
        (["--forget", "--cluster", "../x"], "cannot name"),
    ],
)
def test_nothing_to_learn_from(
    arguments: list[str], words: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_runs_of_two_clusters_need_a_name(
    measured: list[Run], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.open() as ledger:
        ledger.add(record(measured[0], tmp_path, "r1"))
        ledger.add(record(measured[1], tmp_path, "r2", cluster="prod"))
    assert main(["calibrate"]) == 2
    assert "dev, prod" in capsys.readouterr().err
    assert main(["calibrate", "--cluster", "prod", "--nodes", "3"]) == 2
    assert "prod on 3 nodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fitted_at", "days", "words"),
    [
        ("2026-11-30", 0, " today"),
        ("2026-11-29", 1, " yesterday"),
        ("2026-11-20", 10, " 10 days ago"),
        ("x", None, "d on"),
    ],
)
def test_age_in_words(fitted_at: str, days: int | None, words: str) -> None:
    known = calibration.Calibration(fitted_at=fitted_at, here=True)
    assert days_ago(known, TODAY) == days
    assert f"calibrated{words}" in sure_words(known, today=TODAY) or words == "d on"
