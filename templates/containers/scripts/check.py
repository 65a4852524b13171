"""Proves that an image is what its files say, without a GPU. Prints a line a check; exit code 1 if one fails.

check.py [--plugin] [--nccl VERSION] [--constraints FILE] [--imports NAME...]
"""

import argparse
import ctypes
import importlib
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

# The driver's own libraries: the host puts them into the container when it starts.
FROM_HOST = ("libcuda.so.1", "libnvidia-ml.so.1")


def output_of(*words):
    """What a program prints, or "" when it is missing or fails."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def plugin_problem():
    """Why NCCL would not use the plugin; "" when it would."""
    match = re.search(r"^\s*libnccl-net\.so\b.*=>\s*(\S+)", output_of("ldconfig", "-p"), re.MULTILINE)
    if match is None:
        return "the loader knows no libnccl-net.so: NCCL would use TCP sockets"
    path = match.group(1)
    missing = re.findall(r"^\s*(\S+) => not found", output_of("ldd", path), re.MULTILINE)
    missing = [name for name in missing if name not in FROM_HOST]
    if missing:
        return f"{path} needs {', '.join(missing)}, which this image lacks"
    try:
        known = re.search(rb"ncclNet(?:Plugin|_v)\w*", Path(path).read_bytes())
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if known is None:
        return f"{path} is no NCCL network plugin"
    print(f"ok: NCCL plugin {path}; {output_of('fi_info', '--version').splitlines()[:1] or 'no fi_info'}")
    return ""


def nccl_problem(wanted):
    """Why the NCCL that programs load is not the one asked for. wanted "": any will do."""
    number = ctypes.c_int()
    try:
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError) as error:
        return f"NCCL cannot be loaded: {error}"
    code = number.value
    found = f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    if wanted and found != wanted:
        return f"programs load NCCL {found}, and {wanted} was asked for"
    print(f"ok: NCCL {found}")
    return ""


def constraint_problem(path):
    """Which protected package was replaced."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    kept = dict(line.split("==", 1) for line in lines if "==" in line)
    for name, version in kept.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "none"
        if found != version:
            return f"{name} {version} of the base image was replaced by {found}"
    print("ok:", ", ".join(f"{n} {v}" for n, v in kept.items()), "as in the base image")
    return ""


def import_problem(name):
    """Why a package cannot be imported."""
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        return f"import {name}: {error}"
    print(f"ok: {name} {getattr(module, '__version__', '')}")
    return ""


def main():
    """Run every check that was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", action="store_true")
    parser.add_argument("--nccl")
    parser.add_argument("--constraints")
    parser.add_argument("--imports", nargs="*", default=[])
    options = parser.parse_args()
    problems = [plugin_problem()] if options.plugin else []
    if options.nccl is not None:
        problems.append(nccl_problem(options.nccl))
    if options.constraints:
        problems.append(constraint_problem(options.constraints))
    problems += [import_problem(name) for name in options.imports]
    problems = [p for p in problems if p]
    for problem in problems:
        print(f"FAIL: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
