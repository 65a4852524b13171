"""sinfo's table: groups, free GPUs, odd nodes, and ten thousand of them."""

from __future__ import annotations

import time

from gpt_tune.schedulers import columns, slurm_nodes


def table(*rows: dict[str, str]) -> bytes:
    """sinfo's output for rows that differ from a plain idle B200 node in the given columns."""
    plain = {
        "Partition": "dev*", "Available": "up", "Time": "2:00:00", "DefaultTime": "n/a", "Size": "1-infinite",
        "StateLong": "idle", "Nodes": "1", "CPUs": "192", "Memory": "2000000", "Features": "(null)",
        "Gres": "gpu:b200:8", "GresUsed": "gpu:b200:0(IDX:N/A)", "NodeList": "n1",
    }  # fmt: skip
    lines = []
    for row in rows:
        cells = {**plain, **row}
        lines.append(b"".join(cells[n].encode()[:w].ljust(w) for n, w in slurm_nodes.COLUMNS) + b"\n")
    return b"".join(lines)


def test_states_are_gathered_in_one_group() -> None:
    (partition,), notes = slurm_nodes.parse(
        table(
            {"Nodes": "5", "NodeList": "n[1-5]"},
            {"Nodes": "2", "StateLong": "mixed-", "GresUsed": "gpu:b200:3(IDX:0-2)", "NodeList": "n[6-7]"},
            {"Nodes": "1", "StateLong": "allocated", "GresUsed": "gpu:b200:8(IDX:0-7)", "NodeList": "n8"},
            {"Nodes": "1", "StateLong": "drained*", "NodeList": "n9"},
            {"Nodes": "1", "StateLong": "completing", "NodeList": "n10"},
        )
    )
    (group,) = partition.groups
    assert (partition.name, partition.default, partition.time_limit_seconds) == ("dev", True, 7200)
    assert group.nodes_by_state == {"allocated": 2, "down": 1, "idle": 5, "mixed": 2}
    assert group.gpus_free == 5 * 8 + 2 * 5
    assert group.names == "n[1-10]"
    assert partition.gpus_total == 80
    assert notes == ()


def test_unlike_nodes_are_groups_of_their_own() -> None:
    (partition,), notes = slurm_nodes.parse(
        table(
            {"Nodes": "3", "NodeList": "n[1-3]", "Features": "efa,p6"},
            {
                "Nodes": "2",
                "NodeList": "h[1-2]",
                "Gres": "gpu:h100:8(S:0-1)",
                "GresUsed": "gpu:h100:8(IDX:0-7)",
            },
            {"Nodes": "4", "NodeList": "c[1-4]", "Gres": "(null)", "GresUsed": "gpu:0", "CPUs": "64"},
            {
                "Nodes": "1",
                "NodeList": "m1",
                "Gres": "gpu:a100:2,gpu:1g.10gb:14",
                "GresUsed": "gpu:a100:1,gpu:1g.10gb:9",
            },
            {"Nodes": "1", "NodeList": "u1", "Gres": "gpu:4", "GresUsed": "gpu:1"},
        )
    )
    found = {g.names: (g.gpu, g.gpus_per_node, g.gpus_free) for g in partition.groups}
    assert found == {
        "n[1-3]": ("b200", 8, 24), "h[1-2]": ("h100", 8, 0), "c[1-4]": ("", 0, 0),
        "m1": ("a100", 2, 1), "u1": ("", 4, 3),
    }  # fmt: skip
    assert partition.groups[0].features == ("efa", "p6")
    assert notes == ("m1 also offer 14 x 1g.10gb a node, which are not counted.",)


def test_partitions_keep_their_limits() -> None:
    partitions, _ = slurm_nodes.parse(
        table(
            {"Partition": "long", "Time": "infinite", "Size": "1-64", "DefaultTime": "1-00:00:00"},
            {"Partition": "empty", "Nodes": "0", "NodeList": "", "Available": "inact"},
            {"Partition": "main*", "Time": "7-00:00:00", "Size": "4"},
        )
    )
    assert [(p.name, p.default, p.state, p.time_limit_seconds, p.max_nodes) for p in partitions] == [
        ("long", False, "up", None, 64),
        ("empty", False, "inact", 7200, None),
        ("main", True, "up", 604800, 4),
    ]
    assert partitions[0].default_time_seconds == 86400
    assert partitions[1].groups == ()


def test_messages_between_rows_and_cut_names_do_no_harm() -> None:
    long_list = ",".join(f"node{i}x" for i in range(2000))
    output = (
        b"sinfo: some plugin's remark\n"
        + table({"NodeList": long_list})
        + b"\n"
        + table({"Partition": "grüße" * 40})
    )
    partitions, _ = slurm_nodes.parse(output)
    assert partitions[0].name == "dev"
    assert partitions[0].groups[0].names.endswith("x,...")
    assert len(partitions) == 2


def test_no_output_is_no_partitions() -> None:
    assert slurm_nodes.parse(b"") == ((), ())


def test_ten_thousand_nodes_are_read_in_a_moment() -> None:
    """The worst case: every node of its own in the output, 1,250 rows for each of 8 partitions."""
    rows = [
        {"Partition": f"p{i % 8}", "NodeList": f"n[{i * 8:05d}-{i * 8 + 7:05d}]", "Nodes": "8"}
        for i in range(10_000)
    ]
    output = table(*rows)
    start = time.process_time()
    partitions, _ = slurm_nodes.parse(output)
    seconds = time.process_time() - start
    assert sum(p.groups[0].nodes for p in partitions) == 80_000
    assert seconds < 2.0


def test_argument_names_each_width() -> None:
    assert columns.argument([("A", 3), ("B", 10)]) == "A:3,B:10"


def test_rows_hold_bytes_not_characters() -> None:
    """A name in UTF-8 takes more bytes than characters, and a cell may be cut inside one."""
    output = "hé xé\n".encode() + "éé".encode()[:3] + b" xy \n"
    rows = list(columns.rows(output, [("a", 4), ("b", 3)]))
    assert rows[0] == {"a": "hé", "b": "xé"}
    assert rows[1]["a"] == "é"
    assert len(list(columns.rows(b"ab\ncd", [("a", 2)]))) == 2
