"""Owns measuring the log reader: ratios against grep and a plain per-line reader, opening, following, memory, corpus.

Run `python -m benchmarks.logs [--megabytes N] [--lines N]`; sizes are small by default. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "data" / "logs" / "corpus"
NOISE = (
    "node{n:02d}:{p}:{q} [{g}] NCCL INFO Channel {c:02d}/0 : {r}[{g}] -> {s}[{g}] [send] via NET/Libfabric/{g}/GDRDMA",
    "[2026-11-30 05:54:04,930] [INFO] [engine.py:2317:_do_optimizer_sanity_check] bucket {q} flushed after {p} us",
    "[rank{r}]:[W1130 05:54:03.095152109 init.cpp:774] Warning: nvfuser is no longer supported in torch script",
    "time (ms) | forward-compute: {p}.79 | backward-compute: 462.83 | optimizer: 82.95 | batch-generator: 2.1",
    "node{n:02d}:{p}:{q} [{g}] NCCL INFO comm 0x14da8c001060 rank {r} nranks 64 cudaDev {g} busId 1a000",
)
STEP = (
    " iteration {i:8d}/{total:8d} | consumed samples: {samples:12d} | consumed tokens: {tokens:12d} |"
    " elapsed time per iteration (ms): {ms:.1f} | learning rate: {lr:.3E} | global batch size:    64 |"
    " lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} | actual seqlen:  2048 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: {sps:.3f} |"
    " tokens per gpu per second (tgs): {tgs:.3f} | TFLOPs: {tflops:.2f} |"
)


def log_lines(seed: int = 1) -> Iterator[str]:
    """An endless Megatron-DeepSpeed log: one line in five a step, the rest noise, 64 ranks labelled."""
    rng = random.Random(seed)
    iteration = 0
    while True:
        if rng.random() < 0.2:
            iteration += 1
            ms = 3700 + 50 * rng.random()
            yield "63: " + STEP.format(
                i=iteration, total=9_000_000, samples=64 * iteration, tokens=131072 * iteration, ms=ms,
                lr=1e-4 * rng.random(), loss=2 + rng.random(), norm=rng.random(), sps=64000 / ms,
                tgs=2_048_000 / ms, tflops=1_750_000 / ms,
            )  # fmt: skip
        else:
            rank = rng.randrange(64)
            noise = rng.choice(NOISE).format(
                n=rank // 8, g=rank % 8, r=rank, s=(rank + 1) % 64, c=rank % 12,
                p=rng.randrange(9999), q=rng.randrange(99999),
            )  # fmt: skip
            yield f"{rank:2d}: {noise}"


TIMERS = (
    "forward-backward", "forward-compute", "backward-compute", "batch-generator", "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce", "all-grads-sync", "optimizer-copy-to-main-grad", "optimizer-unscale-and-check-inf",
    "optimizer-clip-main-grad", "optimizer-count-zeros", "optimizer-inner-step",
    "optimizer-copy-main-to-model-params", "optimizer",
)  # fmt: skip


def _step(rng: random.Random, iteration: int) -> str:
    ms = 3700 + 50 * rng.random()
    return STEP.format(
        i=iteration, total=9_000_000, samples=64 * iteration, tokens=131072 * iteration, ms=ms, lr=1e-4,
        loss=2 + rng.random(), norm=rng.random(), sps=64000 / ms, tgs=2_048_000 / ms, tflops=1_750_000 / ms,
    )  # fmt: skip


def least_and_most(steps: int, seed: int = 3) -> Iterator[str]:
    """Megatron's timers at every step, the least and the most over the ranks."""
    rng = random.Random(seed)
    for iteration in range(1, steps + 1):
        yield "63: " + _step(rng, iteration)
        yield "63: (min, max) time across ranks (ms):"
        for name in TIMERS:
            low = 100 * rng.random() + 10
            yield f"63:     {(name + ' ').ljust(48, '.')}: ({low:.2f}, {low * 1.02:.2f})"


