"""The mended trainer start: arguments pass unchanged, and each repair does what it says."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.models import catalogue, rope
from gpt_tune.resources import data_dir

PROGRAM = data_dir("templates") / "megatron-deepspeed" / "repaired.py"


@pytest.fixture(scope="module")
def repaired() -> Any:
    spec = importlib.util.spec_from_file_location("repaired", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_trainer_it_does_not_know_runs_unchanged(tmp_path: Path) -> None:
    program = tmp_path / "check out" / "pretrain_gpt.py"
    program.parent.mkdir()
    (program.parent / "beside.py").write_text("name = 'found'")
    program.write_text(
        "import sys, json, beside\nprint(json.dumps([sys.argv, __name__, beside.name]))\nsys.exit(7)\n"
    )
    words = ["--a", "b c", "$(x)", "", "new\nline", "ü"]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(program), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 7
    note, line = done.stdout.splitlines()
    assert "not the one it was made for" in note
    assert json.loads(line) == [[str(program), *words], "__main__", "found"]


def test_without_a_program_it_says_how_to_use_it() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: repaired.py")


class Tensor:
    """What the cut needs of a tensor: shape, split, contiguous."""

    def __init__(self, columns: list[str], lead: tuple[int, int] = (5, 2)) -> None:
        self.columns, self.shape = columns, (*lead, len(columns))

    def split(self, sizes: list[int], dim: int) -> list[Tensor]:
        assert dim == -1
        assert sum(sizes) == len(self.columns)
        parts, start = [], 0
        for size in sizes:
            parts.append(Tensor(self.columns[start : start + size]))
            start += size
        return parts

    def contiguous(self) -> Tensor:
        return Tensor(self.columns)


@pytest.mark.parametrize(("heads", "groups"), [(4, 1), (4, 2), (8, 8)])
def test_queries_keys_and_values_are_cut_by_heads(repaired: Any, heads: int, groups: int) -> None:
    """The trainer takes [:, :, :w], [:, :, w:w+w] and [:, :, w+w:] with w a third of the last size."""
    kv = heads // groups
    columns = [f"q{i}" for i in range(heads)] + [f"k{i}" for i in range(kv)] + [f"v{i}" for i in range(kv)]
    cut = repaired.Cut(Tensor(columns), [heads, kv, kv])
    assert cut.shape[:2] == (5, 2)
    w = cut.shape[-1] // 3
    everything = slice(None)
    assert cut[everything, everything, :w].columns == columns[:heads]
    assert cut[everything, everything, w : w + w].columns == columns[heads : heads + kv]
    assert cut[everything, everything, w + w :].columns == columns[heads + kv :]
    with pytest.raises(IndexError):
        cut[everything, everything, :2]


def test_the_angles_travel_like_a_tensor_and_are_stored_as_a_list(repaired: Any) -> None:
    import pickle

    class Part:
        def to(self, place: str) -> str:
            return place

    assert repaired.Pair([Part(), Part()]).to("gpu") == ["gpu", "gpu"]
    assert type(pickle.loads(pickle.dumps(repaired.Pair([1, 2])))) is list


def test_kernels_are_built_for_the_gpu_at_hand(repaired: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def plain(name: str, **kwargs: Any) -> str:
        seen.append(kwargs)
        return f"the module {name}"

    extension = types.SimpleNamespace(load=plain)
    known: dict[str, Any] = dict(sys.modules)
    monkeypatch.setattr(sys, "modules", known)
    repaired.mend_kernels(extension, (9, 0))
    theirs = ["-O3", "-gencode", "arch=compute_70,code=sm_70", "--use_fast_math", "-U__CUDA", "-gencode",
              "arch=compute_80,code=sm_80"]  # fmt: skip
    assert extension.load(name="softmax_by_name", extra_cuda_cflags=theirs) == "the module softmax_by_name"
    assert seen[0]["extra_cuda_cflags"] == [
        "-O3", "--use_fast_math", "-U__CUDA", "-gencode", "arch=compute_90,code=sm_90",
    ]  # fmt: skip
    assert known["softmax_by_name"] == "the module softmax_by_name"
    extension.load(name="other", extra_cuda_cflags=["-gencode", "arch=compute_80,code=sm_80"])
    assert seen[1]["extra_cuda_cflags"] == ["-gencode", "arch=compute_80,code=sm_80"]
    assert "other" not in known


def test_rotary_turns_by_position_times_frequency(repaired: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here")

    class RotaryEmbedding:
        inv_freq = 1.0 / (10000 ** (torch.arange(0, 8, 2).float() / 8))

        def forward(self, length: int) -> list[Any]:
            return [torch.ones(length), torch.zeros(length)]

    transformer = types.SimpleNamespace(apply_rotary_pos_emb=None)
    repaired.mend_rotary(types.SimpleNamespace(RotaryEmbedding=RotaryEmbedding), transformer)
    pair = RotaryEmbedding().forward(6)
    assert isinstance(pair, list)
    assert len(pair) == 2
    x = torch.randn(6, 2, 3, 12, dtype=torch.float64)
    turned = transformer.apply_rotary_pos_emb(x, pair)
    assert torch.equal(turned[..., 8:], x[..., 8:])  # beyond the rotary size nothing turns
    for position in range(6):
        for i, frequency in enumerate(RotaryEmbedding.inv_freq.tolist()):
            before = torch.complex(x[position, ..., i], x[position, ..., i + 4])
            angle = torch.tensor(complex(math.cos(position * frequency), math.sin(position * frequency)))
            after = before * angle
            assert torch.allclose(turned[position, ..., i], after.real, atol=1e-6)
            assert torch.allclose(turned[position, ..., i + 4], after.imag, atol=1e-6)


def test_one_key_value_head_is_repeated_into_memory_of_its_own(repaired: Any) -> None:
    """The trainer's own way repeats a single head without copying it, and its attention cannot reshape that."""

    class States:
        def repeat_interleave(self, times: int, dim: int) -> str:
            return f"{times} copies along {dim}"

    class ParallelAttention:
        def __init__(self) -> None:
            self.query_key_value = None

    repaired.mend_attention(types.SimpleNamespace(ParallelAttention=ParallelAttention))
    states = States()
    attention: Any = ParallelAttention()
    assert attention.repeat_kv(states, 4) == "4 copies along 2"
    assert attention.repeat_kv(states, 1) is states


