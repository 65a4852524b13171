"""The training loop: batches, learning rate, step lines, checkpoints, and leaving when told to."""

from __future__ import annotations

import math
import random
import statistics
import time
from pathlib import Path

import checkpoints
import lines

CALIBRATION_SECONDS = 1.0
LINE_SECONDS = 0.2


class Corpus:
    """The shipped text as tokens, cut into random windows that depend only on seed, iteration and rank."""

    def __init__(self, path, length, seed):
        self.tokens = path.read_bytes()
        # A window longer than the text would be empty: repeat the text until it fits.
        while len(self.tokens) <= length + 1:
            self.tokens += self.tokens
        self.length = length
        self.seed = seed

    def windows(self, iteration, rank, count):
        """`count` windows of length + 1 tokens, as bytes."""
        choose = random.Random(f"{self.seed}/{iteration}/{rank}")
        starts = [choose.randrange(len(self.tokens) - self.length) for _ in range(count)]
        return [self.tokens[s : s + self.length + 1] for s in starts]


class Pace:
    """How many iterations there will be and how often to print and save; set by the first steps' time."""

    def __init__(self, args, total=0):
        self.args = args
        self.total = total or args.steps
        self.interval = args.log_interval
        self.save_interval = args.save_interval
        self.spent = []

    def known(self, iteration):
        """Whether enough steps were timed to fix the numbers."""
        enough = sum(self.spent) >= CALIBRATION_SECONDS and len(self.spent) >= 2
        return enough or len(self.spent) >= self.args.warmup or (0 < self.total <= iteration)

    def fix(self, iteration, agree):
        """Fix total and intervals; `agree` makes every rank use rank 0's."""
        # The first step pays for warming up and would make the total too small.
        usual = statistics.median(self.spent[1:] or self.spent)
        left = self.args.seconds - sum(self.spent)
        total = self.total or max(iteration + 1, iteration + round(left / usual))
        interval = self.interval or max(1, min(round(LINE_SECONDS / usual), total // 20))
        save = self.save_interval or max(1, math.ceil(total / 4))
        self.total, self.interval, self.save_interval = (int(n) for n in agree([total, interval, save]))


def learning_rate(args, iteration, total):
    """Linear warm-up, then a cosine down to the minimum. During warm-up the total may be unknown (0)."""
    if iteration <= args.warmup:
        return args.learning_rate * iteration / max(1, args.warmup)
    part = min(1.0, (iteration - args.warmup) / max(1, total - args.warmup))
    spread = args.learning_rate - args.min_learning_rate
    return args.min_learning_rate + 0.5 * spread * (1.0 + math.cos(math.pi * part))


class Run:
    """One training run of this process's rank."""

    def __init__(self, args, shape, place, trainer, meeting, stop):
        self.args, self.shape, self.place, self.trainer = args, shape, place, trainer
        self.meeting, self.stop = meeting, stop
        self.batch = args.micro_batch_size * trainer.ranks
        self.corpus = Corpus(Path(__file__).with_name("corpus.txt"), shape.seq_length, args.seed)
        self.first, total = checkpoints.load(args.save, trainer, self.say)
        self.pace = Pace(args, total)
        self.waiting = []  # results of iterations whose line is not printed yet

    def say(self, text):
        """Print on rank 0 only, at once."""
        if self.place.rank == 0:
            print(text, flush=True)

    def train(self):
        """Train to the end or until told to stop; every way out has saved."""
        fixed = False
        iteration = self.first
        if 0 < self.pace.total <= iteration:
            self.say(f"smoke: all {self.pace.total} iterations are done already, nothing to train.")
            return iteration
        while not fixed or iteration < self.pace.total:
            iteration += 1
            self._step(iteration)
            # Ranks' clocks differ: what one of them decides, all must decide in the same iteration.
            if not fixed and self.trainer.any(self.pace.known(iteration)):
                self.pace.fix(iteration, self.trainer.agree)
                self._announce()
                fixed = True
            if fixed:
                self._print_ready()
            if self.trainer.any(bool(self.stop)):
                return self._leave(iteration, fixed)
            if self._due(iteration):
                self._save(iteration)
        self._print_ready(rest=True)
        self.say(lines.moment("after training is done"))
        self._save(iteration)
        return iteration

    def _due(self, iteration):
        """Whether to save now: every interval once that is known, except at the end, which always saves."""
        interval = self.pace.save_interval
        return interval > 0 and iteration % interval == 0 and iteration != self.pace.total

    def _step(self, iteration):
        rate = learning_rate(self.args, iteration, self.pace.total)
        windows = self.corpus.windows(iteration, self.place.rank, self.args.micro_batch_size)
        begin = time.perf_counter()
        loss, norm = self.trainer.step(windows, rate)
        seconds = time.perf_counter() - begin
        if len(self.pace.spent) < 1000:
            self.pace.spent.append(seconds)
        self.waiting.append((iteration, seconds, rate, loss, norm))
        if self.place.rank == 0:
            self.meeting.beat()

    def _print_ready(self, rest=False):
        """Print a line for each full interval of waiting results (with `rest`, also for an unfinished one)."""
        while self.waiting:
            end = next((n for n, r in enumerate(self.waiting) if r[0] % self.pace.interval == 0), None)
            if end is None and not rest:
                return
            part = self.waiting[: len(self.waiting) if end is None else end + 1]
            self.waiting = self.waiting[len(part) :]
            self._line(part)

    def _line(self, part):
        iteration, _, rate, _, norm = part[-1]
        seconds = sum(r[1] for r in part) / len(part)
        loss = sum(r[3] for r in part) / len(part)
        self.say(
            lines.iteration(
                iteration,
                self.pace.total,
                self.batch,
                self.shape,
                seconds,
                rate,
                loss,
                norm,
                self.trainer.ranks,
            )
        )

    def _announce(self):
        args, shape = self.args, self.shape
        values = {
            "adam_beta1": args.beta1,
            "adam_beta2": args.beta2,
            "attention_dropout": 0.0,
            "bf16": self.trainer.device == "cuda",
            "clip_grad": args.clip,
            "data_parallel_size": self.trainer.ranks,
            "ffn_hidden_size": shape.ffn,
            "global_batch_size": self.batch,
            "hidden_dropout": 0.0,
            "hidden_size": shape.hidden,
            "log_interval": self.pace.interval,
            "lr": args.learning_rate,
            "lr_decay_style": "cosine",
            "lr_warmup_iters": args.warmup,
            "max_position_embeddings": shape.seq_length,
            "micro_batch_size": args.micro_batch_size,
            "min_lr": args.min_learning_rate,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads,
            "num_layers": shape.layers,
            "padded_vocab_size": shape.vocab,
            "pipeline_model_parallel_size": 1,
            "ranks_started": self.place.world,
            "save": args.save,
            "save_interval": self.pace.save_interval,
            "seed": args.seed,
            "seq_length": shape.seq_length,
            "smoke_device": self.trainer.device,
            "tensor_model_parallel_size": 1,
            "train_iters": self.pace.total,
            "vocab_size": shape.vocab,
            "weight_decay": args.weight_decay,
            "world_size": self.trainer.ranks,
            "zero_stage": 0,
        }
        self.say(lines.arguments(values))
        self.say(f" > number of parameters: {lines.parameter_count(shape)}")

    def _save(self, iteration):
        checkpoints.save(self.args.save, self.trainer, iteration, self.pace.total, self.place.rank, self.say)

    def _leave(self, iteration, fixed):
        if not fixed:
            self.pace.fix(iteration, self.trainer.agree)
            self._announce()
        self._print_ready(rest=True)
        self._save(iteration)
        self.say(
            lines.moment(f"exiting program after receiving {self.stop[0] if self.stop else 'a signal'}.")
        )
        return iteration
