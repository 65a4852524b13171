"""Owns what a GPU, a link and a node are. Figures live in `profiles/hardware/`, one TOML file a thing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Rates are per second: TFLOPS are 1e12 FLOP/s (dense), bandwidths GB/s = 1e9 bytes/s.

    bf16_achievable_tflops is the best large matrix product measured in practice.
    memory_gb is the size on the data sheet; memory_mib_driver is what nvidia-smi shows (limit of `device`);
    memory_gib_torch what a process can take. nvlink_gbs is the fast link (PCIe where there is none), one way.
    None means unknown; nothing is guessed. sources: "figure: where it stands".
    """

    id: str
    name: str
    bf16_tflops: float
    bf16_achievable_tflops: float
    fp8_tflops: float | None
    memory_mib_driver: float | None
    memory_gib_torch: float | None
    memory_bandwidth_gbs: float
    nvlink_gbs: float
    architecture: str
    compute_capability: tuple[int, int] | None = None
    sources: tuple[str, ...] = ()
    memory_gb: float | None = None
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One node type: its GPUs and links.

    nvlink_domain_gpus is how many GPUs share the fast link (8 for DGX, 72 for NVL72).
    network_gbs_per_gpu is the wire rate of the NICs divided by GPUs, GB/s one way.
    *_busbw_gbs are measured large-message all-reduce bus bandwidths, GB/s; None when unknown.
    """

    id: str
    name: str
    gpu: Gpu
    gpus_per_node: int
    nvlink_domain_gpus: int
    nics: int
    network_gbs_per_gpu: float
    network: str
    intra_busbw_gbs: float | None = None
    inter_busbw_gbs: float | None = None
    cpus: int | None = None
    memory_gib: float | None = None
    instance: str = ""
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
