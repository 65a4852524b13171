"""Owns which versions may go into one image: what is known to fail, and what was not built for each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpt_tune.containers import catalogue
from gpt_tune.containers.choices import FROM_BASE, Container
from gpt_tune.layouts import versions
from gpt_tune.lint import known_bad

# NCCL 2.29's packages need this CUDA (the AWS DeepSpeed image; its release notes).
_CUDA_FOR_2_29 = (12, 9)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an image must not be built, what to do, and who says so."""

    text: str
    fix: str
    source: str

    def __str__(self) -> str:
        return f"{self.text} {self.fix}"


def problems(container: Container) -> list[Problem]:
    """Everything that speaks against these versions, worst first; empty when they may be built."""
    found = container.versions()
    many = container.nodes > 1
    bad = list(known_bad.too_old(found, container.nodes))
    if many:
        bad += [b for b in known_bad.alone(found) if b.what not in {x.what for x in bad}]
    bad += known_bad.pairs(found)
    return [*(Problem(b.text, b.fix, b.source) for b in bad), *_cuda(container)]


def _cuda(container: Container) -> Iterator[Problem]:
    """A pinned NCCL needs a package for the base's CUDA."""
    if container.nccl == FROM_BASE:
        return
    cuda = versions.parse(container.base.cuda)
    if versions.parse(container.nccl) >= (2, 29) and cuda < _CUDA_FOR_2_29:
        yield Problem(
            f"NCCL {container.nccl} needs CUDA 12.9, and {container.base.tag} has {container.base.cuda}.",
            "Use a newer base, or nccl=2.27.7.",
            "NCCL 2.29 release notes",
        )
    known = catalogue.load().nccl.get(container.nccl)
    built = known.details["cuda"] if known else []
    if known and built and container.base.cuda not in built:
        yield Problem(
            f"NCCL {container.nccl} has packages for CUDA {' and '.join(built)}, not for the {container.base.cuda} of "
            f"{container.base.tag}.",
            "Use nccl=base, or another base.",
            known.source,
        )


def one_node_only(container: Container) -> bool:
    """Whether these versions are for a single node only: they fail between nodes."""
    return container.nodes == 1 and any(known_bad.alone(container.versions()))


def notes(container: Container) -> list[str]:
    """What the user should know before building, in sentences."""
    found = []
    if one_node_only(container):
        found.append(f"EFA installer {container.efa} hangs between nodes: use this image on one node only.")
    if container.nccl == FROM_BASE and not container.base.nccl:
        found.append(
            f"The notes of {container.base.tag} do not name its NCCL: the pair with the plugin is not checked here, "
            "only printed by the check in the build."
        )
    elif container.nccl != FROM_BASE and container.nccl not in catalogue.load().nccl:
        found.append(
            f"NCCL {container.nccl} is not in {catalogue.FILE}: whether NVIDIA has a package of it for CUDA "
            f"{container.base.cuda} shows in the build."
        )
    if container.network != "efa":
        found.append("Without EFA the image uses what the base has: InfiniBand, or TCP sockets.")
    for checkout in container.image.checkouts:
        found.append(
            f"In the image the trainer is /opt/{checkout.name}: set trainer.path to it. Its fused softmax compiles "
            "into that folder, which pyxis keeps read-only: for fusions.masked_softmax use a checkout on the shared "
            "disk."
        )
    return found
