"""What a run prints and when it saves: figures as dicts, marks on whole checkpoints, saving on a signal."""

import signal
import time

import checkpoints
from transformers import TrainerCallback


class Signals:
    """Remembers the signals that mean: save, then stop."""

    def __init__(self):
        self.names = []
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number, _frame):
        self.names.append(signal.Signals(number).name)


class Stopping(TrainerCallback):
    """Saves and stops after the step in which any rank got a signal: all ranks at the same step."""

    def __init__(self, signals, place, device):
        self.signals, self.place, self.device = signals, place, device
        self.stopped = False

    def on_step_end(self, args, state, control, **_others):
        if self._anyone():
            self.place.say(f"signal received: saving at step {state.global_step}, then stopping")
            self.stopped = True
            control.should_save = control.should_training_stop = True
        return control

    def _anyone(self):
        import torch

        mine = bool(self.signals.names)
        if self.place.ranks == 1:
            return mine
        told = torch.tensor([int(mine)], device=self.device)
        torch.distributed.all_reduce(told, op=torch.distributed.ReduceOp.MAX)
        return bool(told.item())


class Marking(TrainerCallback):
    """Says of each checkpoint that it is whole, when every rank has written its part."""

    def __init__(self, strategy, place):
        self.strategy, self.place = strategy, place

    def on_save(self, args, state, control, **_others):
        import torch

        if self.place.ranks > 1:
            torch.distributed.barrier()
        if self.place.leads:
            folder = f"{args.output_dir}/checkpoint-{state.global_step}"
            checkpoints.write_mark(folder, self.strategy, self.place.ranks, state.global_step)
            print(f"checkpoint {folder} is whole", flush=True)
        return control


class Figures(TrainerCallback):
    """Prints the Trainer's dict of figures with its step, how long steps take, and memory."""

    def __init__(self, place):
        self.place = place
        self.since, self.steps = None, 0

    def on_train_begin(self, args, state, control, **_others):
        self.place.say(f"***** Running training *****\n  Total optimization steps = {state.max_steps:,}")
        self.since = time.monotonic()

    def on_step_end(self, args, state, control, **_others):
        self.steps += 1

    def on_evaluate(self, args, state, control, **_others):
        self._begin_again()

    def on_save(self, args, state, control, **_others):
        self._begin_again()

    def _begin_again(self):
        """Neither an evaluation nor a checkpoint is part of a step's time."""
        self.since, self.steps = time.monotonic(), 0

    def on_log(self, args, state, control, logs=None, **_others):
        if not self.place.leads or not logs:
            return
        figures = {k: v for k, v in logs.items() if k != "total_flos"}
        figures["step"], figures["total_steps"] = state.global_step, state.max_steps
        if "loss" in figures and self.steps and self.since is not None:
            figures["step_time_s"] = round((time.monotonic() - self.since) / self.steps, 4)
            self._begin_again()
            figures.update(_memory())
        print(figures, flush=True)


def _memory():
    import torch

    if not torch.cuda.is_available():
        return {}
    gib = 2**30
    return {
        "allocated_gib": round(torch.cuda.max_memory_allocated() / gib, 2),
        "reserved_gib": round(torch.cuda.max_memory_reserved() / gib, 2),
    }
