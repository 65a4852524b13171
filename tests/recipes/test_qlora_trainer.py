"""The QLoRA trainer's decisions, without its libraries: what is learned, what is continued, what is refused."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.logs.parse import parse_files
from gpt_tune.resources import data_dir

FOLDER = data_dir("templates") / "qlora" / "trainer"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"qlora_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


examples, checkpoints, settings, machine = (
    load(n) for n in ("examples", "checkpoints", "settings", "machine")
)


class Letters:
    """A tokenizer whose tokens are characters; its template may rewrite earlier answers."""

    bos_token, eos_token = "^", "$"

    def __init__(self, template: str = "chat") -> None:
        self.chat_template = "" if template == "none" else template

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [ord(c) for c in text]}

    def apply_chat_template(self, turns: Any, tokenize: bool, add_generation_prompt: bool) -> str:
        assert not tokenize
        if self.chat_template == "no system" and turns[0]["role"] == "system":
            raise ValueError("System role not supported")
        text = "^"
        for i, turn in enumerate(turns):
            content = turn["content"]
            if self.chat_template == "forgets" and turn["role"] == "assistant" and i < len(turns) - 1:
                content = content[-1:]
            text += f"<{turn['role'][0]}>{content}" + ("$" if turn["role"] == "assistant" else "")
        return text + ("<a>" if add_generation_prompt else "")


def learned(row: dict[str, list[int]]) -> str:
    """The characters with a label; labels must be the token itself."""
    for token, label in zip(row["input_ids"], row["labels"], strict=True):
        assert label in (token, examples.IGNORED)
    return "".join(chr(x) for x in row["labels"] if x != examples.IGNORED)


def text_of(row: dict[str, list[int]]) -> str:
    return "".join(chr(t) for t in row["input_ids"])


def encode(records: list[Any], template: str = "chat", length: int = 1000, **names: Any) -> Any:
    return examples.encode(records, names, Letters(template), length, names.pop("system", ""))[0]


@pytest.mark.parametrize(
    ("record", "names"),
    [
        ({"instruction": "Q", "input": "", "output": "A"}, {}),
        ({"question": "Q", "answer": "A"}, {}),
        ({"Question": "Q", "Response": "A"}, {}),
        ({"prompt": "Q", "completion": "A", "id": 3}, {}),
        ({"frage": "Q", "antwort": "A"}, {"prompt_field": "frage", "answer_field": "antwort"}),
        ({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}, {}),
        ({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]}, {}),
        ({"messages": json.dumps([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}])}, {}),
    ],
)  # fmt: skip
def test_only_the_answer_is_learned(record: dict[str, Any], names: dict[str, Any]) -> None:
    (row,) = encode([record], **names).rows
    assert text_of(row) == "^<u>Q<a>A$"
    assert learned(row) == "A$"


def test_context_and_reasoning_have_their_places() -> None:
    record = {"instruction": "Q", "input": "more", "cot": "so", "output": "A"}
    (row,) = encode([record], reasoning_field="cot").rows
    assert text_of(row) == "^<u>Q\n\nmore<a><think>\nso\n</think>\n\nA$"
    assert learned(row) == "<think>\nso\n</think>\n\nA$"


def test_every_answer_of_a_conversation_is_learned() -> None:
    turns = [
        ("system", "S"),
        ("user", "1"),
        ("assistant", "one"),
        ("user", "2"),
        ("assistant", "two"),
        ("user", "3"),
    ]
    record = {"messages": [{"role": r, "content": c} for r, c in turns]}
    (row,) = encode([record]).rows
    assert text_of(row) == "^<s>S<u>1<a>one$<u>2<a>two$"  # nothing answers the last question
    assert learned(row) == "one$two$"


def test_a_template_that_rewrites_the_past_learns_the_last_answer_only() -> None:
    turns = [("user", "1"), ("assistant", "one"), ("user", "2"), ("assistant", "two")]
    record = {"messages": [{"role": r, "content": c} for r, c in turns]}
    (row,) = encode([record], "forgets").rows
    assert text_of(row) == "^<u>1<a>e$<u>2<a>two$"
    assert learned(row) == "two$"


def test_a_model_without_a_template_gets_headings() -> None:
    (row,) = encode([{"question": "Q", "answer": "A"}], "none", system="S").rows
    assert text_of(row) == "^### System:\nS\n\n### Instruction:\nQ\n\n### Response:\nA$"
    assert learned(row) == "A$"


def test_long_examples_are_cut_or_left_out_and_counted() -> None:
    records = [{"question": "Q", "answer": "A" * n} for n in (1, 50)]
    records += [{"question": "Q" * 60, "answer": "A"}, {"question": "Q", "answer": "  "}]
    found = encode(records, length=20)
    assert [len(r["input_ids"]) for r in found.rows] == [10, 20]
    assert (found.shortened, found.too_long, found.empty) == (1, 1, 1)
    assert found.words().startswith("2 examples (1 cut at the end; 1 left out")
    with pytest.raises(examples.DataError, match="No example can be learned at 5 tokens"):
        encode(records[:1], length=5)


@pytest.mark.parametrize(
    ("records", "names", "words"),
    [
        ([], {}, "no records"),
        (["text"], {}, "no object with fields"),
        ([{"text": "x"}], {}, "No field holds a question: the records have text"),
        ([{"question": "x"}], {}, "No field holds an answer"),
        (
            [{"question": "x", "answer": "y"}],
            {"answer_field": "anser"},
            "no field 'anser'; they have question, answer",
        ),
        ([{"messages": ["hello"]}], {}, "something that is no message"),
        ([{"messages": "hello"}], {}, "neither a list nor JSON"),
    ],
)
def test_data_that_does_not_fit_says_what_it_has(
    records: list[Any], names: dict[str, Any], words: str
) -> None:
    with pytest.raises(examples.DataError, match=words):
        encode(records, **names)


def test_a_template_that_refuses_is_named() -> None:
    with pytest.raises(examples.DataError, match="refuses a conversation of system, user"):
        encode([{"question": "Q", "answer": "A"}], "no system", system="S")


def test_files_of_every_kind_are_read(tmp_path: Path) -> None:
    rows = [{"question": f"q\u2028{i}", "answer": "a"} for i in range(3)]
    as_lines = "\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n\n"
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "b.jsonl").write_text(as_lines)
    (tmp_path / "c.json").write_text(as_lines)  # one object a line, whatever it is called
    (tmp_path / "d.json").write_text(json.dumps({"data": rows, "version": 2}))
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress(as_lines.encode()))
    for file in tmp_path.iterdir():
        assert examples.read_file(file) == rows, file.name


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"x", "no .json"),
        ("a.jsonl", b'{"a": 1}\n{"a":', "Line 2"),
        ("a.json", b"[1, 2", "Line 1"),
        ("a.json", b"\xff\xfe", "cannot be read"),
        ("a.json", b'"text"', "no list of records"),
        ("a.jsonl.gz", b"plain", "cannot be read"),
    ],
)
def test_files_that_hold_no_records_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(examples.DataError, match=words) as caught:
        examples.read_file(tmp_path / name)
    assert name in str(caught.value)


def test_the_split_is_the_same_everywhere_and_loses_nothing() -> None:
    rows = list(range(100))
    train, check = examples.split(rows, 0.05, 42)
    assert (len(train), len(check)) == (95, 5)
    assert sorted(train + check) == rows
    assert examples.split(rows, 0.05, 42) == (train, check)
    assert examples.split(rows, 0.05, 43) != (train, check)
    assert examples.split(rows[:1], 0.9, 1) == ([0], [])
    assert examples.split(rows, 0.0, 1)[1] == []


def test_padding_is_never_learned_and_never_attended() -> None:
    rows = [{"input_ids": [1] * n, "labels": [1] * n} for n in (3, 9)]
    batch = examples.padded(rows, pad=7)
    assert {len(x) for part in batch.values() for x in part} == {16}
    assert batch["input_ids"][0] == [1] * 3 + [7] * 13
    assert batch["labels"][0] == [1] * 3 + [examples.IGNORED] * 13
    assert [sum(m) for m in batch["attention_mask"]] == [3, 9]


# -- checkpoints ---------------------------------------------------------------------------------
def save(output: Path, step: int, strategy: str = "ddp", ranks: int = 4, whole: bool = True) -> Path:
    folder = output / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    (folder / "adapter_model.safetensors").write_bytes(b"x")
    if strategy != "ddp":
        (folder / "latest").write_text(f"global_step{step}")
    if whole:
        checkpoints.write_mark(folder, strategy, ranks, step)
    return folder


def test_the_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    assert checkpoints.choose(tmp_path, "auto", "ddp", 4) == (None, [])
    whole = save(tmp_path, 90)
    save(tmp_path, 100, whole=False)
    (tmp_path / "checkpoint-x").mkdir()
    (tmp_path / "checkpoint-200").write_text("a file")
    folder, notes = checkpoints.choose(tmp_path, "auto", "ddp", 4)
    assert folder == whole
    assert notes == ["checkpoint-100 is not whole (the job ended while it was saved): passed over"]
    assert checkpoints.choose(tmp_path, "none", "ddp", 4)[0] is None


@pytest.mark.parametrize("damage", ["trainer_state.json", "adapter_model.safetensors", "complete.json"])
@pytest.mark.parametrize("how", ["gone", "empty", "torn"])
def test_a_damaged_checkpoint_is_not_whole(tmp_path: Path, damage: str, how: str) -> None:
    folder = save(tmp_path, 10)
    assert checkpoints.read_mark(folder) is not None
    file = folder / damage
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(b"" if how == "empty" or damage.startswith("adapter") else file.read_bytes()[:-4])
    assert checkpoints.read_mark(folder) is None


@pytest.mark.parametrize(
    ("saved", "now", "ranks", "words"),
    [
        ("zero2", "ddp", 4, "saved with strategy zero2, and this job runs ddp"),
        ("ddp", "zero3", 4, "saved with strategy ddp, and this job runs zero3"),
        ("zero2", "zero3", 4, "STRATEGY=zero2"),
        ("zero3", "zero3", 8, "saved by 4 ranks.*this job has 8"),
    ],
)
def test_a_checkpoint_of_another_kind_is_refused(
    tmp_path: Path, saved: str, now: str, ranks: int, words: str
) -> None:
    folder = save(tmp_path, 10, saved)
    for resume in ("auto", str(folder)):
        with pytest.raises(checkpoints.CheckpointError, match=words) as caught:
            checkpoints.choose(tmp_path, resume, now, ranks)
        assert "RESUME=weights" in str(caught.value)
    assert checkpoints.adapter_in(tmp_path) == folder


def test_a_named_checkpoint_without_our_mark_is_judged_by_its_files(tmp_path: Path) -> None:
    theirs = save(tmp_path, 10, "zero2", whole=False)
    assert checkpoints.choose("x", str(theirs), "zero2", 2)[0] == theirs
    with pytest.raises(checkpoints.CheckpointError, match="zero2 or zero3"):
        checkpoints.choose("x", str(theirs), "ddp", 2)
    with pytest.raises(checkpoints.CheckpointError, match="There is no checkpoint"):
        checkpoints.choose("x", str(tmp_path / "no"), "ddp", 2)
    (theirs / "trainer_state.json").unlink()
    with pytest.raises(checkpoints.CheckpointError, match=r"no trainer_state\.json"):
        checkpoints.choose("x", str(theirs), "zero2", 2)
    with pytest.raises(checkpoints.CheckpointError, match="to take an adapter from"):
        checkpoints.adapter_in(tmp_path)


def test_plain_data_parallel_may_change_size(tmp_path: Path) -> None:
    folder = save(tmp_path, 10, "ddp", ranks=4)
    assert checkpoints.choose(tmp_path, "auto", "ddp", 16)[0] == folder


# -- settings and machine ------------------------------------------------------------------------
GOOD = {
    "weights": "w", "data": "d", "output": "o", "strategy": "ddp", "base_weights": "nf4", "max_length": 8,
    "micro_batch_size": 1, "gradient_accumulation_steps": 1, "lora_rank": 1, "lora_alpha": 1, "epochs": 1.0,
    "learning_rate": 0.1, "checkpoint_interval": 1, "eval_interval": 1, "log_interval": 1, "steps": 0,
    "max_samples": 0, "patience": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": ""}, "No weights"),
        ({"strategy": "zero1"}, "ddp, zero2 or zero3"),
        ({"base_weights": "int8"}, "nf4, fp4 or 16bit"),
        ({"max_length": 0}, "max_length is 0"),
        ({"epochs": float("inf")}, "epochs is inf"),
        ({"learning_rate": 0.0}, "learning_rate is 0"),
        ({"steps": -1}, "steps is -1"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, Any], words: str) -> None:
    settings.check(GOOD)
    with pytest.raises(settings.SettingsError, match=words):
        settings.merged({**GOOD, **change}, {})


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(GOOD))
    found, options = settings.parse(
        ["--settings", str(path), "--steps", "7", "--no-quantize", "--data", "-x y"[1:]]
    )
    assert (found["steps"], found["base_weights"], found["data"]) == (7, "16bit", "x y")
    assert options.resume == "auto"
    path.write_text("[]")
    with pytest.raises(settings.SettingsError, match="no object"):
        settings.parse(["--settings", str(path)])


def test_names_that_a_version_lacks_are_left_out() -> None:
    def newer(steps: int, sampling: str = "") -> None: ...

    assert settings.takes(newer, {"steps": 1, "sampling": "x", "group_by_length": True}) == {
        "steps": 1, "sampling": "x",
    }  # fmt: skip


def test_missing_packages_are_named_together() -> None:
    with pytest.raises(machine.MachineError, match="missing: ") as caught:
        machine.check_packages(quantized=True, strategy="zero2", hub=True)
    missing = str(caught.value)
    for name in ("bitsandbytes", "deepspeed", "peft"):
        assert (name in missing) == (importlib.util.find_spec(name) is None)


def test_the_place_comes_from_the_environment() -> None:
    place = machine.Place({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"})
    assert (place.rank, place.local_rank, place.ranks, place.leads) == (5, 1, 8, False)
    assert machine.Place({}).leads


def test_the_plain_parts_need_no_library() -> None:
    """They are imported before anything is known about the machine."""
    for name in ("examples", "checkpoints", "settings", "machine"):
        source = (FOLDER / f"{name}.py").read_text()
        top = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
        assert all(line.split()[1].split(".")[0] in sys.stdlib_module_names for line in top), name


def test_its_log_is_read() -> None:
    """Two ranks, stopped by a signal at step 14, continued by one; measured on the CPU with random weights."""
    result = parse_files([str(Path(__file__).parents[1] / "data/qlora/stopped-and-continued.out")])
    steps = {s.iteration: s.loss for s in result.steps()}
    assert result.trainer == "huggingface"
    assert (steps[1], steps[14], steps[30]) == (5.732980728149414, 5.384050369262695, 5.2569355964660645)
    assert [(r.first, r.last) for r in result.runs] == [(1, 14), (16, 30)]
