"""Run Megatron-DeepSpeed's pretrain_gpt.py with nine defects of its public 2025 snapshot (4efb479) mended.

    python repaired.py [--rope-scaling TEXT] [--vocabulary N] /path/to/Megatron-DeepSpeed/pretrain_gpt.py ARGUMENTS...

The job starts the trainer through this file only when its layout meets one of them:
1. Rotary positions: the pipeline engine stops, because their cosines and sines are a list, which has no
   `.to(device)`; without that engine they are taken for angles, so that queries and keys turn wrongly.
2. Grouped-query attention: queries, keys and values are cut as thirds of a tensor that is not made of thirds.
3. Attention without flash at a micro batch above 1, or with one key-value head on a GPU: `.view()` of a tensor
   that is not contiguous.
4. The fused softmax is always built for compute capability 7.0 too, which the compiler of CUDA 13 refuses.
5. Rotary angles cannot be scaled: with --rope-scaling they are, as a config.json's rope_scaling says
   ("llama3 factor=8 low=1 high=4 original=8192" or "linear factor=4").
6. Hugging Face tokenizers count without their added tokens, which then have no row in the embedding: with
   --vocabulary the embedding has at least that many rows.
7. Sequence parallelism with learned positions: each rank has the rows of its part of the sequence and is asked for
   all of them (index out of range). The embedding is cut after words and positions are added, so each rank needs
   the whole table.
8. Sequence parallelism under DeepSpeed: norms and the biases of row-parallel matrices see their part of the sequence
   only, and nobody adds up the gradients of the parts (Megatron's own optimizer would, DeepSpeed's does not), so
   that these parameters drift apart over the tensor-parallel ranks.
9. The fused softmax is imported by its name, under which PyTorch since 2.11 leaves no extension that it has loaded.
Nothing in the checkout is changed.
"""

import importlib
import math
import runpy
import sys
from pathlib import Path


class Pair(list):
    """Cosines and sines that can be moved to a device together, as a tensor can."""

    def to(self, *place, **options):
        """The same pair on another device."""
        return Pair(part.to(*place, **options) for part in self)

    def __reduce__(self):
        return list, (
            list(self),
        )  # checkpoints hold the trainer's arguments: a plain list loads without this file


def mend_rotary(module, transformer):
    """Let the pair be moved like a tensor, and turn queries and keys by the real angles (defect 1)."""
    torch = importlib.import_module("torch")
    plain = module.RotaryEmbedding.forward
    frequencies = []  # of the model's one kind of rotary embedding
    cached = {}

    def forward(self, *args, **kwargs):
        frequencies[:] = [self.inv_freq]
        pair = plain(self, *args, **kwargs)
        return Pair(pair) if type(pair) is list else pair

    def turn(x, _given):
        """x: sequence first, head size last. The first part of a head is turned, the rest passes."""
        length = x.shape[0]
        if (length, x.dtype, x.device) not in cached:
            positions = torch.arange(length, device=x.device, dtype=torch.float32)
            angles = torch.outer(positions, frequencies[0].to(x.device, torch.float32))
            angles = torch.cat((angles, angles), dim=-1)[:, None, None, :]
            cached[length, x.dtype, x.device] = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        cosines, sines = cached[length, x.dtype, x.device]
        size = cosines.shape[-1]
        turned, rest = x[..., :size], x[..., size:]
        first, second = turned.chunk(2, dim=-1)
        turned = turned * cosines + torch.cat((-second, first), dim=-1) * sines
        return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned

    module.RotaryEmbedding.forward = forward
    transformer.apply_rotary_pos_emb = turn


class Cut:
    """Queries, keys and values of one projection, handed out where the trainer slices off its thirds."""

    def __init__(self, mixed, sizes):
        self.parts = [part.contiguous() for part in mixed.split(sizes, dim=-1)]
        self.shape = (*mixed.shape[:-1], len(self.parts))

    def __getitem__(self, places):
        third = places[-1]
        first = third.start or 0
        if third.step is not None or (third.stop or len(self.parts)) - first != 1:
            raise IndexError(f"expected the slice of one part, not {third}")
        return self.parts[first]


