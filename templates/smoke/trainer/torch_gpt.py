"""The same GPT in PyTorch, data parallel over GPUs: one process a GPU, gradients averaged by NCCL."""

from __future__ import annotations

import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and MLP, each after a LayerNorm and added to the residual stream."""

    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.norm1 = nn.LayerNorm(shape.hidden)
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.out = nn.Linear(shape.hidden, shape.hidden)
        self.norm2 = nn.LayerNorm(shape.hidden)
        self.up = nn.Linear(shape.hidden, shape.ffn)
        self.down = nn.Linear(shape.ffn, shape.hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Decoder with learned positions and tied output projection; returns the mean loss."""

    def __init__(self, shape):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.positions = nn.Embedding(shape.seq_length, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.hidden)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * shape.layers) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, inputs, targets):
        places = torch.arange(inputs.shape[1], device=inputs.device)
        x = self.tokens(inputs) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def _gpu_of(place):
    """This rank's GPU, made current. A scheduler that binds one GPU to each task shows every task just that one."""
    gpus = torch.cuda.device_count()
    if place.local_rank >= gpus > 1:
        raise SystemExit(
            f"smoke: local rank {place.local_rank} on {place.host} has no GPU, only {gpus} are visible."
        )
    gpu = torch.device("cuda", place.local_rank if gpus > 1 else 0)
    torch.cuda.set_device(gpu)
    return gpu


class TorchTrainer:
    """One rank of a data-parallel run: bf16 matrix products on CUDA GPUs, or fp32 on the CPU to try it out."""

    def __init__(self, shape, settings, place, device="cuda"):
        self.device = device
        self.ranks = place.world
        self.settings = settings
        self.place = _gpu_of(place) if device == "cuda" else torch.device("cpu")
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29500")
        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo", rank=place.rank, world_size=place.world
        )
        torch.manual_seed(settings.seed)
        self.model = Gpt(shape).to(self.place)
        self.parallel = nn.parallel.DistributedDataParallel(self.model)
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() == 1]
        groups = [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self.adam = torch.optim.AdamW(
            groups, lr=settings.learning_rate, betas=(settings.beta1, settings.beta2), eps=settings.epsilon
        )
        self.mixed = device == "cuda" and torch.cuda.is_bf16_supported()

    def step(self, windows, learning_rate):
        """One optimizer step on this rank's windows of tokens; mean loss over ranks and gradient norm."""
        tokens = torch.frombuffer(bytearray(b"".join(windows)), dtype=torch.uint8)
        tokens = tokens.view(len(windows), -1).to(self.place, torch.long)
        for group in self.adam.param_groups:
            group["lr"] = learning_rate
        self.adam.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.mixed):
            loss = self.parallel(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        limit = self.settings.clip if self.settings.clip > 0 else math.inf
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.adam.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        return float(mean) / self.ranks, float(norm)  # reading the values waits for the GPU

    def write(self, path, facts):
        """A checkpoint: parameters, optimizer state and `facts` (ints)."""
        torch.save({"model": self.model.state_dict(), "adam": self.adam.state_dict(), "facts": facts}, path)

    def read(self, path):
        """Take over a checkpoint; its facts."""
        data = torch.load(path, map_location=self.place, weights_only=True)
        self.model.load_state_dict(data["model"])
        self.adam.load_state_dict(data["adam"])
        return data["facts"]

    def agree(self, values):
        """All ranks take rank 0's whole numbers."""
        shared = torch.tensor(values, dtype=torch.long, device=self.place)
        dist.broadcast(shared, 0)
        return shared.tolist()

    def any(self, flag):
        """Whether any rank says so."""
        shared = torch.tensor(int(flag), device=self.place)
        dist.all_reduce(shared, op=dist.ReduceOp.MAX)
        return bool(shared.item())

    def close(self):
        """Leave the group together."""
        dist.barrier()
        dist.destroy_process_group()
