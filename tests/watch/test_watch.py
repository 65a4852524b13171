"""A watched run: what polls bring, history after reopening, hangs, the end, and what scripts and screens get."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpt_tune.errors import UserError
from gpt_tune.jsonable import as_json
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.profiles.schema import Smoke
from gpt_tune.recipes import smoke_prediction
from gpt_tune.schedulers.base import JobStatus, State
from gpt_tune.workflows.records import watch_of
from gpt_tune.workflows.results import parsed
from gpt_tune.workflows.watch import MAX_NEW_LINES, Prediction, Watch, WatchUpdate
from gpt_tune.workflows.watching.hang import silence_limit
from gpt_tune.workflows.watching.pace import epoch
from gpt_tune.workflows.watching.report import duration, events, failed, snapshot_json, snapshot_lines
from tests.logs.test_table import line

H200 = Path(__file__).resolve().parent.parent / "data" / "logs" / "h200-pp2.log"


class Clock:
    """Time that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def status(state: State, **more: object) -> JobStatus:
    values: dict[str, object] = {"job_id": "7", "name": "job", "state": state, **more}
    return JobStatus(**values)  # type: ignore[arg-type]


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.write("".join(f"{text}\n" for text in lines))


def test_a_real_log_from_before_it_exists(tmp_path: Path) -> None:
    path, text = tmp_path / "job.out", H200.read_text().splitlines()
    watch = Watch([path], peak_tflops=989.0)
    assert watch.poll().waiting == (str(path),)
    start = next(i for i, words in enumerate(text) if "end of arguments" in words) + 1
    append(path, *text[:start])
    first = watch.poll()
    assert (len(first.lines), first.last_step, first.pace.iteration) == (start, None, None)
    assert first.pace.gpus == 2
    append(path, *text[start:-4])
    second = watch.poll()
    assert [step.iteration for step in second.steps] == list(range(1, 10))
    assert second.pace.total_iterations == 10
    assert second.pace.mfu == pytest.approx(252.6 / 989, rel=0.01)
    assert second.pace.max_reserved_gib == pytest.approx(30716 / 1024)
    assert second.pace.eta_seconds == pytest.approx(1.1, rel=0.02)
    assert second.diagnosis.status == "healthy"
    x, y = watch.series("step_time_ms")
    assert x.tolist() == [float(i) for i in range(1, 10)]
    assert y[0] == 2126.2
    hours, mfu = watch.series("mfu", "hours")
    assert hours[-1] == pytest.approx(y.sum() / 3.6e6)
    assert np.isfinite(mfu).all()
    assert watch.series("loss", "tokens")[0][0] == 65536
    assert watch.poll().lines == ()


def test_unknown_figures_and_axes_are_refused(tmp_path: Path) -> None:
    watch = Watch([tmp_path / "x"])
    for name, axis in (("los", "iteration"), ("loss", "time")):
        with pytest.raises(UserError, match="Unknown"):
            watch.series(name, axis)


def long_log(path: Path, steps: int) -> None:
    dump = [
        f"  {name} ..................... {value}"
        for name, value in (("world_size", 4), ("train_iters", 99999))
    ]
    with path.open("w") as file:
        file.write(
            "\n".join([*dump, *(line(i, 100 + i % 7, total=99999) for i in range(1, steps + 1))]) + "\n"
        )


