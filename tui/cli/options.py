"""Owns options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class WholeNumber(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument here
    """1 or more, as the planner reads it: 12, 12.0, 1_000, 1e3. words begin the sentence about anything else."""

    name = "integer"

    def __init__(self, words: str) -> None:
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from gpt_tune.models.check import whole_number

        text = value.strip() if isinstance(value, str) else value
        return whole_number(text, self.words)


def json_option(function: F) -> F:
    """--json, also when it stands before the command. The command takes `as_json`."""

    def merged(ctx: click.Context, parameter: click.Parameter, value: bool) -> bool:
        return value or bool((ctx.find_root().obj or {}).get("json"))

    option = click.option(
        "--json", "as_json", is_flag=True, callback=merged, help="One JSON object on stdout, also for errors."
    )
    return option(function)


def set_option(function: F) -> F:
    """--set KEY=VALUE, repeatable. The command takes `changes`."""
    option = click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change a setting of the profile; repeatable.",
    )
    return option(function)


def plan_options(function: F) -> F:
    """What plan and estimate both ask: of a profile, or everything by options."""
    for option in reversed(_PLAN_OPTIONS):
        function = option(function)
    return click.argument("profile", required=False)(set_option(function))


_PLAN_OPTIONS = [
    click.option("--model", help="Catalogue name, config.json, TOML, or layers=..,hidden=..,heads=.."),
    click.option("--gpus", type=WholeNumber("The number of GPUs"), help="GPUs in all: up to one node, or whole nodes."),
    click.option("--gpu", default=None, help="GPU or node type of the catalogue: b200, p6-b200."),
    click.option("--cluster", default=None, help="Plan for the nodes of this cluster."),
    click.option("--partition", default=None, help="Partition of --cluster."),
    click.option(
        "--gpus-per-node", type=WholeNumber("The number of GPUs per node"), help="GPUs of one node, where it differs."
    ),
    click.option(
        "--seq-length", type=WholeNumber("The sequence length"), help="Tokens in a sequence; default: the model's."
    ),
    click.option("--global-batch-size", metavar="N", help="Sequences a step; plan compares 256,512 or 256..1024 too."),
    click.option("--trainer", default="megatron-deepspeed", show_default=True, help="NAME or NAME@deepspeed-X.Y.Z."),
    click.option("--precision", type=click.Choice(["bf16", "fp16", "fp32", "fp8"]), help="Default: bf16."),
    click.option("--dropout", type=float, help="Default: the trainer's own, 0.1 for models with LayerNorm."),
    click.option("--fix", "fixed", multiple=True, metavar="KEY=VALUE", help="Fix a layout key; repeatable, last wins."),
]  # fmt: skip