def scaled(frequencies, text):
    """Rotary frequencies after scaling: Hugging Face's "llama3" and "linear" (defect 5)."""
    kind, *parts = text.split()
    numbers = {name: float(number) for name, number in (part.split("=") for part in parts)}
    factor = numbers["factor"]
    if kind == "linear":
        return frequencies / factor
    if kind != "llama3":
        raise SystemExit(f"repaired.py: rotary angles cannot be scaled by {kind!r}")
    low, high, original = numbers["low"], numbers["high"], numbers["original"]
    # Waves in the original length: many are left alone, few are stretched, with a slope in between.
    kept = ((original * frequencies / (2 * math.pi) - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - kept) * frequencies / factor + kept * frequencies


def mend_scaling(module, text):
    """Scale the angles of every rotary embedding that is made."""
    plain = module.RotaryEmbedding.__init__

    def initialise(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        self.inv_freq = scaled(self.inv_freq, text)

    module.RotaryEmbedding.__init__ = initialise


def mend_tokenizer(module, rows):
    """Let a Hugging Face tokenizer count its added tokens (defect 6)."""
    plain = module._HFTokenizer.vocab_size.fget
    module._HFTokenizer.vocab_size = property(lambda self: max(rows, plain(self)))


def mend_positions(layers):
    """Give each tensor-parallel rank the whole table of positions (defect 7), under the name it had."""
    nn = importlib.import_module("torch").nn

    class PositionEmbedding(nn.Module):
        def __init__(self, length, width):
            super().__init__()
            self.local_embeddings = nn.Embedding(length, width)

        def forward(self, position_ids):
            return self.local_embeddings(position_ids)

    layers.SequenceParallelPositionEmbedding = PositionEmbedding


def summing(torch, group):
    """A function of parameters that changes none of them, and adds up their gradients over ranks in one message."""

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *parameters):
            ctx.set_materialize_grads(False)
            return tuple(parameter.view_as(parameter) for parameter in parameters)

        @staticmethod
        def backward(_ctx, *gradients):
            present = [gradient for gradient in gradients if gradient is not None]
            if not present:
                return gradients
            together = torch.cat([gradient.reshape(-1) for gradient in present])
            torch.distributed.all_reduce(together, group=group())
            sums = iter(together.split([gradient.numel() for gradient in present]))
            return tuple(None if g is None else next(sums).view_as(g).to(g.dtype) for g in gradients)

    return Sum.apply


def sees_part(parameter):
    """Whether a parameter's gradient comes from a part of the sequence."""
    return getattr(parameter, "sequence_parallel", False)


def send_together(layer, sums, sent):
    """While the layer runs, its modules find under such parameters' names what `sums` makes of them all.

    Each message makes the ranks wait for one another: one a layer instead of six. sent: ids of parameters met.
    """
    places = [
        (module, name, parameter)
        for module in layer.modules()
        for name, parameter in module._parameters.items()
        if sees_part(parameter)
    ]

    def before(*_):
        # ZeRO-3 fetches a parameter when its own module starts: here there is nothing to be had yet.
        if not places or any(hasattr(parameter, "ds_id") for _, _, parameter in places):
            return
        for (module, name, parameter), summed in zip(places, sums(*(place[2] for place in places))):
            module.__dict__[name] = summed
            sent.add(id(parameter))

    def after(*_):
        for module, name, _ in places:
            module.__dict__.pop(name, None)

    layer.register_forward_pre_hook(before)
    layer.register_forward_hook(after)


def mend_parts(deepspeed, torch, transformer, group):
    """Add up the gradients of parameters that see a part of the sequence (defect 8). group: gives the ranks."""
    plain = deepspeed.initialize
    sums, sent = summing(torch, group), set()

    def alone(parameter):
        def total(gradient):
            if id(parameter) in sent:
                return None
            summed = gradient.clone()
            torch.distributed.all_reduce(summed, group=group())
            return summed

        parameter.register_hook(total)

    def initialize(*args, **kwargs):
        for module in kwargs["model"].modules():
            if isinstance(module, transformer.ParallelTransformerLayer):
                send_together(module, sums, sent)
        for parameter in filter(sees_part, kwargs["model"].parameters()):
            alone(parameter)
        return plain(*args, **kwargs)

    deepspeed.initialize = initialize


def mend_attention(transformer):
    """Cut the projection by the numbers of heads, into contiguous parts (defects 2 and 3)."""
    attention = transformer.ParallelAttention
    plain = attention.__init__

    def initialise(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        projection = getattr(self, "query_key_value", None)
        # DeepSpeed's sequence parallelism has its own cut, which is right.
        if projection is None or self.enable_ds_sequence_parallel:
            return
        heads, groups = self.num_attention_heads_per_partition, self.num_key_value_groups
        width = self.hidden_size_per_attention_head
        sizes = [heads * width, heads // groups * width, heads // groups * width]
        projection.register_forward_hook(
            lambda _module, _inputs, output: (Cut(output[0], sizes), *output[1:])
        )

    def repeat(_self, states, times):
        """Each key-value head once for each of its queries, in memory of its own."""
        return states.repeat_interleave(times, dim=2) if times > 1 else states

    attention.__init__ = initialise
    attention.repeat_kv = repeat


def mend_kernels(extension, capability):
    """Build the trainer's kernels for the GPU at hand only, and let them be found by name (defects 4 and 9).

    Other extensions are left alone.
    """
    plain = extension.load

    def load(name, *args, **kwargs):
        flags = list(kwargs.get("extra_cuda_cflags") or [])
        if "arch=compute_70,code=sm_70" not in flags:
            return plain(name, *args, **kwargs)
        if capability is not None:
            number = "".join(str(part) for part in capability)
            kept = [f for f in flags if f != "-gencode" and not f.startswith("arch=compute_")]
            kwargs["extra_cuda_cflags"] = [*kept, "-gencode", f"arch=compute_{number},code=sm_{number}"]
        module = plain(name, *args, **kwargs)
        sys.modules.setdefault(name, module)
        return module

    extension.load = load


def capability_of_gpu():
    """Compute capability of this process's GPU, or None."""
    torch = importlib.import_module("torch")
    return torch.cuda.get_device_capability() if torch.cuda.is_available() else None


def own_options():
    """Our options, which stand before the program; what is left in sys.argv is the program's."""
    found = {}
    while len(sys.argv) > 2 and sys.argv[1] in ("--rope-scaling", "--vocabulary"):
        found[sys.argv[1]] = sys.argv[2]
        del sys.argv[1:3]
    return found


def main():
    options = own_options()
    if len(sys.argv) < 2:
        sys.exit(
            "usage: repaired.py [--rope-scaling TEXT] [--vocabulary N] /path/to/pretrain_gpt.py ARGUMENTS..."
        )
    program = Path(sys.argv[1])
    sys.argv = sys.argv[1:]
    sys.path[0] = str(program.parent)
    try:
        transformer = importlib.import_module("megatron.model.transformer")
        rotary = importlib.import_module("megatron.model.rotary_pos_embedding")
        if "--rope-scaling" in options:
            mend_scaling(rotary, options["--rope-scaling"])
        if "--vocabulary" in options:
            tokenizers = importlib.import_module("megatron.tokenizer.tokenizer")
            mend_tokenizer(tokenizers, int(options["--vocabulary"]))
        mend_rotary(rotary, transformer)
        mend_positions(importlib.import_module("megatron.core.tensor_parallel.layers"))
        ranks = importlib.import_module("megatron.core.parallel_state").get_tensor_model_parallel_group
        mend_parts(importlib.import_module("deepspeed"), importlib.import_module("torch"), transformer, ranks)
        mend_attention(transformer)
        mend_kernels(importlib.import_module("torch.utils.cpp_extension"), capability_of_gpu())
    except (ImportError, AttributeError) as error:
        if options:  # it would train another model than the one that was asked for
            lost = " ".join(f"{name} {value}" for name, value in options.items())
            sys.exit(f"repaired.py: this trainer is not the one it was made for ({error}): {lost} is lost")
        print(
            f"repaired.py: this trainer is not the one it was made for ({error}); left as it is", flush=True
        )
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main()
