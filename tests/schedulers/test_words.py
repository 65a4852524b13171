"""Slurm's small notations, over the versions and spellings met in the field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_tune.schedulers import hostlist, slurm_words
from gpt_tune.schedulers.slurm_nodes import main_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 1800), ("30:15", 1815), ("2:00:00", 7200), ("2-00:00:00", 172800), ("1-12", 129600),
        ("1-12:30", 131400), ("0:30", 30), ("infinite", None), ("UNLIMITED", None), ("n/a", None), ("NOT_SET", None),
        ("", None), ("-1", None), ("Partition_Limit", None), ("ten", None), ("1-", None), ("1:2:3:4", None),
    ],
)  # fmt: skip
def test_seconds(text: str, expected: int | None) -> None:
    assert slurm_words.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "ten minutes", "1:", "2h", "1-2-3", "1;rm"])
def test_no_duration(text: str) -> None:
    assert not slurm_words.is_duration(text)


@given(st.integers(1, 400 * 86400))
def test_a_written_duration_reads_back(n_seconds: int) -> None:
    assert slurm_words.seconds(slurm_words.duration(n_seconds)) == n_seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("idle", "idle"), ("idle*", "down"), ("idle~", "idle"), ("idle#", "idle"), ("idle%", "other"),
        ("idle$", "other"), ("idle@", "other"), ("idle!", "other"), ("idle^", "other"), ("mixed-", "mixed"),
        ("mix", "mixed"), ("allocated+", "allocated"), ("alloc", "allocated"), ("comp", "allocated"),
        ("completing*", "down"), ("drain", "drained"), ("drained*", "down"), ("drng", "drained"), ("drng@", "drained"),
        ("idle+drain", "drained"), ("mixed+drain", "drained"), ("IDLE+DRAIN+NOT_RESPONDING", "down"), ("down~", "down"),
        ("down*", "down"), ("fail", "down"), ("inval", "down"), ("maint", "other"), ("resv", "other"),
        ("reserved", "other"), ("planned", "idle"), ("plnd", "idle"), ("future", "other"), ("reboot^", "other"),
        ("powering_down", "other"), ("idle+cloud+powered_down", "other"), ("", "other"), ("???", "other"),
    ],
)  # fmt: skip
def test_node_state(text: str, expected: str) -> None:
    assert slurm_words.node_state(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:b200:8", [("b200", 8)]), ("gpu:b200:8(S:0-1)", [("b200", 8)]), ("gpu:8", [("", 8)]), ("gpu", [("", 1)]),
        ("gpu:a100:4(S:0,2-3),gpu:1g.10gb:7(S:1)", [("a100", 4), ("1g.10gb", 7)]),
        ("gpu:nvidia_a100_3g.39gb:2,nvme:4", [("nvidia_a100_3g.39gb", 2)]), ("(null)", []), ("", []), ("nvme:2", []),
        ("gpu:b200:3(IDX:0-2)", [("b200", 3)]), ("gpu:b200:0(IDX:N/A)", [("b200", 0)]), ("shard:8,gpu:2", [("", 2)]),
        ("gpu:h100:no_consume:4", [("h100", 4)]), ("gres:gpu:b200:8", [("b200", 8)]), ("gres/gpu:8", [("", 8)]),
        ("gres/gpu=64", [("", 64)]), ("gres/gpu:b200=64", [("b200", 64)]), ("mps:400", []),
        ("gpu:b200:1K", [("b200", 1024)]), ("gpu:b200", [("b200", 1)]),
    ],
)  # fmt: skip
def test_gpus(text: str, expected: list[tuple[str, int]]) -> None:
    assert [(g.type, g.count) for g in slurm_words.gpus(text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:a100:4,gpu:1g.10gb:7", ("a100", 4)),
        ("gpu:1g.10gb:14,gpu:3g.40gb:2", ("1g.10gb", 14)),
        ("gpu:a100:2,gpu:v100:6", ("v100", 6)),
        ("gpu:b200:4(S:0),gpu:b200:4(S:1)", ("b200", 8)),
        ("gpu:nvidia_a100_1g.10gb:56,gpu:nvidia_a100:1", ("nvidia_a100", 1)),
    ],
)
def test_the_type_a_node_is_known_for(text: str, expected: tuple[str, int]) -> None:
    main = main_type(slurm_words.gpus(text))
    assert main is not None
    assert (main.type, main.count) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RUNNING", "RUNNING"), ("CANCELLED by 1000", "CANCELLED"), ("CANCELLED+", "CANCELLED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("CONFIGURING", "PENDING"), ("BOOT_FAIL", "NODE_FAIL"), ("DEADLINE", "TIMEOUT"), ("REQUEUE_HOLD", "PENDING"),
        ("SPECIAL_EXIT", "PENDING"), ("STOPPED", "SUSPENDED"), ("REVOKED", "CANCELLED"), ("STAGE_OUT", "COMPLETING"),
        ("RUNNING,RESIZING", "RUNNING"), ("BRAND_NEW_STATE", "UNKNOWN"), ("", "UNKNOWN"),
    ],
)  # fmt: skip
def test_job_state(text: str, expected: str) -> None:
    assert slurm_words.job_state(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("768", 3),
        ("15", 143),
        ("9", 137),
        ("3:0", 3),
        ("0:15", 143),
        ("0:0", 0),
        ("N/A", None),
        ("", None),
    ],
)
def test_exit_code(text: str, expected: int | None) -> None:
    assert slurm_words.exit_code(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slurm-wlm 22.05.8", (22, 5, 8)), ("slurm 26.05.2-0pre1", (26, 5, 2)), ("26.05.2-0pre1", (26, 5, 2)),
        ("25.11.0-0rc1", (25, 11, 0)), ("20.11.9", (20, 11, 9)), ("unknown", ()),
    ],
)  # fmt: skip
def test_version(text: str, expected: tuple[int, ...]) -> None:
    assert slurm_words.version_tuple(text) == expected


def test_stamps() -> None:
    assert slurm_words.stamp("1796023150") == "2026-11-30T07:19:10Z"
    assert slurm_words.stamp("N/A") is None
    assert slurm_words.stamp("Unknown") is None
    assert slurm_words.stamp("0") is None
    assert slurm_words.epoch("2026-11-30T07:19:10Z") == 1796023150


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n[001-003,007],gpu-a-[1-2]", ["n001", "n002", "n003", "n007", "gpu-a-1", "gpu-a-2"]),
        ("b200-1", ["b200-1"]), ("", []), ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("n[9-11]", ["n9", "n10", "n11"]), ("n[1-2]-ib,m", ["n1-ib", "n2-ib", "m"]), ("(null)", ["(null)"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]), ("broken[1-2", ["broken[1-2"]),
    ],
)  # fmt: skip
def test_hostlist(text: str, expected: list[str]) -> None:
    assert hostlist.expand(text) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["b200-2", "b200-1", "b200-3"], "b200-[1-3]"), (["h100-4", "h100-1"], "h100-[1,4]"),
        (["n001", "n002", "n010"], "n[001-002,010]"), (["n9", "n10"], "n[9-10]"),
        (["n099", "n100"], "n[099-100]"), (["login"], "login"), ([], ""), (["a1", "b1"], "a1,b1"),
    ],
)  # fmt: skip
def test_compress(names: list[str], expected: str) -> None:
    assert hostlist.compress(names) == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["n", "gpu-a-", "r1n", "x"]), st.integers(0, 12000), st.sampled_from([0, 3, 5])
        ),
        max_size=40,
    )
)
def test_a_compressed_list_expands_to_the_same_names(parts: list[tuple[str, int, int]]) -> None:
    names = {f"{prefix}{number:0{width}d}" for prefix, number, width in parts}
    expanded = hostlist.expand(hostlist.compress(names))
    assert sorted(expanded) == sorted(names)
