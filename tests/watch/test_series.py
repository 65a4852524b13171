"""Several runs on one pair of axes, and the marks along one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpt_tune.diagnosis.types import Finding
from gpt_tune.errors import UserError
from gpt_tune.logs.parse import parse_files
from gpt_tune.logs.parser import LogParser
from gpt_tune.workflows.series import Drawn, compare, marks
from gpt_tune.workflows.watch import Watch
from tests.logs.test_table import line


def drawn(path: Path, name: str, *lines: str) -> Drawn:
    path.write_text("\n".join(lines) + "\n")
    result = parse_files([path], gpus=8, seq_length=2048)
    return Drawn(name, result.table, result.facts)


def test_five_runs_and_no_more(tmp_path: Path) -> None:
    runs = [drawn(tmp_path / str(n), "run", *(line(i) for i in range(1, 4 + n))) for n in range(5)]
    found = compare(runs, "loss")
    assert [s.name for s in found] == ["run", "run (2)", "run (3)", "run (4)", "run (5)"]
    assert [len(s.x) for s in found] == [3, 4, 5, 6, 7]
    with pytest.raises(UserError, match="6 runs"):
        compare([*runs, runs[0]], "loss")
    with pytest.raises(UserError, match="0 runs"):
        compare([], "loss")
    with pytest.raises(UserError, match="colour"):
        compare(runs, "colour")
    with pytest.raises(UserError, match="parsecs"):
        compare(runs, "loss", "parsecs")


def test_a_run_without_steps_or_figure_is_an_empty_series(tmp_path: Path) -> None:
    nothing = drawn(tmp_path / "a", "none", "hello")
    some = drawn(tmp_path / "b", "some", line(1), line(2))
    for axis in ("iteration", "hours", "tokens"):
        empty, full = compare([nothing, some], "loss", axis)
        assert (empty.empty, len(empty.x)) == (True, 0)
        assert not full.empty
    assert compare([some], "mfu")[0].empty  # no peak is known
    assert marks(nothing, []) == []


def test_marks_of_a_resumed_run(tmp_path: Path) -> None:
    path = tmp_path / "log"
    text = [
        *(line(i) for i in range(1, 6)),
        "saving checkpoint at iteration       5 to /ckpt in torch format",
        "  successfully saved checkpoint from iteration       5 to /ckpt",
        line(6),
        line(7),
        "-------------------- end of arguments ---------------------",
        "  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration 5",
        *(line(i) for i in range(6, 9)),
    ]
    path.write_text("\n".join(text) + "\n")
    watch = Watch([path])
    watch.poll()
    assert [(m.kind, m.x, m.iteration) for m in watch.marks()] == [
        ("checkpoint", 5.0, 5),
        ("restart", 6.0, 6),
    ]
    assert "resumed from 5" in watch.marks()[1].text
    by_hours = watch.marks("hours")
    assert 0 < by_hours[0].x < by_hours[1].x


def test_warnings_stand_where_they_began(tmp_path: Path) -> None:
    run = drawn(tmp_path / "a", "a", *(line(i) for i in range(1, 10)))
    findings = [
        Finding("F18", "warning", "The loss jumped.", "", iteration=4),
        Finding("F13", "error", "NaN.", "", iteration=6),
        Finding("F18", "warning", "Nothing.", "", iteration=7, dismissed="ours"),
        Finding("F18", "warning", "Elsewhere.", "", iteration=400),
        Finding("F72", "error", "Time limit.", ""),
    ]
    assert [(m.kind, m.iteration) for m in marks(run, [], findings)] == [("warning", 4), ("error", 6)]


def test_tokens_without_printed_samples() -> None:
    parser = LogParser(gpus=1, seq_length=100, global_batch_size=8)
    parser.feed(
        [
            f"{{'loss': {3 - i / 10}, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': {i}}}"
            for i in range(3)
        ]
    )
    (series,) = compare([Drawn("hf", parser.best, parser.facts)], "loss", "tokens")
    assert np.diff(series.x).tolist() == [800.0, 800.0]


SAVED = [
    ("Saving model checkpoint to /out/run-3/checkpoint-500", 500),
    ("[INFO|trainer.py:4307] 2026-11-30 10:00:00,123 >> Saving model checkpoint to /out/checkpoint-40", 40),
    ("[2026-11-30 10:00:00,1] [INFO] [engine.py:19:save] [Torch] Saving /c/global_step30/mp_rank_00_states.pt", 30),
    ("[rank0]:[titan] 2026-11-30 10:00:00,123 - root - INFO - Saving a full checkpoint at step 12.", 12),
    ("[titan] 2026-11-30 10:00:00,123 - root - INFO - Saving the checkpoint (or staging if async is enabled).", 2),
    ("Async checkpoint save for step 100 (/results/x.ckpt) finalized successfully.", 100),
    ("Epoch 0, global step 77: 'val_loss' reached 2.1 (best 2.1), saving model to '/x/y.ckpt' as top 1", 77),
    ("2026-11-30 10:00:00,000: rank0[12][Main]: INFO: composer: Saving checkpoint to /c/ep0-ba640.pt", 640),
    ("Saved checkpoint /c/checkpoint_1_500.pt (epoch 1 @ 500 updates, score 4.1) (writing took 3.1 seconds)", 500),
    ("saving checkpoint to out", 2),
    ("INFO:torchtune.utils:Model checkpoint of size 14.96 GiB saved to /c/epoch_0/model.safetensors", 2),
    ("0: 2026-06-17 16:24:52 I [checkpoint.py:80] Writing checkpoint to /c/llama_v3-100steps.", 100),
]  # fmt: skip


@pytest.mark.parametrize(("text", "iteration"), SAVED)
def test_checkpoints_of_every_trainer(text: str, iteration: int) -> None:
    parser = LogParser()
    parser.feed([line(1), line(2), text])
    assert [(e.kind, e.iteration) for e in parser.events if e.kind == "saved"] == [("saved", iteration)]


@pytest.mark.parametrize(
    "text",
    [
        "Saving model checkpoints every 500 steps", "save_steps 500: saving checkpoint to out when done",
        "  save ............................................ /ckpt", "Loading checkpoint shards: 100%",
        "checkpoint at step size 3", "will load checkpoint of size 3",
    ],
)  # fmt: skip
def test_talk_of_checkpoints_is_no_checkpoint(text: str) -> None:
    parser = LogParser()
    parser.feed([line(1), text])
    assert [e for e in parser.events if e.kind == "saved"] == []
