"""The corpus once more, behind what launchers and terminals put around a log: the same steps, the same diagnosis."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpt_tune.diagnosis import Diagnoser
from gpt_tune.logs.parse import LogParser, parse_json, result_of
from tests.logs import corpus
from tests.logs.test_corpus import mismatches

Wrap = Callable[[list[bytes]], list[bytes]]
NOISE = b"node01:12:13 [0] NCCL INFO comm 0x14da8c001060 rank 3 nranks 64 cudaDev 3 busId 1a000"


def before(text: bytes, after: bytes = b"") -> Wrap:
    return lambda lines: [text + line + after for line in lines]


def interleaved(lines: list[bytes]) -> list[bytes]:
    return [part for i, line in enumerate(lines) for part in ([line, NOISE] if i % 3 == 0 else [line])]


WRAPS: dict[str, Wrap] = {
    "pdsh": before(b"node07: "),
    "srun": before(b"63: "),
    "tee": before(b"[default0]:"),
    "ray": before(b"\x1b[36m(TrainActor pid=4112, ip=10.0.0.7)\x1b[0m "),
    "colour": before(b"\x1b[36m", b"\x1b[0m"),
    "windows": lambda lines: [line.rstrip(b"\r") + b"\r" for line in lines],
    "other ranks": interleaved,
    "a head": lambda lines: [
        b"job 7: ranks 64, nodes 8, start 0, first node b200-1",
        b"+ module load x",
        *lines,
    ],
}


@pytest.mark.parametrize("name", WRAPS)
def test_the_same_behind(name: str) -> None:
    wrong = []
    for number in corpus.numbers():
        want = dict(corpus.expected()[number])
        if name == "srun":
            want.pop("memory", None)  # the label says which rank it is
        lines = corpus.log(number).read_bytes().rstrip(b"\n").split(b"\n")
        raw = b"\n".join(WRAPS[name](lines)) + b"\n"
        parser, diagnoser = LogParser(), Diagnoser()
        diagnoser.feed_block(raw, "log")
        parser.feed_block(raw, "log")
        parser.finish()
        got = diagnoser.conclude(parser)
        identity = got.root_cause.id if got.root_cause else None
        wrong += [(number, text) for text in mismatches(want, parse_json(result_of(parser)))]
        if got.status not in want["status"] or identity not in want.get("root_cause", [identity]):
            wrong.append((number, f"{got.status} {identity}"))
    assert wrong == []