def test_angles_are_scaled_as_the_shape_says(repaired: Any) -> None:
    """Against the engine's own arithmetic, which tests/models holds to the published rule."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
    for model in ("llama-3.1-8b", "llama-3.2-1b"):
        shape = catalogue.get(model)
        plain = torch.tensor(
            rope.frequencies(dataclasses.replace(shape, rope_scaling="")), dtype=torch.float64
        )
        found = repaired.scaled(plain, shape.rope_scaling)
        assert torch.allclose(found, torch.tensor(rope.frequencies(shape), dtype=torch.float64), rtol=1e-12)


class Number(float):
    """A frequency with the one method of tensors that scaling uses."""

    def clamp(self, low: float, high: float) -> Number:
        return Number(min(high, max(low, self)))

    def __sub__(self, other: float) -> Number:
        return Number(float(self) - other)

    def __rmul__(self, other: float) -> Number:
        return Number(other * float(self))

    def __truediv__(self, other: float) -> Number:
        return Number(float(self) / other)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.2-1b"])
def test_angles_are_scaled_one_by_one(repaired: Any, model: str) -> None:
    shape = catalogue.get(model)
    plain = rope.frequencies(dataclasses.replace(shape, rope_scaling=""))
    for before, after in zip(plain, rope.frequencies(shape)):
        assert repaired.scaled(Number(before), shape.rope_scaling) == pytest.approx(after, rel=1e-12)
    assert repaired.scaled(Number(1.0), "linear factor=4") == 0.25
    with pytest.raises(SystemExit, match="'yarn'"):
        repaired.scaled(Number(1.0), "yarn factor=4")


def test_every_embedding_is_scaled(repaired: Any) -> None:
    class RotaryEmbedding:
        def __init__(self, width: int, theta: int = 10000) -> None:
            self.inv_freq = Number(1.0)

    repaired.mend_scaling(types.SimpleNamespace(RotaryEmbedding=RotaryEmbedding), "linear factor=8")
    assert RotaryEmbedding(64, theta=5).inv_freq == 0.125


def test_the_tokenizer_counts_its_added_tokens(repaired: Any) -> None:
    class _HFTokenizer:
        @property
        def vocab_size(self) -> int:
            return 128000

    repaired.mend_tokenizer(types.SimpleNamespace(_HFTokenizer=_HFTokenizer), 128256)
    assert _HFTokenizer().vocab_size == 128256
    repaired.mend_tokenizer(types.SimpleNamespace(_HFTokenizer=_HFTokenizer), 5)
    assert _HFTokenizer().vocab_size == 128256  # never fewer than the tokenizer has


def test_own_options_never_reach_the_trainer_and_are_never_lost(tmp_path: Path) -> None:
    program = tmp_path / "pretrain_gpt.py"
    program.write_text("import sys\nprint(sys.argv)\n")
    options = ["--rope-scaling", "llama3 factor=8", "--vocabulary", "128256"]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *options, str(program), "--a"],
        capture_output=True,
        text=True,
        check=False,
    )
    # There is no Megatron here: without the mends it would train another model.
    assert done.returncode == 1
    assert "--rope-scaling llama3 factor=8 --vocabulary 128256 is lost" in done.stderr
    assert done.stdout == ""


class Parameter:
    """What the sum over ranks needs of a parameter."""

    def __init__(self, part: bool | None) -> None:
        if part is not None:
            self.sequence_parallel = part
        self.hooks: list[Any] = []

    def register_hook(self, hook: Any) -> None:
        self.hooks.append(hook)

    def view_as(self, _other: Any) -> tuple[str, Parameter]:
        return "copy", self


class Gradient:
    """A tensor as a list of numbers, with what is asked of it."""

    dtype = "bf16"

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def clone(self) -> Gradient:
        return Gradient(*self.values)

    def reshape(self, _size: int) -> Gradient:
        return self

    def numel(self) -> int:
        return len(self.values)

    def split(self, sizes: list[int]) -> list[Gradient]:
        rest = list(self.values)
        return [Gradient(*(rest.pop(0) for _ in range(size))) for size in sizes]

    def view_as(self, _other: Gradient) -> Gradient:
        return self

    def to(self, _dtype: str) -> Gradient:
        return self


class Module:
    """A module with parameters, modules below it and hooks."""

    def __init__(self, parameters: dict[str, Parameter], *below: Module) -> None:
        self._parameters, self.below = parameters, below
        self.before: list[Any] = []
        self.after: list[Any] = []

    def modules(self) -> list[Module]:
        return [self, *(m for module in self.below for m in module.modules())]

    def parameters(self) -> list[Parameter]:
        return [p for module in self.modules() for p in module._parameters.values()]

    def register_forward_pre_hook(self, hook: Any) -> None:
        self.before.append(hook)

    def register_forward_hook(self, hook: Any) -> None:
        self.after.append(hook)


class Layer(Module):
    """The trainer's layer."""


