"""Owns rules about particular versions: releases and pairs known to be bad, and figures that drift apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpt_tune.layouts import versions
from gpt_tune.lint import kinds, known_bad
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.project import Project
from gpt_tune.lint.rules.pins import requirements_of

_VERSION = re.compile(r"\d+(?:\.\d+)+")


def _known_bad(document: Document, project: Project) -> Iterator[Hit]:
    places = dict(_versions_in(document))
    found = {what: version for what, (version, _) in places.items()}
    for bad in (*known_bad.alone(found), *known_bad.pairs(known_bad.with_bundled(found))):
        yield Hit(places[bad.what][1], bad.text, bad.fix)


_WHERE = {
    "efa-installer": re.compile(
        r"aws-efa-installer-(?P<a>\d+\.\d+\.\d+)|\bEFA(?:_INSTALLER)?_?VER(?:SION)?\s*[=:]\s*\"?v?(?P<b>\d+\.\d+\.\d+)"
    ),
    "aws-ofi-nccl": re.compile(
        r"\b(?:AWS_)?OFI_NCCL_VER(?:SION)?\s*[=:]\s*\"?v?(?P<a>\d+\.\d+\.\d+)|aws-ofi-nccl[^\n]{0,80}?\bv(?P<b>\d+\.\d+\.\d+)"
    ),
    "nccl": re.compile(
        r"\bNCCL_VER(?:SION)?\s*[=:]\s*\"?v?(?P<a>\d+\.\d+\.\d+)|libnccl2?=(?P<b>\d+\.\d+\.\d+)|"
        r"NVIDIA/nccl(?:\.git)?[^\n]{0,60}?\bv(?P<c>\d+\.\d+\.\d+)"
    ),
}


def _versions_in(document: Document) -> Iterator[tuple[str, tuple[str, int]]]:
    """Versions of network libraries that a file installs, each with its line."""
    for what, pattern in _WHERE.items():
        for number, line in enumerate(document.lines, 1):
            if line.lstrip().startswith(("#", "//")):
                continue
            match = pattern.search(line)
            if match is not None:
                yield what, (next(g for g in match.groups() if g), number)
                break


def _nccl_cuda(document: Document, project: Project) -> Iterator[Hit]:
    for number, line in enumerate(document.lines, 1):
        match = re.search(r"libnccl(?:2|-dev)=\$?\{?(\w[\w.]*)\}?(?:-\d)?\+cuda(\d+\.\d+)", line)
        if match is None:
            continue
        nccl = document.dockerfile.variables.get(match.group(1), match.group(1))
        found = _VERSION.match(nccl)
        if found and versions.parse(found.group()) >= (2, 29) and versions.parse(match.group(2)) < (12, 9):
            yield Hit(
                number,
                f"NCCL {found.group()} needs CUDA 12.9 or newer, not {match.group(2)}.",
                "Use the package for cuda12.9 or newer.",
            )
            return


def _drift(document: Document, project: Project) -> Iterator[Hit]:
    """Versions that a README states against those a Dockerfile near it installs."""
    dockerfiles = [d for d in project.near(document, kinds.DOCKER) if _distance_ok(document, d)]
    if len(dockerfiles) != 1 and not any(d.name in document.text for d in dockerfiles):
        return
    named = [d for d in dockerfiles if d.name in document.text] or dockerfiles
    actual = _installed(named[0])
    seen: set[str] = set()
    for number, line in document.markdown.prose:
        for name, version in actual.items():
            pattern = rf"(?i)(?<![\w/.-]){_loosely(name)}\W{{0,4}}(?:version\s*)?v?(\d+\.\d+(?:\.\d+)*)"
            match = re.search(pattern, line)
            if match is None or name in seen or _agrees(match.group(1), version):
                continue
            seen.add(name)
            yield Hit(
                number,
                f"The README says {name} {match.group(1)}, but {named[0].shown} installs {version}.",
                f"Write {version}.",
            )


def _distance_ok(readme: Document, dockerfile: Document) -> bool:
    return dockerfile.folder == readme.folder or readme.folder in dockerfile.folder.parents


def _loosely(name: str) -> str:
    return re.escape(name).replace(r"\-", "[-_ ]?")


def _installed(dockerfile: Document) -> dict[str, str]:
    """Package name to the version that a Dockerfile fixes."""
    found: dict[str, str] = {}
    for name, value in dockerfile.dockerfile.variables.items():
        match = re.fullmatch(r"([A-Z][A-Z0-9_]*?)_(?:INSTALLER_)?VER(?:SION)?", name)
        version = _VERSION.match(value.lstrip("v"))
        if match is not None and version is not None:
            found[match.group(1).lower().replace("_", "-")] = version.group()
    for requirement, _ in requirements_of(dockerfile):
        pinned = next((v for op, v in requirement.specifiers if op == "=="), None)
        if pinned is not None and _VERSION.match(pinned):
            found[requirement.name] = pinned
    return found


def _agrees(stated: str, actual: str) -> bool:
    a, b = stated.split("."), actual.split(".")
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def _block_drift(document: Document, project: Project) -> Iterator[Hit]:
    """The same version variable with another value in another Dockerfile of the case."""
    others = [d for d in project.near(document, kinds.DOCKER) if d is not document]
    mine = document.dockerfile.settings
    for setting in mine:
        if not re.search(r"(?:EFA|NCCL|GDRCOPY|OFI|CUDA)\w*VER", setting.name):
            continue
        own = document.dockerfile.variables.get(setting.name, "")
        for other in others:
            theirs = other.dockerfile.variables.get(setting.name)
            if theirs is not None and theirs.lstrip("v") != own.lstrip("v") and other.shown < document.shown:
                yield Hit(
                    setting.line,
                    f"{setting.name} is {own} here and {theirs} in {other.shown}.",
                    "Use one version.",
                )
                break


RULES = (
    Rule(
        "known-bad-version", "error", (kinds.DOCKER, kinds.SHELL, kinds.MAKE), _known_bad,
        "It hangs or crashes on several nodes.", "Use a release with the fix.",
        "profiles/lint/known-bad.toml, each with its source",
    ),
    Rule(
        "nccl-needs-cuda", "error", (kinds.DOCKER,), _nccl_cuda,
        "The library does not load.", "Match NCCL and CUDA.", "NCCL 2.29 release notes",
    ),
    Rule(
        "version-drift", "info", (kinds.MARKDOWN,), _drift,
        "People debug the version they read about.", "Make the README and the Dockerfile say the same.",
        "awsome-distributed-training reviews 1009 and 1138", pairs=True,
    ),
    Rule(
        "version-drift", "info", (kinds.DOCKER,), _block_drift,
        "Two images of one case behave differently.", "Use one version in both.", "awsome-distributed-training reviews",
    ),
)  # fmt: skip
