"""Owns rules about pins: sources without a version, ranges that cross a change, packages that must not be replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpt_tune.layouts import versions
from gpt_tune.lint import kinds, tables
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.project import Project
from gpt_tune.lint.readers.requirements import Requirement, files_of, of_command
from gpt_tune.lint.shell.script import Script
from gpt_tune.lint.shell.tree import Command

_CLONE_SOURCE = "awsome-distributed-training CONTRIBUTING: pin external software by tag or commit"
_NGC = re.compile(r"(?i)nvcr\.io/nvidia/|(?:^|/)nemo:|/pytorch:\d\d\.\d\d")
_ACS_IMAGE = re.compile(r"(?i)training-nv-pytorch|egslingjun")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
# What Alibaba's image has patched builds of.
_ACS_OWN = frozenset(tables.acs()["never_install"]["packages"])
# DeepSpeed releases where gradient accumulation changes its number format or refuses a combination.
_DEEPSPEED_TURNS = ("0.17.6", "0.18.5")


def _clone(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        for command in script.calls("git"):
            words = [w.literal or w.source for w in command.words]
            if len(words) < 3 or words[1] != "clone" or _has_version(words):
                continue
            address = next((w for w in words[2:] if re.search(r"://|git@|\$", w)), None)
            if address is None or _checked_out(script, command, document) or _DATA.search(address):
                continue
            shown = script.values.expand(next(w for w in command.words if (w.literal or w.source) == address))
            yield Hit(
                command.line,
                f"{shown} is cloned at whatever its newest commit is.",
                "Pass --branch TAG, or check a commit out.",
                # A README often tells how to get its own repository, which has no version to name.
                "info" if document.kind == kinds.MARKDOWN else None,
            )


_DATA = re.compile(r"huggingface\.co/|hf\.co/|\.wiki\.git")


def _has_version(words: list[str]) -> bool:
    return any(w in ("-b", "--branch") or w.startswith(("--branch=", "--revision")) for w in words)


def _checked_out(script: Script, clone: Command, document: Document) -> bool:
    """Whether a commit is chosen behind the clone, in the same script or the next RUN."""
    later = [c for s in document.scripts for c in s.calls("git") if c.line >= clone.line and c is not clone]
    for command in later:
        words = [w.literal or w.source for w in command.words]
        if (
            any(w in ("checkout", "reset", "switch", "fetch", "submodule") for w in words[1:5])
            and len(words) > 2
        ):
            return command.line - clone.line < 60
        if len(words) > 1 and words[1] == "clone":
            return False
    return False


def _image_tag(document: Document, project: Project) -> Iterator[Hit]:
    for image, line in document.dockerfile.bases:
        yield from _judge_tag(image, line, "FROM")
    for script in document.scripts:
        for command in script.calls("docker", "podman", "enroot", "apptainer", "singularity"):
            words = [w.literal or "" for w in command.words]
            if not {"pull", "import"} & set(words[1:3]):
                continue
            image = next((w for w in reversed(words) if re.search(r"[\w.-]+/[\w.-]+|docker://", w)), "")
            if image and not image.startswith(("dockerd://", "/", "-")):
                yield from _judge_tag(image.split("://", 1)[-1], command.line, " ".join(words[:2]))


def _judge_tag(image: str, line: int, what: str) -> Iterator[Hit]:
    if image == "scratch" or "$" in image or "@sha256:" in image:
        return
    name, _, tag = image.rpartition("/")[2].partition(":")
    if not tag or tag == "latest":
        state = "has no tag" if not tag else "has the tag latest"
        yield Hit(
            line,
            f"{what} {image} {state}: the image changes under the same name.",
            f"Name a version: {name}:VERSION.",
        )


def requirements_of(document: Document) -> Iterator[tuple[Requirement, int]]:
    for requirement in document.requirements:
        yield requirement, requirement.line
    for script in document.scripts:
        for command in script.commands:
            for requirement in of_command(command, script):
                yield requirement, requirement.line


def _unpinned(document: Document, project: Project) -> Iterator[Hit]:
    tools = ("pip", "setuptools", "wheel", "uv", "")
    loose = [r for r, _ in requirements_of(document) if r.name not in tools and not r.bounded and not r.url]
    loose = [r for r in loose if "$" not in r.source]
    if not loose:
        return
    names = ", ".join(dict.fromkeys(r.source for r in loose[:6]))
    more = f" and {len(loose) - 6} more" if len(loose) > 6 else ""
    yield Hit(
        loose[0].line,
        f"{names}{more}: no upper version, so the next build gets other packages.",
        "Pin with ==, or bound with <.",
    )


def _base_of(document: Document) -> str:
    return document.dockerfile.bases[-1][0] if document.dockerfile.bases else ""


def _torch_over_ngc(document: Document, project: Project) -> Iterator[Hit]:
    bases = [b for b, _ in document.dockerfile.bases]
    ngc, acs = any(_NGC.search(b) for b in bases), any(_ACS_IMAGE.search(b) for b in bases)
    if not ngc and not acs:
        return
    forbidden = {"torch"} | (_ACS_OWN if acs else set())
    what = "Alibaba's patched" if acs else "NVIDIA's"
    for requirement, line in requirements_of(document):
        if requirement.name in forbidden:
            yield Hit(
                line,
                f"{requirement.source} replaces {what} build in {_base_of(document)}: its NCCL, CUDA and kernels no "
                "longer fit the rest of the image.",
                f"Leave {requirement.name} out, or start from another image.",
            )
    for script in document.scripts:
        for command in script.commands:
            for name in files_of(command):
                yield from _torch_in_file(name, command.line, document, project, forbidden)


def _torch_in_file(
    name: str, line: int, document: Document, project: Project, forbidden: set[str]
) -> Iterator[Hit]:
    base = name.rsplit("/", 1)[-1]
    near = [
        d
        for d in project.near(document, kinds.REQUIREMENTS)
        if document.folder in (d.folder, d.folder.parent)
    ]
    target = next((d for d in near if d.name == base), None)
    found = (
        next((r for r in target.requirements if r.name in forbidden), None) if target is not None else None
    )
    if target is not None and found is not None:
        yield Hit(
            line,
            f"{target.shown}:{found.line} installs {found.source} over the build in {_base_of(document)}.",
            f"Remove {found.name} from {base}.",
        )


def _torch_in_requirements(document: Document, project: Project) -> Iterator[Hit]:
    """A requirements file beside an ACS job, where nothing may replace torch or DeepSpeed."""
    if not project.on_acs(document):
        return
    for requirement in document.requirements:
        if requirement.name in _ACS_OWN:
            yield Hit(
                requirement.line, f"{requirement.source} replaces the image's patched build.", "Remove it."
            )


def _acs_install(document: Document, project: Project) -> Iterator[Hit]:
    if not project.on_acs(document):
        return
    for script in document.scripts:
        for command in script.commands:
            for requirement in of_command(command, script):
                if requirement.name in _ACS_OWN:
                    yield Hit(
                        requirement.line,
                        f"{requirement.source} replaces the image's patched build.",
                        "Remove it.",
                    )


def _deepspeed_range(document: Document, project: Project) -> Iterator[Hit]:
    for requirement, line in requirements_of(document):
        if (
            requirement.name != "deepspeed"
            or requirement.pinned
            or requirement.url
            or "$" in requirement.source
        ):
            continue
        crossed = [t for t in _DEEPSPEED_TURNS if _admits(requirement, t)]
        before = [t for t in _DEEPSPEED_TURNS if _admits_below(requirement, t)]
        if crossed and before:
            yield Hit(
                line,
                f"{requirement.source} admits releases before and from {' and '.join(crossed)}: bf16 "
                "gradients are added "
                "up in fp32 by default before 0.17.6 and in bf16 from then on, and ZeRO-0 with fp32 accumulation is "
                "refused from 0.18.5.",
                "Pin one release, and set data_types.grad_accum_dtype.",
            )


def _admits(requirement: Requirement, version: str) -> bool:
    """Whether a release this new may be installed."""
    wanted = versions.parse(version)
    for operator, text in requirement.specifiers:
        match = _VERSION.match(text)
        if match is None:
            continue
        bound = versions.parse(match.group())
        if (operator == "<" and wanted >= bound) or (operator == "<=" and wanted > bound):
            return False
        if operator == "~=" and wanted[: len(bound) - 1] != bound[:-1]:
            return False
    return True


def _admits_below(requirement: Requirement, version: str) -> bool:
    """Whether a release older than this may be installed."""
    wanted = versions.parse(version)
    for operator, text in requirement.specifiers:
        match = _VERSION.match(text)
        if match is not None and operator in (">=", ">", "~=") and versions.parse(match.group()) >= wanted:
            return False
    return True


_CODE = (kinds.SHELL, kinds.DOCKER, kinds.MAKE, kinds.MARKDOWN)
RULES = (
    Rule(
        "clone-unpinned", "warning", _CODE, _clone,
        "Next month it is another program.", "Pass --branch TAG, or check a commit out.", _CLONE_SOURCE,
    ),
    Rule(
        "image-unpinned", "warning", (kinds.DOCKER, kinds.SHELL, kinds.MAKE), _image_tag,
        "Next month it is another image.", "Name a version, better a digest.", _CLONE_SOURCE,
    ),
    Rule(
        "packages-unpinned", "info", (kinds.DOCKER, kinds.REQUIREMENTS), _unpinned,
        "Next month it is another environment.", "Pin with ==.", _CLONE_SOURCE,
    ),
    Rule(
        "torch-replaced", "error", (kinds.DOCKER,), _torch_over_ngc,
        "Mixed CUDA libraries fail later and far away (CUBLAS_STATUS_INVALID_VALUE).", "Keep the image's own build.",
        "awsome-distributed-training PR 995 review; ACS release notes",
    ),
    Rule(
        "torch-replaced", "error", (kinds.REQUIREMENTS,), _torch_in_requirements,
        "The image's torch and DeepSpeed are patched.", "Remove it.",
        "Alibaba Cloud ACS training-nv-pytorch release notes",
    ),
    Rule(
        "torch-replaced", "error", (kinds.SHELL,), _acs_install,
        "The image's torch and DeepSpeed are patched.", "Remove it.",
        "Alibaba Cloud ACS training-nv-pytorch release notes",
    ),
    Rule(
        "deepspeed-range", "warning", (kinds.DOCKER, kinds.REQUIREMENTS, kinds.SHELL), _deepspeed_range,
        "Numerics and memory change between two builds of the same file.", "Pin DeepSpeed with ==.",
        "DeepSpeed runtime/engine.py, tags v0.17.5, v0.17.6 (#7515), v0.18.5",
    ),
)  # fmt: skip
