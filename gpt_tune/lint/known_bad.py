"""Owns which releases of network libraries are known to fail, alone, in pairs, and on several nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpt_tune.layouts import versions
from gpt_tune.lint.tables import container_versions, table

# aws/aws-ofi-nccl maintainer in mosaicml/composer pull request 3844: the installer brings the plugin from 1.39 on.
_FIRST_WITH_PLUGIN = (1, 39)


@dataclass(frozen=True, slots=True)
class Bad:
    """One failing release or pair. what: the library whose version should change."""

    what: str
    text: str
    fix: str
    source: str


def alone(found: Mapping[str, str]) -> Iterator[Bad]:
    """Releases that fail whatever else is there. found: library to version ("nccl": "2.29.7")."""
    for entry in table("known-bad")["release"]:
        version = found.get(entry["what"])
        if version is not None and between(version, entry.get("from", "0"), entry.get("below", "999")):
            yield Bad(
                entry["what"], f"{entry['name']} {version}: {entry['why']}.", entry["fix"], entry["source"]
            )


def pairs(found: Mapping[str, str]) -> Iterator[Bad]:
    """Pairs that fail together."""
    for entry in table("known-bad").get("pair", []):
        first, second = found.get(entry["first"]), found.get(entry["second"])
        if first is None or second is None:
            continue
        if between(first, entry.get("from", "0"), entry.get("below", "999")) and between(
            second, entry.get("second_from", "0"), entry.get("second_below", "999")
        ):
            yield Bad(entry["first"], f"{entry['name']}: {entry['why']}.", entry["fix"], entry["source"])


def with_bundled(found: Mapping[str, str]) -> dict[str, str]:
    """The versions with the plugin that an EFA installer brings, where the file names none."""
    installer = found.get("efa-installer")
    if installer is None or versions.parse(installer) < _FIRST_WITH_PLUGIN:
        return dict(found)
    known = {entry["version"]: entry["aws_ofi_nccl"] for entry in container_versions()["efa"]}
    return {"aws-ofi-nccl": known.get(installer, "0"), **found}


def too_old(found: Mapping[str, str], nodes: int) -> Iterator[Bad]:
    """Releases that are too old for this many nodes."""
    for entry in table("known-bad").get("minimum", []):
        version = found.get(entry["what"])
        if (
            version is None
            or nodes < entry["nodes"]
            or versions.parse(version) >= versions.parse(entry["version"])
        ):
            continue
        text = f"{entry['name']} {version} on {nodes} nodes: {entry['why']}."
        yield Bad(entry["what"], text, entry["fix"], entry["source"])


def between(version: str, low: str, high: str) -> bool:
    """Whether a version is at least `low` and below `high`."""
    return versions.parse(low) <= versions.parse(version) < versions.parse(high)
