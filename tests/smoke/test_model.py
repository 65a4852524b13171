"""The NumPy GPT is a real one: its gradients are those of its loss, it is causal, and it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.smoke import trainer

gpt = trainer.module("numpy_gpt")
options = trainer.module("options")


def shape(layers: int, hidden: int, heads: int, length: int) -> Any:
    return options.Shape(layers, hidden, heads, 4 * hidden, options.VOCAB, length)


def noisy(model: Any, seed: int = 3) -> dict[str, Any]:
    """Parameters far from their start, so that no gradient hides behind a zero or a one."""
    rng = np.random.default_rng(seed)
    start = gpt.initial_parameters(model, dtype=np.float64)
    return {k: v + 0.1 * rng.standard_normal(v.shape) for k, v in start.items()}


def batch(model: Any, count: int, length: int) -> tuple[Any, Any]:
    tokens = np.random.default_rng(1).integers(0, model.vocab, (count, length + 1))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "length", "used"), [(1, 8, 1, 6, 6), (2, 12, 3, 7, 7), (3, 8, 4, 9, 5)]
)
def test_gradients_are_the_slope_of_the_loss(
    layers: int, hidden: int, heads: int, length: int, used: int
) -> None:
    model = shape(layers, hidden, heads, length)
    parameters = noisy(model)
    inputs, targets = batch(model, 2, used)
    _, gradients = gpt.loss_and_gradients(parameters, model, inputs, targets)
    assert gradients.keys() == parameters.keys()
    rng = np.random.default_rng(5)
    for name, value in parameters.items():
        direction = rng.standard_normal(value.shape)
        direction /= np.linalg.norm(direction)
        step = 1e-5
        value += step * direction
        above, _ = gpt.loss_and_gradients(parameters, model, inputs, targets)
        value -= 2 * step * direction
        below, _ = gpt.loss_and_gradients(parameters, model, inputs, targets)
        value += step * direction
        slope = (above - below) / (2 * step)
        assert np.vdot(gradients[name], direction) == pytest.approx(slope, rel=1e-5, abs=1e-9), name


def test_every_single_entry_of_a_small_model() -> None:
    model = shape(1, 4, 2, 3)
    parameters = noisy(model)
    inputs, targets = batch(model, 2, 3)
    _, gradients = gpt.loss_and_gradients(parameters, model, inputs, targets)
    for name, value in parameters.items():
        for place in list(np.ndindex(value.shape))[:40]:
            kept = value[place]
            value[place] = kept + 1e-5
            above, _ = gpt.loss_and_gradients(parameters, model, inputs, targets)
            value[place] = kept - 1e-5
            below, _ = gpt.loss_and_gradients(parameters, model, inputs, targets)
            value[place] = kept
            assert gradients[name][place] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-8)


def test_a_position_never_sees_what_follows() -> None:
    model = shape(2, 16, 2, 6)
    parameters = noisy(model)
    inputs, targets = batch(model, 1, 6)
    for position in range(5):
        other_target = targets.copy()
        other_target[0, position] = (other_target[0, position] + 1) % model.vocab

        def at_position(tokens: Any, other: Any = other_target) -> float:
            first, _ = gpt.loss_and_gradients(parameters, model, tokens, targets)
            second, _ = gpt.loss_and_gradients(parameters, model, tokens, other)
            return float(first - second)

        later, earlier = inputs.copy(), inputs.copy()
        later[0, position + 1 :] = (later[0, position + 1 :] + 7) % model.vocab
        earlier[0, position] = (earlier[0, position] + 7) % model.vocab
        assert at_position(later) == pytest.approx(at_position(inputs), abs=1e-12)
        assert abs(at_position(earlier) - at_position(inputs)) > 1e-6


def test_a_fresh_model_knows_nothing() -> None:
    model = shape(2, 32, 4, 16)
    inputs, targets = batch(model, 4, 16)
    loss, _ = gpt.loss_and_gradients(gpt.initial_parameters(model), model, inputs, targets)
    assert loss == pytest.approx(np.log(model.vocab), abs=0.1)


def test_it_learns_and_the_same_seed_learns_the_same() -> None:
    model = shape(1, 32, 2, 16)
    settings = options.parse(["--hidden", "32", "--seq-length", "16"])
    windows = [b"the river is old", b"the clock is two", b"bread needs time"]
    rows = [w + b" " for w in windows]

    def losses() -> list[float]:
        one = gpt.NumpyTrainer(model, settings)
        return [one.step(rows, 3e-3)[0] for _ in range(60)]

    first, second = losses(), losses()
    assert first == second
    assert first[-1] < first[0] / 3


def test_clipping_limits_the_gradient_but_reports_its_norm() -> None:
    settings = options.parse(["--clip", "0.5", "--weight-decay", "0"])
    weights = {"w": np.zeros((2, 2)), "b": np.zeros(2)}
    adam = gpt.Adam(weights, settings)
    norm = adam.step(weights, {"w": np.full((2, 2), 3.0), "b": np.full(2, 4.0)}, 1e-3)
    assert norm == pytest.approx(np.sqrt(4 * 9 + 2 * 16))
    assert adam.first["w"][0, 0] == pytest.approx((1 - settings.beta1) * 3.0 * 0.5 / norm, rel=1e-4)


def test_weight_decay_spares_vectors() -> None:
    settings = options.parse(["--weight-decay", "0.5"])
    weights = {"w": np.ones((2, 2)), "b": np.ones(2)}
    gpt.Adam(weights, settings).step(weights, {"w": np.zeros((2, 2)), "b": np.zeros(2)}, 0.1)
    assert weights["w"][0, 0] == pytest.approx(1 - 0.1 * 0.5)
    assert weights["b"][0] == 1.0


def test_the_torch_model_is_the_same_model() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
    model = shape(2, 24, 3, 10)
    parameters = noisy(model)
    twin = trainer.module("torch_gpt").Gpt(model).double()
    names = {"tokens.weight": "tokens", "positions.weight": "positions"}
    with torch.no_grad():
        for name, value in twin.named_parameters():
            ours = parameters[names.get(name, name.removeprefix("blocks."))]
            transposed = name.endswith(
                ("qkv.weight", "out.weight", "up.weight", "down.weight")
            )  # torch keeps (out, in)
            value.copy_(torch.from_numpy(ours.T if transposed else ours))
    inputs, targets = batch(model, 3, 10)
    theirs = twin(torch.from_numpy(inputs), torch.from_numpy(targets))
    theirs.backward()
    loss, gradients = gpt.loss_and_gradients(parameters, model, inputs, targets)
    assert float(theirs) == pytest.approx(loss, rel=1e-6)
    assert twin.tokens.weight.grad.numpy() == pytest.approx(gradients["tokens"], rel=1e-4, abs=1e-7)
