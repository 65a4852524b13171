"""Owns reading a Hugging Face `config.json` into a model shape, one small table entry per architecture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from gpt_tune.errors import UserError, nearest, shown
from gpt_tune.models import gpt_family, latent, llama_family, other_families
from gpt_tune.models.config_reader import Config, ConfigReader, Fields
from gpt_tune.models.fields import from_fields
from gpt_tune.models.nearest_shape import USUAL_LENGTH, in_words
from gpt_tune.models.shape import ModelShape
from gpt_tune.words import count_words

_READERS: dict[str, Callable[[ConfigReader], Fields]] = {
    **gpt_family.READERS,
    **llama_family.READERS,
    **other_families.READERS,
}

# Known architectures that no ModelShape describes.
_NO_DECODERS = ("bert", "t5", "bart", "whisper", "clip", "roberta", "vit")
_BEYOND = {
    "layers with a state space are not modelled": ("jamba", "mamba", "mamba2", "falcon_mamba", "zamba2", "bamba"),
    "its output matrix has a bias": ("gptj", "codegen", "phi"),
    "its norms have no parameters": ("olmo",),
    "it norms whole queries and keys": ("olmo2", "olmo3", "olmoe", "flex_olmo"),
    "its experts have biases": ("gpt_oss",),
    "it is no decoder alone": _NO_DECODERS,
}  # fmt: skip


def from_config_file(path: Path) -> ModelShape:
    """The shape a config.json describes. UserError when it is unreadable, unsupported or impossible."""
    try:
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text.", "Give a config.json or a TOML file.") from error
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error}.", "Check the path and its permissions.") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}.", "Download the file again.") from error
    except RecursionError as error:
        raise UserError(
            f"{path} is nested too deeply.", "Give the config.json of a language model."
        ) from error
    if not isinstance(config, dict):
        raise UserError(f"{path} holds no JSON object.", "Give the config.json of a language model.")
    name = path.parent.name if path.name == "config.json" else path.stem
    return from_config(config, str(path), name.lower() or "custom")


def from_config(config: Config, where: str, model_id: str) -> ModelShape:
    """The shape a parsed config describes."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping) and "hidden_size" not in config:
        # A multimodal wrapper: the language model inside is what these numbers are about.
        config = inner
    kind = str(config.get("model_type", "")).lower()
    reader = _READERS.get(kind)
    if reader is None:
        raise _unsupported(kind, config, where)
    data = {name: value for name, value in reader(ConfigReader(config, where)).items() if value is not None}
    return from_fields(_usual_length(data), where, model_id)


def _usual_length(data: Fields) -> Fields:
    """A config states the longest text a model takes, which is rarely what it is trained with."""
    longest = data.get("seq_length", 0)
    if data.get("positions", "learned") == "learned" or longest <= USUAL_LENGTH:
        return data
    note = f"The config allows sequences of {longest:,} tokens; {USUAL_LENGTH:,} are planned unless a length is given."
    return {**data, "seq_length": USUAL_LENGTH, "notes": (*data.get("notes", ()), note)}


def _unsupported(kind: str, config: Config, where: str) -> UserError:
    named = kind or _class_names(config) or "no model_type"
    about = in_words(config) if kind not in _NO_DECODERS else ""
    instead = "Any decoder can be given as layers=..,hidden=..,heads=.."
    if about:
        instead = f"About the same shape: --model {about}"
    if kind in latent.KINDS:
        count = latent.parameters(config)
        size = f" (its {count_words(count)} parameters are counted)" if count else ""
        return UserError(
            f"{named!r} of {where} has multi-head latent attention, whose memory and time are not modelled{size}.",
            instead,
        )
    close = nearest(named, _READERS, cutoff=0.7)
    near = f"The nearest is {close!r}. " if close else ""
    known = f"Supported: {', '.join(sorted(_READERS))}."
    return UserError(
        f"The architecture {shown(named)} of {where} is not supported{_why(kind)}.",
        f"{near}{known} {instead}",
    )


def _class_names(config: Config) -> str:
    names = config.get("architectures")
    return ", ".join(map(str, names)) if isinstance(names, list) else ""


def _why(kind: str) -> str:
    """What of a known architecture cannot be planned, in words that end its sentence."""
    for words, kinds in _BEYOND.items():
        if kind in kinds:
            return f": {words}"
    return ""
