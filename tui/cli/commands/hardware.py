"""Owns `gpt-tune hardware`: the catalogue of GPUs and nodes."""

from __future__ import annotations

from typing import Any

import click

from gpt_tune.errors import UserError, unknown_name
from gpt_tune.hardware import catalogue
from gpt_tune.hardware.parts import Gpu, Node
from gpt_tune.jsonable import as_json as plain_data
from tui.cli.options import json_option
from tui.cli.output import emit_json, show, show_table


@click.command(help="GPUs and nodes with their rates, memory, links and the source of each figure.")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> int:
    things: list[Gpu | Node] = (
        [_find(name)] if name else [*catalogue.gpus().values(), *catalogue.nodes().values()]
    )
    if as_json:
        emit_json({"schema": "gpt-tune/hardware/1", "hardware": [_data(t) for t in things]})
    elif name:
        _show_one(things[0])
    else:
        _show_all()
    return 0


def _find(name: str) -> Gpu | Node:
    try:
        return catalogue.get_node(name)
    except UserError:
        try:
            return catalogue.get_gpu(name)
        except UserError:
            known = [*catalogue.gpus(), *catalogue.nodes()]
            raise unknown_name("GPU or node type", name, known) from None


def _data(thing: Gpu | Node) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": "gpu" if isinstance(thing, Gpu) else "node", **plain_data(thing)}
    if isinstance(thing, Node):
        data["gpu"] = thing.gpu.id
    return data


def _show_all() -> None:
    show_table(
        ("GPU", "bf16 TFLOPS", "reached", "GB", "GiB for torch", "GB/s memory", "GB/s link", "name"),
        [
            (g.id, g.bf16_tflops, g.bf16_achievable_tflops, g.memory_gb, g.memory_gib_torch, g.memory_bandwidth_gbs,
             g.nvlink_gbs, g.name)
            for g in catalogue.gpus().values()
        ],
        "1,2,3,4,5,6",
    )  # fmt: skip
    show()
    show_table(
        ("node", "GPUs", "GPU", "link domain", "GB/s network per GPU", "network", "name"),
        [
            (n.id, n.gpus_per_node, n.gpu.id, n.nvlink_domain_gpus, n.network_gbs_per_gpu, n.network, n.name)
            for n in catalogue.nodes().values()
        ],
        "1,3,4",
    )


def _show_one(thing: Gpu | Node) -> None:
    show(f"{thing.id}: {thing.name}")
    for key, value in _data(thing).items():
        if key in ("id", "name", "sources", "notes", "aliases"):
            continue
        show(f"  {key:<26} {'unknown' if value is None else value}")
    for note in thing.notes:
        show(f"  note: {note}")
    if thing.aliases:
        show(f"  also known as {', '.join(thing.aliases)}")
    for source in thing.sources:
        show(f"  source of {source}")
