"""Who wrote a file, by the names of a job's files."""

from __future__ import annotations

import pytest

from gpt_tune.logs.file_ranks import NOBODY, Place, apply, places
from gpt_tune.logs.prefixes import read


@pytest.mark.parametrize(
    ("paths", "ranks"),
    [
        (["/r/none_ab1/attempt_0/0/stdout.log", "/r/none_ab1/attempt_0/1/stdout.log"], [0, 1]),
        (["/r/none_ab1/attempt_0/0/stderr.log", "/r/none_ab1/attempt_1/0/stderr.log"], [0, 0]),
        (["job.0", "job.1", "job.2"], [None, None, None]),  # a job number, as far as anybody knows
        (["train-0.out", "train-1.out", "train-2.out"], [0, 1, 2]),
        (["j4711-00.log", "j4711-01.log", "j4711-02.log", "j4711-03.log"], [0, 1, 2, 3]),
        (["log.0", "log.1", "log.2"], [0, 1, 2]),
        (["out_task0.txt", "out_task1.txt"], [0, 1]),
        (["a/rank.0/stdout", "a/rank.7/stdout"], [0, 7]),
        (["nemo_log_globalrank-9_localrank-1.txt", "nemo_log_globalrank-8_localrank-0.txt"], [9, 8]),
        (["20261130_rank0.log", "20261130_rank12.log"], [0, 12]),
        # Not ranks: two jobs, rotated files, restarts, array tasks beside their job's number, one file alone.
        (["slurm-4711.out", "slurm-4712.out", "slurm-4713.out"], [None] * 3),
        (["train.log", "train.log.1", "train.log.2"], [None] * 3),
        (["log", "log.0", "log.1", "log.2"], [None] * 4),
        (["attempt_0.log", "attempt_1.log", "attempt_2.log"], [None] * 3),
        (["run0.log", "run1.log", "run2.log"], [None] * 3),
        (["train-0.out", "train-1.out"], [None] * 2),
        (["train-0.out", "train-2.out", "train-3.out"], [None] * 3),
        (["lora_rank8.log", "lora_rank16.log", "lora_rank32.log"], [None] * 3),
        (["a-rank8.log", "a-rank16.log"], [None] * 2),
        (["a-rank8.log", "a-rank9.log"], [8, 9]),
        (["rank3.log"], [None]),
        (["job.out", "job.err"], [None] * 2),
    ],
)
def test_ranks(paths: list[str], ranks: list[int | None]) -> None:
    found = places(paths)
    assert [found.get(path, NOBODY).rank for path in paths] == ranks


def test_several_nodes_of_torchrun_count_their_own_ranks() -> None:
    paths = [f"/logs/{node}/x_1/attempt_0/{local}/stdout.log" for node in ("n1", "n2") for local in (0, 1)]
    found = places(paths)
    assert [(found[p].rank, found[p].local_rank, found[p].host) for p in paths] == [
        (None, 0, "n1"), (None, 1, "n1"), (None, 0, "n2"), (None, 1, "n2"),
    ]  # fmt: skip


def test_nodes() -> None:
    found = places(["train_node01.log", "train_node02.log"])
    assert [p.host for p in found.values()] == ["node01", "node02"]


def test_what_a_line_says_itself_stands() -> None:
    place = Place("rank 3", 3, host="n1")
    assert apply(read("[rank5]: boom"), place).rank == 5
    assert apply(read("boom"), place)[2:5] == (3, None, "n1")
    assert apply(read("boom"), NOBODY).rank is None


def test_a_mere_number_is_not_sure() -> None:
    assert not any(p.sure for p in places(["exp-0.log", "exp-1.log", "exp-2.log"]).values())
    assert all(p.sure for p in places(["task0.log", "task1.log"]).values())
    assert apply(read("boom"), Place("rank 2", 2, sure=False)).rank is None
