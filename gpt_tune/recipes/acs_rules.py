"""Owns the rules of Alibaba's image training-nv-pytorch, each as a function that answers with a sentence.

Their figures stand in `profiles/containers/acs.toml`, with sources. The linter has the same rules for scripts that
others wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpt_tune import toml
from gpt_tune.errors import UserError, shown, unknown_name
from gpt_tune.layouts import versions
from gpt_tune.profiles.acs import Acs
from gpt_tune.resources import data_dir

_PINNED = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[[A-Za-z0-9,._-]+\])?==\d[\w.+!-]*")
_REGION = re.compile(r"[a-z]{2}-[a-z0-9-]{2,30}")
_DRIVER = re.compile(r"\d{3}(?:\.\d+){0,2}")
PREFETCH = "stage3_prefetch_bucket_size"


@dataclass(frozen=True, slots=True)
class Driver:
    """The oldest NVIDIA driver for a CUDA; branches: older ones with the compatibility package."""

    cuda: str
    minimum: str
    branches: tuple[str, ...]


@lru_cache(maxsize=1)
def data() -> Mapping[str, Any]:
    """The shipped figures."""
    return toml.load(data_dir("profiles") / "containers" / "acs.toml")


def releases() -> dict[str, Mapping[str, Any]]:
    """Releases of the image by name, oldest first."""
    return {entry["release"]: entry for entry in data()["release"]}


# -- image ----------------------------------------------------------------------------------------
def cuda_of(acs: Acs) -> str:
    """The CUDA of the image. UserError for an unknown release, or one of several CUDAs when none was chosen."""
    known = releases()
    if acs.release not in known:
        raise unknown_name("release of training-nv-pytorch", acs.release, known)
    offered = known[acs.release]["cuda"]
    if not acs.cuda and len(offered) == 1:
        return str(offered[0])
    if acs.cuda not in offered:
        wanted = " or ".join(offered)
        given = f"is {shown(acs.cuda)}" if acs.cuda else "is empty"
        raise UserError(
            f"acs.cuda {given}; release {acs.release} has CUDA {wanted}.", f"Set acs.cuda={offered[0]}."
        )
    return acs.cuda


def image_of(acs: Acs) -> str:
    """The image's address as Docker writes it. UserError when nobody knows it."""
    if acs.image:
        return acs.image
    release = releases().get(acs.release)
    if release is None:
        raise unknown_name("release of training-nv-pytorch", acs.release, releases())
    if not release["tag"]:
        raise UserError(
            f"The notes of release {acs.release} that were read do not name its tag.",
            "Give the whole address in acs.image.",
        )
    entry = data()["image"]
    place = str(entry["public"])
    if acs.vpc_region:
        if not _REGION.fullmatch(acs.vpc_region):
            raise UserError(
                f"acs.vpc_region is {shown(acs.vpc_region)}, which is no region.", "For example cn-beijing."
            )
        place = str(entry["vpc"]).format(region=acs.vpc_region)
    return f"{place}:{str(entry['tag']).format(release=acs.release)}"


def enroot_address(image: str) -> str:
    """An image's address as enroot writes it: the registry is set off with '#'. Files stay as they are."""
    if image.startswith(("/", "docker://", "dockerd://", "podman://")) or "#" in image:
        return image
    registry, slash, rest = image.partition("/")
    has_registry = bool(slash) and ("." in registry or ":" in registry or registry == "localhost")
    return f"{registry}#{rest}" if has_registry else image


# -- network --------------------------------------------------------------------------------------
def interface(gpus_per_node: int) -> str:
    """NCCL_SOCKET_IFNAME of a pod. UserError names the nearest sizes that pods have."""
    sizes = {gpus: entry["name"] for entry in data()["interface"] for gpus in entry["gpus"]}
    if gpus_per_node in sizes:
        return str(sizes[gpus_per_node])
    lower = max((s for s in sizes if s < gpus_per_node), default=None)
    higher = min((s for s in sizes if s > gpus_per_node), default=None)
    near = " or ".join(str(s) for s in (lower, higher) if s is not None)
    raise UserError(
        f"Pods of ACS have {', '.join(map(str, sorted(sizes)))} GPUs, not {gpus_per_node}.",
        f"Use {near} a node.",
    )


def interface_problem(variables: Mapping[str, str], gpus_per_node: int) -> str:
    """Why an NCCL_SOCKET_IFNAME of the user's own cannot stay; "" when it can."""
    given = variables.get("NCCL_SOCKET_IFNAME")
    wanted = interface(gpus_per_node)
    if given is None or given == wanted:
        return ""
    pod = f"a pod with {gpus_per_node} GPUs"
    return f"NCCL_SOCKET_IFNAME is {shown(given)}, but {pod} has {wanted}: ranks would not meet."


# -- driver ---------------------------------------------------------------------------------------
def driver_for(cuda: str) -> Driver:
    """What a CUDA needs of the driver."""
    entry = next(e for e in data()["driver"] if e["cuda"] == cuda)
    return Driver(cuda, entry["minimum"], tuple(entry["branches"]))


def driver_problem(driver: str, cuda: str) -> str:
    """Why a driver cannot run the image; "" when it can."""
    if not _DRIVER.fullmatch(driver):
        return f"acs.driver is {shown(driver)}, which is no NVIDIA driver version such as 580.95.05."
    needed, given = driver_for(cuda), versions.parse(driver)
    if given >= versions.parse(needed.minimum):
        return ""
    for branch in needed.branches:
        least = versions.parse(branch)
        if given[0] == least[0] and given >= least:
            return ""
    return f"Driver {driver} is too old for CUDA {cuda}, which needs {needed.minimum} or newer."


# -- what must stay as it is ----------------------------------------------------------------------
def prefetch_problem(config: Any) -> str:
    """Why a DeepSpeed configuration's prefetch size must go; "" when it is absent or "auto"."""
    zero = config.get("zero_optimization") if isinstance(config, Mapping) else None
    value = zero.get(PREFETCH, "auto") if isinstance(zero, Mapping) else "auto"
    if value is None or value == "auto":
        return ""
    return f'{PREFETCH} is {shown(str(value))}: the image chooses it, so leave it out or write "auto".'


def package_problem(requirement: str) -> str:
    """Why a package must not be added; "" when it may."""
    match = _PINNED.fullmatch(requirement.strip())
    name = _normal(match.group(1) if match else re.split(r"[\s\[=<>!~;@]", requirement.strip())[0])
    if name in data()["never_install"]["packages"] or _egg(requirement):
        return f"acs.packages has {shown(requirement)}: {data()['never_install']['why']}."
    if match is None:
        return (
            f"acs.packages has {shown(requirement)}; write NAME==VERSION, so that the next run has the same."
        )
    return ""


def _egg(requirement: str) -> bool:
    egg = re.search(r"egg=([\w.-]+)", requirement)
    return egg is not None and _normal(egg.group(1)) in data()["never_install"]["packages"]


def install_problem(words: Sequence[str]) -> str:
    """Why words that a job would run replace the image's torch or DeepSpeed; "" when they do not."""
    text = " ".join(words)
    for install in re.finditer(r"\b(?:pip[0-9.]*|uv pip|conda|mamba)\s+install\b([^;&|\n]*)", text):
        for word in install.group(1).split():
            if _normal(re.split(r"[\[=<>!~;@]", word.strip("\"'"))[0]) in data()["never_install"]["packages"]:
                return f"acs.arguments install {shown(word)}: {data()['never_install']['why']}."
    return ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
