"""A small GPT in NumPy with a hand-written backward pass: what trains when there is no GPU.

Pre-norm decoder: token and position embeddings, causal multi-head attention, GELU MLP, output
projection tied to the token embedding, mean cross entropy. B is the batch, T the sequence length.
"""

from __future__ import annotations

import functools
import math

import numpy as np

EPSILON = 1e-5
GELU_CUBIC = 0.044715
GELU_SCALE = math.sqrt(2.0 / math.pi)


def initial_parameters(shape, seed=1234, dtype=np.float32):
    """Fresh parameters by name. Residual projections start smaller, by 1/sqrt(2 layers)."""
    rng = np.random.default_rng(seed)
    hidden, ffn = shape.hidden, shape.ffn

    def normal(*size, scale=0.02):
        return (rng.standard_normal(size) * scale).astype(dtype)

    residual = 0.02 / math.sqrt(2 * shape.layers)
    p = {"tokens": normal(shape.vocab, hidden), "positions": normal(shape.seq_length, hidden)}
    for i in range(shape.layers):
        p[f"{i}.norm1.weight"] = np.ones(hidden, dtype)
        p[f"{i}.norm1.bias"] = np.zeros(hidden, dtype)
        p[f"{i}.qkv.weight"] = normal(hidden, 3 * hidden)
        p[f"{i}.qkv.bias"] = np.zeros(3 * hidden, dtype)
        p[f"{i}.out.weight"] = normal(hidden, hidden, scale=residual)
        p[f"{i}.out.bias"] = np.zeros(hidden, dtype)
        p[f"{i}.norm2.weight"] = np.ones(hidden, dtype)
        p[f"{i}.norm2.bias"] = np.zeros(hidden, dtype)
        p[f"{i}.up.weight"] = normal(hidden, ffn)
        p[f"{i}.up.bias"] = np.zeros(ffn, dtype)
        p[f"{i}.down.weight"] = normal(ffn, hidden, scale=residual)
        p[f"{i}.down.bias"] = np.zeros(hidden, dtype)
    p["norm.weight"] = np.ones(hidden, dtype)
    p["norm.bias"] = np.zeros(hidden, dtype)
    return p


def loss_and_gradients(p, shape, inputs, targets):
    """Mean cross entropy of predicting `targets` from `inputs` (both B x T ints), and its gradients by name."""
    batch, length = inputs.shape
    x = p["tokens"][inputs] + p["positions"][:length]
    x = x.reshape(batch * length, shape.hidden)
    saved = []
    for i in range(shape.layers):
        x, attention = _attention(p, i, x, batch, length, shape.heads)
        x, mlp = _mlp(p, i, x)
        saved.append((attention, mlp))
    x, norm = _norm(x, p["norm.weight"], p["norm.bias"])
    loss, d_logits = _cross_entropy(x @ p["tokens"].T, targets.reshape(-1))

    g = {"tokens": d_logits.T @ x}
    dx, g["norm.weight"], g["norm.bias"] = _norm_backward(d_logits @ p["tokens"], p["norm.weight"], norm)
    for i in reversed(range(shape.layers)):
        attention, mlp = saved.pop()
        dx = _mlp_backward(p, g, i, dx, mlp)
        dx = _attention_backward(p, g, i, dx, attention, batch, length, shape.heads)
    dx = dx.reshape(batch, length, shape.hidden)
    g["positions"] = np.zeros_like(p["positions"])
    g["positions"][:length] = dx.sum(axis=0)
    np.add.at(g["tokens"], inputs, dx)
    return loss, g


def _norm(x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    inverse = 1.0 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + EPSILON)
    unit = centred * inverse
    return unit * weight + bias, (unit, inverse)


def _norm_backward(dy, weight, saved):
    unit, inverse = saved
    d_unit = dy * weight
    dx = d_unit - d_unit.mean(axis=-1, keepdims=True)
    dx -= unit * (d_unit * unit).mean(axis=-1, keepdims=True)
    return dx * inverse, (dy * unit).sum(axis=0), dy.sum(axis=0)


@functools.lru_cache(maxsize=4)
def _future(length, dtype):
    """Added to scores: minus infinity above the diagonal."""
    return np.triu(np.full((length, length), -np.inf, dtype), k=1)


def _attention(p, i, x, batch, length, heads):
    normed, norm = _norm(x, p[f"{i}.norm1.weight"], p[f"{i}.norm1.bias"])
    qkv = normed @ p[f"{i}.qkv.weight"] + p[f"{i}.qkv.bias"]
    q, k, v = qkv.reshape(batch, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)
    scores = (q @ k.transpose(0, 1, 3, 2)) / math.sqrt(q.shape[-1])
    scores += _future(length, scores.dtype)
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores, out=scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(batch * length, -1)
    out = x + mixed @ p[f"{i}.out.weight"] + p[f"{i}.out.bias"]
    return out, (norm, normed, q, k, v, weights, mixed)


def _attention_backward(p, g, i, dy, saved, batch, length, heads):
    norm, normed, q, k, v, weights, mixed = saved
    g[f"{i}.out.weight"] = mixed.T @ dy
    g[f"{i}.out.bias"] = dy.sum(axis=0)
    d_mixed = (dy @ p[f"{i}.out.weight"].T).reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)
    d_weights = d_mixed @ v.transpose(0, 1, 3, 2)
    # Softmax; masked positions have weight 0 and so receive none.
    d_scores = weights * (d_weights - (d_weights * weights).sum(axis=-1, keepdims=True))
    d_scores /= math.sqrt(q.shape[-1])
    d_qkv = np.stack(
        (d_scores @ k, d_scores.transpose(0, 1, 3, 2) @ q, weights.transpose(0, 1, 3, 2) @ d_mixed)
    )
    d_qkv = d_qkv.transpose(1, 3, 0, 2, 4).reshape(batch * length, -1)
    g[f"{i}.qkv.weight"] = normed.T @ d_qkv
    g[f"{i}.qkv.bias"] = d_qkv.sum(axis=0)
    d_normed = d_qkv @ p[f"{i}.qkv.weight"].T
    dx, g[f"{i}.norm1.weight"], g[f"{i}.norm1.bias"] = _norm_backward(d_normed, p[f"{i}.norm1.weight"], norm)
    return dy + dx


