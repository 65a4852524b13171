"""Owns rules about values of network, allocator and CUDA variables: wrong, obsolete, or better left alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Edit, Hit, Rule
from gpt_tune.lint.kinds import DEEPSPEED, DOCKER, MAKE, MARKDOWN, SHELL
from gpt_tune.lint.project import Project
from gpt_tune.lint.shell.settings import Setting
from gpt_tune.lint.tables import acs

_WHERE = (SHELL, DOCKER, MAKE)
_ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_CHEAT_SHEET = "AWS EFA cheat sheet; awsome-distributed-training 1077 (AWS NCCL and EFA team)"
_SIZES = frozenset(
    {"NCCL_BUFFSIZE", "NCCL_BUFFERSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE"}
    | {"NCCL_P2P_PCI_CHUNKSIZE", "NCCL_NVLS_CHUNKSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE"}
)
_OBSOLETE = {
    "FI_EFA_FORK_SAFE": "kernels from 5.15 on handle fork() with RDMA themselves",
    "FI_EFA_USE_DEVICE_RDMA": "libfabric 1.18 with aws-ofi-nccl 1.7 finds out by itself",
    "FI_EFA_ENABLE_SHM_TRANSFER": "NCCL does not send inside a node through libfabric",
    "NCCL_SOCKET_NTHREADS": "it tunes TCP sockets, which EFA replaces",
    "NCCL_NSOCKS_PERTHREAD": "it tunes TCP sockets, which EFA replaces",
}
_TUNED = ("NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_TUNER_PLUGIN", "OMPI_MCA_pml", "OMPI_MCA_btl")
_GPUS_PER_NODE = re.compile(
    r"--(?:gres[= ]gpu(?::[A-Za-z]\w*)?:|gpus-per-node[= ](?:[A-Za-z]\w*:)?|nproc[-_]per[-_]node[= ])(\d+)"
)
_INTERFACE = re.compile(r"=?(?:eth|ens|enp|eno|en|ib|hsn|bond|rdmap)[0-9][\w.-]*")


def _text(setting: Setting, document: Document) -> str:
    """The value as text, defaults included, without quotes."""
    if setting.text is not None:
        return setting.text
    values = document.values_of.get(id(setting))
    if values is not None:
        return values.text(setting.default) or values.expand(setting.default)
    return setting.word.source if setting.word is not None else ""


def _values(document: Document, *names: str) -> Iterator[tuple[Setting, str]]:
    seen: set[tuple[str, int]] = set()
    for setting in document.settings:
        if setting.name in names and (setting.name, setting.line) not in seen:
            seen.add((setting.name, setting.line))
            yield setting, _text(setting, document)


def _allocator_case(document: Document, project: Project) -> Iterator[Hit]:
    for setting, text in _values(document, *_ALLOCATORS):
        match = re.search(r"expandable_segments[:=]\s*(\w+)", text)
        if match is None or match.group(1) in ("True", "False"):
            continue
        right = match.group(1).capitalize()
        wanted = right if right in ("True", "False") else "True"
        edits: tuple[Edit, ...] = ()
        at = document.text.find(match.group(), setting.start)
        if 0 <= at <= setting.start + 400 and right in ("True", "False"):
            edits = (Edit(at, at + len(match.group()), f"expandable_segments:{right}"),)
        yield Hit(
            setting.line,
            f"expandable_segments:{match.group(1)} is refused: PyTorch takes only True and False, with a capital.",
            f"Write expandable_segments:{wanted}.",
            edits=edits,
        )


def _allocator_form(document: Document, project: Project) -> Iterator[Hit]:
    for setting, text in _values(document, *_ALLOCATORS):
        if text and "$" not in text and (":" not in text or re.search(r"\w=\w", text)):
            yield Hit(
                setting.line,
                f"{setting.name}={text} is not of the form option:value,option:value.",
                "Write for example expandable_segments:True.",
            )


def _tree(document: Document, project: Project) -> Iterator[Hit]:
    for setting, text in _values(document, "NCCL_ALGO"):
        if re.search(r"(?i)\btree\b", text) and not text.startswith("^") and project.on_efa(document):
            yield Hit(setting.line, f"NCCL_ALGO={text} hangs on EFA.", "Leave NCCL_ALGO unset.")


def _proto(document: Document, project: Project) -> Iterator[Hit]:
    for setting, text in _values(document, "NCCL_PROTO"):
        if text and project.on_efa(document):
            yield Hit(setting.line, f"NCCL_PROTO={text} overrides what the EFA plugin chooses by size.")


def _obsolete(document: Document, project: Project) -> Iterator[Hit]:
    if not project.on_efa(document):
        return
    for setting, _ in _values(document, *_OBSOLETE):
        yield Hit(setting.line, f"{setting.name} is obsolete on EFA: {_OBSOLETE[setting.name]}.")
    for setting, _ in _values(document, *{s.name for s in document.settings if s.name.startswith("RDMAV_")}):
        yield Hit(
            setting.line,
            f"{setting.name} is rdma-core's, not libfabric's, and breaks things on newer kernels.",
            severity="warning",
        )


def _tuned(document: Document, project: Project) -> Iterator[Hit]:
    if not project.on_efa(document):
        return
    for setting, text in _values(document, *_TUNED):
        if text:
            yield Hit(setting.line, f"{setting.name} is set by hand; on EFA its default is at least as fast.")


def _size(document: Document, project: Project) -> Iterator[Hit]:
    for setting, text in _values(document, *_SIZES):
        if re.fullmatch(r"[0-9]{1,12}", text) and int(text) & (int(text) - 1):
            size = int(text)
            below = 1 << (size.bit_length() - 1)
            yield Hit(
                setting.line,
                f"{setting.name}={size} is not a power of two.",
                f"Use {below} or {below * 2}.",
            )


def _interface(document: Document, project: Project) -> Iterator[Hit]:
    if not project.on_efa(document) or project.on_acs(document):
        return
    for setting, text in _values(document, "NCCL_SOCKET_IFNAME"):
        if _INTERFACE.fullmatch(text):
            yield Hit(
                setting.line,
                f"NCCL_SOCKET_IFNAME={text} names one interface; other instance types name theirs differently, and "
                "with several cards in one subnet the first connection may fail.",
                "Exclude instead: NCCL_SOCKET_IFNAME=^docker,lo,veth.",
            )


def _debug_level(document: Document, project: Project) -> Iterator[Hit]:
    for setting, text in _values(document, "NCCL_DEBUG"):
        if text and "$" not in text and text.upper() not in ("VERSION", "WARN", "INFO", "ABORT", "TRACE"):
            yield Hit(
                setting.line,
                f"NCCL_DEBUG={text} is no level NCCL knows: it stays silent.",
                "Use WARN or INFO.",
            )


def _debug_unset(document: Document, project: Project) -> Iterator[Hit]:
    tunes = [s for s in document.settings if s.name.startswith(("NCCL_", "FI_")) and s.exported]
    beside = [d for d in project.near(document, SHELL, DOCKER) if d.folder == document.folder]
    if not tunes or any(s.name.endswith("NCCL_DEBUG") for d in (document, *beside) for s in d.settings):
        return
    for script in document.batch_scripts():
        if script.whole and any(script.calls("srun", "mpirun", "torchrun")):
            yield Hit(
                tunes[0].line,
                "The network is tuned but NCCL_DEBUG is never set: a fall-back to TCP sockets would not "
                "show in the log.",
                "Set NCCL_DEBUG=INFO (at least for one rank), and look for the chosen network.",
            )


def _acs_prefetch(document: Document, project: Project) -> Iterator[Hit]:
    if not project.on_acs(document):
        return
    for match in re.finditer(r"\"?stage3_prefetch_bucket_size\"?\s*[:=]\s*\"?([\w.]+)", document.text):
        if match.group(1).lower() not in ("auto", "none", "null"):
            yield Hit(
                document.line_at(match.start()),
                f"stage3_prefetch_bucket_size is {match.group(1)}, which switches off this image's own choice.",
            )


def _acs_interface(document: Document, project: Project) -> Iterator[Hit]:
    if not project.on_acs(document):
        return
    by_gpus = {gpus: entry["name"] for entry in acs()["interface"] for gpus in entry["gpus"]}
    sizes = {int(n) for n in _GPUS_PER_NODE.findall(document.text)}
    wanted = by_gpus.get(sizes.pop()) if len(sizes) == 1 else None
    for setting, text in _values(document, "NCCL_SOCKET_IFNAME"):
        if not text or "$" in text:
            continue
        if text not in by_gpus.values():
            yield Hit(setting.line, f"NCCL_SOCKET_IFNAME={text} does not exist in these pods.")
        elif wanted is not None and text != wanted:
            yield Hit(
                setting.line,
                f"NCCL_SOCKET_IFNAME={text}, but pods of this size have {wanted}.",
                f"Use {wanted}.",
            )


RULES = (
    Rule(
        "expandable-segments-case", "error", (*_WHERE, MARKDOWN), _allocator_case,
        "PyTorch raises RuntimeError at the first allocation.", "Write expandable_segments:True.",
        "PyTorch CUDACachingAllocator; seen in nvcr.io/nvidia/pytorch:25.04",
    ),
    Rule(
        "allocator-form", "error", _WHERE, _allocator_form,
        "PyTorch refuses an allocator setting it cannot read.", "Write option:value pairs.",
        "PyTorch CUDA memory notes",
    ),
    Rule(
        "nccl-tree-on-efa", "error", _WHERE, _tree,
        "The tree algorithm hangs on EFA; the tuner chooses what works.", "Leave NCCL_ALGO unset.",
        "awsome-distributed-training PR 1009, known issues",
    ),
    Rule(
        "nccl-proto-on-efa", "warning", _WHERE, _proto,
        "One protocol for all sizes is slower, and only aws-ofi-nccl up to 1.5 needed it.",
        "Leave NCCL_PROTO unset.", _CHEAT_SHEET,
    ),
    Rule(
        "efa-obsolete", "info", _WHERE, _obsolete,
        "Settings of old library versions hide what matters, and some slow newer ones down.", "Remove it.",
        _CHEAT_SHEET,
    ),
    Rule(
        "nccl-hand-tuned", "info", _WHERE, _tuned,
        "Neutral on 8 nodes; without them all-to-all was 10.8 % faster on 32 nodes.", "Leave it unset.",
        _CHEAT_SHEET,
    ),
    Rule(
        "nccl-size", "warning", _WHERE, _size,
        "NCCL cuts buffers in powers of two.", "Use a power of two.", "NCCL user guide env.rst",
    ),
    Rule(
        "nccl-one-interface", "info", _WHERE, _interface,
        "Pinning an interface breaks on other nodes.", "Exclude interfaces instead of naming one.", _CHEAT_SHEET,
    ),
    Rule(
        "nccl-debug-level", "warning", _WHERE, _debug_level,
        "An unknown level logs nothing.", "Use WARN or INFO.", "NCCL user guide env.rst",
    ),
    Rule(
        "nccl-debug-unset", "info", (SHELL,), _debug_unset,
        "A run over sockets looks like a slow run.", "Set NCCL_DEBUG=INFO for one rank.",
        "awsome-distributed-training issues 386 and 478",
    ),
    Rule(
        "acs-prefetch", "error", (SHELL, DEEPSPEED), _acs_prefetch,
        "The image's compile optimisation chooses the prefetch size itself.",
        'Leave it out, or write "auto".', "Alibaba Cloud ACS training-nv-pytorch release notes",
    ),
    Rule(
        "acs-interface", "warning", _WHERE, _acs_interface,
        "Pods with 1, 2, 4 or 8 GPUs have eth0, whole-host pods with 16 have hpn0.",
        "Use eth0 for 1, 2, 4 and 8 GPUs, hpn0 for a 16-GPU pod.",
        "Alibaba Cloud ACS training-nv-pytorch release notes",
    ),
)  # fmt: skip
