"""Owns tests of config.json files of many families: published totals, and no traceback whatever a file holds."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.models.catalogue import get
from gpt_tune.models.huggingface import from_config, from_config_file
from gpt_tune.models.parameters import active, total

# Fields of the public config.json files that the shape depends on, and the totals of their checkpoints.
FAMILIES: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "models" / "configs.json").read_text(encoding="utf-8")
)
ODD: tuple[Any, ...] = (
    *(None, "", "x", "12", "1e3", "0x10", " 7 ", "\u0663", "NaN", -1, 0, 1.5, 3.0, 1e30, 10**40, 2**63),
    *(float("nan"), float("inf"), True, False, [], [1, 2], {}, {"a": 1}),
)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_total_of_a_published_checkpoint(name: str) -> None:
    shape = from_config(FAMILIES[name]["config"], f"{name}/config.json", name)
    assert total(shape) == FAMILIES[name]["parameters"]
    assert active(shape) <= total(shape)


def answer(config: dict[str, Any]) -> str:
    """The message of a refused config, the total of another."""
    try:
        return str(total(from_config(config, "x/config.json", "x")))
    except UserError as error:
        return error.message


@pytest.mark.parametrize("name", FAMILIES)
def test_no_value_of_any_key_ends_in_a_traceback(name: str) -> None:
    whole: dict[str, Any] = FAMILIES[name]["config"]
    parts = [key for key, value in whole.items() if isinstance(value, dict)]
    for path in [(k,) for k in whole] + [(p, k) for p in parts for k in whole[p]]:
        for value in (*ODD, "left out"):
            config = copy.deepcopy(whole)
            inner = config if len(path) == 1 else config[path[0]]
            inner[path[-1]] = value
            if value == "left out":
                del inner[path[-1]]
            said = answer(config)
            assert "\n" not in said
            assert len(said) < 300


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '"a"', "{", "{}", '{"model_type": ["llama"]}', '{"model_type": "llama", "hidden_size": NaN}',
     '{"text_config": []}', '{"text_config": null}', '{"architectures": 5}', '{"architectures": "A"}',
     '{"a":' * 5000],
)  # fmt: skip
def test_no_file_ends_in_a_traceback(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError):
        from_config_file(path)


def test_a_byte_order_mark_is_no_reason_to_refuse(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FAMILIES["command-r"]["config"]), encoding="utf-8-sig")
    assert total(from_config_file(path)) == FAMILIES["command-r"]["parameters"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("jamba", "state space"),
        ("phi", "output matrix has a bias"),
        ("gptj", "output matrix has a bias"),
        ("olmo2", "norms whole queries and keys"),
        ("deepseek_v3", "multi-head latent attention"),
        ("brandnew", "is not supported"),
    ],
)
def test_what_is_not_supported_is_told_why_and_offered_the_nearest_shape_that_is(kind: str, why: str) -> None:
    config = {**FAMILIES["smollm3-3b"]["config"], "model_type": kind, "rms_norm_eps": 1e-6, "rope_theta": 1e4}
    with pytest.raises(UserError) as caught:
        from_config(config, "x/config.json", "x")
    assert why in caught.value.message
    text = caught.value.hint.partition("--model ")[2].partition(" ")[0]
    offered = get(text)
    assert (offered.layers, offered.hidden, offered.kv_heads) == (36, 2048, 4)
    assert abs(total(offered) / FAMILIES["smollm3-3b"]["parameters"] - 1) < 0.1


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("command-r", {"use_qk_norm": True}, "use_qk_norm"),
        ("starcoder2-3b", {"use_bias": False}, "use_bias"),
        ("stablelm-2-1_6b", {"qk_layernorm": True}, "qk_layernorm"),
        ("mpt-7b", {"no_bias": False}, "no_bias"),
        ("deepseek-moe-16b", {"moe_layer_freq": 2}, "some layers"),
        ("qwen-7b", {"intermediate_size": 22017}, "22017"),
    ],
)
def test_a_variant_that_is_not_counted_is_refused(name: str, changes: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=key):
        from_config({**FAMILIES[name]["config"], **changes}, "x/config.json", "x")


def test_a_long_context_is_not_the_length_of_training() -> None:
    """The catalogue's Llama 3.1 trains on 8,192 tokens; its config.json says 131,072."""
    config = {**FAMILIES["command-r"]["config"], "max_position_embeddings": 131072}
    shape = from_config(config, "x/config.json", "x")
    assert shape.seq_length == 8192
    assert any("131,072" in note for note in shape.notes)
    short = from_config({**config, "max_position_embeddings": 4096}, "x/config.json", "x")
    assert (short.seq_length, [n for n in short.notes if "allows" in n]) == (4096, [])
    learned = from_config(FAMILIES["gpt-neo-1.3b"]["config"] | {"max_position_embeddings": 16384}, "x", "x")
    assert learned.seq_length == 16384


def test_an_encoder_is_offered_no_shape_of_its_own() -> None:
    config = {**FAMILIES["smollm3-3b"]["config"], "model_type": "bert"}
    with pytest.raises(UserError, match="no decoder alone") as caught:
        from_config(config, "x/config.json", "x")
    assert "--model layers=36" not in caught.value.hint
