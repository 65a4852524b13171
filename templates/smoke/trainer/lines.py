"""What the smoke trainer prints, in the words of Megatron-DeepSpeed, so that the same reader follows both."""

from __future__ import annotations

import time


def flops_per_iteration(shape, samples):
    """FLOPs of forward and backward as Megatron-DeepSpeed counts them: dense attention, no recompute."""
    tokens = samples * shape.seq_length
    projections = 4 * shape.hidden * shape.hidden  # q, k, v and output
    attention = 2 * shape.seq_length * shape.hidden  # scores and mixing
    mlp = 2 * shape.hidden * shape.ffn
    multiply_adds = tokens * (shape.layers * (projections + attention + mlp) + shape.vocab * shape.hidden)
    return 2 * 3 * multiply_adds


def parameter_count(shape):
    """Parameters of the model, tied output projection counted once."""
    h, f = shape.hidden, shape.ffn
    layer = 4 * h * h + 2 * h * f + 9 * h + f
    return (shape.vocab + shape.seq_length) * h + shape.layers * layer + 2 * h


def arguments(values):
    """The dump of arguments at the start, one line each, sorted."""
    rows = sorted(f"  {k} {'.' * (48 - len(k))} {v}" for k, v in values.items())
    head = "------------------------ arguments ------------------------"
    return "\n".join([head, *rows, "-------------------- end of arguments ---------------------"])


def iteration(done, total, batch, shape, seconds, learning_rate, loss, grad_norm, ranks):
    """One step line; `seconds` is the mean time of an iteration.

    TFLOPs has five decimals where Megatron-DeepSpeed has two: a CPU does hundredths of one.
    A loss that is not a number leaves its field out, as there.
    """
    samples_per_second = batch / seconds
    tflops = flops_per_iteration(shape, batch) / seconds / ranks / 1e12
    fields = [
        f"iteration {done:8d}/{total:8d}",
        f"consumed samples: {done * batch:12d}",
        f"consumed tokens: {done * batch * shape.seq_length:12d}",
        f"elapsed time per iteration (ms): {seconds * 1e3:.1f}",
        f"learning rate: {learning_rate:.3E}",
        f"global batch size: {batch:5d}",
        *([f"lm loss: {loss:.6E}"] if loss > 0 else []),
        "loss scale: 1.0",
        f"grad norm: {grad_norm:.3f}",
        f"actual seqlen: {shape.seq_length:5d}",
        f"number of skipped iterations: {0:3d}",
        f"number of nan iterations: {0:3d}",
        f"samples per second: {samples_per_second:.3f}",
        f"tokens per gpu per second (tgs): {samples_per_second * shape.seq_length / ranks:.3f}",
        f"TFLOPs: {tflops:.5f}",
    ]
    return " " + " | ".join(fields) + " |"


def moment(text):
    """A dated milestone, such as the end of training."""
    return f"[{text}] datetime: {time.strftime('%Y-%m-%d %H:%M:%S')} "
