"""Owns two 0.1 s measurements of this machine, run as a script of its own: `matmul_probe.py ROWS INNER`.

Prints JSON: FLOP/s of a float32 matrix product (rows x inner) @ (inner x 4 inner), and seconds per element
of one elementwise pass. A separate process, because NumPy takes its number of threads when it is imported.
"""

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable

BUDGET_SECONDS = 0.1


def _keep_memory() -> None:
    """As the smoke trainer does: without it page faults are measured instead."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 1 << 30)
        libc.mallopt(-1, (1 << 31) - 1)
    except (OSError, AttributeError):
        return


def _usual_seconds(work: Callable[[], object]) -> float:
    work()
    times: list[float] = []
    end = time.perf_counter() + BUDGET_SECONDS
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    # The faster quarter: other work on this machine would otherwise pass for its speed.
    return statistics.quantiles([*times, times[0]], n=4)[0]


def main(rows: int, inner: int) -> None:
    _keep_memory()
    import numpy as np

    left = np.full((rows, inner), 0.5, np.float32)
    right = np.full((inner, 4 * inner), 0.5, np.float32)
    product = _usual_seconds(lambda: left @ right)
    u = left @ right / inner
    passes = 5  # multiply, add, multiply, multiply, tanh
    elementwise = _usual_seconds(lambda: np.tanh(u * 0.5 * (1 + u * u)))
    print(
        json.dumps(
            {
                "flops_per_second": 2 * rows * inner * 4 * inner / product,
                "seconds_per_element": elementwise / (passes * u.size),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
