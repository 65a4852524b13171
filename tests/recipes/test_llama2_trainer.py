"""The decisions of the Llama conversion, without its libraries: which rows go where, which weights fit, which names."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.resources import data_dir

TEMPLATES = data_dir("templates")
FOLDER = TEMPLATES / "llama2-finetune" / "trainer"
SHAPE = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32,
    "intermediate_size": 11008, "vocab_size": 32000,
}  # fmt: skip
ROPE = {"theta": 10000.0, "scaling": ""}
LLAMA_3_SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
LLAMA_2 = {"model_type": "llama", **SHAPE, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # they import each other by these names
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def parts() -> Iterator[Any]:
    names = ("examples", "weights", "attention", "convert", "prepare")
    before = {n: sys.modules.get(n) for n in names}
    files = [TEMPLATES / "qlora/trainer/examples.py", *(FOLDER / f"{n}.py" for n in names[1:])]
    yield types.SimpleNamespace(**{f.stem: load(f) for f in files})
    for name, module in before.items():
        if module is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module


# -- rows ----------------------------------------------------------------------------------------
def by_group(heads: int, groups: int, width: int) -> list[str]:
    """Rows as the public converter writes them."""
    each = heads // groups
    rows = []
    for g in range(groups):
        rows += [f"q{g * each + i}.{r}" for i in range(each) for r in range(width)]
        rows += [f"k{g}.{r}" for r in range(width)] + [f"v{g}.{r}" for r in range(width)]
    return rows


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (8, 1), (6, 3), (1, 1)])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_rows_go_from_groups_to_blocks_and_back(parts: Any, heads: int, groups: int, width: int) -> None:
    given = by_group(heads, groups, width)
    order = parts.attention.rows_by_block(heads, groups, width)
    blocks = [given[i] for i in order]
    expected = [f"{kind}{h}.{r}" for kind, n in (("q", heads), ("k", groups), ("v", groups)) for h in range(n)
                for r in range(width)]  # fmt: skip
    assert blocks == expected
    assert [blocks[i] for i in parts.attention.inverse(order)] == given


def test_the_order_is_read_off_the_trainers_source(parts: Any) -> None:
    order_of = parts.attention.order_of
    assert order_of("each_hidden_size = x // 3\n def split_tensor(self, x): ...") == "blocks"
    assert order_of("q, k, v = self.split_tensor(mixed)\n def split_tensor(self, x): ...") == "groups"
    for unknown in ("", "each_hidden_size ... self.split_tensor("):
        with pytest.raises(parts.attention.LayoutError, match="not known here"):
            order_of(unknown)


class Matrix:
    """What the conversion needs of a matrix: its rows, taken by number."""

    def __init__(self, rows: list[str]) -> None:
        self.rows, self.shape = rows, (len(rows), 7)

    def detach(self) -> Matrix:
        return self

    def __getitem__(self, numbers: list[int]) -> Matrix:
        return Matrix([self.rows[i] for i in numbers])


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("groups", [2, 4])
def test_a_converter_is_mended_both_ways(parts: Any, ranks: int, groups: int) -> None:
    def module() -> Any:
        class refactor:
            tp_size = ranks
            config = types.SimpleNamespace(num_attention_heads=4, num_key_value_heads=groups)

            def _qkv_refactor(self, name: str, parameter: Any, layer: int) -> Matrix:
                return Matrix(by_group(4 // ranks, groups // ranks, 3))

            def _qkv_refactor_to_hf(self, name: str, matrix: Matrix, layer: int) -> list[str]:
                return matrix.rows

        return types.SimpleNamespace(refactor=refactor, load_and_print_hf_weight=None)

    stock = by_group(4 // ranks, groups // ranks, 3)
    blocks, groups_ = module(), module()
    parts.convert.mend(blocks, "/weights", "blocks")
    parts.convert.mend(groups_, "/weights", "groups")
    assert groups_.refactor()._qkv_refactor("n", None, 0).rows == stock
    converted = blocks.refactor()._qkv_refactor("n", None, 0)
    assert [r[0] for r in converted.rows] == sorted((r[0] for r in stock), key="qkv".index)
    assert sorted(converted.rows) == sorted(stock)
    assert blocks.refactor()._qkv_refactor_to_hf("n", converted, 0) == stock


# -- the converter's names -----------------------------------------------------------------------
OLD = 'group.add_argument("--origin-hf-ckpt-dir", type=str)'
NEW = 'group.add_argument("--hf-ckpt-dir", type=str)\ngroup.add_argument("--load-mode")'


def test_both_generations_of_names_are_told_apart(parts: Any) -> None:
    names_of = parts.convert.names_of
    assert names_of(OLD) == "origin-hf-ckpt-dir"
    assert names_of(NEW) == "hf-ckpt-dir"
    assert names_of("", "hf-ckpt-dir") == "hf-ckpt-dir"
    with pytest.raises(parts.convert.ConverterError, match=r"finetune\.converter"):
        names_of("nothing")
    with pytest.raises(parts.convert.ConverterError, match="has --hf-ckpt-dir"):
        names_of(NEW, "origin-hf-ckpt-dir")


def test_each_generation_gets_its_own_options(parts: Any, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    options = parts.convert.options
    assert options("origin-hf-ckpt-dir", tmp_path) == [
        "--origin-hf-ckpt-dir", str(tmp_path), "--hf-ckpt-num-shards", "1",
    ]  # fmt: skip
    assert options("hf-ckpt-dir", tmp_path)[-2:] == ["--load-mode", "safetensor"]
    assert options("hf-ckpt-dir", tmp_path, export=True)[-3:] == ["--load-mode", "auto", "--to-hf-ckpt"]
    with pytest.raises(parts.convert.ConverterError, match="cannot turn a checkpoint back"):
        options("origin-hf-ckpt-dir", tmp_path, export=True)
    (tmp_path / "model.safetensors").unlink()
    for i in (1, 2, 3):
        (tmp_path / f"pytorch_model-0000{i}-of-00003.bin").write_bytes(b"")
    assert options("hf-ckpt-dir", tmp_path)[2:] == ["--hf-ckpt-num-shards", "3", "--load-mode", "torchbin"]


def test_grouped_queries_need_a_converter_that_knows_them(parts: Any, tmp_path: Path) -> None:
    for known in (True, False):
        source = "class refactor:\n    def _qkv_refactor(self):\n        return " + (
            "self.config.num_key_value_heads" if known else "3"
        )
        (tmp_path / f"c{known}.py").write_text(source + "\n")
        module = load(tmp_path / f"c{known}.py")
        parts.convert.check_groups(module, ["--num-layers", "2"])
        if known:
            parts.convert.check_groups(module, ["--num-key-value-heads", "2"])
        else:
            with pytest.raises(parts.convert.ConverterError, match="grouped-query"):
                parts.convert.check_groups(module, ["--num-key-value-heads", "2"])


def test_a_folder_that_is_no_checkout_ends_with_one_sentence(
    parts: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = list(sys.path)
    try:
        assert parts.convert.main([str(tmp_path), "/w", "auto", "--num-layers", "2"]) == 2
    finally:
        sys.path[:] = path
    assert capsys.readouterr().err.startswith("convert.py: ")


# -- weights -------------------------------------------------------------------------------------
def test_weights_of_the_model_pass(parts: Any) -> None:
    parts.weights.check(LLAMA_2, SHAPE, ROPE)
    without = {k: v for k, v in LLAMA_2.items() if k != "num_key_value_heads"}  # as Llama 1 has it
    parts.weights.check(without, SHAPE, ROPE)
    assert parts.weights.epsilon(LLAMA_2) == 1e-5
    assert parts.weights.rope_theta({"rope_parameters": {"rope_theta": 500000.0}}) == 500000.0


def test_angles_must_be_the_jobs(parts: Any) -> None:
    """Llama 3.1, as transformers 4 and 5 write it."""
    job = {"theta": 500000.0, "scaling": "llama3 factor=8 low=1 high=4 original=8192"}
    old = {**LLAMA_2, "rope_theta": 500000.0, "rope_scaling": LLAMA_3_SCALING}
    parts.weights.check(old, SHAPE, job)
    parts.weights.check(
        {**LLAMA_2, "rope_parameters": {**LLAMA_3_SCALING, "rope_theta": 500000.0}}, SHAPE, job
    )
    for wrong in (
        ROPE,
        {**job, "scaling": ""},
        {**job, "theta": 10000.0},
        {**job, "scaling": "linear factor=8"},
    ):
        with pytest.raises(parts.weights.WeightsError, match="base 500000 and scaling llama3 factor=8"):
            parts.weights.check(old, SHAPE, wrong)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mistral"}, "model type 'mistral'"),
        ({"hidden_size": 5120, "num_hidden_layers": 40}, "num_hidden_layers is 40, the job has 32; hidden"),
        ({"vocab_size": 32001}, "vocab_size is 32001"),
        ({"rope_theta": 500000.0}, "base 500000"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "scaling"),
        ({"tie_word_embeddings": True}, "tie"),
        ({"attention_bias": True}, "biases"),
    ],
)  # fmt: skip
def test_other_weights_are_named(parts: Any, change: dict[str, Any], words: str) -> None:
    with pytest.raises(parts.weights.WeightsError, match=words):
        parts.weights.check({**LLAMA_2, **change}, SHAPE, ROPE)


def test_files_are_found_by_index_by_name_or_not_at_all(parts: Any, tmp_path: Path) -> None:
    files = parts.weights.files
    with pytest.raises(parts.weights.WeightsError, match="neither model"):
        files(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert files(tmp_path) == ("bin", [tmp_path / "pytorch_model.bin"])
    index = {
        "weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors", "c": "model-1.safetensors"}
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(parts.weights.WeightsError, match=r"lacks model-1\.safetensors, model-2\.safetensors"):
        files(tmp_path)
    for i in (1, 2):
        (tmp_path / f"model-{i}.safetensors").write_bytes(b"")
    assert files(tmp_path) == ("safetensors", [tmp_path / f"model-{i}.safetensors" for i in (1, 2)])
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(parts.weights.WeightsError, match="lists no files"):
        files(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_broken_configuration_is_named(parts: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(parts.weights.WeightsError, match=r"config\.json"):
        parts.weights.read_config(tmp_path)


# -- data ----------------------------------------------------------------------------------------
HEADINGS = {"prompt_input": "I:{instruction} C:{input} R:", "prompt_no_input": "I:{instruction} R:"}


def letters(text: str) -> dict[str, list[int]]:
    return {"input_ids": [1, *(ord(c) for c in text)]}


def test_records_take_the_trainers_form(parts: Any) -> None:
    records = [
        {"q": "Q", "more": "C", "a": "A", "why": ""},
        {"q": "{Q}", "more": "", "a": "A", "why": "W"},
        {"q": "Q", "more": None, "a": "", "why": ""},
        {"q": "Q" * 99, "more": "", "a": "A", "why": ""},
    ]
    settings = {"prompt_field": "q", "answer_field": "a", "input_field": "more", "reasoning_field": "why"}
    kept, dropped = parts.prepare.rows(records, settings, HEADINGS, letters, 40)
    assert kept == [
        {"instruction": "Q", "input": "C", "output": "A"},
        {"instruction": "{Q}", "input": "", "output": "<think>\nW\n</think>\n\nA"},
    ]
    assert dropped == 2
    assert len(parts.prepare.rows(records, {**settings, "max_samples": 1}, HEADINGS, letters, 40)[0]) == 1


def test_an_example_is_kept_only_when_a_token_of_its_answer_is(parts: Any) -> None:
    """The trainer cuts at seq_length + 1 tokens; an example without an answer makes its loss 0 / 0."""
    row = {"instruction": "Q", "input": "", "output": "A"}
    length = len(letters("I:Q R:")["input_ids"])
    assert parts.prepare.fits(row, HEADINGS, letters, length)
    assert not parts.prepare.fits(row, HEADINGS, letters, length - 1)


def test_conversations_are_refused(parts: Any) -> None:
    with pytest.raises(parts.examples.DataError, match="single questions"):
        parts.prepare.rows([{"messages": []}], {}, HEADINGS, letters, 40)


@pytest.mark.parametrize(
    ("tokens", "chosen"),
    [
        (("<pad>", 5, "<unk>", "</s>"), ("<pad>", True)),
        (("[PAD]", 32000, "<unk>", "</s>"), ("<unk>", True)),  # beyond the weights' rows
        ((None, None, "<unk>", "</s>"), ("<unk>", True)),
        (("</s>", 2, "<unk>", "</s>"), ("<unk>", True)),
        ((None, None, None, "</s>"), ("</s>", False)),
    ],
)
def test_padding_is_a_token_that_the_weights_have(parts: Any, tokens: Any, chosen: tuple[str, bool]) -> None:
    assert parts.prepare.choose_padding(*tokens, 32000) == chosen
    with pytest.raises(parts.weights.WeightsError):
        parts.prepare.choose_padding(None, None, None, None, 32000)


def test_a_spare_token_pads_before_the_unknown_one(parts: Any) -> None:
    choose = parts.prepare.choose_padding
    assert choose(None, None, None, "<|end|>", 336, "<|reserved_special_token_0|>") == (
        "<|reserved_special_token_0|>",
        True,
    )
    assert choose("<pad>", 5, None, "<|end|>", 336, "<|reserved_special_token_0|>") == ("<pad>", True)