def every_rank(steps: int, ranks: int = 8, seed: int = 3) -> Iterator[str]:
    """The same, with a line a rank."""
    rng = random.Random(seed)
    for iteration in range(1, steps + 1):
        yield "63: " + _step(rng, iteration)
        yield "63: times across ranks (ms):"
        for name in TIMERS:
            yield f"63:   {name}:"
            yield from (f"63:      rank {rank:2d}: {100 * rng.random() + 10:.2f}" for rank in range(ranks))


def with_engine(steps: int, seed: int = 3) -> Iterator[str]:
    """What DeepSpeed's engine prints of every step, before the trainer's own line."""
    rng = random.Random(seed)
    for iteration in range(1, steps + 1):
        step, rate = _step(rng, iteration), 17 + rng.random()
        head = "0: [2026-05-22 21:15:09,288] [INFO]"
        yield f"0: steps: {iteration} loss: 2.5120 iter time (s): {64 / rate:.3f} samples/sec: {rate:.3f}"
        yield f"{head} [logging.py:96:log_dist] [Rank 0] step={iteration}, skipped=0, lr=[0.0001], mom=[(0.9, 0.95)]"
        yield (
            f"{head} [timer.py:199:stop] epoch=0/micro_step={iteration}/global_step={iteration},"
            f" RunningAvgSamplesPerSec={rate}, CurrSamplesPerSec={rate}, MemAllocated=59.61GB, MaxMemAllocated=63.29GB"
        )
        yield f"{head} [logging.py:96:log_dist] [Rank 0] time (ms) | fwd_microstep: 1330.05 | bwd_microstep: 4766.88"
        yield "63: " + step
        yield from ["0: [rank0]:[W1130 05:54:03 init.cpp:774] Warning: nvfuser is no longer supported"] * 6


def write_log(path: Path, megabytes: float) -> int:
    """Writes such a log; its lines."""
    count, size, lines = 0, 0, log_lines()
    with path.open("w") as file:
        while size < megabytes * 1e6:
            block = "\n".join(next(lines) for _ in range(2000)) + "\n"
            file.write(block)
            size += len(block)
            count += 2000
    return count


_PLAIN = {
    "iteration": re.compile(r"iteration\s+(\d+)/\s*(\d+)"),
    "step_time_ms": re.compile(r"elapsed time per iteration \(ms\): ([\d.]+)"),
    "learning_rate": re.compile(r"learning rate: ([\d.E+-]+)"),
    "global_batch_size": re.compile(r"global batch size:\s+(\d+)"),
    "consumed_samples": re.compile(r"consumed samples:\s+(\d+)"),
    "loss": re.compile(r"lm loss: ([\d.E+-]+)"),
    "loss_scale": re.compile(r"loss scale: ([\d.]+)"),
    "grad_norm": re.compile(r"grad norm: ([\d.]+)"),
    "skipped": re.compile(r"number of skipped iterations:\s+(\d+)"),
    "nan": re.compile(r"number of nan iterations:\s+(\d+)"),
    "samples_per_second": re.compile(r"samples per second: ([\d.]+)"),
    "tokens_per_second_per_gpu": re.compile(r"\(tgs\): ([\d.]+)"),
    "logged_tflops": re.compile(r"TFLOPs: ([\d.]+)"),
}


def plain_reader(path: Path) -> list[dict[str, float]]:
    """The straightforward way: every line, a regular expression a field."""
    steps = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            match = _PLAIN["iteration"].search(line)
            if match is None or "elapsed time per iteration" not in line:
                continue
            step = {
                name: float(m.group(1)) for name, pattern in _PLAIN.items() if (m := pattern.search(line))
            }
            steps.append(step)
    return steps


