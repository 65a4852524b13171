"""Run the checkout's own tools/hf2megads_weight_converter.py, whichever its year, and mend what it gets wrong.

    convert.py CHECKOUT WEIGHTS NAMES [--export] MEGATRON-ARGUMENTS...

NAMES: auto, or the converter's name for the folder of weights: origin-hf-ckpt-dir (January to July 2024) or
hf-ckpt-dir (since August 2024, which also has --load-mode and can turn a checkpoint back). What is mended:
1. Tensors are read when they are needed, from safetensors or .bin files, in both generations.
2. Rows of query-key-value matrices are put in the order that this checkout's trainer reads (attention.py).
3. The tokenizer counts as many tokens as the embedding has rows: Llama 3's leaves out its added ones.
Nothing in the checkout is changed.
"""

import functools
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

import attention
import weights

OLD, NEW = "origin-hf-ckpt-dir", "hf-ckpt-dir"
PROGRAM = "tools/hf2megads_weight_converter.py"


class ConverterError(Exception):
    """A converter that cannot do what is asked; the text is one sentence."""


def names_of(source, wanted="auto"):
    """Which generation of option names a converter's source has."""
    found = NEW if f"--{NEW}" in source.replace(f"--{OLD}", "") else OLD if f"--{OLD}" in source else ""
    if wanted == "auto":
        if not found:
            raise ConverterError(f"{PROGRAM} has neither --{NEW} nor --{OLD}: set finetune.converter.")
        return found
    if found and found != wanted:
        raise ConverterError(f"finetune.converter is {wanted}, and this checkout's converter has --{found}.")
    return wanted


def options(names, folder, export=False):
    """The converter's own options."""
    kind, paths = weights.files(folder)
    own = [f"--{names}", str(folder), "--hf-ckpt-num-shards", str(len(paths))]
    if names == NEW:
        # Any mode but auto: tensors are read by our own reader.
        own += ["--load-mode", "auto" if export else {"safetensors": "safetensor", "bin": "torchbin"}[kind]]
    if export:
        if names == OLD:
            raise ConverterError(
                "This checkout's converter cannot turn a checkpoint back; use one since August 2024."
            )
        own.append("--to-hf-ckpt")
    return own


def load(checkout):
    """The converter as a module."""
    path = Path(checkout) / PROGRAM
    if not path.is_file():
        raise ConverterError(
            f"{checkout} has no {PROGRAM}: it is no Megatron-DeepSpeed checkout since January 2024."
        )
    spec = importlib.util.spec_from_file_location("hf2megads_weight_converter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mend(module, folder, order):
    """Our reader and the right order of rows, in place of its own."""
    tensors = functools.lru_cache(maxsize=1)(lambda: weights.Tensors(folder))
    for name in ("load_and_print_hf_weight", "load_and_print_hf_weight_from_safetensor"):
        if hasattr(module, name):
            setattr(module, name, lambda *_: tensors())
    if hasattr(module, "load_and_print_hf_weight_auto"):
        module.load_and_print_hf_weight_auto = lambda path, no_init=True: (
            empty_model(path) if no_init else tensors()
        )
    if order == attention.GROUPS:
        return
    plain = module.refactor._qkv_refactor

    def forward(self, *args):
        matrix = plain(self, *args)
        return matrix[rows(self, matrix)]

    module.refactor._qkv_refactor = forward
    back = getattr(module.refactor, "_qkv_refactor_to_hf", None)
    if back is not None:

        def backward(self, name, matrix, *args):
            return back(self, name, matrix.detach()[attention.inverse(rows(self, matrix))], *args)

        module.refactor._qkv_refactor_to_hf = backward


def mend_tokenizer(module, count):
    """Let the tokenizer count as many tokens as the embedding has rows."""
    module._HFTokenizer.vocab_size = property(lambda self: count)


def rows(refactor, matrix):
    """The order of this rank's rows."""
    heads, groups = heads_of(refactor.config)
    ranks = refactor.tp_size
    width = matrix.shape[0] * ranks // (heads + 2 * groups)
    return attention.rows_by_block(heads // ranks, groups // ranks, width)


def heads_of(config):
    """Query heads and key-value heads of a Megatron configuration."""
    return config.num_attention_heads, getattr(
        config, "num_key_value_heads", None
    ) or config.num_attention_heads


def empty_model(folder):
    """The model to be filled when a checkpoint is turned back."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    return AutoModelForCausalLM.from_config(config).to(torch.bfloat16)


def check_groups(module, arguments):
    """ConverterError when the model has grouped queries and the converter is older than them."""
    if "--num-key-value-heads" not in arguments:
        return
    if "num_key_value_heads" not in inspect.getsource(module.refactor._qkv_refactor):
        raise ConverterError(
            "This checkout's converter is older than 19 December 2024 and cannot convert grouped-query attention; "
            "use a newer one."
        )


def main(argv):
    if len(argv) < 3:
        sys.exit("usage: convert.py CHECKOUT WEIGHTS NAMES [--export] MEGATRON-ARGUMENTS...")
    checkout, folder, wanted, *arguments = argv
    export = "--export" in arguments
    arguments = [a for a in arguments if a != "--export"]
    sys.path.insert(0, checkout)
    try:
        source = (
            (Path(checkout) / PROGRAM).read_text(encoding="utf-8")
            if (Path(checkout) / PROGRAM).is_file()
            else ""
        )
        transformer = (Path(checkout) / "megatron/model/transformer.py").read_text(encoding="utf-8")
        order = attention.order_of(transformer)
        names = names_of(source, wanted) if source else wanted
        own = options(names, folder, export)
        module = load(checkout)
        check_groups(module, arguments)
        count = weights.read_config(folder)["vocab_size"]
    except (OSError, ConverterError, weights.WeightsError, attention.LayoutError) as error:
        print(f"convert.py: {error}", file=sys.stderr, flush=True)
        return 2
    sys.argv = [str(Path(checkout) / PROGRAM), *own, *arguments]
    mend(module, folder, order)
    mend_tokenizer(importlib.import_module("megatron.tokenizer.tokenizer"), count)
    print(f"converting with --{names}, rows of queries, keys and values by {order}", flush=True)
    # Where the trainer starts: its names differ by generation.
    importlib.import_module("megatron.initialize").initialize_megatron(
        extra_args_provider=module.add_extra_args
    )
    start = getattr(module, "convert_ckpt", None) or module.convert_hf_to_mega_ds
    start()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