class Function:
    """PyTorch's, without a graph: forward alone."""

    forward: Any
    set_materialize_grads: Any = staticmethod(lambda _value: None)

    @classmethod
    def apply(cls, *inputs: Any) -> Any:
        return cls.forward(cls, *inputs)


@pytest.fixture
def mended(repaired: Any) -> types.SimpleNamespace:
    """A DeepSpeed and a PyTorch as mend_parts sees them; all_reduce doubles, `messages` counts."""
    messages: list[int] = []

    def all_reduce(gradient: Gradient, group: str) -> None:
        assert group == "ranks"
        messages.append(gradient.numel())
        gradient.values = [2 * value for value in gradient.values]

    calls: list[dict[str, Any]] = []

    def initialize(**kwargs: Any) -> str:
        calls.append(kwargs)
        return "engine"

    deepspeed = types.SimpleNamespace(initialize=initialize)
    torch = types.SimpleNamespace(
        autograd=types.SimpleNamespace(Function=Function),
        cat=lambda parts: Gradient(*(value for part in parts for value in part.values)),
        distributed=types.SimpleNamespace(all_reduce=all_reduce),
    )
    repaired.mend_parts(
        deepspeed, torch, types.SimpleNamespace(ParallelTransformerLayer=Layer), lambda: "ranks"
    )
    return types.SimpleNamespace(deepspeed=deepspeed, torch=torch, messages=messages, calls=calls)


