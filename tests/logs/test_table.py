"""Which run a step belongs to: restarts, late lines, duplicates, several files."""

from __future__ import annotations

import random

import pytest

from gpt_tune.logs.formats.base import TRAINER, Record
from gpt_tune.logs.parse import LogParser, parse_files, result_of
from gpt_tune.logs.table import KEPT_OPEN, OPEN_ROWS, StepTable
from gpt_tune.logs.types import Step


def line(iteration: int, time: float = 100.0, loss: float = 5.0, total: int = 1000) -> str:
    return (
        f" iteration {iteration:8d}/{total:8d} | consumed samples: {iteration * 8:12d} |"
        f" elapsed time per iteration (ms): {time:.1f} | learning rate: 1.000E-04 | global batch size:     8 |"
        f" lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 1.000 |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def parser_of(*lines: str) -> LogParser:
    parser = LogParser()
    parser.feed(list(lines))
    parser.finish()
    return parser


def seen(parser: LogParser) -> list[tuple[int, int]]:
    return [(s.segment, s.iteration) for s in parser.best.steps()]


def test_a_resumed_run_replaces_what_it_does_again() -> None:
    parser = parser_of(*(line(i, 100 + i) for i in range(1, 18)), *(line(i, 200 + i) for i in range(11, 15)))
    assert seen(parser) == [(0, i) for i in range(1, 11)] + [(1, i) for i in range(11, 15)]
    assert [(r.first, r.last) for r in result_of(parser).runs] == [(1, 17), (11, 14)]


def test_a_run_from_scratch_is_a_run_of_its_own() -> None:
    parser = parser_of(*(line(i, 100) for i in (1, 2, 3)), *(line(i, 150) for i in (1, 2)))
    assert seen(parser) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]


def test_a_checkpoint_says_where_a_run_resumed() -> None:
    parser = parser_of(
        line(1), line(2), "[before the start of training step] datetime: 2025",
        "  successfully loaded checkpoint from /ckpt [ t 0/8, p 0/2 ] at iteration 2", line(3), line(4),
    )  # fmt: skip
    assert [(r.first, r.last, r.resumed_from) for r in result_of(parser).runs] == [(1, 2, None), (3, 4, 2)]


def test_start_up_text_before_any_step_begins_no_second_run() -> None:
    start = "[before the start of training step] datetime: 2025"
    parser = parser_of(
        start, "-------------------- end of arguments ---------------------", start, line(1), line(2)
    )
    assert len(result_of(parser).runs) == 1


def test_another_number_of_iterations_is_another_run() -> None:
    parser = parser_of(line(40, total=40), line(2000, total=603000))
    assert len(result_of(parser).runs) == 2


def test_a_long_pause_is_another_run_appended() -> None:
    first = [f"2025-04-07 22:06:{i:02d} " + line(i) for i in range(6)]
    second = [f"2025-06-20 14:17:{i:02d} " + line(90 + i) for i in range(3)]
    assert len(result_of(parser_of(*first, *second)).runs) == 2
    evaluation = [*first, "2025-04-07 23:40:00 " + line(6)]
    assert len(result_of(parser_of(*evaluation)).runs) == 1


def test_ranks_that_print_the_same_step_count_once() -> None:
    lines = [f"{rank}: {line(i, 100 + i)}" for i in range(1, 6) for rank in range(8)]
    assert seen(parser_of(*lines)) == [(0, i) for i in range(1, 6)]


def test_ranks_that_print_in_blocks_are_no_restarts() -> None:
    lines = [f"{rank}: {line(i, 100 + i)}" for rank in range(8) for i in range(1, 6)]
    assert seen(parser_of(*lines)) == [(0, i) for i in range(1, 6)]


@pytest.mark.parametrize("seed", range(5))
def test_late_lines_are_put_in_order_by_their_time(seed: int) -> None:
    lines = [f"2026-02-25 08:16:{2 * i:02d} " + line(i, 2000) for i in range(1, 25)]
    order = sorted(range(len(lines)), key=lambda i: i + random.Random(seed + i).random() * 6)
    assert seen(parser_of(*(lines[i] for i in order))) == [(0, i) for i in range(1, 25)]


def test_files_of_one_run_are_merged_and_of_two_jobs_not() -> None:
    parser = LogParser()
    parser.feed([line(i, 100 + i) for i in (1, 2, 3)], "last-rank.out")
    parser.feed(
        [f"steps: {i} loss: 5.0000 iter time (s): 0.1 samples/sec: 80.0" for i in (1, 2, 3)], "rank-0.out"
    )
    assert len(result_of(parser).runs) == 1
    assert [s.samples_per_second for s in parser.best.steps()] == [80.0] * 3
    head = "-------------------- end of arguments ---------------------"
    parser = LogParser()
    parser.feed([head, *(line(i) for i in (1, 2, 3))], "job-1.out")
    parser.feed([head, *(line(i) for i in (4, 5))], "job-2.out")
    assert [(r.first, r.last) for r in result_of(parser).runs] == [(1, 3), (4, 5)]


def test_a_replaced_file_is_another_run() -> None:
    parser = LogParser()
    parser.feed([line(1), line(2)], "a")
    parser.begin_run("a")
    parser.feed([line(3), line(4)], "a")
    assert len(result_of(parser).runs) == 2


def record(iteration: int, **figures: float) -> Record:
    step = Step(iteration)
    for name, value in figures.items():
        setattr(step, name, value)
    return Record(step, TRAINER)


def test_packing_changes_nothing() -> None:
    table = StepTable()
    count = 3 * OPEN_ROWS
    for i in range(1, count + 1):
        table.add(record(i, loss=i / 7, step_time_ms=i % 13 + 0.1), "a", "", "x")
    assert table.segments[0].chunks
    assert len(table.segments[0].rows) <= OPEN_ROWS + KEPT_OPEN
    steps = list(table.steps())
    assert [s.iteration for s in steps] == list(range(1, count + 1))
    assert all(s.loss == s.iteration / 7 and s.step_time_ms == s.iteration % 13 + 0.1 for s in steps)
    assert [s.iteration for s in table.recent(2000)] == list(range(count - 1999, count + 1))
    tail = table.tail(2000, "loss")
    assert tail["iteration"][0].tolist() == [float(i) for i in range(count - 1999, count + 1)]
    assert not tail["loss"][1].any()
    columns = table.columns("loss")
    assert columns["loss"].tolist() == [s.loss for s in steps]


def test_a_duplicate_of_a_packed_step_is_no_restart() -> None:
    table = StepTable()
    for i in range(1, 2 * OPEN_ROWS):
        table.add(record(i, loss=1.0 * i), "a", "", "x")
    before = len(table)
    assert table.add(record(10, loss=10.0), "a", "", "x") is None
    assert len(table) == before
    assert len(table.segments) == 1
    table.add(record(10, loss=99.0), "a", "", "x")
    assert len(table.segments) == 2


def test_a_missing_file_is_one_sentence() -> None:
    with pytest.raises(Exception, match="Cannot read the log /nowhere") as caught:
        parse_files(["/nowhere/at/all.log"])
    assert type(caught.value).__name__ == "UserError"