def _mlp(p, i, x):
    normed, norm = _norm(x, p[f"{i}.norm2.weight"], p[f"{i}.norm2.bias"])
    u = normed @ p[f"{i}.up.weight"] + p[f"{i}.up.bias"]
    squared = u * u
    t = np.tanh(GELU_SCALE * u * (1.0 + GELU_CUBIC * squared))
    active = 0.5 * u * (1.0 + t)
    out = x + active @ p[f"{i}.down.weight"] + p[f"{i}.down.bias"]
    return out, (norm, normed, u, squared, t, active)


def _mlp_backward(p, g, i, dy, saved):
    norm, normed, u, squared, t, active = saved
    g[f"{i}.down.weight"] = active.T @ dy
    g[f"{i}.down.bias"] = dy.sum(axis=0)
    d_active = dy @ p[f"{i}.down.weight"].T
    slope = 0.5 * (1.0 + t) + 0.5 * u * (1.0 - t * t) * GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * squared)
    du = d_active * slope
    g[f"{i}.up.weight"] = normed.T @ du
    g[f"{i}.up.bias"] = du.sum(axis=0)
    d_normed = du @ p[f"{i}.up.weight"].T
    dx, g[f"{i}.norm2.weight"], g[f"{i}.norm2.bias"] = _norm_backward(d_normed, p[f"{i}.norm2.weight"], norm)
    return dy + dx


def _cross_entropy(logits, targets):
    """Mean loss and the gradient of the logits."""
    logits -= logits.max(axis=-1, keepdims=True)
    probabilities = np.exp(logits)
    total = probabilities.sum(axis=-1, keepdims=True)
    rows = np.arange(targets.size)
    loss = float((np.log(total[:, 0]) - logits[rows, targets]).mean())
    probabilities /= total
    probabilities[rows, targets] -= 1.0
    probabilities /= targets.size
    return loss, probabilities


class Adam:
    """Adam with decoupled weight decay on matrices, after clipping gradients to a global norm."""

    def __init__(self, parameters, settings):
        self.settings = settings
        self.steps = 0
        self.first = {k: np.zeros_like(v) for k, v in parameters.items()}
        self.second = {k: np.zeros_like(v) for k, v in parameters.items()}

    def step(self, parameters, gradients, learning_rate):
        """Update in place; returns the gradients' norm before clipping."""
        s = self.settings
        norm = math.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values()))
        scale = min(1.0, s.clip / (norm + 1e-6)) if s.clip > 0 else 1.0
        self.steps += 1
        size = learning_rate / (1.0 - s.beta1**self.steps)
        correction = 1.0 / math.sqrt(1.0 - s.beta2**self.steps)
        for name, p in parameters.items():
            g = gradients[name] * scale
            m, v = self.first[name], self.second[name]
            m += (1.0 - s.beta1) * (g - m)
            v += (1.0 - s.beta2) * (g * g - v)
            if p.ndim > 1:
                p *= 1.0 - learning_rate * s.weight_decay
            p -= size * m / (np.sqrt(v) * correction + s.epsilon)
        return norm


class NumpyTrainer:
    """One process training on its CPU."""

    device = "cpu"
    ranks = 1

    def __init__(self, shape, settings):
        self.shape = shape
        self.parameters = initial_parameters(shape, settings.seed)
        self.adam = Adam(self.parameters, settings)

    def step(self, windows, learning_rate):
        """One optimizer step on windows of tokens (bytes); loss and gradient norm."""
        tokens = np.frombuffer(b"".join(windows), dtype=np.uint8).reshape(len(windows), -1).astype(np.intp)
        loss, gradients = loss_and_gradients(self.parameters, self.shape, tokens[:, :-1], tokens[:, 1:])
        return loss, self.adam.step(self.parameters, gradients, learning_rate)

    def write(self, path, facts):
        """A checkpoint: parameters, optimizer state and `facts` (ints)."""
        arrays = {f"fact/{k}": np.array(v) for k, v in facts.items()}
        for kind, group in self._groups():
            arrays.update({f"{kind}/{k}": v for k, v in group.items()})
        arrays["adam_steps"] = np.array(self.adam.steps)
        with path.open("wb") as file:
            np.savez(file, **arrays)

    def read(self, path):
        """Take over a checkpoint; its facts. KeyError or ValueError when it is of another shape."""
        with np.load(path) as arrays:
            for kind, group in self._groups():
                for name, value in group.items():
                    stored = arrays[f"{kind}/{name}"]
                    if stored.shape != value.shape:
                        raise ValueError(f"{name} has shape {stored.shape} there and {value.shape} here")
                    value[...] = stored
            self.adam.steps = int(arrays["adam_steps"])
            return {k[5:]: int(arrays[k]) for k in arrays.files if k.startswith("fact/")}

    def _groups(self):
        return (("parameter", self.parameters), ("first", self.adam.first), ("second", self.adam.second))

    def agree(self, values):
        """All ranks take rank 0's values; here there is one rank."""
        return values

    def any(self, flag):
        """Whether any rank says so."""
        return flag

    def close(self):
        """Nothing to release."""
