"""Owns rules about Dockerfiles beyond versions: what is baked in, and what makes NCCL miss its network."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.kinds import DOCKER
from gpt_tune.lint.project import Project


def _devices(document: Document, project: Project) -> Iterator[Hit]:
    for setting in document.dockerfile.settings:
        if setting.name == "CUDA_VISIBLE_DEVICES" and setting.how == "export":
            yield Hit(
                setting.line,
                "CUDA_VISIBLE_DEVICES is fixed in the image: jobs see those GPUs, not the ones they got.",
            )


def _upgrade(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        for command in script.calls("apt-get", "apt"):
            if any(w.literal in ("upgrade", "dist-upgrade", "full-upgrade") for w in command.words[1:]):
                yield Hit(
                    command.line,
                    f"{command.name} upgrade changes every package of the base image at each build.",
                )


def _add(document: Document, project: Project) -> Iterator[Hit]:
    for instruction in document.dockerfile.named("ADD"):
        words = [w for w in instruction.flat.split() if not w.startswith("--")]
        if words and not re.search(r"\.(?:tar|tgz|gz|bz2|xz|zip)\b", words[0]):
            what = (
                "fetches an address without checking what comes"
                if "://" in words[0]
                else "does what COPY does, and more"
            )
            yield Hit(instruction.line, f"ADD {words[0]} {what}.", "Use COPY, or curl with a checksum.")


def _key(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        for command in script.calls("ssh-keygen"):
            if any(w.literal == "-f" for w in command.words) and "-A" not in [
                w.literal for w in command.words
            ]:
                yield Hit(
                    command.line, "An SSH key is made at build time: everybody who has the image has the key."
                )
                return


def _host_check(document: Document, project: Project) -> Iterator[Hit]:
    for number, line in enumerate(document.lines, 1):
        if re.search(
            r"StrictHostKeyChecking\s*\\?\)?.*\bno\b|StrictHostKeyChecking[ =]no", line
        ) and not line.lstrip().startswith("#"):
            yield Hit(
                number,
                "SSH host keys are not checked in this image.",
                "Start ranks with srun instead of ssh.",
            )
            return


def _plugin_path(document: Document, project: Project) -> Iterator[Hit]:
    """EFA is installed, but nothing tells the loader where the NCCL plugin lies."""
    text = "\n".join(x for x in document.lines if not x.lstrip().startswith("#"))
    if "efa_installer.sh" not in text or "--minimal" in text:
        return
    known = re.search(
        r"ld\.so\.conf\.d|(?:LD_LIBRARY_PATH|NCCL_NET_PLUGIN)[^\n]*(?:ofi|\$\{?OFI)|/opt/(?:amazon/)?(?:aws-)?ofi-nccl\S*/lib",
        text,
    )
    if not known:
        line = next((i for i, x in enumerate(document.lines, 1) if "efa_installer.sh" in x), 1)
        yield Hit(
            line,
            "Nothing in this file puts the folder of libnccl-net-ofi.so on the loader's path; unless this "
            "installer does, "
            "NCCL falls back to TCP sockets without a word.",
            "echo /opt/amazon/ofi-nccl/lib > /etc/ld.so.conf.d/aws-ofi-nccl.conf && ldconfig.",
        )


_IN = (DOCKER,)
_REVIEW = "awsome-distributed-training reviews and CI"
RULES = (
    Rule(
        "baked-devices", "error", _IN, _devices, "Ranks share GPUs, or find none.", "Remove it.", _REVIEW,
    ),
    Rule("apt-upgrade", "info", _IN, _upgrade, "The image is another one at each build.", "Leave it out.", _REVIEW),
    Rule("docker-add", "info", _IN, _add, "ADD unpacks and downloads unasked.", "Use COPY.", _REVIEW),
    Rule("baked-ssh-key", "warning", _IN, _key, "The private key is public.",
    "Make keys when the container starts.", _REVIEW),
    Rule("host-keys-unchecked", "info", _IN, _host_check, "Any host can answer.", "Use srun.", _REVIEW),
    Rule(
        "plugin-path", "info", _IN, _plugin_path, "Training runs, ten times slower.",
        "Add the plugin's folder to ld.so.conf.d.", "awsome-distributed-training issues 386 and 478",
    ),
)  # fmt: skip
