"""Owns what launchers, loggers and viewers put in front of a line: who wrote it, where and when."""

from __future__ import annotations

import calendar
import re
from functools import lru_cache
from typing import NamedTuple

READ_TWICE = 4096  # lines remembered: who wrote a line is asked by what watches writers, then by the log pane
MAX_DEPTH = 12  # launchers stack; more than this is not a prefix

_DATE = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_US_DATE = r"\d\d/\d\d(?:/\d{2,4})? \d\d:\d\d:\d\d"
# One alternative a kind of prefix; the named group says which. Every repetition is bounded.
_PREFIX = re.compile(
    r"\s{0,16}(?:"
    r"(?P<srun>(?:P\d{1,3} {1,4})?\d{1,7}): "
    r"|\[(?P<default>default\d{1,5})\]:"
    r"|\[(?P<rank>[Rr]ank ?\d{1,7})\](?=:|\s|\[):?"
    r"|\[rank-(?P<primus>\d{1,7})/\d{1,7}\](?=\[|\s|:)"
    r"|\[(?P<compact>\d{8} \d\d:\d\d:\d\d)\](?=\[|\s)"
    r"|\[(?P<mpirun>\d{1,3},\d{1,7})\]<std(?:out|err)>:"
    r"|\((?P<ray>[\w. -]{0,64}pid=\d{1,10}[^()]{0,80})\)(?= )"
    r"|(?P<torchx>[\w.-]{0,63}[A-Za-z_][\w.-]{0,63}/\d{1,5})(?= [\[ A-Z])"
    r"|\[(?P<date>" + _DATE + r")\](?=\s|\[|:)"
    r"|(?P<stamp>" + _DATE + r")(?: (?=- )|(?=\s|:|$))"
    r"|\|? {0,4}(?P<us>" + _US_DATE + r")(?=\s)"
    r"|(?P<clock>\d\d:\d\d:\d\d[.,]\d{1,9})(?=\s)"
    r"|\[(?P<viewer>\d{1,9})\](?= )"
    r"|\[ {0,8}(?P<kernel>\d{1,9}\.\d{3,9})\](?= )"
    r"|\[(?P<weekday>(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\](?= )"
    r"|(?P<logger>\[(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|PID:\d{1,9}|[\w./:<>-]{1,80}:\d{1,6}(?::[\w<>]{1,60})?"
    r"|[\w./]{1,80}@[\w.-]{1,64}|titan|default)\])(?=\s|\[|$)"
    r"|(?P<named>rank \d{1,7}(?: of \d{1,7})? on (?P<named_host>[\w.-]{1,64})): "
    r"|(?P<syslog>(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d)"
    r"(?= [\w.-]{1,64} [\w./-]{1,40}(?:\[\d{1,9}\])?: )"
    r"|(?P<kernel_host>[\w.-]{1,64}) kernel(?:\[\d{1,9}\])?: "
    r"|\[RANK:(?P<axolotl>\d{1,7})\](?= )"
    r"|\[(?:INFO|WARNING|ERROR)\|(?P<nanotron>[\w=|.-]{1,120})\]:?"
    r"|(?P<nccl>(?P<nccl_host>[\w.-]{1,64}):\d{1,9}:\d{1,9}) \[(?P<nccl_gpu>\d{1,3})\](?= )"
    # Slurm's own processes say which node they are on; they are no writers of the run. A program's or a library's
    # name is no host.
    r"|(?:slurmstepd|slurmd)(?:-|\[)(?P<daemon_host>[\w.-]{1,64})\]?: "
    r"|(?!python[\d.]{0,8}:|pip[\d.]{0,8}:|lib[\w.+-]{1,60}\.so|slurm(?:stepd|d|ctld|dbd)\b|srun\b|sbatch\b)"
    r"(?P<host>(?=[\w.-]{0,63}[\d])(?=[\w.-]{0,63}[A-Za-z.])[A-Za-z0-9][\w.-]{0,63}): "
    r"|(?P<python>(?:INFO|WARNING|ERROR|CRITICAL):[\w.]{1,80}:)"
    r"|(?P<dash>- (?:root|[\w.]{1,60}) - (?:INFO|WARNING|ERROR|CRITICAL) -)(?= )"
    r")"
)
# DeepSpeed's logger stands beside every step of many logs: its whole prefix in one go, for speed only.
_DEEPSPEED = re.compile(
    r"(?:(?P<srun>\d{1,7}): )?\[(?P<date>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] \[(?:INFO|WARNING)\] "
    r"\[[\w./-]{1,80}:\d{1,6}:\w{1,60}\] \[(?P<rank>Rank \d{1,7})\](?= [a-z])"
)
_LABELS = (
    "srun",
    "default",
    "rank",
    "mpirun",
    "ray",
    "torchx",
    "host",
    "axolotl",
    "primus",
    "nanotron",
    "nccl_host",
)
_TIMES = ("date", "stamp")
_DIGITS = re.compile(r"\d{1,7}")


