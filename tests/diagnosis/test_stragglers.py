"""Ranks and nodes that are slower than the others, from what ranks print; quiet when healthy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from gpt_tune.diagnosis import Diagnosis, diagnose
from gpt_tune.diagnosis.types import Finding
from gpt_tune.schedulers.base import JobStatus
from gpt_tune.workflows.watch import Watch

Slow = Callable[[int, int], float]  # (rank, iteration) -> share longer
ARGUMENTS = "  pipeline_model_parallel_size ....... {pp}\n  world_size ......................... {world}\n"
END = "-------------------- end of arguments ---------------------"


def healthy(rank: int, iteration: int) -> float:
    return 0.0


def one_rank(rank: int, excess: float, since: int = 0) -> Slow:
    return lambda r, i: excess if r == rank and i >= since else 0.0


def one_node(node: int, excess: float, since: int = 0, per_node: int = 8) -> Slow:
    return lambda r, i: excess if r // per_node == node and i >= since else 0.0


def titan(ranks: int, iterations: Sequence[int], slow: Slow, noise: float = 0.01) -> Iterator[str]:
    rng = random.Random(7)
    for i in iterations:
        for r in range(ranks):
            tps = 7000 / (1 + slow(r, i)) / (1 + rng.gauss(0, noise))
            yield f"[rank{r}]:[titan] step: {i:2}  loss: 2.1  memory: 40.1GiB(50.3%)  tps: {tps:,.0f}  mfu: 40.0%"


def megatron(
    ranks: int, iterations: Sequence[int], slow: Slow, stage: Callable[[int], float]
) -> Iterator[str]:
    """A step line of the last rank, and the timers of every rank."""
    rng = random.Random(8)
    for i in iterations:
        yield (
            f" iteration {i:8d}/    1000 | consumed samples: {i * 8:12d} | elapsed time per iteration (ms): 400.0 |"
            " learning rate: 1.0E-04 | global batch size:     8 | lm loss: 2.0E+00 | loss scale: 1.0 |"
            " grad norm: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        yield "times across ranks (ms):"
        for timer in ("forward-compute", "backward-compute", "grads-all-reduce"):
            yield f"  {timer}:"
            for r in range(ranks):
                # Those who wait for the slow one spend long in communication: that is no slowness.
                base = 30.0 if "all" in timer and not slow(r, i) else 100.0 * stage(r)
                ms = base * (1 + slow(r, i) * ("compute" in timer)) * (1 + rng.gauss(0, 0.004))
                yield f"     rank {r:2d}: {ms:.2f}"


def found(tmp_path: Path, lines: Iterator[str]) -> tuple[Diagnosis, list[Finding]]:
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    got = diagnose([path])
    return got, [f for f in got.findings if f.id in ("F222", "F223")]


STEPS = range(1, 81)


def test_one_slow_rank_since_an_iteration(tmp_path: Path) -> None:
    got, (finding,) = found(tmp_path, titan(16, STEPS, one_rank(5, 0.12, 41)))
    assert (got.status, finding.rank, finding.severity) == ("warning", 5, "warning")
    assert finding.iteration == pytest.approx(41, abs=2)
    assert finding.excess == pytest.approx(0.12, abs=0.02)
    assert "12% slower" in finding.text or "11% slower" in finding.text or "13% slower" in finding.text


def test_always_slow(tmp_path: Path) -> None:
    _, (finding,) = found(tmp_path, titan(16, STEPS, one_rank(5, 0.12)))
    assert (finding.rank, finding.iteration) == (5, None)
    assert "since" not in finding.text


@pytest.mark.parametrize(
    "slow",
    [
        healthy,
        lambda r, i: 0.03 if r == 3 else 0.0,  # within what differs anyway
        lambda r, i: 0.5 if r == 3 and i % 7 == 0 else 0.0,  # now and then
        lambda r, i: 0.5 if i >= 40 else 0.0,  # everybody
        lambda r, i: 0.4 if r == 3 and i < 20 else 0.0,  # long over
        lambda r, i: 0.3 if r % 2 else 0.0,  # half of them: they do other work
    ],
)
def test_quiet(tmp_path: Path, slow: Slow) -> None:
    got, none = found(tmp_path, titan(16, STEPS, slow))
    assert none == []
    assert got.status == "healthy"


def test_noisy_ranks_are_no_stragglers(tmp_path: Path) -> None:
    assert found(tmp_path, titan(32, STEPS, healthy, noise=0.15))[1] == []


def test_few_writers_or_few_steps_say_nothing(tmp_path: Path) -> None:
    assert found(tmp_path, titan(2, STEPS, one_rank(1, 0.5)))[1] == []
    assert found(tmp_path, titan(8, range(1, 6), one_rank(1, 0.5)))[1] == []


def test_a_slow_node_is_named_where_the_scheduler_says_who_is_where(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(titan(64, STEPS, one_node(4, 0.09, 50))) + "\n")
    status = JobStatus(job_id="7", name="j", state="RUNNING", nodes=8, node_list="b200-[1-8]", gpus=64)
    watch = Watch([path], gpus=64, state_source=lambda: status)
    while (update := watch.poll()).history < 1.0:
        pass
    (finding,) = [f for f in update.diagnosis.findings if f.id == "F222"]
    assert (finding.host, finding.rank, finding.action) == ("b200-5", None, "exclude_host")
    assert finding.text.startswith("Node b200-5 is 9% slower than the others since iteration")
    rows = {r.node: r.slower_by for r in watch.nodes()}
    assert rows.pop("b200-5") == pytest.approx(0.09, abs=0.02)
    assert set(rows.values()) == {None}
    assert [m.kind for m in watch.marks()] == ["warning"]


def test_hosts_in_the_log_do_as_well(tmp_path: Path) -> None:
    lines = (
        f"node{int(text[5 : text.index(']')]) // 8:02d}: {text}"
        for text in titan(32, STEPS, one_node(2, 0.2))
    )
    _, (finding,) = found(tmp_path, lines)
    assert (finding.host, finding.rank) == ("node02", None)


def test_megatrons_timers_by_rank(tmp_path: Path) -> None:
    lines = megatron(16, range(1, 41), one_rank(9, 0.15, 21), lambda r: 1.0)
    _, (finding,) = found(tmp_path, lines)
    assert (finding.rank, "compute" in finding.text) == (9, True)
    assert finding.iteration == pytest.approx(21, abs=2)


def test_stages_of_a_pipeline_are_compared_among_themselves(tmp_path: Path) -> None:
    """The last stage computes the logits too: it is always slower, and nothing is wrong."""

    def stage(r: int) -> float:
        return 1.3 if r >= 24 else 1.0

    arguments = [*ARGUMENTS.format(pp=4, world=32).splitlines(), END]
    assert found(tmp_path, iter([*arguments, *megatron(32, range(1, 31), healthy, stage)]))[1] == []
    # Where the log does not say how it is split, a rank that always was slower may do other work.
    assert found(tmp_path, megatron(32, range(1, 31), healthy, lambda r: 1.3 if r >= 28 else 1.0))[1] == []
    lines = iter([*arguments, *megatron(32, range(1, 31), one_rank(26, 0.15), stage)])
    _, (finding,) = found(tmp_path, lines)
    assert finding.rank == 26


def spread(iterations: Sequence[int], most: Callable[[int], float]) -> Iterator[str]:
    for i in iterations:
        yield (
            f" iteration {i:8d}/    1000 | consumed samples: {i * 8:12d} | elapsed time per iteration (ms): 400.0 |"
            " learning rate: 1.0E-04 | global batch size:     8 | lm loss: 2.0E+00 |"
        )
        yield "(min, max) time across ranks (ms):"
        yield f"    forward-compute ................................: (100.00, {100 * most(i):.2f})"
        yield f"    batch-generator ................................: (0.50, {1 + i * i:.2f})"
        yield f"    all-grads-sync .................................: (10.00, {500 + i:.2f})"


def test_ranks_that_drift_apart_without_names(tmp_path: Path) -> None:
    _, (finding,) = found(tmp_path, spread(STEPS, lambda i: 1.34 if i >= 50 else 1.03))
    assert (finding.id, finding.iteration, finding.rank) == ("F223", 50, None)
    assert "34%" in finding.text
    assert found(tmp_path, spread(STEPS, lambda i: 1.34))[1] == []
    assert found(tmp_path, spread(STEPS, lambda i: 1.10 if i >= 50 else 1.03))[1] == []
    assert found(tmp_path, spread(STEPS, lambda i: 1.3 if i % 9 == 0 else 1.0))[1] == []


def test_deepspeeds_breakdown_by_rank(tmp_path: Path) -> None:
    rng = random.Random(3)
    lines = []
    for i in range(1, 31):
        for r in range(8):
            ms = 300 * (1.25 if r == 6 else 1) * (1 + rng.gauss(0, 0.01))
            lines.append(f"rank={r} time (ms) | forward_microstep: {ms:.2f} | step_microstep: 9.00")
        lines.append(f"[Rank 0] step={i}, skipped=0, lr=[1e-05], mom=[[0.9, 0.999]]")
    _, (finding,) = found(tmp_path, iter(lines))
    assert finding.rank == 6


def test_a_restart_forgets_the_nodes_of_before(tmp_path: Path) -> None:
    before = titan(8, range(1, 60), one_rank(3, 0.5))
    after = titan(8, range(20, 50), healthy)
    assert found(tmp_path, iter([*before, *after]))[1] == []


def test_a_long_past_is_read_in_samples_and_still_tells(tmp_path: Path) -> None:
    lines = megatron(16, range(1, 1200), one_rank(9, 0.15, 600), lambda r: 1.0)
    _, (finding,) = found(tmp_path, lines)
    assert finding.rank == 9
    assert finding.iteration == pytest.approx(600, abs=16)


def detector(iterations: Sequence[int], rank: Callable[[int], int], excess: float) -> Iterator[str]:
    """Megatron's step lines with its straggler detector's line behind each."""
    rng = random.Random(11)
    for i in iterations:
        yield from megatron_step(i)
        slow = excess if i > 40 else 0.02
        yield (
            f" 0: INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: {400 + rng.random():.2f}ms/8 |"
            f" MxRtt/Rnk: {400 * (1 + slow) + rng.random():.2f}ms/{rank(i)} | MnPwr/Rnk: 601796W/8 |"
        )


def megatron_step(i: int) -> Iterator[str]:
    yield next(iter(megatron(1, [i], healthy, lambda r: 1.0)))


def spreading(iterations: Sequence[int]) -> Iterator[str]:
    """The least and the most, which drift apart; nobody says whose they are."""
    for i in iterations:
        yield from megatron_step(i)
        yield "(min, max) time across ranks (ms):"
        yield f"    forward-compute {'.' * 32}: (100.00, {102.0 if i <= 40 else 140.0:.2f})"


def test_the_straggler_detectors_slowest_rank_is_named(tmp_path: Path) -> None:
    _, (finding,) = found(tmp_path, detector(STEPS, lambda i: 5 if i % 9 else 3, 0.3))
    assert (finding.id, finding.rank) == ("F223", 5)
    assert "Rank 5 takes 30% longer" in finding.text


def test_no_rank_is_named_where_it_changes(tmp_path: Path) -> None:
    _, (finding,) = found(tmp_path, detector(STEPS, lambda i: i % 7, 0.3))
    assert (finding.id, finding.rank) == ("F223", None)


def test_a_healthy_detector_is_quiet(tmp_path: Path) -> None:
    got, findings = found(tmp_path, detector(STEPS, lambda i: 5, 0.03))
    assert (got.status, findings) == ("healthy", [])


WARNING = "STRAGGLER DETECTION WARNING: Some"
TIMEOUT = (
    "[rank{rank}]:[E1130 05:54:03.095152109 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for "
    "600012 milliseconds before timing out."
)


@pytest.mark.parametrize(
    ("evidence", "rank"),
    [
        ([TIMEOUT.format(rank=r) for r in range(8) if r != 6], 6),
        (["[rank0]: RuntimeError: Rank 4 failed to pass monitoredBarrier in 1800000 ms"], 4),
        ([f"{WARNING} GPUs have worse relative performance. Affected ranks: [3]"], 3),
        ([f"{WARNING} GPUs performance dropped. Affected ranks: {{StragglerId(rank=2, node='n1')}}"], 2),
        ([TIMEOUT.format(rank=r) for r in (1, 5)], None),  # many are silent
        ([], None),
    ],
)  # fmt: skip
def test_drifting_ranks_are_named_by_what_else_the_log_says(
    tmp_path: Path, evidence: list[str], rank: int | None
) -> None:
    def lines() -> Iterator[str]:
        yield from spreading(STEPS)
        yield from evidence

    got, _ = found(tmp_path, lines())
    (finding,) = (f for f in got.findings if f.id == "F223")
    assert finding.rank == rank
    assert ("does not say which" in finding.text) == (rank is None)
