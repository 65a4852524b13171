"""Owns the time of one transformer layer, of the embedding and of the output end, for one micro-batch.

Memory-bound work is counted in hidden-state copies: one unit is 2 s b h bytes, read or written once.
The counts come from reading the operations of Megatron's layer; the backward of a chain of n pointwise
kernels costs about twice its forward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt_tune.models import parameters
from gpt_tune.models.shape import ModelShape
from gpt_tune.timing import kernels, network
from gpt_tune.timing.constants import Constants

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Micro:
    """What decides the time of one micro-batch in one layer, a row per distinct combination."""

    tensor: Ints
    context: Ints
    ulysses: Bools
    expert: Ints
    micro_batch: Ints
    sequence_parallel: Bools
    flash: Bools
    speed: Floats  # of matrix products, over 16-bit
    seq_length: Ints
    hooks: Ints  # parameters fetched and released by Python (DeepSpeed's ZeRO-3): 1 alone, 2 with peers
    fused_softmax: bool = True


def tensors_of_layer(model: ModelShape) -> int:
    """Parameter tensors of one layer."""
    return 12 if model.linear_bias else 7


# Host-bound layers of vTrain's 8-GPU runs take 3.0, 3.4, 3.4, 4.1 ms at tensor parallel 1, 2, 4, 8.
WAIT_PER_DOUBLING = 0.1


@dataclass(frozen=True, slots=True)
class Pass:
    """Seconds of one pass (forward or backward): GPU work, communication, and host time to issue it."""

    gpu: Floats
    tensor: Floats
    context: Floats
    expert: Floats
    host: Floats

    def plus(self, other: Pass) -> Pass:
        return Pass(
            self.gpu + other.gpu,
            self.tensor + other.tensor,
            self.context + other.context,
            self.expert + other.expert,
            self.host + other.host,
        )

    def times(self, factor: Floats | float) -> Pass:
        return Pass(
            self.gpu * factor,
            self.tensor * factor,
            self.context * factor,
            self.expert * factor,
            self.host * factor,
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """Hidden-state copies moved by a layer, forward and backward, and kernels issued.

    outside: on the residual stream (whole on every tensor-parallel rank without sequence parallelism);
    inside: on what tensor parallelism divides, attention; mlp: the same, in copies of the MLP width.
    """

    outside: tuple[float, float]
    inside: tuple[float, float]
    mlp: tuple[float, float]
    kernels: tuple[float, float]


def counts(model: ModelShape, dropout: bool, fused: float) -> Counts:
    """Copies of one layer; fused between 0 (every pointwise operation its own kernel) and 1 (chains fused)."""

    def mix(eager: float, one_kernel: float) -> float:
        return eager + (one_kernel - eager) * fused

    norms = (4.0, 10.0)
    # bias + dropout + residual, twice: 2 + 2.5 + 3 copies one by one, 3.5 in one kernel.
    bias = 1.0 if model.linear_bias else 0.0
    drop = 1.0 if dropout else 0.0
    joins = (
        2 * mix(2 * bias + 2.5 * drop + 3, 3 + 0.5 * drop),
        2 * mix(1 * bias + 2.5 * drop + 3, 2 + 1.5 * drop),
    )
    # Rotating q and k: two products, half turn, concatenation, sum.
    turns = model.positions == "rotary"
    rotary = (mix(24.0, 6.0), mix(30.0, 6.0)) if turns else (0.0, 0.0)
    # Splitting and transposing q, k, v and the context.
    reshapes = (8.0, 10.0)
    if model.gated_mlp:
        mlp = (mix(5.0, 3.0), mix(14.0, 5.0))  # silu, product; their backward and the joined gradient
        kernels_ = (20.0, 36.0)
    else:
        mlp = (mix(23.0, 2.0), mix(50.0, 4.0))  # TorchScript's tanh GELU: 10 and 22 kernels when unfused
        kernels_ = (30.0, 60.0)
    return Counts(
        outside=(norms[0] + joins[0], norms[1] + joins[1]),
        inside=(reshapes[0] + rotary[0], reshapes[1] + rotary[1]),
        mlp=mlp,
        kernels=(
            mix(kernels_[0] + 16.0 * turns, 20.0 + 2.0 * turns),
            mix(kernels_[1] + 16.0 * turns, 32.0 + 2.0 * turns),
        ),
    )


class LayerTimer:
    """Times of one model on one kind of node, for rows of `Micro`."""

    def __init__(
        self, model: ModelShape, micro: Micro, domain: int, constants: Constants, dropout: bool
    ) -> None:
        self.model, self.micro, self.constants, self.domain = model, micro, constants, domain
        self.t = micro.tensor.astype(np.float64)
        self.b = micro.micro_batch.astype(np.float64)
        self.s = micro.seq_length / micro.context
        self.tokens = self.s * self.b
        self.counts = counts(model, dropout, constants.fused_pointwise)
        self.dropout = dropout
        self.unit = 2.0 * self.tokens * model.hidden
        self.tensor_link = network.group(micro.tensor, np.ones_like(micro.tensor), domain, constants)
        self.context_link = network.group(micro.context, micro.tensor, domain, constants)
        self.expert_link = network.group(micro.expert, micro.tensor * micro.context, domain, constants)

    def _gemm(
        self,
        k: Floats | float,
        n: Floats | float,
        backward: bool,
        tokens: Floats | None = None,
        speed: Floats | None = None,
    ) -> Floats:
        m = self.tokens if tokens is None else tokens
        kk, nn = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
        c, speed = self.constants, self.micro.speed if speed is None else speed
        if not backward:
            return kernels.product(m, kk, nn, speed, c)
        # Gradients of the input and of the weights.
        return kernels.product(m, nn, kk, speed, c) + kernels.product(nn, m, kk, speed, c)

    def _attention(self, backward: bool) -> Floats:
        """Scores, softmax, dropout and context; flash or one by one."""
        model, c = self.model, self.constants
        # Each context-parallel rank holds s/c queries and sees all keys; ulysses divides heads instead.
        heads = model.heads / self.t
        batch = self.b * heads
        full = self.micro.seq_length.astype(np.float64)
        dense = 4.0 * batch * self.s * full * model.head_size
        # Causal half, plus the diagonal blocks of 128.
        causal = dense * 0.5 * (1.0 + 128.0 / full)
        flash = causal / c.attention_rate * (2.7 if backward else 1.0) + 2 * c.gemm_fixed
        scores = 2.0 * batch * self.s * full
        d = np.full_like(batch, float(model.head_size))
        product = kernels.batched_product(batch, self.s, d, c) * (full / self.s)
        drop = 2.5 if self.dropout else 0.0
        softmax = 2.0 if backward else 1.5
        if not self.micro.fused_softmax:
            # Cast to fp32, scale, mask, softmax, cast back, each its own kernel on 2 or 4 bytes.
            softmax = 20.0 if backward else 18.5
        pointwise = kernels.moved(scores * (softmax + drop), c)
        unfused = (4.0 if backward else 2.0) * product + pointwise
        return np.where(self.micro.flash, flash, unfused)

    def attention_core(self) -> Floats:
        """Seconds of the attention core again, as selective recompute does in backward."""
        return self._attention(False)

    def _mlp(self, width: int, tokens: Floats, backward: bool, share: Floats) -> Floats:
        inputs = 2.0 if self.model.gated_mlp else 1.0
        time = self._gemm(self.model.hidden, inputs * width / share, backward, tokens)
        time = time + self._gemm(width / share, self.model.hidden, backward, tokens)
        copies = self.counts.mlp[1 if backward else 0]
        return time + kernels.moved(2.0 * tokens * width / share * copies, self.constants)

    def _tensor_comm(self, backward: bool) -> Floats:
        """Two all-reduces a pass, or all-gathers with reduce-scatters (one more gather in backward)."""
        link, n_bytes = self.tensor_link, self.unit
        reduce = 2.0 * network.all_reduce(link, n_bytes)
        scatter = (5.0 if backward else 4.0) * network.gather(link, n_bytes)
        return np.where(self.micro.sequence_parallel, scatter, reduce) * (1.0 - self.constants.tensor_overlap)

    def _context_comm(self, backward: bool) -> Floats:
        model = self.model
        head_bytes = 2.0 * self.tokens * model.head_size / self.t
        ring = network.gather(self.context_link, head_bytes * 2.0 * model.kv_heads * self.micro.context)
        moved = head_bytes * (2.0 * model.heads + 2.0 * model.kv_heads)
        exchange = (
            network.all_to_all(self.context_link, moved, self.constants) + 3 * self.context_link.latency
        )
        time = np.where(self.micro.ulysses, exchange, ring * (2.0 if backward else 1.0))
        return np.where(self.micro.context > 1, time, 0.0)

    def layer(self, backward: bool, sparse: bool = False) -> Pass:
        """One layer; sparse: with experts in place of the MLP."""
        model, c, i = self.model, self.constants, 1 if backward else 0
        query = model.heads * model.head_size / self.t
        keys = 2.0 * model.kv_heads * model.head_size / self.t
        gpu = self._gemm(model.hidden, query + keys, backward) + self._gemm(query, model.hidden, backward)
        gpu = gpu + self._attention(backward)
        outside = np.where(self.micro.sequence_parallel, self.t, 1.0)
        gpu = gpu + kernels.moved(self.unit * self.counts.outside[i] / outside, c)
        gpu = gpu + kernels.moved(2.0 * self.tokens * (query + keys) / 3.0 * self.counts.inside[i], c)
        expert = np.zeros_like(gpu)
        kernels_ = self.counts.kernels[i] + np.where(self.micro.flash, 0.0, 6.0 + 4.0 * i)
        if sparse:
            routed = self.tokens * model.experts_per_token
            gpu = gpu + self._mlp(model.expert_ffn, routed, backward, self.t)
            gpu = gpu + kernels.moved(self.unit * model.experts_per_token * 6.0 / outside, c)
            if model.shared_expert_ffn:
                gpu = gpu + self._mlp(model.shared_expert_ffn, self.tokens, backward, self.t)
            n_bytes = self.unit * model.experts_per_token / outside
            expert = 2.0 * network.all_to_all(self.expert_link, n_bytes, c)
            expert = np.where(self.micro.expert > 1, expert, 0.0)
            kernels_ = kernels_ + 30.0
        else:
            gpu = gpu + self._mlp(model.ffn, self.tokens, backward, self.t)
        if backward:
            held = parameters.layer(model, sparse)
            weights = (held.sharded + held.experts / self.micro.expert) / self.t
            gpu = gpu + kernels.moved(c.gradient_bytes * weights, c)
        tensor = np.where(self.micro.tensor > 1, self._tensor_comm(backward), 0.0)
        gpu = gpu + kernels_ * c.gap
        # Backward is issued by autograd in C++. Tensor-parallel ranks wait for the slowest of them, twice a pass.
        host = kernels_ * c.host * (0.5 if backward else 1.0) * (1.0 + WAIT_PER_DOUBLING * np.log2(self.t))
        # Backward fetches weights and hands gradients over.
        fetches = tensors_of_layer(model) * (2.0 if backward else 1.0)
        host = host + fetches * c.zero3 * 0.5 * self.micro.hooks
        return Pass(gpu, tensor, self._context_comm(backward), expert, host)

    def embedding(self, backward: bool) -> Pass:
        """Look-up, positions, dropout, and one all-reduce over tensor-parallel ranks."""
        zero = np.zeros_like(self.tokens)
        gpu = kernels.moved(self.unit * (10.0 if backward else 8.0), self.constants)
        tensor = np.where(
            (self.micro.tensor > 1) & (not backward), network.all_reduce(self.tensor_link, self.unit), 0.0
        )
        return Pass(gpu, tensor, zero, zero, zero + 8 * self.constants.host)

    def head(self, backward: bool) -> Pass:
        """Final norm, logits and cross entropy over the padded vocabulary (fp32 on each rank's slice)."""
        zero = np.zeros_like(self.tokens)
        words = parameters.padded_vocab(self.model, self.micro.tensor) / self.t
        # Logits stay in 16 bit where layers run in fp8.
        speed = np.minimum(self.micro.speed, 1.0)
        gpu = self._gemm(self.model.hidden, words, backward, speed=speed)
        # Logits transposed and made fp32, maximum, shift, exponent, sum, quotient; backward: scale, back to
        # 16 bit, transposed. None of it is fused by TorchScript.
        n_bytes = 20.0 if backward else 40.0
        gpu = gpu + kernels.moved(self.tokens * words * n_bytes, self.constants)
        reduce = 3.0 * network.all_reduce(self.tensor_link, 4.0 * self.tokens)
        if backward:
            gpu = gpu + kernels.moved(
                self.constants.gradient_bytes * words * self.model.hidden, self.constants
            )
            reduce = network.all_reduce(self.tensor_link, self.unit)
        tensor = np.where(self.micro.tensor > 1, reduce, 0.0)
        return Pass(gpu, tensor, zero, zero, zero + 15 * self.constants.host)