class Prefix(NamedTuple):
    """What stood before the text. rank is a *global* rank only when the launcher says so; time is in seconds.

    label tells writers apart: lines of different labels come from different processes. Time stamps carry no
    zone as a rule, so times are only good for differences within one file.
    """

    end: int
    label: str
    rank: int | None
    local_rank: int | None
    host: str | None
    time: float | None


@lru_cache(maxsize=READ_TWICE)
def read(line: str) -> Prefix:
    """Every prefix of a line, whatever their order and number."""
    position = 0
    labels: list[str] = []
    rank = local_rank = None
    host = None
    time = None
    common = _DEEPSPEED.match(line)
    if common is not None:
        position = common.end()
        labels = [x for x in common.group("srun", "rank") if x is not None]
        rank, time = int(common.group("rank")[5:]), seconds(common.group("date"))
    for _ in range(MAX_DEPTH):
        match = _PREFIX.match(line, position)
        if match is None or match.end() == position:
            break
        position = match.end()
        kind = match.lastgroup or ""
        if kind in ("nccl_gpu", "nccl"):
            host, local_rank = match.group("nccl_host"), int(match.group("nccl_gpu"))
            labels.append(host)
            continue
        if kind in ("named", "named_host"):
            rank, host = _number(match.group("named")), match.group("named_host")
            labels.append(f"rank {rank}")
            continue
        if kind == "daemon_host":
            host = match.group(kind)
            continue
        if kind == "kernel_host":
            host = match.group(kind)
            labels.append(host)
            continue
        value = match.group(kind) if kind else ""
        if kind in _LABELS:
            labels.append(value)
        if kind == "rank":
            rank = _number(value)
        elif kind == "compact" and time is None:
            time = seconds(f"{value[:4]}-{value[4:6]}-{value[6:]}")
        elif kind in ("srun", "axolotl", "primus"):
            rank = _number(value.split()[-1]) if rank is None else rank
        elif kind == "mpirun" and rank is None:
            rank = _number(value.split(",")[1])
        elif kind == "default":
            local_rank = _number(value)
        elif kind == "host":
            host = value
        elif kind == "ray" and "ip=" in value:
            host = value.split("ip=")[1].split(",")[0].strip()
        elif kind in _TIMES and time is None:
            time = seconds(value)
        elif kind == "us" and time is None:
            time = _us_seconds(value)
    return Prefix(position, " ".join(labels), rank, local_rank, host, time)


def strip(line: str) -> str:
    """The line without its prefixes."""
    return line[read(line).end :]


def seconds(stamp: str) -> float | None:
    """`2024-04-07 02:11:08.123` and its kin as seconds; None for an impossible date."""
    whole = _whole_seconds(stamp[:19])
    if whole is None:
        return None
    fraction = 0.0
    if len(stamp) > 20 and stamp[19] in ".,":
        digits = _DIGITS.match(stamp, 20)
        fraction = float(f"0.{digits.group()}") if digits else 0.0
    return whole + fraction


@lru_cache(maxsize=1024)
def _whole_seconds(stamp: str) -> int | None:
    year, month, day = int(stamp[0:4]), int(stamp[5:7]), int(stamp[8:10])
    hour, minute, second = int(stamp[11:13]), int(stamp[14:16]), int(stamp[17:19])
    if not (1970 <= year <= 9998 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    return calendar.timegm((year, month, day, hour, minute, second))


def _us_seconds(stamp: str) -> float | None:
    date, _, clock = stamp.partition(" ")
    parts = date.split("/")
    if len(parts) != 3 or len(parts[2]) != 4:
        return None  # no year: not worth guessing one
    return seconds(f"{parts[2]}-{parts[0]}-{parts[1]} {clock}")


def _number(text: str) -> int | None:
    match = _DIGITS.search(text)
    return int(match.group()) if match else None
