"""Time a few real steps of the NumPy trainer on this machine and print them as JSON: {"seconds": [...]}.

Takes the trainer's own arguments. The first step, which warms up, is left out unless it is the only one.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import options
import train

BUDGET_SECONDS = 0.4
MOST_STEPS = 30


def main():
    args = options.parse()
    train.limit_threads(args)
    train.keep_memory()
    import loop
    import numpy_gpt

    shape = options.shape_of(args)
    trainer = numpy_gpt.NumpyTrainer(shape, args)
    corpus = loop.Corpus(Path(__file__).with_name("corpus.txt"), shape.seq_length, args.seed)
    seconds = []
    end = time.perf_counter() + BUDGET_SECONDS
    while not seconds or (len(seconds) < MOST_STEPS and time.perf_counter() < end):
        windows = corpus.windows(len(seconds), 0, args.micro_batch_size)
        begin = time.perf_counter()
        trainer.step(windows, args.learning_rate)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds[1:] or seconds}))


if __name__ == "__main__":
    main()
