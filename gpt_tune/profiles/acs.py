"""Owns what a profile says about a job in Alibaba's training-nv-pytorch image (recipe acs). Plain data; no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Acs:
    """Choices of the recipe acs; batch, iterations and rates stand in [training]. Passwords never stand here.

    work: "ljperf" runs the image's own benchmark, "script" a training script built on Hugging Face's Trainer.
    """

    release: str = "25.10"
    cuda: str = ""  # for a release with several: "12.8" or "13.0"; "" takes its only one
    image: str = ""  # an address or an enroot file; "" is the release's public image
    vpc_region: str = ""  # pull over this region's private network: "cn-beijing"
    driver: str = (
        ""  # what the nodes have ("580.95.05"), checked before submitting; "" is checked in the job only
    )
    work: Literal["ljperf", "script"] = "ljperf"
    benchmark: str = "deepspeed/llama3-8b"  # what `ljperf benchmark --model` is given
    script: str = ""  # absolute path, as the container sees it
    arguments: tuple[str, ...] = ()  # the script's own, in front of the Trainer's
    packages: tuple[str, ...] = ()  # NAME==VERSION, put beside the image's own
    deepspeed_config: str = ""  # a JSON file of yours; "" writes one
    zero_stage: Literal[1, 2, 3] = 3
    micro_batch_size: int = 1
    compile: bool = False
    checkpoint_optimization: bool = False
    # The images of the ablation ladder's first rungs: "base" (no component of Alibaba's) and "communication" (ACCL).
    ladder_images: dict[str, str] = field(default_factory=dict)
    # For the Kubernetes manifest.
    compute_class: Literal["", "gpu", "gpu-hpn"] = ""  # "": gpu-hpn for 16 GPUs a pod or several pods
    gpu_model: str = ""  # as ACS names it: "L20"
    namespace: str = "default"
    volume_claim: str = ""  # a volume that is mounted where the run folder is
    secret_name: str = ""  # a Kubernetes secret whose keys become environment variables
