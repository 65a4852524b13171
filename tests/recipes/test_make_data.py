"""Synthetic data is in the format Megatron's indexed reader takes."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpt_tune.resources import data_dir

PROGRAM = data_dir("templates") / "megatron-deepspeed" / "make_data.py"


def make(prefix: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it on a bare Python: nodes outside the container may have nothing else."""
    return subprocess.run(
        [sys.executable, "-S", "-I", str(PROGRAM), "--prefix", str(prefix), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def read(prefix: Path) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Documents and document bounds, read as megatron/data/indexed_dataset.py lays them out (4efb479)."""
    index = prefix.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, kind, sequences, bounds = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    dtype: np.dtype[Any] = np.dtype({4: "<i4", 8: "<u2"}[kind])
    at = 9 + 8 + 1 + 8 + 8
    lengths = np.frombuffer(index, "<i4", sequences, at)
    at += 4 * sequences
    offsets = np.frombuffer(index, "<i8", sequences, at)
    at += 8 * sequences
    documents = np.frombuffer(index, "<i8", bounds, at)
    assert at + 8 * bounds == len(index)
    data = prefix.with_suffix(".bin").read_bytes()
    found = [np.frombuffer(data, dtype, n, o).astype(np.int64) for n, o in zip(lengths, offsets, strict=True)]
    assert int(lengths.sum()) * dtype.itemsize == len(data)
    return found, documents


@pytest.mark.parametrize(("vocab", "size"), [(50257, 2), (65499, 2), (65500, 4), (128256, 4), (2, 2)])
def test_files_hold_what_the_index_says(tmp_path: Path, vocab: int, size: int) -> None:
    prefix = tmp_path / "with space" / "synthetic"
    done = make(prefix, "--vocab", str(vocab), "--tokens", "20000", "--longest", "300")
    assert done.returncode == 0, done.stderr
    documents, bounds = read(prefix)
    assert list(bounds) == list(range(len(documents) + 1))
    tokens = np.concatenate(documents)
    assert 15000 < tokens.size < 40000
    assert tokens.min() >= 0
    assert tokens.max() == vocab - 1
    assert all(d[-1] == vocab - 1 for d in documents)  # each document ends with the end of text
    assert all(2 <= d.size <= 301 for d in documents)
    assert prefix.with_suffix(".bin").stat().st_size == tokens.size * size
    assert not list(prefix.parent.glob("*.part"))


def test_the_same_seed_writes_the_same_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        make(tmp_path / name, "--vocab", "1000", "--tokens", "5000", "--seed", seed)
    same, again, other = ((tmp_path / f"{n}.bin").read_bytes() for n in "abc")
    assert same == again != other


def test_there_is_something_to_learn(tmp_path: Path) -> None:
    make(tmp_path / "a", "--vocab", "1000", "--tokens", "50000")
    documents, _ = read(tmp_path / "a")
    follows = np.concatenate([(d[:-2] * 31 + 7) % 999 == d[1:-1] for d in documents])
    assert 0.45 < follows.mean() < 0.55


@pytest.mark.parametrize("arguments", [("--vocab", "1"), ("--vocab", "9", "--longest", "0")])
def test_impossible_sizes_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = make(tmp_path / "a", *arguments)
    assert done.returncode == 2
    assert "must be at least" in done.stderr
    assert not list(tmp_path.iterdir())