def test_reopening_shows_the_end_at_once_and_the_past_soon(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    long_log(path, 6_000)
    watch = Watch([path], history_seconds=0.0)
    update = watch.poll()
    assert update.history < 1.0
    assert update.pace.iteration == 6_000
    assert update.pace.gpus == 4
    x, _ = watch.series("loss")
    assert x[-1] == 6_000
    assert (np.diff(x) > 0).all()
    append(path, line(6_001, total=99999))
    watch._history_seconds = 60.0
    update = watch.poll()
    assert update.history == 1.0
    assert watch.series("loss")[0].tolist() == [float(i) for i in range(1, 6_002)]
    append(path, line(6_002, total=99999))
    update = watch.poll()
    assert [s.iteration for s in update.steps] == [6_002]
    assert update.summary.steps == 6_002
    older = watch.older_lines(str(path))
    assert older
    assert older[-1].text != update.lines[0].text


def test_findings_name_the_line_of_the_file_even_behind_history(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    long_log(path, 5_000)
    append(path, "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered")
    watch = Watch([path])
    update = watch.poll()
    while update.history < 1.0:
        update = watch.poll()
    root = update.diagnosis.root_cause
    assert root is not None
    assert (root.id, root.rank, root.line) == ("F48", 3, 5_003)


def test_a_flood_of_lines_is_bounded_for_the_screen_only(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("")
    watch = Watch([path])
    watch.poll()
    append(path, *(line(i) for i in range(1, 6001)))
    update = watch.poll()
    assert len(update.lines) == MAX_NEW_LINES
    assert update.skipped_lines == 6000 - MAX_NEW_LINES
    assert update.summary.steps == 6000
    assert len(watch.recent_lines()) <= 5000


def test_warnings_and_errors_survive_a_flood_with_their_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("")
    watch = Watch([path])
    watch.poll()
    flood = [line(i) for i in range(1, 9001)]
    bad = {
        17: "[rank3]: RuntimeError: CUDA error: unknown error",
        4000: "5: W1130 05:54:03.095152109 init.cpp:774] something is slow",
        6999: "[2026-11-30 05:54:04,930] [WARNING] [engine.py:1:f] [Rank 0] low on memory",
    }
    for place, text in bad.items():
        flood[place] = text
    flood.append("Error: at the very end")
    append(path, *flood)
    update = watch.poll()
    apart = [(x.number, x.text) for x in update.lines if x.apart]
    assert apart == [(place + 1, text) for place, text in bad.items()]
    assert update.lines[-1].text == "Error: at the very end"
    assert update.lines[-1].number == 9001
    assert len(update.lines) == MAX_NEW_LINES + len(bad)
    assert update.skipped_lines + len(update.lines) == 9001


def test_endless_errors_stay_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_tune.workflows.watch.MAX_NEW_ALARMS", 100)
    path = tmp_path / "job.out"
    path.write_text("")
    watch = Watch([path])
    watch.poll()
    append(path, *(f"Error: number {i}" for i in range(5000)))
    update = watch.poll()
    assert len(update.lines) == MAX_NEW_LINES + 100
    assert update.lines[0].text == "Error: number 0"  # the first one is worth most
    assert update.skipped_lines == 5000 - MAX_NEW_LINES - 100


def test_states_are_asked_for_seldom_and_an_end_is_final(tmp_path: Path) -> None:
    path, clock = tmp_path / "job.out", Clock()
    path.write_text("")
    asked: list[float] = []
    states: list[State] = ["PENDING", "RUNNING", "FAILED"]

    def ask() -> JobStatus:
        asked.append(clock.now)
        state = states[min(len(asked), 3) - 1]
        return status(state, reason="Priority", exit_code=1, gpus=8, started_at="2027-01-15T08:00:00Z")

    watch = Watch([path], state_source=ask, clock=clock, state_seconds=10.0, run_id="r1")
    first = watch.poll()
    assert (first.state, first.state_changed, first.diagnosis.status) == ("PENDING", True, "pending")
    assert first.diagnosis.findings[0].id == "P-Priority"
    assert not watch.poll().state_changed
    clock.now += 10
    append(path, line(1, total=5), line(2, total=5))
    assert watch.poll().diagnosis.status == "running"
    clock.now += 10
    with path.open("a") as file:
        file.write("RuntimeError: No CUDA GPUs are available")  # no line feed
    last = watch.poll()
    assert last.ended
    assert failed(last)
    assert last.diagnosis.root_cause is not None
    assert last.diagnosis.root_cause.id == "F57"
    clock.now += 100
    watch.poll()
    assert len(asked) == 3


def test_a_state_may_be_pushed_in(tmp_path: Path) -> None:
    watch = Watch([tmp_path / "none"])
    watch.set_status(status("PENDING"))
    update = watch.poll()
    assert (update.state, update.state_changed) == ("PENDING", True)
    watch.set_status(status("COMPLETED"))
    update = watch.poll()
    assert update.ended
    assert not failed(update)


def test_a_hang_is_called_when_steps_stop_not_when_lines_do(tmp_path: Path) -> None:
    path, clock = tmp_path / "job.out", Clock()
    path.write_text("")
    watch = Watch([path], state_source=lambda: status("RUNNING"), clock=clock, gpus=4)
    watch.poll()
    append(path, *(f"{rank}: hello" for rank in range(4)), *(f"3: {line(i, 90_000.0)}" for i in range(1, 30)))
    assert watch.poll().hang is None
    limit = silence_limit(90_000.0)
    assert limit == 900.0
    clock.now += limit - 10
    append(path, *(f"{rank}: heartbeat" for rank in (0, 1, 3)))
    assert watch.poll().hang is None
    clock.now += 20
    update = watch.poll()
    assert update.hang is not None
    assert update.hang.last_iteration == 29
    assert update.hang.silent_ranks == (2,)
    assert update.diagnosis.status == "hung"
    assert "29" in update.hang.text
    assert [(w.rank, w.text) for w in watch.writers()][2] == (2, "2: hello")
    append(path, f"3: {line(30, 90_000.0)}")
    assert watch.poll().hang is None


@pytest.mark.parametrize("state", ["PENDING", "COMPLETED"])
def test_only_a_running_job_hangs(tmp_path: Path, state: State) -> None:
    path, clock = tmp_path / "job.out", Clock()
    path.write_text(line(1) + "\n")
    watch = Watch([path], state_source=lambda: status(state), clock=clock)
    watch.poll()
    clock.now += 10_000
    assert watch.poll().hang is None


def test_start_up_that_hangs_without_an_error(tmp_path: Path) -> None:
    path, clock = tmp_path / "job.out", Clock()
    path.write_text("> compiling and loading fused kernels ...\nDetected CUDA files, patching ldflags\n")
    watch = Watch([path], state_source=lambda: status("RUNNING"), clock=clock)
    assert watch.poll().diagnosis.status == "running"
    clock.now += 700
    update = watch.poll()
    assert update.diagnosis.status == "hung"
    assert update.diagnosis.root_cause is not None
    assert update.diagnosis.root_cause.id == "F60"


def test_slower_than_its_own_past(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("\n".join(line(i, 1000 + i % 5) for i in range(1, 100)) + "\n")
    watch = Watch([path], prediction=Prediction(900.0, 800.0, 1000.0))
    update = watch.poll()
    assert update.diagnosis.status == "healthy"
    assert update.pace.slower_than_predicted == pytest.approx(0.113, abs=0.01)
    append(path, *(line(i, 1400 + i % 5) for i in range(100, 125)))
    update = watch.poll()
    slow = {f.id: f for f in update.diagnosis.findings}
    assert "since about iteration 100" in slow["F220"].text
    assert slow["F221"].severity == "info"
    assert update.diagnosis.status == "warning"


def test_a_rotated_log_goes_on_as_another_run(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text(f"{line(1)}\n{line(2)}\n")
    watch = Watch([path])
    watch.poll()
    path.unlink()
    path.write_text(f"{line(3)}\n")
    update = watch.poll()
    assert update.reset
    assert [s.iteration for s in update.steps] == [3]
    assert len(watch.parser.table.segments) == 2


def test_updates_worth_keeping(tmp_path: Path) -> None:
    path, clock = tmp_path / "job.out", Clock()
    kept: list[WatchUpdate] = []
    path.write_text(line(1) + "\n")
    watch = Watch([path], clock=clock, keep=kept.append)
    watch.poll()
    assert [u.pace.iteration for u in kept] == [1]
    append(path, line(2))
    watch.poll()
    assert len(kept) == 1
    clock.now += 6
    watch.poll()
    assert [u.pace.iteration for u in kept] == [1, 2]
    append(path, "torch.OutOfMemoryError: CUDA out of memory.")
    watch.poll()
    assert kept[-1].new_findings[0].id == "F1"


def test_what_scripts_and_plain_terminals_get(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text(H200.read_text() + "\x1b[31m evil \x1b]0;title\x07\n")
    prediction = Prediction.from_plan(
        {"step": {"seconds": 1.0, "low": 0.9, "high": 1.2, "model_tflops": 280.0}}
    )
    watch = Watch(
        [path],
        prediction,
        peak_tflops=989.0,
        run_id="r20270115-080000-abcd",
        state_source=lambda: status("RUNNING", started_at="2027-01-15T08:00:00Z"),
        clock=lambda: epoch("2027-01-15T09:00:00Z") or 0.0,
    )
    update = watch.poll()
    told = [json.loads(json.dumps(event, allow_nan=False)) for event in events(update, "r1", 0.0, first=True)]
    assert {event["schema"] for event in told} == {"gpt-tune/watch/1"}
    assert {event["event"] for event in told} == {"state", "log", "step"}
    assert [event["iteration"] for event in told if event["event"] == "step"] == list(range(1, 11))
    lines = snapshot_lines(watch, update, 80)
    assert all(len(text) <= 80 and text.isprintable() for text in lines)
    text = "\n".join(lines)
    for part in (
        "r20270115-080000-abcd",
        "RUNNING",
        "10/10",
        "2.0 GPU-hours",
        "predicted 1,000.0",
        "MFU 25.",
        "30.0 GiB",
    ):
        assert part in text, (part, text)
    data = json.loads(json.dumps(snapshot_json(watch, update), allow_nan=False))
    assert data["step"]["iteration"] == 10
    assert data["pace"]["gpu_hours"] == 2.0


def test_an_update_says_nothing_by_default() -> None:
    update = WatchUpdate()
    assert (update.lines, update.steps, update.ended, update.diagnosis.status) == ((), (), False, "unknown")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(45, "45 s"), (720, "12 min"), (17_400, "4 h 50 min"), (273_600, "3 d 4 h"), (float("inf"), "?")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("recipe", "logged", "counted"),
    [
        ("smoke", 1, 1),
        ("smoke", 64, 64),
        ("megatron-deepspeed", 64, 64),
        ("megatron-deepspeed", 1, 64),
    ],
)
def test_speed_is_of_one_training_process_as_the_prediction_is(
    home: Path, tmp_path: Path, recipe: str, logged: int, counted: int
) -> None:
    path = tmp_path / "job.out"
    smoke = Smoke()
    flops = smoke_prediction.model_flops(smoke, 8)
    record = RunRecord(
        "r1",
        "t",
        "local",
        "local",
        "n",
        recipe,
        str(tmp_path),
        "/r/j",
        "2026-11-30T07:15:33Z",
        gpus=64,
        job_ids=("7",),
        log_paths=(str(path),),
        shape=as_json(smoke_prediction.shape(smoke)),
        prediction={
            "model_tflops": flops / 0.1 / 1e12,
            "step_seconds": 0.1,
            "tokens_per_step": 8 * smoke.seq_length,
        },
    )
    dump = [
        "------------------------ arguments ------------------------",
        f"  world_size ...................................... {logged}",
        "-------------------- end of arguments ---------------------",
    ]
    steps = [
        f" iteration {n:8d}/      20 | consumed samples: {8 * n} | elapsed time per iteration (ms): 100.0 | "
        "learning rate: 1.000E-04 | global batch size: 8 | lm loss: 4.0E+00 |"
        for n in range(1, 21)
    ]
    append(path, *dump, *steps)
    with Ledger.open() as ledger:
        ledger.add(record)
    watch = watch_of(record, lambda: None)
    tflops = watch.poll().pace.recent_model_tflops
    assert tflops == pytest.approx(flops / 0.1 / 1e12 / counted, rel=0.02)
    found = parsed(record)
    assert found is not None
    assert found.summary.median_model_tflops == pytest.approx(tflops, rel=1e-6)
    if (recipe, logged) == ("smoke", 1):
        assert watch.prediction is not None
        assert tflops == pytest.approx(watch.prediction.model_tflops, rel=0.02)