def test_gradients_of_parts_are_summed_and_no_others(mended: Any) -> None:
    norm, matrix, plain = Parameter(True), Parameter(False), Parameter(None)
    model = Module({"norm": norm, "matrix": matrix, "plain": plain})
    assert mended.deepspeed.initialize(model=model, config=1) == "engine"
    assert mended.calls == [{"model": model, "config": 1}]
    assert (len(norm.hooks), matrix.hooks, plain.hooks) == (1, [], [])
    given = Gradient(3.0)
    assert norm.hooks[0](given).values == [6.0]
    assert given.values == [3.0]  # autograd's own tensor is left alone


def test_a_layer_sends_its_parts_in_one_message(mended: Any, repaired: Any) -> None:
    weight, bias, matrix = Parameter(True), Parameter(True), Parameter(None)
    norm = Module({"weight": weight, "bias": bias})
    layer = Layer({"matrix": matrix}, norm)
    mended.deepspeed.initialize(model=Module({}, layer))
    layer.before[0](layer, ())
    assert norm.__dict__["weight"] == ("copy", weight)
    assert norm.__dict__["bias"] == ("copy", bias)
    assert "matrix" not in layer.__dict__
    layer.after[0](layer, (), None)
    assert not {"weight", "bias"} & set(norm.__dict__)
    # What was sent with the layer is not summed once more by the parameter's own hook.
    assert weight.hooks[0](Gradient(3.0)) is None
    backward = repaired.summing(mended.torch, lambda: "ranks").__self__.backward
    found = backward(None, Gradient(1.0, 2.0), None, Gradient(5.0))
    assert [None if g is None else g.values for g in found] == [[2.0, 4.0], None, [10.0]]
    assert mended.messages == [3]
    assert backward(None, None, None) == (None, None)
    assert mended.messages == [3]


def test_parts_under_zero_3_are_summed_one_by_one(mended: Any) -> None:
    """Its parameters are empty until their own module starts."""
    weight = Parameter(True)
    weight.ds_id = 7  # type: ignore[attr-defined]
    norm = Module({"weight": weight})
    layer = Layer({}, norm)
    mended.deepspeed.initialize(model=Module({}, layer))
    layer.before[0](layer, ())
    assert "weight" not in norm.__dict__
    layer.after[0](layer, (), None)
    assert weight.hooks[0](Gradient(3.0)).values == [6.0]


def test_each_rank_has_the_whole_table_of_positions(repaired: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
    layers = types.SimpleNamespace(SequenceParallelPositionEmbedding=None)
    repaired.mend_positions(layers)
    table = layers.SequenceParallelPositionEmbedding(8, 4)
    assert table.local_embeddings.weight.shape == (8, 4)
    assert torch.equal(table(torch.tensor([7, 0])), table.local_embeddings.weight[[7, 0]])