def seconds(work: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """The least CPU time of a few runs (children included; other work shares machines), and what the work gave."""
    best, result = float("inf"), None
    for _ in range(times):
        began = _cpu()
        result = work()
        best = min(best, _cpu() - began)
    return best, result


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def peak_mib() -> float:
    """The most memory this process held (VmHWM: getrusage would tell of the parent's)."""
    return float(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024


def show(what: str, value: str, goal: str) -> None:
    print(f"{what:<58} {value:>16}   goal {goal}", flush=True)


def parsing(folder: Path, megabytes: float) -> None:
    from gpt_tune.logs.parse import parse_files

    path = folder / "big.log"
    lines = write_log(path, megabytes)
    environment = {**os.environ, "LC_ALL": "C"}
    grep, _ = seconds(
        lambda: subprocess.run(["grep", "-cF", "iteration", path], env=environment, capture_output=True)
    )
    start, _ = seconds(
        lambda: subprocess.run(["grep", "-cF", "x", os.devnull], env=environment, capture_output=True)
    )
    fast, result = seconds(lambda: parse_files([path]))
    print(
        f"{megabytes:.0f} MB, {lines:,} lines, {result.summary.steps:,} steps; grep {grep:.3f} s, parse {fast:.3f} s"
    )
    show("full parse / grep -cF iteration", f"{fast / grep:.1f} x", "<= 10 x")
    show("the same without grep's start-up", f"{fast / max(grep - start, 1e-3):.1f} x", "")
    slow, plain = seconds(lambda: plain_reader(path), 1)
    same = len(plain) == result.summary.steps and all(
        all(float(getattr(step, name)) == value for name, value in row.items())
        for step, row in zip(result.steps(), plain)
    )
    show("plain per-line reader / full parse", f"{slow / fast:.1f} x", ">= 3 x")
    show("identical results", str(same), "True")


def timers(folder: Path, megabytes: float) -> None:
    """Logs with much beside every step, of which the plain reader reads nothing."""
    from gpt_tune.logs.parse import parse_files

    cases: dict[str, tuple[Callable[[int], Iterator[str]], int]] = {
        "timers of least and most": (least_and_most, 1500),
        "timers of 8 ranks": (every_rank, 3600),
        "engine lines": (with_engine, 1750),
    }
    for name, (lines, size) in cases.items():
        path = folder / "timers.log"
        path.write_text("\n".join(lines(max(100, int(megabytes * 1e6 / size)))) + "\n")
        slow, plain = seconds(lambda path=path: plain_reader(path), 1)  # type: ignore[misc]
        fast, result = seconds(lambda path=path: parse_files([path]))  # type: ignore[misc]
        assert len(plain) == result.summary.steps
        show(f"{name} at every step, full parse / plain reader", f"{fast / slow:.1f} x", "")


def opening(folder: Path) -> None:
    from gpt_tune.workflows.watch import Watch

    path = folder / "sparse.log"
    text = "\n".join(line for line, _ in zip(log_lines(), range(5000))) + "\n"
    with path.open("wb") as file:
        file.truncate(50 * 10**9)
        file.seek(0, 2)
        file.write(b"\n" + text.encode())
    began = time.perf_counter()
    watch = Watch([path])
    update = watch.poll()
    points = len(watch.series("loss")[0])
    took = time.perf_counter() - began
    assert update.pace.iteration is not None
    show(f"opening 50 GB to first charts ({points} points)", f"{took:.2f} s", "< 1 s")


def following(folder: Path, rate: int = 10_000, polls: int = 20) -> None:
    """CPU time that `rate` lines a second cost, read twice a second."""
    from gpt_tune.workflows.watch import Watch

    path = folder / "live.log"
    path.write_text("")
    watch, lines = Watch([path]), log_lines()
    watch.poll()
    cpu = 0.0
    for _ in range(polls):
        with path.open("a") as file:
            file.write("\n".join(next(lines) for _ in range(rate // 2)) + "\n")
        began = time.process_time()
        watch.poll()
        watch.series("loss")
        cpu += time.process_time() - began
    show(f"following {rate:,} lines/s", f"{cpu / (polls / 2):.1%} of a core", "< 25 %")
    idle = [Watch([path]) for _ in range(8)]
    for other in idle:
        while other.poll().history < 1.0:
            pass
    began = time.process_time()
    for _ in range(20):
        for other in idle:
            other.poll()
    show(
        "idle with 8 followed jobs, polled twice a second",
        f"{(time.process_time() - began) / 10:.2%} of a core",
        "< 1 %",
    )


_MEMORY = """
import sys
from gpt_tune.logs.parser import LogParser
from gpt_tune.diagnosis import Diagnoser
sys.path.insert(0, {root!r})
from benchmarks.logs import log_lines, peak_mib
base = peak_mib()
parser, diagnoser, lines = LogParser(), Diagnoser(), log_lines()
for _ in range({lines} // 10000):
    block = ("\\n".join(next(lines) for _ in range(10000)) + "\\n").encode()
    diagnoser.feed_block(block, "a")
    parser.feed_block(block, "a")
print(peak_mib(), base, len(parser.best))
"""


def memory(lines: int) -> None:
    code = _MEMORY.format(root=str(ROOT), lines=lines)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    most, base, steps = done.stdout.split()
    goal = f"< 150 MB (start {float(base):.0f})"
    show(f"memory after {lines:,} lines ({int(steps):,} steps)", f"{float(most):.0f} MB", goal)


def corpus() -> None:
    sys.path.insert(0, str(ROOT))
    from gpt_tune.diagnosis import diagnose
    from gpt_tune.logs.parse import parse_files, parse_json
    from tests.logs.test_corpus import mismatches

    expected: dict[str, Any] = json.loads((CORPUS / "expected.json").read_text())
    parsed = right = alarms = 0
    for number, want in expected.items():
        path = next(CORPUS.glob(f"{number}-*.log"))
        parsed += not mismatches(want, parse_json(parse_files([path])))
        got = diagnose([path])
        identity = got.root_cause.id if got.root_cause else None
        fits = got.status in want["status"] and identity in want.get("root_cause", [identity])
        right += fits and identity not in want.get("not", [])
        alarms += got.alarming and "healthy" in want["status"]
    total = len(expected)
    show("corpus: extraction", f"{parsed}/{total}", "100 %")
    show("corpus: diagnosis", f"{right}/{total}", ">= 95 %")
    show("corpus: false alarms on healthy logs", str(alarms), "0")


def hostile() -> None:
    from gpt_tune.diagnosis import Diagnoser
    from gpt_tune.logs.clean import split_lines
    from gpt_tune.logs.parser import LogParser

    worst, what = 0.0, ""
    for piece in (
        b"1",
        b"iteration        1/       2 | ",
        b"{'loss': ",
        b"\x1b[",
        b" lm loss: 1.0 |",
        b"CUDA out of memory. ",
    ):
        raw = (piece * (1 << 20))[: 1 << 20] + b"\n"

        def work(raw: bytes = raw) -> None:
            lines, _ = split_lines(raw)
            LogParser().feed(lines)
            Diagnoser().feed(lines)

        took, _ = seconds(work)
        if took > worst:
            worst, what = took, piece.decode("latin-1")
    show(f"a hostile line of 1 MB (worst: {what!r})", f"{worst * 1000:.0f} ms", "< 50 ms")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--megabytes", type=float, default=50.0, help="size of the parsed log (1000 for the goal)"
    )
    options.add_argument(
        "--lines", type=int, default=500_000, help="lines for the memory figure (10,000,000 for the goal)"
    )
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus()
        parsing(folder, chosen.megabytes)
        timers(folder, chosen.megabytes)
        opening(folder)
        following(folder)
    memory(chosen.lines)
    hostile()


if __name__ == "__main__":
    main()
