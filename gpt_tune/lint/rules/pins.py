"""Owns rules about versions: unpinned sources, packages that must not be replaced, known-bad releases and pairs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpt_tune.layouts import versions
from gpt_tune.lint import kinds
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.project import Project
from gpt_tune.lint.readers.requirements import Requirement, files_of, of_command
from gpt_tune.lint.shell.script import Script, words_of
from gpt_tune.lint.shell.tree import Command
from gpt_tune.lint.tables import table

_CLONE_SOURCE = "awsome-distributed-training CONTRIBUTING: pin external software by tag or commit"
_NGC = re.compile(r"(?i)nvcr\.io/nvidia/|(?:^|/)nemo:|/pytorch:\d\d\.\d\d")
_ACS_IMAGE = re.compile(r"(?i)training-nv-pytorch|egslingjun")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
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


def _requirements(document: Document) -> Iterator[tuple[Requirement, int]]:
    for requirement in document.requirements:
        yield requirement, requirement.line
    for script in document.scripts:
        for command in script.commands:
            for requirement in of_command(command, script):
                yield requirement, requirement.line


def _unpinned(document: Document, project: Project) -> Iterator[Hit]:
    loose = [
        r for r, _ in _requirements(document)
        if r.name and not r.bounded and not r.url and "$" not in r.source and r.name not in ("pip", "setuptools", "wheel", "uv")
    ]  # fmt: skip
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
    forbidden = {"torch"} | ({"deepspeed"} if acs else set())
    what = "Alibaba's patched" if acs else "NVIDIA's"
    for requirement, line in _requirements(document):
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
        if requirement.name in ("torch", "deepspeed"):
            yield Hit(
                requirement.line, f"{requirement.source} replaces the image's patched build.", "Remove it."
            )


def _acs_install(document: Document, project: Project) -> Iterator[Hit]:
    if not project.on_acs(document):
        return
    for script in document.scripts:
        for command in script.commands:
            for requirement in of_command(command, script):
                if requirement.name in ("torch", "deepspeed"):
                    yield Hit(
                        requirement.line,
                        f"{requirement.source} replaces the image's patched build.",
                        "Remove it.",
                    )


def _deepspeed_range(document: Document, project: Project) -> Iterator[Hit]:
    for requirement, line in _requirements(document):
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
                f"{requirement.source} admits releases before and from {' and '.join(crossed)}: bf16 gradients are added "
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


# -- releases that are known to be bad -----------------------------------------------------------------------


def _known_bad(document: Document, project: Project) -> Iterator[Hit]:
    found = dict(_versions_in(document))
    for entry in table("known-bad")["release"]:
        place = found.get(entry["what"])
        if place is None:
            continue
        version, line = place
        if _between(version, entry.get("from", "0"), entry.get("below", "999")):
            yield Hit(line, f"{entry['name']} {version}: {entry['why']}.", entry["fix"])
    for entry in table("known-bad").get("pair", []):
        first, second = found.get(entry["first"]), found.get(entry["second"])
        if first is None or second is None:
            continue
        if _between(first[0], entry.get("from", "0"), entry.get("below", "999")) and _between(
            second[0], entry.get("second_from", "0"), entry.get("second_below", "999")
        ):
            yield Hit(first[1], f"{entry['name']}: {entry['why']}.", entry["fix"])


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


def _between(version: str, low: str, high: str) -> bool:
    return versions.parse(low) <= versions.parse(version) < versions.parse(high)


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
    for requirement, _ in _requirements(dockerfile):
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


def words_in(command: Command) -> str:
    """All of a command's words as one text."""
    return " ".join(w.source for w in words_of(command))


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
        "The image's torch and DeepSpeed are patched.", "Remove it.", "Alibaba Cloud ACS training-nv-pytorch release notes",
    ),
    Rule(
        "torch-replaced", "error", (kinds.SHELL,), _acs_install,
        "The image's torch and DeepSpeed are patched.", "Remove it.", "Alibaba Cloud ACS training-nv-pytorch release notes",
    ),
    Rule(
        "deepspeed-range", "warning", (kinds.DOCKER, kinds.REQUIREMENTS, kinds.SHELL), _deepspeed_range,
        "Numerics and memory change between two builds of the same file.", "Pin DeepSpeed with ==.",
        "DeepSpeed runtime/engine.py, tags v0.17.5, v0.17.6 (#7515), v0.18.5",
    ),
    Rule(
        "known-bad-version", "error", (kinds.DOCKER, kinds.SHELL, kinds.MAKE), _known_bad,
        "It hangs or crashes on several nodes.", "Use a release with the fix.", "profiles/lint/known-bad.toml, each with its source",
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
