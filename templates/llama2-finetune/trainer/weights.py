"""Hugging Face weights as files: what their config.json says, whether it is the model of this run, their tensors.

Reading tensors needs torch and safetensors; the rest is plain Python.
"""

import json
from collections.abc import Mapping
from pathlib import Path

# What the trainer has fixed: rotary angles of Llama 1 and 2. It has no option for another base.
ROPE_THETA = 10000.0


class WeightsError(Exception):
    """Weights that cannot be converted; the text is one sentence."""


def read_config(folder):
    """config.json of a folder of weights."""
    path = Path(folder) / "config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read: {error}.") from error
    if not isinstance(data, dict):
        raise WeightsError(f"{path} holds no object.")
    return data


def rope_theta(config):
    """The base of the rotary angles; transformers 5 writes it inside rope_parameters."""
    inner = config.get("rope_parameters") or {}
    return float(config.get("rope_theta") or inner.get("rope_theta") or ROPE_THETA)


def check(config, expected):
    """WeightsError unless these are the weights of the model that the job's flags describe.

    expected: hidden_size, num_hidden_layers and so on, by the names of config.json.
    """
    kind = config.get("model_type", "")
    if kind != "llama":
        raise WeightsError(f"The weights are of model type {kind!r}; the converter knows llama only.")
    found = {name: config.get(name) for name in expected}
    if found.get("num_key_value_heads") is None:
        found["num_key_value_heads"] = config.get("num_attention_heads")
    wrong = [f"{n} is {found[n]}, the job has {v}" for n, v in expected.items() if found[n] != v]
    if wrong:
        raise WeightsError(f"The weights are another model than the job's: {'; '.join(wrong)}.")
    theta = rope_theta(config)
    scaling = config.get("rope_scaling") or {}
    if theta != ROPE_THETA or scaling.get("rope_type", scaling.get("type", "default")) != "default":
        raise WeightsError(
            f"The weights turn positions with base {theta:g}{' and scaling' if scaling else ''}; "
            f"Megatron-DeepSpeed has {ROPE_THETA:g} and no option for it (Llama 1 and 2 fit)."
        )
    if config.get("tie_word_embeddings"):
        raise WeightsError("The weights tie input and output embeddings, which the converter cannot.")
    if config.get("attention_bias") or config.get("mlp_bias"):
        raise WeightsError("The weights have biases, which the job's flags leave out.")


def epsilon(config):
    """The number that the norms add, which differs between Llama 1 and 2."""
    return float(config.get("rms_norm_eps", 1e-5))


def files(folder):
    """Kind ("safetensors" or "bin") and files of the weights; safetensors first, because it runs no code."""
    folder = Path(folder)
    for kind, index, single, pattern in (
        ("safetensors", "model.safetensors.index.json", "model.safetensors", "model-*.safetensors"),
        ("bin", "pytorch_model.bin.index.json", "pytorch_model.bin", "pytorch_model-*.bin"),
    ):
        if (folder / index).is_file():
            try:
                names = json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"].values()
            except (ValueError, KeyError, AttributeError) as error:
                raise WeightsError(f"{folder / index} lists no files: {error}.") from error
            found = [folder / name for name in sorted(set(names))]
        elif (folder / single).is_file():
            found = [folder / single]
        else:
            found = sorted(folder.glob(pattern))
        missing = [f.name for f in found if not f.is_file()]
        if missing:
            raise WeightsError(f"{folder} lacks {', '.join(missing[:3])}.")
        if found:
            return kind, found
    raise WeightsError(f"{folder} holds neither model*.safetensors nor pytorch_model*.bin.")


class Tensors(Mapping):
    """Tensors by name, each read when it is asked for: a rank needs its own layers only."""

    def __init__(self, folder):
        self.kind, paths = files(folder)
        self.where = {}
        for path in paths:
            opened = self._open(path)
            for name in opened.keys():  # noqa: SIM118 - a safetensors file is no dict
                self.where[name] = opened

    def _open(self, path):
        if self.kind == "safetensors":
            from safetensors import safe_open

            return safe_open(path, framework="pt", device="cpu")
        import torch

        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)

    def __getitem__(self, name):
        opened = self.where[name]
        return opened.get_tensor(name) if self.kind == "safetensors" else opened[name]

    def __iter__(self):
        return iter(self.where)

    def __len__(self):
        return len(self.where)
