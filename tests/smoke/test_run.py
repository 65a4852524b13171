"""The smoke trainer as a process: lines, totals, checkpoints, signals, and ranks that wait."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.profiles.schema import Smoke
from gpt_tune.recipes import smoke_prediction
from tests.smoke import trainer

SMALL = ("--layers", "1", "--hidden", "16", "--heads", "2", "--seq-length", "16", "--micro-batch-size", "2")
# The line of Megatron-DeepSpeed's training_log (main, 2023-07 on), with our decimals in TFLOPs.
LINE = re.compile(
    r" iteration +(\d+)/ +(\d+) \| consumed samples: +(\d+) \| consumed tokens: +(\d+) \|"
    r" elapsed time per iteration \(ms\): (\d+\.\d) \| learning rate: (\d\.\d{3}E[-+]\d\d) \|"
    r" global batch size: +(\d+) \| lm loss: (\d\.\d{6}E[-+]\d\d) \| loss scale: 1\.0 \|"
    r" grad norm: (\d+\.\d{3}) \| actual seqlen: +(\d+) \| number of skipped iterations:   0 \|"
    r" number of nan iterations:   0 \| samples per second: (\d+\.\d{3}) \|"
    r" tokens per gpu per second \(tgs\): (\d+\.\d{3}) \| TFLOPs: (\d+\.\d{5}) \|"
)


def steps(output: str) -> list[tuple[str, ...]]:
    lines = [line for line in output.splitlines() if line.startswith(" iteration ")]
    matches = [LINE.fullmatch(line) for line in lines]
    assert all(matches), lines
    return [m.groups() for m in matches if m]


def test_lines_have_the_form_of_megatron_deepspeed_and_the_loss_falls(tmp_path: Path) -> None:
    done = trainer.run(tmp_path, "--steps", "60", "--log-interval", "3", "--hidden", "32", "--layers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = steps(done.stdout)
    assert [int(r[0]) for r in rows] == list(range(3, 61, 3))
    assert {r[1] for r in rows} == {"60"}
    assert float(rows[-1][7]) < float(rows[0][7]) - 1.0
    for row in rows:
        batch, length = int(row[6]), int(row[9])
        assert int(row[2]) == int(row[0]) * batch
        assert int(row[3]) == int(row[2]) * length
        assert float(row[11]) == pytest.approx(float(row[10]) * length, rel=1e-3)


def test_tflops_is_what_ran(tmp_path: Path) -> None:
    done = trainer.run(tmp_path, "--steps", "6", "--hidden", "96", "--heads", "4", "--log-interval", "1")
    smoke = Smoke(hidden=96)
    for row in steps(done.stdout):
        seconds = smoke.micro_batch_size / float(row[10])
        expected = smoke_prediction.trainer_flops(smoke, smoke.micro_batch_size) / seconds / 1e12
        assert float(row[12]) == pytest.approx(expected, abs=1.1e-5, rel=1e-3)


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "length", "batch"), [(2, 64, 4, 64, 8), (1, 32, 1, 7, 3)]
)
def test_flops_and_parameters_agree_with_the_engine(
    layers: int, hidden: int, heads: int, length: int, batch: int
) -> None:
    from gpt_tune.models import flops, parameters

    smoke = Smoke(layers=layers, hidden=hidden, heads=heads, seq_length=length, micro_batch_size=batch)
    model = smoke_prediction.shape(smoke)
    shape = trainer.module("options").Shape(layers, hidden, heads, 4 * hidden, 128, length)
    lines = trainer.module("lines")
    arrays = trainer.module("numpy_gpt").initial_parameters(shape)
    counted = sum(a.size for a in arrays.values())
    assert lines.parameter_count(shape) == counted == smoke_prediction.parameters(smoke)
    assert parameters.total(model) == counted
    tokens = batch * length
    assert smoke_prediction.trainer_flops(smoke, batch) == lines.flops_per_iteration(shape, batch)
    assert smoke_prediction.model_flops(smoke, batch) == pytest.approx(
        flops.model_flops(model, length, tokens), rel=1e-9
    )


def test_the_arguments_say_the_shape(tmp_path: Path) -> None:
    done = trainer.run(tmp_path, "--steps", "2", *SMALL)
    dump = dict(re.findall(r"^  (\w+) \.+ (.+)$", done.stdout, re.MULTILINE))
    expected = {
        "num_layers": "1", "hidden_size": "16", "num_attention_heads": "2", "ffn_hidden_size": "64",
        "seq_length": "16", "global_batch_size": "2", "micro_batch_size": "2", "train_iters": "2",
        "padded_vocab_size": "128", "world_size": "1",
    }  # fmt: skip
    assert {k: dump[k] for k in expected} == expected
    assert all(len(line.split(" ..")[0]) < 52 for line in done.stdout.splitlines() if " .." in line)


def test_seconds_fix_a_total_before_the_first_line(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = trainer.run(tmp_path, "--seconds", "2", *SMALL)
    took = time.monotonic() - begin
    rows = steps(done.stdout)
    totals = {int(r[1]) for r in rows}
    assert len(totals) == 1
    assert int(rows[-1][0]) == totals.pop() > 20
    assert len(rows) >= 5
    assert took < 40  # a busy machine may stretch it


def test_steps_win_over_seconds(tmp_path: Path) -> None:
    done = trainer.run(tmp_path, "--seconds", "600", "--steps", "3", *SMALL)
    assert [int(r[0]) for r in steps(done.stdout)][-1] == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_a_new_start_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    arguments = ("--steps", "4000", "--log-interval", "1", "--save-interval", "4000", *SMALL)
    process = trainer.start(tmp_path, *arguments)
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if line.startswith(" iteration       30/"):
            process.send_signal(number)
            break
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output + rest
    assert f"[exiting program after receiving {number.name}.]" in rest
    last = int(steps(output + rest)[-1][0])
    assert (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == str(last)
    assert 30 <= last < 4000
    again = trainer.start(tmp_path, *arguments)
    assert again.stdout is not None
    first = next(line for line in again.stdout if line.startswith(" iteration "))
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=60)
    assert first.startswith(f" iteration {last + 1:8d}/    4000 |")


def test_a_resumed_run_learns_exactly_what_an_uninterrupted_one_does(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    arguments = ("--steps", "40", "--log-interval", "1", "--save-interval", "10", *SMALL)
    full = steps(trainer.run(whole, *arguments).stdout)
    trainer.run(parts, *arguments)
    (parts / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("30")
    resumed = steps(trainer.run(parts, *arguments).stdout)
    assert [r[0] for r in resumed] == [str(n) for n in range(31, 41)]
    assert [r[7] for r in resumed] == [r[7] for r in full[30:]]


def test_a_finished_run_started_again_says_so(tmp_path: Path) -> None:
    trainer.run(tmp_path, "--steps", "3", *SMALL)
    again = trainer.run(tmp_path, "--steps", "3", *SMALL)
    assert again.returncode == 0
    assert "all 3 iterations are done already" in again.stdout


def test_only_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    trainer.run(tmp_path, "--steps", "10", "--save-interval", "2", *SMALL)
    names = sorted(p.name for p in (tmp_path / "checkpoints").iterdir())
    assert names == ["iter_0000008.ckpt", "iter_0000010.ckpt", "latest_checkpointed_iteration.txt"]


@pytest.mark.parametrize("damage", ["other shape", "torn", "missing"])
def test_a_checkpoint_that_does_not_fit_is_one_sentence(tmp_path: Path, damage: str) -> None:
    trainer.run(tmp_path, "--steps", "3", *SMALL)
    path = tmp_path / "checkpoints" / "iter_0000003.ckpt"
    arguments: tuple[str, ...] = SMALL
    if damage == "other shape":
        arguments = (*SMALL[:2], "--hidden", "32", *SMALL[4:])
    elif damage == "torn":
        path.write_bytes(path.read_bytes()[:500])
    else:
        path.unlink()
    done = trainer.run(tmp_path, "--steps", "9", *arguments)
    assert done.returncode == 1
    assert "cannot be continued" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "state" / "done").read_text()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--hidden", "30", "--heads", "4"), "--hidden 30 is not a multiple of --heads 4"),
        (("--layers", "0"), "--layers is 0; it must be at least 1"),
        (("--steps", "-1"), "--steps must not be negative"),
        (("--seconds", "0"), "--seconds must be positive"),
        (("--nonsense",), "unrecognized arguments: --nonsense"),
    ],
)
def test_bad_arguments_are_one_sentence(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = trainer.run(tmp_path, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def without_site_packages(folder: Path, rank: int, world: int) -> subprocess.CompletedProcess[str]:
    """A Python that has the standard library only."""
    return subprocess.run(
        [sys.executable, "-S", "-I", "-u", trainer.ENTRY, "--state-dir", str(folder / "state")],
        cwd=folder,
        env=trainer.environment(rank, world),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_no_numpy_is_one_line_and_its_own_code(tmp_path: Path) -> None:
    done = without_site_packages(tmp_path, 0, 1)
    assert done.returncode == 69
    assert "NumPy is not installed for" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert json.loads((tmp_path / "state" / "done").read_text()) == 69


def test_other_ranks_need_the_standard_library_only_and_end_with_rank_0(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "mode").write_text('"cpu"')
    (state / "done").write_text("0")
    done = without_site_packages(tmp_path, 5, 8)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"rank 5 of 8 on \S+: pid \d+\n", done.stdout)


def test_other_ranks_wait_for_rank_0_and_take_over_its_code(tmp_path: Path) -> None:
    follower = trainer.start(tmp_path, rank=1, world=2)
    leader = trainer.run(tmp_path, "--steps", "5", *SMALL, world=2)
    output, _ = follower.communicate(timeout=60)
    assert (leader.returncode, follower.returncode) == (0, 0)
    assert output.startswith("rank 1 of 2 on ")
    assert list((tmp_path / "state").glob("node-*")) == []  # only the first rank of a node keeps one


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def waiting(tmp_path: Path, local_rank: int = 0) -> tuple[Any, Any, Clock]:
    meeting = trainer.module("meeting")
    place = trainer.module("options").Place(3, 4, local_rank, "node7")
    return meeting, place, Clock()


def test_a_rank_gives_up_when_rank_0_falls_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meeting, place, clock = waiting(tmp_path)
    room = meeting.Meeting(tmp_path)
    room.write("heartbeat", 1)
    assert meeting.await_end(room, place, clock, clock.sleep) == 1
    assert meeting.SILENCE_SECONDS < clock.now < meeting.SILENCE_SECONDS + 10
    assert "no sign of rank 0 for 120 s" in capsys.readouterr().out


def test_a_living_rank_0_is_waited_for_however_long(tmp_path: Path) -> None:
    meeting, place, clock = waiting(tmp_path)
    room = meeting.Meeting(tmp_path)

    def sleep(seconds: float) -> None:
        clock.sleep(50)
        room.write("heartbeat", clock.now)
        if clock.now > 5000:
            room.write("done", 7)

    assert meeting.await_end(room, place, clock, sleep) == 7
    assert (tmp_path / "node-node7").exists()


def test_half_written_values_are_not_read(tmp_path: Path) -> None:
    meeting, _, _ = waiting(tmp_path)
    room = meeting.Meeting(tmp_path)
    assert room.read("done") is None
    (tmp_path / "done").write_text("")
    assert room.read("done") is None


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3"}, (3, 8, 3)),
        ({"SLURM_PROCID": "9", "SLURM_NTASKS": "16", "SLURM_LOCALID": "1"}, (9, 16, 1)),
        ({"RANK": "1", "SLURM_PROCID": "9", "WORLD_SIZE": "2", "SLURM_NTASKS": "16"}, (1, 2, 0)),
        ({"RANK": "", "WORLD_SIZE": "x"}, (0, 1, 0)),
    ],
)
def test_a_rank_knows_its_place(environ: dict[str, str], expected: tuple[int, int, int]) -> None:
    place = trainer.module("options").place_of(environ)
    assert (place.rank, place.world, place.local_rank) == expected


def test_windows_depend_on_iteration_and_rank_and_cover_a_text_of_any_length(tmp_path: Path) -> None:
    loop = trainer.module("loop")
    text = tmp_path / "text"
    text.write_bytes(b"short")
    corpus = loop.Corpus(text, 64, seed=1)
    assert all(len(w) == 65 for w in corpus.windows(1, 0, 4))
    real = loop.Corpus(trainer.FOLDER / "corpus.txt", 32, seed=1)
    assert real.windows(1, 0, 4) == real.windows(1, 0, 4)
    assert real.windows(1, 0, 4) != real.windows(2, 0, 4)
    assert real.windows(1, 0, 4) != real.windows(1, 1, 4)
    assert (trainer.FOLDER / "corpus.txt").read_bytes().isascii()


def test_two_torch_ranks_train_together_and_share_one_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    arguments = ("--device", "torch-cpu", "--seconds", "1", *SMALL)
    follower = trainer.start(tmp_path, *arguments, rank=1, world=2)
    leader = trainer.run(tmp_path, *arguments, world=2)
    follower.communicate(timeout=60)
    assert (leader.returncode, follower.returncode) == (0, 0), leader.stdout + leader.stderr
    rows = steps(leader.stdout)
    assert {r[6] for r in rows} == {"4"}  # two ranks of two sequences
    assert rows[-1][0] == rows[-1][1]
    assert float(rows[-1][7]) < float(rows[0][7])
    go_on = [trainer.start(tmp_path, *arguments, rank=r, world=2) for r in (1, 0)]
    outputs = [p.communicate(timeout=60)[0] for p in go_on]
    assert "iterations are done already" in outputs[1]
