"""Owns hangs that print no error: what a log ends with when it got no further than starting up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpt_tune.diagnosis.collect import Collector, Numbered

LAST_LINES = 12  # of each file: what the run was doing
_KERNELS = (
    "compiling and loading fused kernels",
    "Building extension module",
    "Emitting ninja build file",
    "Detected CUDA files, patching ldflags",
    "Allowing ninja to set a default number of workers",
    "Loading extension module",
)
_KERNELS_DONE = ("done with compiling and loading fused kernels", "Time to load ")
_P2P = ("via P2P/",)
_EFA = (
    "NET/OFI",
    "AWS Libfabric",
    "Bootstrap : Using",
    "Selected Provider is efa",
    "Selected provider is efa",
)


def judge(collector: Collector) -> tuple[str, dict[str, str]] | None:
    """The id of the stall that the end of the log looks like (only for a log without steps and without errors)."""
    files = collector.last_lines()
    if _ends_with(files, _KERNELS, _KERNELS_DONE):
        return "F60", {}
    complete = "C3" in collector.hits
    if complete:
        return None
    if "C2" in collector.hits and _ends_with(files, _EFA, ()):
        return "F38", {"count": str(len(hosts_of(files)))}
    if "C4" in collector.hits and _ends_with(files, _P2P, ()):
        return "F29", {}
    return None


def hosts_of(files: Mapping[str, Sequence[Numbered]]) -> set[str]:
    """Hosts that printed one of the last lines."""
    from gpt_tune.logs.prefixes import read

    return {host for lines in files.values() for line in lines if (host := read(line.text).host)}


def _ends_with(files: Mapping[str, Sequence[Numbered]], wanted: Sequence[str], done: Sequence[str]) -> bool:
    """Whether the last lines of a file hold one of the wanted texts and none of those that end them."""
    for lines in files.values():
        last = [line.text for line in lines if line.text.strip()][-LAST_LINES:]
        places = [i for i, text in enumerate(last) if any(w in text for w in wanted)]
        if places and not any(d in text for text in last[places[0] :] for d in done):
            return True
    return False
