"""Which rank and node a finding is about, from whatever the launcher, the scheduler or the kernel puts on the line."""

from __future__ import annotations

import pytest

from gpt_tune.diagnosis import diagnose_lines

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of "
    "178.00 GiB of which 1.00 GiB is free."
)
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
XID = "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', GPU has fallen off the bus."
LATE = (
    "[rank12]:[E1130 06:14:36.3 ProcessGroupNCCL.cpp:632] [Rank 4] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1200, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600065 milliseconds"
)
NAN = "AssertionError: found NaN in local grad norm for bucket #0 in backward pass. Device: 3, node: b200-7"


@pytest.mark.parametrize(
    ("text", "identity", "rank", "host"),
    [
        (f"Nov 30 05:03:41 node-7 kernel: {XID}", "F47", None, "node-7"),
        (f"2026-11-30T05:03:41.123456+00:00 node-7 kernel: [ 1843.3] {XID}", "F47", None, "node-7"),
        (f"b200-3: [ 1843.3] {XID}", "F47", None, "b200-3"),
        (f"[Mon Nov 30 05:03:41 2026] {XID}", "F47", None, None),
        ("srun: error: b200-3: task 17: Exited with exit code 1", "F79", 17, "b200-3"),
        ("srun: error: b200-3: task 17: Out Of Memory", "F8", None, "b200-3"),
        (f"17: [rank17]: {OOM}", "F1", 17, None),
        (f"17: {OOM}", "F1", 17, None),
        (f"[1,17]<stderr>:{OOM}", "F1", 17, None),
        (f"(TrainActor pid=4112, ip=10.0.0.7) {ECC}", "F48", None, "10.0.0.7"),
        ("srun: error: Node failure on b200-5", "F74", None, "b200-5"),
        (LATE, "F19", 12, None),
        (f"[rank3]: {NAN}", "F14", 3, "b200-7"),
    ],
)
def test_places(text: str, identity: str, rank: int | None, host: str | None) -> None:
    root = diagnose_lines([text]).root_cause
    assert root is not None
    assert (root.id, root.rank, root.host) == (identity, rank, host)
