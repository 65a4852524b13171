"""Owns what a container is made of: the catalogue's defaults, the user's KEY=VALUE changes, and their checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpt_tune.containers import catalogue
from gpt_tune.containers.catalogue import Base, Image
from gpt_tune.errors import UserError, nearest, shown, unknown_name
from gpt_tune.rendering import single_line

# "base": what the base image brings stays.
FROM_BASE = "base"
NETWORKS = ("efa", "none")
BUILDERS = ("docker", "podman")
_VERSION = re.compile(r"\d+(?:\.\d+)+(?:(?:\.?post|rc|a|b)\d+)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# What Docker takes as a repository's name and as a tag (distribution/reference).
_NAME = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
# pip may never replace what the base image was built around.
PROTECTED = ("torch", "torchvision", "torchaudio", "triton", "pytorch-triton")
_MOST_NODES = 100_000


@dataclass(frozen=True, slots=True)
class Container:
    """A container with every version decided. nodes: how many a job in it will span at most.

    nccl: a version, or "base". sqsh: where the enroot image goes, "" beside the other files.
    time_limit: of the build job; its partition and account are for the sbatch command line.
    """

    image: Image
    base: Base
    digest: str = ""
    efa: str = ""
    nccl: str = FROM_BASE
    gdrcopy: str = ""
    nodes: int = 2
    network: str = "efa"
    name: str = ""
    tag: str = ""
    sqsh: str = ""
    builder: str = "docker"
    time_limit: str = "2:00:00"
    python: Mapping[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """The image's name and tag, as Docker writes it."""
        return f"{self.name}:{self.tag}"

    @property
    def base_reference(self) -> str:
        return f"{self.base.image}:{self.base.tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def nccl_version(self) -> str:
        """The NCCL that jobs will run with, "" where nobody says."""
        return self.base.nccl if self.nccl == FROM_BASE else self.nccl

    @property
    def plugin(self) -> str:
        """The aws-ofi-nccl version of the EFA installer, "" without EFA."""
        if self.network != "efa":
            return ""
        return str(catalogue.load().efa[self.efa].details["aws_ofi_nccl"])

    def versions(self) -> dict[str, str]:
        """Library to version, in the words of the known-bad list."""
        found = {"nccl": self.nccl_version, "aws-ofi-nccl": self.plugin}
        if self.network == "efa":
            found["efa-installer"] = self.efa
        return {k: v for k, v in found.items() if v}


def default(name: str) -> Container:
    """A container as the catalogue has it."""
    known = catalogue.load()
    image = known.image(name)
    base = known.bases[known.default["base"]]
    return Container(
        image=image,
        base=base,
        efa=known.default["efa"],
        nccl=known.default["nccl"],
        gdrcopy=known.default["gdrcopy"],
        name=f"gpt-tune-{name}",
        tag=base.tag,
        python=dict(image.python),
    )


def with_settings(container: Container, settings: Iterable[str]) -> Container:
    """The container with KEY=VALUE settings applied in order; the last wins. UserError names the nearest key."""
    tagged = False
    for setting in settings:
        key, equals, value = setting.partition("=")
        key, value = key.strip(), value.strip()
        if not equals:
            raise UserError(f"--set {shown(setting)} has no '='.", "Write KEY=VALUE, for example efa=1.50.0.")
        tagged = tagged or key == "tag"
        if key.startswith("python."):
            container = _with_package(container, key.removeprefix("python."), value)
        elif key in _SETTERS:
            container = _SETTERS[key](container, value)
        else:
            raise _unknown_key(key)
    return container if tagged else replace(container, tag=container.base.tag)


def _unknown_key(key: str) -> UserError:
    known = [*_SETTERS, "python.NAME"]
    close = nearest(key, known)
    hint = f"Did you mean {close!r}?" if close else f"Known: {', '.join(known)}."
    return UserError(f"Unknown setting {shown(key)} of a container.", hint)


