"""Owns testing what a row of a runs file is taken to mean, and what bad files and rows say."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.workflows.runs_csv import OPTIONAL, REQUIRED, Run, read, to_run

DATA = Path(__file__).resolve().parents[1] / "data" / "runs"

GOOD = {
    "id": "r1",
    "series": "mine",
    "framework": "Megatron-DeepSpeed (DeepSpeed 0.16.4)",
    "gpu": "H100",
    "gpus": "16",
    "hidden": "4096",
    "layers": "32",
    "heads": "32",
    "kv_heads": "",
    "ffn": "16384",
    "seq_length": "2048",
    "vocab": "50257",
    "tensor_parallel": "4",
    "pipeline_parallel": "2",
    "data_parallel": "2",
    "micro_batch_size": "2",
    "global_batch_size": "32",
    "recompute": "full",
    "precision": "bf16",
    "step_seconds": "3.5",
    "memory_gb": "40",
    "memory_kind": "device",
    "oom": "0",
}


def row(**changes: str) -> Run:
    return to_run({**GOOD, **changes})


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def make(*rows: dict[str, str], drop: str = "", extra: str = "") -> Path:
        names = [n for n in GOOD if n != drop] + ([extra] if extra else [])
        out = io.StringIO()
        writer = csv.DictWriter(out, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        path = tmp_path / "runs.csv"
        path.write_text(out.getvalue())
        return path

    return make


@pytest.mark.parametrize("name", ["published.csv", "h200.csv"])
def test_every_published_row_is_understood(name: str) -> None:
    runs = read(DATA / name)
    assert runs.skipped == ()
    assert runs.ignored_columns == ()
    assert len(runs.runs) == len((DATA / name).read_text().splitlines()) - 1


def test_a_plain_row() -> None:
    run = row()
    assert (run.layout.gpus, run.layout.gradient_accumulation_steps) == (16, 8)
    assert run.trainer.name == "megatron-deepspeed"
    assert run.trainer.deepspeed == "0.16.4"
    assert run.node.gpu.id == "h100"
    assert run.model.kv_heads == 32
    assert run.layout.recompute.granularity == "full"
    assert (run.step_seconds, run.memory_gib, run.memory_kind, run.oom) == (3.5, 40.0, "device", False)
    assert not run.host_bound


def by_id(name: str, ending: str) -> Run:
    return next(run for run in read(DATA / name).runs if run.id.endswith(ending))


def test_what_published_rows_mean() -> None:
    runs = {run.series: run for run in read(DATA / "published.csv").runs}
    tr11 = runs["tr11-h14336"]
    assert tr11.node.id == "jean-zay-a100"
    assert (tr11.trainer.version, tr11.trainer.deepspeed) == ("bigscience", "0.6.0")
    assert not tr11.layout.flash_attention
    assert runs["bloom-reshape"].model.embedding_norm
    assert runs["bloom-reshape"].model.positions == "alibi"
    assert runs["simumax-b200"].model.gated_mlp
    assert runs["simumax-b200"].trainer.gradient_accumulation_dtype == "fp32"
    assert runs["dgxc-25"].trainer.version == "nemo"
    assert runs["nanotron"].memory_kind == "unknown"
    assert runs["llm-foundry-a100-40"].trainer.name == "fsdp"
    assert runs["llm-foundry-a100-40"].node.gpu.id == "a100-40"
    assert runs["vtrain-multi-h8192"].layout.zero_stage == 1
    assert runs["korthikanti"].layout.virtual_pipeline in (1, 3)


@pytest.mark.parametrize(
    ("series", "hidden", "tensor", "heads"),
    [
        # The chronicle: "all NHEADS=64 (above too)"; where 64 does not fit, and elsewhere, heads of 128 or more.
        ("tr11-h14336", "14336", "8", 64),
        ("tr11-h14400", "14400", "8", 64),
        ("tr11-h14350", "14350", "1", 82),
        ("mine", "14336", "8", 112),
    ],
)
def test_heads_that_are_not_stated(series: str, hidden: str, tensor: str, heads: int) -> None:
    shape = {"series": series, "hidden": hidden, "heads": "", "ffn": str(4 * int(hidden))}
    run = row(**shape, tensor_parallel=tensor, gpus=str(4 * int(tensor)))
    assert run.model.heads == heads
    assert run.model.heads * run.model.head_size == int(hidden)


def test_few_kv_heads_do_not_mean_a_gated_mlp() -> None:
    nemotron = row(kv_heads="8", notes="nemotron4-15b; total", framework="NeMo 24.07")
    assert not nemotron.model.gated_mlp
    assert row(kv_heads="8", ffn="14336").model.gated_mlp


def test_our_own_columns_are_used() -> None:
    run = by_id("h200.csv", "x2_tp2_m4_flash_z0")
    assert run.allocated_gib == 20.553
    assert run.reserved_gib == 26.289
    assert run.busy_watts == 427  # the idler of the two ranks
    assert run.host_bound
    assert run.trainer.pipeline_engine is True
    assert run.trainer.dropout == 0.1
    assert run.trainer.gradient_accumulation_dtype == "bf16"
    busy = by_id("h200.csv", "1.3B_m4_flash_z0")
    assert not busy.host_bound


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpus": "12"}, "12 GPUs are not"),
        ({"hidden": "4095"}, "hidden 4095 is not divisible by heads 32"),
        ({"heads": "30", "hidden": "3840"}, "heads 30 is not divisible by tensor_parallel 4"),
        ({"kv_heads": "7"}, "heads 32 is not divisible by kv_heads 7"),
        ({"pipeline_parallel": "64", "gpus": "512"}, "pipeline_parallel 64 is more than the 32 layers"),
        ({"global_batch_size": "33"}, "global_batch_size 33 is not micro_batch_size 2 x data_parallel 2"),
        ({"global_batch_size": "2"}, "global_batch_size 2 is not"),
        ({"gradient_accumulation_steps": "3"}, "global_batch_size 32 is not"),
        ({"layers": "nan"}, "layers is nan, not a whole number"),
        ({"layers": "-4"}, "layers is -4, not a whole number"),
        ({"layers": "inf"}, "layers is inf, not a whole number"),
        ({"layers": ""}, "layers is not stated"),
        ({"layers": "many"}, "layers is 'many', not a number"),
        ({"vocab": "1.5"}, "vocab is 1.5, not a whole number"),
        ({"step_seconds": "-1"}, "step_seconds is -1"),
        ({"step_seconds": "nan"}, "step_seconds is nan"),
        ({"memory_gb": "forty"}, "memory_gb is 'forty'"),
        ({"precision": "int4"}, "precision 'int4' is none of"),
        ({"recompute": "some"}, "recompute 'some' is none of"),
        ({"zero_stage": "4"}, "zero_stage 4 is none of"),
        ({"gpu": "Q9000"}, "Q9000"),
    ],
)
def test_rows_that_cannot_be_predicted_say_why(change: dict[str, str], says: str) -> None:
    with pytest.raises(UserError) as caught:
        row(**change)
    assert says in caught.value.message


def test_a_bad_row_is_skipped_and_the_rest_is_read(write: Callable[..., Path]) -> None:
    runs = read(write(GOOD, {**GOOD, "id": "r2", "layers": "x"}, {**GOOD, "id": "", "heads": "31"}, GOOD))
    assert [run.id for run in runs.runs] == ["r1", "r1"]
    assert runs.skipped[0] == ("r2", "layers is 'x', not a number.")
    assert runs.skipped[1][0] == "line 4"


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_column_is_named(write: Callable[..., Path], name: str) -> None:
    with pytest.raises(UserError, match=f"lacks the column {name}"):
        read(write(GOOD, drop=name))


def test_several_missing_columns_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("id,hidden\na,1\n")
    with pytest.raises(UserError) as caught:
        read(path)
    assert caught.value.message.count(".csv") == 1
    assert "series" in caught.value.message


def test_extra_columns_are_named_once(write: Callable[..., Path]) -> None:
    runs = read(write({**GOOD, "colour": "red"}, {**GOOD, "colour": "blue"}, extra="colour"))
    assert runs.ignored_columns == ("colour",)
    assert len(runs.runs) == 2


def test_optional_columns_are_not_extra() -> None:
    assert not set(OPTIONAL) & set(REQUIRED)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is empty"), (b"\xff\xfe\x00\x01", "Cannot read"), (b"a,b\n1,2\n", "lacks the columns")],
)
def test_files_that_are_no_runs(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "odd.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=says):
        read(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Cannot read"):
        read(tmp_path / "none.csv")


def test_a_byte_order_mark_spaces_and_windows_lines_are_fine(write: Callable[..., Path]) -> None:
    path = write({**GOOD, "hidden": " 4096 "})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n").replace(b"\r\r\n", b"\r\n"))
    assert len(read(path).runs) == 1


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_of_spreadsheets(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(separator.join(GOOD) + "\n" + separator.join(GOOD.values()) + "\n", encoding="utf-8")
    assert [run.step_seconds for run in read(path).runs] == [3.5]


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(",".join([*GOOD, "hidden"]) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="hidden more than once"):
        read(path)


def test_what_is_no_utf8_says_how_to_save_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    for content in (b"\xff\xfei\x00d\x00", ",".join(GOOD).encode() + b"\n\xe4"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="no UTF-8 text") as caught:
            read(path)
        assert "UTF-8" in caught.value.hint


def test_a_line_with_more_cells_than_columns_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    lines = [",".join(GOOD), ",".join(GOOD.values()) + ",a,b", ",".join(GOOD.values())]
    path.write_text("\n".join(lines), encoding="utf-8")
    found = read(path)
    assert len(found.runs) == 1
    assert "more cells than there are columns" in found.skipped[0][1]


NO_COUNTS = ("id", "series", "framework", "gpu", "step_seconds", "memory_gb", "memory_kind")


@pytest.mark.parametrize("key", [k for k in GOOD if k not in NO_COUNTS])
def test_no_huge_number_ends_in_a_traceback(key: str) -> None:
    for value in ("9" * 20, "1e300", "1e20"):
        with pytest.raises(UserError):
            row(**{key: value, "heads": "" if key != "heads" else value})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"step_seconds": "0"}, "step_seconds is 0; leave it empty"),
        ({"memory_gb": "0.0"}, "memory_gb is 0.0; leave it empty"),
        ({"oom": "NaN"}, "oom is 'NaN', neither 0 nor 1"),
    ],
)
def test_what_cannot_have_been_measured(change: dict[str, str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        row(**change)
