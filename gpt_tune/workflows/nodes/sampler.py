"""Owns one node's samples: a small program that runs beside a job and appends one line now and then to a file.

Run as a script on the node, standard library only: `python3 -I -S sampler.py FOLDER [--interval S] [--pid N]`.
It reads NVML (or nvidia-smi), /proc and, where it may, the kernel log; it talks to nobody. It ends with the step
it runs in, with process N, when FOLDER/stop appears, or when the file is full.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

MAX_FILE_BYTES = 32 * 1024 * 1024  # weeks of samples; a forgotten sampler fills no disk
SMI_SECONDS = 30.0  # nvidia-smi on a sick node may hang
LOOK_SECONDS = 1.0  # between two looks at whether to end
MIB = 1024 * 1024
XID = re.compile(rb"NVRM: Xid \(PCI:([0-9a-fA-F:.]{1,20})\): (\d{1,4})")
XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError
SMI_FIELDS = "index,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu"
DEVICES = "/dev/nvidia[0-9]*"
NVML_NAMES = ("libnvidia-ml.so.1", "libnvidia-ml.so")


class Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Event(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """NVIDIA's own library: no process is started for a sample."""

    def __init__(self) -> None:
        self._library = _nvml()
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._devices = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
            self._devices.append(device)
        self._events: ctypes.c_void_p | None = ctypes.c_void_p()
        try:
            self._call("nvmlEventSetCreate", ctypes.byref(self._events))
            for device in self._devices:
                self._call("nvmlDeviceRegisterEvents", device, ctypes.c_ulonglong(XID_EVENT), self._events)
        except OSError:
            self._events = None  # not supported here: the kernel log may tell

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise OSError(f"{name}: NVML error {code}")

    def _read(self, name: str, device: ctypes.c_void_p, value: object, *more: object) -> bool:
        with contextlib.suppress(OSError, AttributeError):
            self._call(name, device, *more, ctypes.byref(value))  # type: ignore[arg-type]
            return True
        return False

    def gpus(self) -> list[list[float | None]]:
        """[index, utilisation %, MiB used, MiB in all, watts, Celsius] of each GPU; None where it does not say."""
        return [self._gpu(index, device) for index, device in enumerate(self._devices)]

    def _gpu(self, index: int, device: ctypes.c_void_p) -> list[float | None]:
        use, memory = Utilisation(), Memory()
        milliwatts, celsius = ctypes.c_uint(), ctypes.c_uint()
        used = self._read("nvmlDeviceGetUtilizationRates", device, use)
        sized = self._read("nvmlDeviceGetMemoryInfo", device, memory)
        powered = self._read("nvmlDeviceGetPowerUsage", device, milliwatts)
        warm = self._read("nvmlDeviceGetTemperature", device, celsius, 0)
        return [
            index,
            use.gpu if used else None,
            memory.used // MIB if sized else None,
            memory.total // MIB if sized else None,
            round(milliwatts.value / 1000) if powered else None,
            celsius.value if warm else None,
        ]

    def xids(self) -> list[list[object]]:
        """[seconds since 1970, GPU, Xid] of errors since the last look; any user may see these."""
        found: list[list[object]] = []
        event = Event()
        while self._events is not None and len(found) < 64:
            if self._library.nvmlEventSetWait_v2(self._events, ctypes.byref(event), 0) != 0:
                break
            which = next((i for i, d in enumerate(self._devices) if d.value == event.device), None)
            found.append([int(time.time()), which, int(event.data)])
        return found


def _nvml() -> ctypes.CDLL:
    for name in NVML_NAMES:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise OSError("no NVML here")


