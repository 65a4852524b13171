"""Rows of nodes from what ranks wrote, and samples that anything may have written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpt_tune.workflows.nodes.rows import node_rows, step_of
from gpt_tune.workflows.nodes.samples import SampleReader, read_sample
from gpt_tune.workflows.watch import Watch
from gpt_tune.workflows.watching.writers import Writer

NODES = ["b200-1", "b200-2"]


def writer(rank: int | None, text: str, seen: float = 1000.0, host: str | None = None) -> Writer:
    return Writer(host or str(rank), rank, host, text, seen)


def test_ranks_fill_nodes_in_order() -> None:
    writers = [writer(r, f" iteration {10 - (r == 3)}/ 99 |") for r in range(16)]
    first, second = node_rows(writers, 1010.0, NODES, 16)
    assert (first.ranks, second.ranks) == (tuple(range(8)), tuple(range(8, 16)))
    assert (first.iteration, first.lag, first.seen_seconds_ago) == (10, 0, 10.0)
    assert first.words == ""


def test_a_node_that_is_behind_and_one_with_silent_ranks() -> None:
    writers = [writer(r, f" iteration {20 if r < 8 else 17}/ 99 |") for r in range(16)]
    writers[9].seen = 700.0
    first, second = node_rows(writers, 1000.0, NODES, 16)
    assert (first.lag, second.lag, second.silent_ranks) == (0, 3, (9,))
    assert second.words == "silent: rank 9; 3 steps behind"


def test_a_rank_that_never_wrote_is_silent_only_where_most_do() -> None:
    only_last = [writer(15, " iteration 3/ 9 |")]
    assert [r.silent_ranks for r in node_rows(only_last, 1000.0, NODES, 16)] == [(), ()]
    all_but_one = [writer(r, "x") for r in range(16) if r != 3]
    assert [r.silent_ranks for r in node_rows(all_but_one, 1000.0, NODES, 16)] == [(3,), ()]


def test_labels_that_number_nodes() -> None:
    writers = [writer(0, "hello"), writer(1, "step: 7 loss: 2")]
    first, second = node_rows(writers, 1000.0, NODES, 16)
    assert (first.last_line, second.last_line, second.iteration) == ("hello", "step: 7 loss: 2", 7)


def test_hosts_that_lines_name_win_and_short_names_do() -> None:
    writers = [writer(0, "a", host="b200-2.cluster.local"), writer(9, "b", 1001.0, host="vm")]
    rows = node_rows(writers, 1000.0, NODES, 16)
    assert [(r.node, r.last_line) for r in rows] == [("b200-1", ""), ("b200-2", "b")]
    assert {w.words for w in rows} == {""}
    (stray,) = node_rows([writer(None, "c", host="other")], 1000.0, [], 16)
    assert (stray.node, stray.last_line) == ("other", "c")


def test_nothing_known_still_gives_the_jobs_nodes() -> None:
    assert [r.node for r in node_rows([], 0.0, NODES)] == NODES
    assert node_rows([], 0.0) == []


@pytest.mark.parametrize(
    ("text", "step"),
    [(" iteration       12/  100 | x", 12), ("step: 7  loss", 7), ("global_step=31", 31), ("iter 5: loss", 5),
     ("saved 12 files", None), ("stepped 5", None), ("iteration " + "9" * 40, None)],
)  # fmt: skip
def test_steps_in_lines(text: str, step: int | None) -> None:
    assert step_of(text) == step


GOOD = {"node": "n1", "time": 1.8e9, "cpu": 0.5, "memory": [1024, 2048], "gpus": [[0, 50, 1024, 2048, 300, 60]],
        "xids": [[1.8e9, "0000:65:00", 79]], "problem": ""}  # fmt: skip


def test_a_sample() -> None:
    sample = read_sample(json.dumps(GOOD))
    assert sample is not None
    (gpu,) = sample.gpus
    assert (sample.cpu, sample.memory_used_gib, gpu.utilisation, gpu.memory_used_gib) == (0.5, 1.0, 0.5, 1.0)
    assert [(x.gpu, x.code) for x in sample.xids] == [("0000:65:00", 79)]


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "null", '{"node": 3, "time": 1}', '{"node": "n", "time": "x"}', '{"node": "n", "time": 1e999}',
     '{"node": " ", "time": 1}', "[" * 100_000, '{"node": "n", "time": true}', '{"node":"n","time":' + "9" * 400 + "}"],
)  # fmt: skip
def test_no_sample(line: str) -> None:
    assert read_sample(line) is None


def test_hostile_samples_are_harmless() -> None:
    gpus = [[0], 7, [0, "x", None, -1, float("nan"), 1e300], ["a", 1, 1, 1, 1, 1]]
    xids = [[0, ["x"], 79], ["x", 1, 2], [1, 2, -5]]
    text = {"node": "n\x1b[2J\u202e1", "problem": "\x1b]0;x\x07", "cpu": "hot", "memory": {}}
    bad = {**GOOD, **text, "gpus": gpus, "xids": xids}
    sample = read_sample(json.dumps(bad))
    assert sample is not None
    assert sample.node.isprintable()
    assert sample.problem.isprintable()
    assert sample.cpu is None
    assert [(g.index, g.utilisation, g.memory_used_gib) for g in sample.gpus] == [(0, None, None)]
    assert [(x.gpu, x.code) for x in sample.xids] == [("?", 79)]


def test_files_of_samples_are_followed_and_xids_are_kept_once(tmp_path: Path) -> None:
    reader = SampleReader(f"{tmp_path}/*.jsonl")
    assert reader.poll() == {}
    path = tmp_path / "n1.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + '{"torn')
    assert list(reader.poll()) == ["n1"]
    second = {**GOOD, "time": 1.8e9 + 10, "xids": [[1.8e9 + 1, 0, 79], [1.8e9 + 9, 0, 48]]}
    with path.open("a") as file:
        file.write("\n" + json.dumps(second) + "\n")
    sample = reader.poll()["n1"]
    # The kernel and the driver name the same error 79 differently.
    assert (sample.time, [x.code for x in sample.xids]) == (1.8e9 + 10, [79, 48])


def test_a_watch_gives_rows_with_times_from_before_it_began(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "[2026-11-30 10:00:00] 0: iteration 5/ 9 |\n[2026-11-30 10:05:00] 1: iteration 9/ 9 |\n"
        "rank 2 of 4 on b200-2: pid 77\n"
    )
    watch = Watch([log], gpus=4)
    watch.poll()
    rows = {r.node: r for r in watch.nodes(["b200-1", "b200-2"])}
    first = rows["b200-1"]
    assert (first.ranks, first.iteration, rows["b200-2"].last_line) == (
        (0, 1), 9, "rank 2 of 4 on b200-2: pid 77",
    )  # fmt: skip
    old, new = (w for w in watch.writers() if w.rank in (0, 1))
    assert new.seen - old.seen == pytest.approx(300, abs=1)
    assert first.silent_ranks == (0,)


def test_lines_fetched_twice_change_nothing(tmp_path: Path) -> None:
    reader = SampleReader()
    old = json.dumps(GOOD)
    new = json.dumps({**GOOD, "time": 1.8e9 + 10, "cpu": 0.25, "xids": [[1.8e9 + 9, 0, 48]]})
    for _ in range(3):
        reader.take(f"{old}\n{new}\n".encode())
    sample = reader.poll()["n1"]
    assert (sample.time, sample.cpu, [x.code for x in sample.xids]) == (1.8e9 + 10, 0.25, [79, 48])


def test_a_file_a_node_without_labels(tmp_path: Path) -> None:
    nodes = ["b200-1", "b200-12"]
    paths = [tmp_path / f"train-{n}.out" for n in nodes]
    for step, path in zip((7, 5), paths):
        path.write_text(f"step: {step}  loss: 2\n")
    watch = Watch(paths, gpus=16)
    watch.poll()
    watch.poll()
    for path in paths:
        with path.open("a") as file:
            file.write(f"still {path.name}\n")
    watch.poll()
    assert [(r.node, r.last_line) for r in watch.nodes(nodes)] == [(n, f"still train-{n}.out") for n in nodes]


def test_a_file_a_rank(tmp_path: Path) -> None:
    paths = [tmp_path / f"log.rank{r}" for r in (0, 9)]
    for path in paths:
        path.write_text("step: 5  loss: 2\n")
    watch = Watch(paths, gpus=16)
    watch.poll()
    assert [w.rank for w in watch.writers()] == [0, 9]
    assert [r.iteration for r in watch.nodes(NODES)] == [5, 5]
