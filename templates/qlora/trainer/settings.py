"""What a run was asked for: the run folder's finetune.json, with the job script's numbers over it.

Plain Python: it needs no library.
"""

import argparse
import json
import math
from pathlib import Path

STRATEGIES = ("ddp", "zero2", "zero3")
BASES = ("nf4", "fp4", "16bit")
# Options of the command line that replace a setting: name, type, meaning.
OVERRIDES = (
    ("weights", str, "folder or repository of the weights"),
    ("data", str, "file or data set"),
    ("output", str, "folder of the checkpoints"),
    ("strategy", str, "ddp, zero2 or zero3"),
    ("base-weights", str, "nf4, fp4 or 16bit"),
    ("max-length", int, "tokens of an example"),
    ("micro-batch-size", int, "examples a GPU computes at once"),
    ("gradient-accumulation-steps", int, "micro batches of an optimizer step"),
    ("epochs", float, "passes over the data"),
    ("steps", int, "optimizer steps instead of epochs; 0 goes by epochs"),
    ("learning-rate", float, "highest learning rate"),
    ("lora-rank", int, "rank of the adapters"),
    ("lora-alpha", int, "scale of the adapters"),
    ("checkpoint-interval", int, "steps between checkpoints"),
    ("eval-interval", int, "steps between evaluations"),
    ("log-interval", int, "steps between log lines"),
    ("max-samples", int, "records to use; 0 uses all"),
)


class SettingsError(Exception):
    """A setting that cannot be; the text is one sentence."""


def parse(argv=None):
    """The settings as a dict, and the options that are no settings (resume, quantize, device)."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--settings", required=True, help="the run folder's finetune.json")
    parser.add_argument("--resume", default="auto", help="auto, none or a checkpoint's folder")
    parser.add_argument(
        "--adapter-from", default="", help="folder of earlier checkpoints to take an adapter from"
    )
    parser.add_argument("--deepspeed-config", default="", help="configuration for zero2 and zero3")
    parser.add_argument(
        "--no-quantize",
        action="store_true",
        help="keep 16-bit base weights (32-bit on a CPU); for trying a run where bitsandbytes does not work",
    )
    parser.add_argument("--cpu", action="store_true", help="train on the CPU, for trying a run")
    parser.add_argument("--check", action="store_true", help="check GPU, data and settings, train nothing")
    for name, kind, meaning in OVERRIDES:
        parser.add_argument(f"--{name}", type=kind, default=None, help=meaning)
    options = parser.parse_args(argv)
    return merged(read(options.settings), vars(options)), options


def read(path):
    """The settings file."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"The settings {path} cannot be read: {error}.") from error
    if not isinstance(data, dict):
        raise SettingsError(f"The settings {path} hold no object.")
    return data


def merged(settings, options):
    """Settings with the given options over them, checked."""
    result = dict(settings)
    for name, _, _ in OVERRIDES:
        key = name.replace("-", "_")
        if options.get(key) is not None:
            result[key] = options[key]
    if options.get("no_quantize"):
        result["base_weights"] = "16bit"
    check(result)
    return result


def check(s):
    """SettingsError for the first setting that cannot be."""
    for key in ("weights", "data", "output"):
        if not s.get(key):
            raise SettingsError(f"No {key} is given.")
    _one_of(s, "strategy", STRATEGIES)
    _one_of(s, "base_weights", BASES)
    for key in ("max_length", "micro_batch_size", "gradient_accumulation_steps", "lora_rank", "lora_alpha"):
        _at_least(s, key, 1)
    for key in ("checkpoint_interval", "eval_interval", "log_interval"):
        _at_least(s, key, 1)
    for key in ("learning_rate", "epochs"):
        if not (math.isfinite(s[key]) and s[key] > 0):
            raise SettingsError(f"{key} is {s[key]:g}; it must be above 0.")
    for key in ("steps", "max_samples", "patience"):
        if (s.get(key) or 0) < 0:
            raise SettingsError(f"{key} is {s[key]}; it must be at least 0.")


def _one_of(s, key, names):
    if s[key] not in names:
        raise SettingsError(f"{key} is {s[key]!r}; it must be {', '.join(names[:-1])} or {names[-1]}.")


def _at_least(s, key, least):
    if s[key] < least:
        raise SettingsError(f"{key} is {s[key]}; it must be at least {least}.")


def takes(function_or_class, values):
    """The values that a library's class takes: names come and go between its versions."""
    import inspect

    known = inspect.signature(function_or_class).parameters
    return {name: value for name, value in values.items() if name in known}