class Smi:
    """The nvidia-smi command, where the library cannot be loaded."""

    def __init__(self) -> None:
        if shutil.which("nvidia-smi") is None:
            raise OSError("no nvidia-smi here")

    def gpus(self) -> list[list[float | None]]:
        argv = ["nvidia-smi", f"--query-gpu={SMI_FIELDS}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(argv, capture_output=True, timeout=SMI_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OSError("nvidia-smi gave no answer") from error
        if done.returncode != 0:
            raise OSError("nvidia-smi failed: " + done.stdout.decode("utf-8", "replace")[:200].strip())
        rows = [line.split(",") for line in done.stdout.decode("utf-8", "replace").splitlines()]
        return [[_number(cell) for cell in row] for row in rows[:64] if len(row) == 6]

    def xids(self) -> list[list[object]]:
        return []


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:  # [N/A], ERR!
        return None
    return int(value) if value == value and abs(value) < 1e12 else None


class Kernel:
    """Xids from the kernel's log, where this user may read it; what it held before the sampler began too."""

    def __init__(self, since: float) -> None:
        self._since = since
        try:
            self._log: int | None = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            self._log = None

    def xids(self, limit: int = 20000) -> list[list[object]]:
        found: list[list[object]] = []
        while self._log is not None and limit > 0 and len(found) < 64:
            limit -= 1
            try:
                record = os.read(self._log, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the oldest records were overwritten: go on with what is left
                continue
            except OSError:
                self._log = None
                break
            match = XID.search(record)
            when = _kernel_time(record)
            if match and when >= self._since:
                found.append([int(when), match.group(1).decode("ascii"), int(match.group(2))])
        return found


def _kernel_time(record: bytes) -> float:
    """`6,1234,5678901,-;text`: the third number counts microseconds since the machine started."""
    parts = record.split(b";", 1)[0].split(b",")
    since_boot = int(parts[2]) / 1e6 if len(parts) > 2 and parts[2].isdigit() else 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


def cpu_times() -> tuple[int, int]:
    """(busy, all) clock ticks of the node."""
    with open("/proc/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        ticks = [int(t) for t in file.readline().split()[1:9] if t.isdigit()]
    idle = sum(ticks[3:5])
    return sum(ticks) - idle, sum(ticks)


def memory_mib() -> list[int | None]:
    """[used, all] of the node, MiB; what can be had at once counts as free."""
    found = {}
    with open("/proc/meminfo", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        for line in file:
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                found[name] = int(rest.split()[0]) // 1024
    total, free = found.get("MemTotal"), found.get("MemAvailable")
    return [None if total is None or free is None else total - free, total]


def start_of(pid: int) -> str | None:
    """When a process began (clock ticks since boot); None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")


class Sampler:
    """Takes samples until it is time to end."""

    def __init__(self, folder: str, interval: float, pid: int | None, since: float) -> None:
        self.host = re.sub(r"[^\w.-]", "_", os.environ.get("SLURMD_NODENAME") or socket.gethostname())[:64]
        self.folder, self.interval, self.pid = folder, interval, pid
        self._pid_start = start_of(pid) if pid else None
        self._parent = os.getppid()
        self._kernel = Kernel(since)
        self._problem = ""
        self._source = self._gpu_source()
        self._ticks = cpu_times()

    def _gpu_source(self) -> Nvml | Smi | None:
        there = glob.glob(DEVICES)  # noqa: PTH207
        for kind in (Nvml, Smi):
            with contextlib.suppress(OSError, AttributeError):
                source = kind()
                if there and not source.gpus():
                    self._problem = "The job's step may not see the GPUs of this node."
                return source
        if there:
            self._problem = "This node has NVIDIA GPUs, and neither NVML nor nvidia-smi works."
        return None

    def run(self) -> None:
        path = os.path.join(self.folder, self.host + ".jsonl")  # noqa: PTH118
        out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        while not self._over():
            line = json.dumps(self.sample(), separators=(",", ":")).encode("ascii") + b"\n"
            if os.fstat(out).st_size + len(line) > MAX_FILE_BYTES:
                break
            os.write(out, line)  # one call: a reader never sees half a line of a local file
            wake = time.monotonic() + self.interval
            while time.monotonic() < wake and not self._over():
                time.sleep(min(LOOK_SECONDS, max(0.0, wake - time.monotonic())))
        os.close(out)

    def sample(self) -> dict[str, object]:
        busy, total = cpu_times()
        before = self._ticks
        self._ticks = busy, total
        spent = total - before[1]
        problem, gpus, xids = self._problem, [], self._kernel.xids()
        if self._source is not None:
            try:
                gpus = self._source.gpus()
                xids += self._source.xids()
            except OSError as error:
                problem = str(error)[:200]
        return {
            "node": self.host,
            "time": int(time.time()),
            "cpu": round((busy - before[0]) / spent, 3) if spent > 0 else None,
            "memory": memory_mib(),
            "gpus": gpus,
            "xids": xids,
            "problem": problem,
        }

    def _over(self) -> bool:
        if self.pid is not None and start_of(self.pid) != self._pid_start:
            return True
        if self.pid is None and os.getppid() != self._parent:
            return True  # the step's own process has gone
        return os.path.exists(os.path.join(self.folder, "stop"))  # noqa: PTH110, PTH118


def main(arguments: list[str]) -> int:
    options = dict(zip(arguments[1::2], arguments[2::2]))
    pid = options.get("--pid")
    since = float(options.get("--since", "0"))
    Sampler(arguments[0], float(options.get("--interval", "10")), int(pid) if pid else None, since).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
