"""Owns saying how sure a prediction is: which measurements its constants come from, and how far off they were."""

from __future__ import annotations

from gpt_tune import calibration
from gpt_tune.calibration.constants import Calibration
from gpt_tune.hardware.parts import Node
from gpt_tune.words import percent_words


def sure_words(node: Node, cluster: str | None = None) -> str:
    """How sure predictions for these nodes are, in one sentence."""
    known = calibration.load(node, cluster)
    if not known.timing and not known.memory:
        return f"no measured run of {node.gpu.id}: times are a guess from its data sheet, memory is counted"
    return f"calibrated on {_runs(known, node, cluster)}: {_errors(known)}"


def short_words(node: Node, cluster: str | None = None) -> str:
    """The same in a few words, for a summary: how wide the interval is stands beside it."""
    known = calibration.load(node, cluster)
    if not known.time_rows:
        return "nothing measured on such GPUs"
    where = "of this cluster" if cluster and known.name == cluster else f"on {node.gpu.id} elsewhere"
    return f"from {known.time_rows} runs {where}"


def _runs(known: Calibration, node: Node, cluster: str | None) -> str:
    if cluster and known.name == cluster:
        return f"runs of {cluster} itself" + (f" ({known.fitted_at})" if known.fitted_at else "")
    return f"other clusters' {node.gpu.id} runs" + (f" ({known.source})" if known.source else "")


def _errors(known: Calibration) -> str:
    """Typical errors, with how many runs they were measured on."""
    said = []
    if known.time_error is not None:
        said.append(f"times {percent_words(known.time_error)} off on those {known.time_rows}")
    if known.memory_error is not None:
        said.append(f"memory {percent_words(known.memory_error)} on {known.memory_rows}")
    else:
        said.append("memory counted, not measured there")
    return ", ".join(said)
