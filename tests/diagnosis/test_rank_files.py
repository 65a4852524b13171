"""One log file a rank: the files are one run, ranks are compared, and what a file says is said of its rank."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt_tune.diagnosis import diagnose
from gpt_tune.logs.parse import parse_files, parse_json, result_of
from gpt_tune.logs.parser import LogParser
from gpt_tune.workflows.watch import Watch
from tests.diagnosis.test_stragglers import Slow, healthy, one_rank

STEPS = range(1, 61)
Name = Callable[[int], str]
NAMES: list[Name] = [
    lambda rank: f"none_x1/attempt_0/{rank}/stdout.log",
    lambda rank: f"job-4711-{rank:02d}.out",
    lambda rank: f"rank.{rank}/stdout",
]


def titan(rank: int, slow: Slow, steps: range = STEPS, own_loss: bool = True) -> str:
    rng = random.Random(rank)
    losses = random.Random(rank if own_loss else 0)
    lines = []
    for i in steps:
        tps = 7000 / (1 + slow(rank, i)) / (1 + rng.gauss(0, 0.01))
        # Each rank prints its own loss, before it is averaged.
        lines.append(
            f"[titan] step: {i:2}  loss: {2 + losses.random():7.4f}  memory: {30 + rank:.2f}GiB(50.00%)"
            f"  tps: {tps:,.0f}  mfu: 40.00%"
        )
    return "\n".join(lines) + "\n"


def megatron(rank: int, slow: Slow, steps: range = STEPS) -> str:
    rng = random.Random(rank)
    return "".join(
        f" iteration {i:8d}/    1000 | consumed samples: {i * 8:12d} | elapsed time per iteration (ms):"
        f" {400 * (1 + slow(rank, i)) * (1 + rng.gauss(0, 0.004)):.1f} | learning rate: 1.0E-04 |"
        " global batch size:     8 | lm loss: 2.0E+00 | loss scale: 1.0 | grad norm: 1.0 |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for i in steps
    )


def write(folder: Path, name: Name, ranks: int, text: Callable[[int], str]) -> list[Path]:
    paths = [folder / name(rank) for rank in range(ranks)]
    for rank, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(rank))
    return paths


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("trainer", ["titan", "megatron"])
def test_the_slow_rank_is_named(tmp_path: Path, name: Name, trainer: str) -> None:
    slow = one_rank(5, 0.12, 30)
    sure = name is not NAMES[1]  # whose numbers might be of experiments: their losses tell

    def text(rank: int) -> str:
        return titan(rank, slow, own_loss=sure) if trainer == "titan" else megatron(rank, slow)

    paths = write(tmp_path, name, 8, text)
    found = [f for f in diagnose(paths).findings if f.id == "F222"]
    assert [f.rank for f in found] == [5]
    assert found[0].iteration == pytest.approx(30, abs=3)
    assert "Rank 5" in found[0].text
    result = parse_files(paths)
    assert [(r.first, r.last) for r in result.runs] == [(1, 60)]  # one run, whatever their losses
    assert result.summary.steps == 60


def test_healthy_ranks_are_quiet_and_memory_is_of_each(tmp_path: Path) -> None:
    paths = write(tmp_path, NAMES[0], 4, lambda rank: titan(rank, healthy))
    assert diagnose(paths).findings == ()
    assert {m.rank: m.reserved_gib for m in parse_files(paths).memory} == {0: 30, 1: 31, 2: 32, 3: 33}


def test_runs_appended_to_each_other_are_not_ranks(tmp_path: Path) -> None:
    """Files of several jobs: the later one is slower, and no rank of anything."""

    def text(job: int) -> str:
        start = 1 + 60 * job
        return megatron(0, lambda r, i: 0.3 * (job == 2), range(start, start + 60))

    paths = write(tmp_path, lambda job: f"slurm-{4711 + job}.out", 4, text)
    assert [f for f in diagnose(paths).findings if f.id == "F222"] == []


def test_independent_runs_of_an_array_are_not_compared(tmp_path: Path) -> None:
    def text(task: int) -> str:
        return megatron(0, lambda r, i: 0.2 * (task == 3)).replace("lm loss: 2.0E+00", f"lm loss: {2 + task}")

    paths = write(tmp_path, lambda task: f"slurm-88_array{task}.out", 5, text)
    assert [f for f in diagnose(paths).findings if f.id == "F222"] == []


def test_numbered_experiments_are_runs_of_their_own(tmp_path: Path) -> None:
    """The same recipe with another seed each: nobody's ranks, and no step of any is lost."""
    paths = write(tmp_path, lambda i: f"exp-{i}.log", 4, lambda i: titan(i, one_rank(2, 0.3)))
    assert [(r.first, r.last) for r in parse_files(paths).runs] == [(1, 60)] * 4
    assert [f for f in diagnose(paths).findings if f.id == "F222"] == []


