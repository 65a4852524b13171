"""Owns measuring the planner's speed: its two goals, and layouts per second on one core against Calculon.

    python benchmarks/planner_speed.py [--calculon PATH_TO_CHECKOUT] [--seconds 10]

Calculon (github.com/calculon-ai/calculon) is skipped when no checkout is given; the rate then compared with is
one measured earlier on another machine. Its count and ours both include the layouts found illegal.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpt_tune.planner import build_request, search
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.judge import judge
from gpt_tune.planner.types import PlanRequest

EARLIER_CALCULON = 253.0  # layouts/s on one core, measured when the goals were set
REPEATS = 9

# Runs inside a fresh interpreter: Calculon's own search loop over GPT-3 175B on 64 GPUs, stopped by the clock.
CALCULON = """
import itertools, json, sys, time, types
sys.path.insert(0, sys.argv[1])
for needed_only_by_its_command_line in ("psutil", "pandas"):
    try:
        __import__(needed_only_by_its_command_line)
    except ImportError:
        sys.modules[needed_only_by_its_command_line] = types.SimpleNamespace(cpu_count=lambda logical=True: 1)
import calculon
from calculon.llm import Llm, OptimalExecution, System
root, limit = sys.argv[1], float(sys.argv[2])
app = Llm.Application(calculon.io.read_json_file(root + "/models/gpt3-175B.json"))
system = System(calculon.io.read_json_file(root + "/systems/a100_80g.json"))
done, good, start = 0, 0, time.perf_counter()
splits = [(t, p) for t in Llm.get_all_tensor_parallelisms(64, app.hidden, app.attn_heads)
          for p in Llm.get_all_pipeline_parallelisms(64, t, app.num_blocks)]
# From the middle outwards, so that a short run sees layouts that fit as well as ones that do not.
splits.sort(key=lambda s: abs(s[0] * s[1] - 32))
for (tp, pp), recompute in itertools.product(splits, ["full", "attn_only", "none"]):
    dp = Llm.get_data_parallelism(64, tp, pp)
    found = OptimalExecution.search(False, 1, False, 64, 256, "float16", app, system, tp, pp, dp, 1, 256,
                                    recompute, dp > 1, "ar", [True], False, True, True)
    done, good = done + found[1], good + found[2]
    if time.perf_counter() - start > limit:
        break
print(json.dumps({"rate": done / (time.perf_counter() - start), "done": done, "good": good}))
"""


def calculon_rate(checkout: Path, seconds: float) -> float:
    """Layouts a second of Calculon on this core."""
    command = [sys.executable, "-c", CALCULON, str(checkout), str(seconds)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"  Calculon: {found['done']} layouts ({found['good']} feasible), {found['rate']:.0f} a second")
    return float(found["rate"])


def timed(name: str, request: PlanRequest, goal: float) -> None:
    """Print how long whole searches take."""
    first = search(request)
    later = [search(request).seconds for _ in range(REPEATS)]
    typical = statistics.median(later)
    verdict = "reached" if typical < goal else "MISSED"
    print(
        f"{name}: {first.searched} layouts, first {first.seconds:.3f} s, median {typical:.3f} s "
        f"(best {min(later):.3f}), goal {goal} s {verdict}, {goal / typical:.1f} x faster"
    )


def our_rate(request: PlanRequest) -> tuple[float, float]:
    """Layouts judged, and layouts fully estimated (memory and time), a second."""
    evaluator = Evaluator(request)
    judge(evaluator)
    start = time.perf_counter()
    found = judge(evaluator)
    spent = time.perf_counter() - start
    legal = found.batch.take(found.legal)
    start = time.perf_counter()
    evaluator.oom_probability(legal)
    evaluator.seconds(legal)
    estimating = time.perf_counter() - start
    print(
        f"  gpt-tune: {len(found.batch)} judged in {spent:.3f} s, {len(legal)} estimated in {estimating:.3f} s"
    )
    return len(found.batch) / spent, len(legal) / estimating


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calculon", type=Path, help="a checkout of Calculon")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long Calculon runs")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    timed("145.6B on 64 B200", build_request("gpt-145b", 64, gpu="p6-b200"), 0.05)
    timed("1T on 16,384 H100", build_request("gpt-1t", 16384, gpu="h100"), 1.0)
    wide = build_request("gpt-1t", 16384, gpu="h100", trainer="megatron-lm")
    timed("1T on 16,384 H100, Megatron-LM's space", wide, 1.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"peak memory {peak:.0f} MB, goal 500 MB {'reached' if peak < 500 else 'MISSED'}, {500 / peak:.1f} x less"
    )
    print("layouts a second on one core:")
    judged, estimated = our_rate(build_request("gpt-175b", 64, gpu="a100", trainer="megatron-lm"))
    rival = EARLIER_CALCULON
    if options.calculon and options.calculon.is_dir():
        rival = calculon_rate(options.calculon, options.seconds)
    else:
        print(f"  Calculon: skipped (no checkout given); {rival:.0f} a second was measured earlier elsewhere")
    print(f"  judged {judged:,.0f} a second, {judged / rival:,.0f} x Calculon")
    print(f"  estimated {estimated:,.0f} a second, {estimated / rival:,.0f} x Calculon (goal 1,000 x)")


if __name__ == "__main__":
    main()
