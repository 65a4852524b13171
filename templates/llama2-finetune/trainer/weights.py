"""Hugging Face weights as files: what their config.json says, whether it is the model of this run, their tensors.

Reading tensors needs torch and safetensors; the rest is plain Python.
"""

import json
from collections.abc import Mapping
from pathlib import Path

# Where a config.json says nothing: Llama 1 and 2.
ROPE_THETA = 10000.0
_SCALING = {
    "factor": "factor",
    "low_freq_factor": "low",
    "high_freq_factor": "high",
    "original_max_position_embeddings": "original",
}


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


def rope_scaling(config):
    """How the angles are scaled, as repaired.py is told it: "llama3 factor=8 low=1 high=4 original=8192"."""
    found = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = found.get("rope_type") or found.get("type") or "default"
    if kind == "default":
        return ""
    return " ".join([kind, *(f"{ours}={found[name]:g}" for name, ours in _SCALING.items() if name in found)])


def check(config, expected, rope):
    """WeightsError unless these are the weights of the model that the job's flags describe.

    expected: hidden_size, num_hidden_layers and so on, by the names of config.json. rope: theta and scaling.
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
    angles = (rope_theta(config), rope_scaling(config))
    wanted = (float(rope["theta"]), rope["scaling"])
    if angles != wanted:
        raise WeightsError(
            f"The weights turn positions with base {angles[0]:g} and scaling {angles[1] or 'none'}; the job has base "
            f"{wanted[0]:g} and scaling {wanted[1] or 'none'}: set model.id to the weights' own model or config.json."
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
