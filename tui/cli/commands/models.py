"""Owns `gpt-tune models`: the catalogue of models."""

from __future__ import annotations

from typing import Any

import click

from gpt_tune.jsonable import as_json as plain_data
from gpt_tune.models import catalogue, parameters
from gpt_tune.models.shape import ModelShape
from gpt_tune.words import count_words
from tui.cli.options import json_option
from tui.cli.output import emit_json, show, show_table


@click.command(help="The catalogue of models. NAME may also be a config.json or layers=..,hidden=..,heads=..")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> int:
    shapes = [catalogue.get(name)] if name else catalogue.all_models()
    if as_json:
        emit_json({"schema": "gpt-tune/models/1", "models": [_data(s) for s in shapes]})
    elif name:
        _show_one(shapes[0])
    else:
        rows = [_row(s) for s in shapes]
        show_table(
            ("name", "parameters", "layers", "hidden", "heads", "kv", "vocab", "seq"), rows, "1,2,3,4,5,6,7"
        )
    return 0


def _data(shape: ModelShape) -> dict[str, Any]:
    return {
        **plain_data(shape),
        "parameters": parameters.total(shape),
        "active_parameters": parameters.active(shape),
    }


def _row(shape: ModelShape) -> tuple[Any, ...]:
    size = count_words(parameters.total(shape))
    return (
        shape.id,
        size,
        shape.layers,
        shape.hidden,
        shape.heads,
        shape.kv_heads,
        shape.vocab,
        shape.seq_length,
    )


def _show_one(shape: ModelShape) -> None:
    total, active = parameters.total(shape), parameters.active(shape)
    show(f"{shape.id}: {count_words(total)} parameters ({total:,})")
    if active != total:
        show(f"  active per token   {count_words(active)}")
    for key, value in _data(shape).items():
        if key not in (
            "id",
            "parameters",
            "active_parameters",
            "notes",
            "source",
            "aliases",
        ) and value not in (0, "", ()):
            show(f"  {key:<18} {value}")
    for note in shape.notes:
        show(f"  note: {note}")
    if shape.aliases:
        show(f"  also known as {', '.join(shape.aliases)}")
    if shape.source:
        show(f"  source: {shape.source}")
