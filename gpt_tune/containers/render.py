"""Owns the files that build a container: Dockerfile, its scripts, the enroot job, and what is in it by whose word."""

from __future__ import annotations

from typing import Any

from gpt_tune import rendering
from gpt_tune.containers import catalogue, pairs
from gpt_tune.containers.choices import FROM_BASE, Container
from gpt_tune.containers.parts import BUILD_SIGNAL, NEED_GIB, Part
from gpt_tune.errors import UserError
from gpt_tune.recipes.base import RenderedFile

_FOLDER = "containers"
SCRIPTS = ("efa.sh", "plugin.sh", "protect.py", "check.py", "allreduce.py")


def refuse(container: Container) -> None:
    """UserError with the first reason why these versions must not be built."""
    for problem in pairs.problems(container):
        raise UserError(problem.text, problem.fix)


def parts(container: Container) -> list[Part]:
    """Everything that is pinned, in the order it is installed."""
    known = catalogue.load()
    given = "--set"
    found = [
        Part(container.base.image, container.base_reference.partition(":")[2], container.base.source, "base")
    ]
    if container.network == "efa":
        efa = known.efa[container.efa]
        found.append(Part("EFA installer", efa.version, efa.source, "network"))
        found.append(
            Part("aws-ofi-nccl", container.plugin, f"comes with EFA installer {efa.version}", "network")
        )
    if container.nccl == FROM_BASE:
        version = container.base.nccl or "as in the base"
        found.append(Part("NCCL", version, container.base.source, "network"))
    else:
        nccl = known.nccl.get(container.nccl)
        found.append(Part("NCCL", container.nccl, nccl.source if nccl else given, "network"))
    gdrcopy = known.gdrcopy[container.gdrcopy]
    found.append(Part("GDRCopy", gdrcopy.version, gdrcopy.source, "network"))
    image = container.image
    for name, version in container.python.items():
        shipped = image.python.get(name) == version
        found.append(Part(name, version, image.sources.get(name, given) if shipped else given, "python"))
    return found + [Part(c.name, c.commit, c.source, "git") for c in image.checkouts]


def files(container: Container, folder: str) -> tuple[RenderedFile, ...]:
    """Every file of the build folder. folder: where it will be, absolute. UserError for versions that do not work."""
    refuse(container)
    rendering.run_folder(folder)
    sqsh = container.sqsh or f"{folder}/{container.name.replace('/', '-')}-{container.tag}.sqsh"
    values = {"image": container.image, "headline": _headline(container), "reference": container.reference}
    job = rendering.render(
        f"{_FOLDER}/build.sbatch.j2",
        **values,
        sbatch=_sbatch(container, folder),
        folder=folder,
        sqsh=sqsh,
        builder=container.builder,
        target=container.image.name,
        need_gib=NEED_GIB,
    )
    readme = rendering.render(
        f"{_FOLDER}/README.md.j2",
        **values,
        name=container.name,
        sqsh=sqsh,
        builder=container.builder,
        notes=pairs.notes(container),
        parts=[(p.what, p.version, p.source) for p in parts(container)],
        need_gib=NEED_GIB,
    )
    return (
        RenderedFile("Dockerfile", _dockerfile(container, values)),
        RenderedFile("requirements.txt", _requirements(container)),
        *(RenderedFile(f"scripts/{n}", rendering.shipped(f"{_FOLDER}/scripts/{n}")) for n in SCRIPTS),
        RenderedFile("build.sbatch", job, executable=True),
        RenderedFile("check.sbatch", _check(container, folder, sqsh), executable=True),
        RenderedFile("versions.json", rendering.json_bytes(versions_json(container))),
        # Docker sends the folder to its daemon: not the image file that lies in it afterwards.
        RenderedFile(".dockerignore", b"*.sqsh*\nlogs\n"),
        RenderedFile("README.md", readme),
    )


def versions_json(container: Container) -> dict[str, Any]:
    """What is in the image, for programs."""
    return {
        "schema": "gpt-tune/container/1",
        "name": container.image.name,
        "image": container.reference,
        "title": container.image.title,
        "recipes": list(container.image.recipes),
        "nodes": container.nodes,
        "network": container.network,
        "base": container.base_reference,
        "parts": [part.to_json() for part in parts(container)],
    }


def _headline(container: Container) -> str:
    network = f"EFA {container.efa}" if container.network == "efa" else "no EFA"
    nccl = container.nccl_version or "the base's"
    return f"{container.image.title}, on {container.base_reference}, {network}, NCCL {nccl}."


def _dockerfile(container: Container, values: dict[str, Any]) -> bytes:
    known = catalogue.load()
    return rendering.render(
        f"{_FOLDER}/Dockerfile.j2",
        **values,
        name=container.name,
        tag=container.tag,
        base_reference=container.base_reference,
        efa=container.efa if container.network == "efa" else "",
        plugin=container.plugin,
        one_node_only=pairs.one_node_only(container),
        efa_fingerprint=known.efa_fingerprint,
        nccl="" if container.nccl == FROM_BASE else container.nccl,
        nccl_expected=container.nccl_version,
        cuda=container.base.cuda,
        ubuntu=container.base.ubuntu.replace(".", ""),
        keyring=known.keyring,
        gdrcopy=container.gdrcopy,
        gdrcopy_commit=known.gdrcopy[container.gdrcopy].details["commit"],
    )


def _requirements(container: Container) -> bytes:
    lines = [
        "# Without torch: the base image's own stays.",
        *(f"{n}=={v}" for n, v in container.python.items()),
    ]
    return ("\n".join(lines) + "\n").encode()


def _check(container: Container, folder: str, sqsh: str) -> bytes:
    option = rendering.sbatch_option
    lines = [
        option("job-name", f"check-{rendering.slug(container.name, 'image')}"),
        option("output", f"{folder}/{rendering.LOG_FOLDER}/%x-%j.out"),
        option("nodes", 2),
        option("ntasks-per-node", 1),
        option("gres", "gpu:1"),
        option("time", "15"),
        option("no-requeue"),
    ]
    return rendering.render(
        f"{_FOLDER}/check.sbatch.j2", sbatch=lines, folder=folder, sqsh=sqsh, efa=container.network == "efa"
    )


def _sbatch(container: Container, folder: str) -> list[str]:
    option = rendering.sbatch_option
    return [
        option("job-name", f"build-{rendering.slug(container.name, 'image')}"),
        option("output", f"{folder}/{rendering.LOG_FOLDER}/%x-%j.out"),
        option("open-mode", "append"),
        option("nodes", 1),
        option("ntasks", 1),
        option("exclusive"),
        option("mem", 0),
        option("signal", BUILD_SIGNAL),
        option("no-requeue"),
        *([option("time", container.time_limit)] if container.time_limit else []),
    ]