def test_an_error_without_a_prefix_is_of_its_files_rank(tmp_path: Path) -> None:
    boom = (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 3, in <module>\n'
        "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    )
    paths = write(tmp_path, NAMES[0], 4, lambda rank: titan(rank, healthy) + boom * (rank == 2))
    root = diagnose(paths).root_cause
    assert root is not None
    assert (root.id, root.rank) == ("F52", 2)


def test_a_restart_in_every_file_is_one_more_run(tmp_path: Path) -> None:
    def text(rank: int) -> str:
        return megatron(rank, healthy, range(1, 41)) + megatron(rank, healthy, range(31, 61))

    result = parse_files(write(tmp_path, NAMES[0], 3, text))
    assert [(r.first, r.last) for r in result.runs] == [(1, 40), (31, 60)]


def test_a_missing_figure_comes_from_another_ranks_file(tmp_path: Path) -> None:
    """With pipeline stages only the last rank knows the loss."""

    def text(rank: int) -> str:
        lines = titan(rank, healthy, range(1, 3001)).splitlines()
        if rank < 3:
            lines = [
                line[: line.index("loss:")] + "loss: -1.0000" + line[line.index("  memory") :]
                for line in lines
            ]
        return "\n".join(lines) + "\n"

    result = parse_files(write(tmp_path, NAMES[0], 4, text))
    losses = [s.loss for s in result.steps()]
    assert len(losses) == 3000
    assert all(loss is not None and loss > 0 for loss in losses)


def test_followed_live(tmp_path: Path) -> None:
    paths = write(tmp_path, NAMES[1], 4, lambda rank: "")
    watch = Watch(paths)
    watch.poll()
    for start in range(1, 61, 10):
        for rank, path in enumerate(paths):
            with path.open("a") as file:
                file.write(megatron(rank, one_rank(3, 0.2), range(start, start + 10)))
        update = watch.poll()
    (finding,) = (f for f in update.diagnosis.findings if f.id == "F222")
    assert finding.rank == 3
    assert [(w.rank, w.label) for w in watch.writers()] == [(rank, f"rank {rank}") for rank in range(4)]
    assert len(watch.series("loss")[0]) == 60


def test_a_folder_that_grows_is_followed_with_its_new_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun begins a folder of its own for each attempt."""
    monkeypatch.setattr("gpt_tune.logs.follow.FOLDER_POLLS", 2)
    write(tmp_path, NAMES[0], 4, lambda rank: megatron(rank, healthy, range(1, 21)))
    watch = Watch([f"{tmp_path}/"])
    watch.poll()
    write(
        tmp_path,
        lambda r: f"none_x1/attempt_1/{r}/stdout.log",
        4,
        lambda r: megatron(r, healthy, range(11, 31)),
    )
    for _ in range(3):
        update = watch.poll()
    assert len(watch.sources) == 8
    assert update.last_step is not None
    assert update.last_step.iteration == 30
    assert [(s.first, s.last) for s in watch.parser.best.segments] == [(1, 20), (11, 30)]


def test_long_files_of_ranks_are_read_in_bulk_as_line_by_line(tmp_path: Path) -> None:
    """Rank 0 lacks a figure that the others have; rank 3 is slow in the end."""

    def text(rank: int) -> str:
        said = megatron(rank, one_rank(3, 0.2, 2900), range(1, 3001))
        return said if rank else said.replace(" grad norm: 1.0 |", "")

    paths = write(tmp_path, NAMES[0], 4, text)
    parser = LogParser()
    parser.place([str(path) for path in paths])
    for path in paths:
        parser.feed(path.read_text().splitlines(), str(path))
    parser.finish()
    assert parse_json(parse_files(paths)) == parse_json(result_of(parser))
    assert [f.rank for f in diagnose(paths).findings if f.id == "F222"] == [3]


def test_what_a_rank_survived_in_its_own_file_is_a_note(tmp_path: Path) -> None:
    retry = "botocore.exceptions.NoCredentialsError: Unable to locate credentials\n"

    def text(rank: int) -> str:
        said = retry * (rank == 2)
        return megatron(rank, healthy, range(1, 41)) + said + megatron(rank, healthy, range(41, 81))

    got = diagnose(write(tmp_path, NAMES[0], 4, text))
    assert [(f.id, f.severity) for f in got.findings] == [("F299", "info")]
    assert not got.alarming


@pytest.mark.parametrize("common", [1, 5, 30])
def test_runs_that_begin_alike_are_not_one(tmp_path: Path, common: int) -> None:
    """Two learning rates with one seed: the first losses are the same, and no step of either is lost."""

    def text(run: int) -> str:
        lines = megatron(0, healthy).splitlines()
        return "\n".join(
            line.replace("lm loss: 2.0E+00", f"lm loss: {3 - i / 100 - run * max(0, i - common) / 50:.6E}")
            for i, line in enumerate(lines, 1)
        )

    paths = write(tmp_path, lambda run: f"lr-{run + 1}e-4.log", 3, text)
    apart = [[s.loss for s in parse_files([path]).steps()] for path in paths]
    result = parse_files(paths)
    assert [(r.first, r.last) for r in result.runs] == [(1, 60)] * 3
    assert [s.loss for s in result.steps()] == [loss for losses in apart for loss in losses]