def _with_package(container: Container, name: str, value: str) -> Container:
    package = re.sub(r"[-_.]+", "-", name).lower()
    if package in PROTECTED:
        raise UserError(
            f"{name} cannot be set: the base image's own build of {package} fits its CUDA, NCCL and kernels.",
            "Take another base instead: --set base=TAG.",
        )
    if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", package):
        raise UserError(f"{shown(name)} is not the name of a Python package.", "Write python.NAME=VERSION.")
    known = {re.sub(r"[-_.]+", "-", n).lower(): n for n in container.python}
    kept = {k: v for k, v in container.python.items() if k != known.get(package)}
    if not value:
        return replace(container, python=kept)
    version = _version(value, f"python.{name}")
    return replace(container, python={**kept, known.get(package, package): version})


def _version(value: str, key: str) -> str:
    if not _VERSION.fullmatch(value):
        raise UserError(f"{key} is {shown(value)}; one exact version is needed.", f"Write {key}=1.2.3.")
    return value


def _base(container: Container, value: str) -> Container:
    known = catalogue.load().bases
    if value not in known:
        raise unknown_name("base", value, known, catalogue.FILE)
    nccl = FROM_BASE if known[value].nccl and value != container.base.tag else container.nccl
    return replace(container, base=known[value], nccl=nccl, digest="")


def _digest(container: Container, value: str) -> Container:
    if value and not _DIGEST.fullmatch(value):
        raise UserError(
            f"base_digest is {shown(value)}, not a digest.", "It is sha256: and 64 digits from 0 to f."
        )
    return replace(container, digest=value)


def _efa(container: Container, value: str) -> Container:
    known = catalogue.load().efa
    if value not in known:
        raise unknown_name("EFA installer", _version(value, "efa"), known, catalogue.FILE)
    return replace(container, efa=value)


def _nccl(container: Container, value: str) -> Container:
    return replace(
        container, nccl=value if value == FROM_BASE else _version(value.removesuffix("-1"), "nccl")
    )


def _gdrcopy(container: Container, value: str) -> Container:
    known = catalogue.load().gdrcopy
    if value.removeprefix("v") not in known:
        raise unknown_name("GDRCopy release", value, known, catalogue.FILE)
    return replace(container, gdrcopy=value.removeprefix("v"))


def _nodes(container: Container, value: str) -> Container:
    if not re.fullmatch(r"[1-9]\d{0,5}", value) or int(value) > _MOST_NODES:
        raise UserError(f"nodes is {shown(value)}; it must be a whole number from 1 to {_MOST_NODES}.", "")
    return replace(container, nodes=int(value))


def _one_of(key: str, allowed: tuple[str, ...]) -> Callable[[Container, str], Container]:
    def setter(container: Container, value: str) -> Container:
        if value not in allowed:
            raise unknown_name(key, value, allowed)
        return replace(container, **{key: value})  # type: ignore[arg-type]

    return setter


def _matching(key: str, pattern: re.Pattern[str], words: str) -> Callable[[Container, str], Container]:
    def setter(container: Container, value: str) -> Container:
        if not pattern.fullmatch(value) or len(value) > 200:
            raise UserError(
                f"{key} is {shown(value)}, which is no {words}.", "Use lower-case letters and digits."
            )
        return replace(container, **{key: value})  # type: ignore[arg-type]

    return setter


def _text(key: str) -> Callable[[Container, str], Container]:
    def setter(container: Container, value: str) -> Container:
        return replace(container, **{key: single_line(value, key)})  # type: ignore[arg-type]

    return setter


def _sqsh(container: Container, value: str) -> Container:
    if value and not value.startswith("/"):
        raise UserError(f"sqsh is {shown(value)}; it must be an absolute path.", "Start it with '/'.")
    return replace(container, sqsh=single_line(value, "sqsh"))


_SETTERS: dict[str, Callable[[Container, str], Container]] = {
    "base": _base,
    "base_digest": _digest,
    "efa": _efa,
    "nccl": _nccl,
    "gdrcopy": _gdrcopy,
    "nodes": _nodes,
    "network": _one_of("network", NETWORKS),
    "builder": _one_of("builder", BUILDERS),
    "name": _matching("name", _NAME, "image name"),
    "tag": _matching("tag", _TAG, "image tag"),
    "sqsh": _sqsh,
    "time_limit": _text("time_limit"),
}
SETTINGS = (*_SETTERS, "python.NAME")
