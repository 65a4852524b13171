"""Writes pip constraints that keep the base image's torch and what was built with it.

protect.py FILE
"""

import importlib.metadata
import re
import sys
from pathlib import Path

KEPT = re.compile(r"torch|torchvision|torchaudio|triton|pytorch-triton|flash-attn|transformer-engine.*|apex")


def constraints():
    """Lines of a constraints file, one for each protected package that is installed."""
    lines = set()
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if KEPT.fullmatch(name):
            lines.add(f"{name}=={distribution.version}")
    return sorted(lines)


def main():
    """Write the file; fail when there is no torch to protect."""
    lines = constraints()
    if not any(line.startswith("torch==") for line in lines):
        sys.exit("protect.py: this base image has no torch")
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("kept:", ", ".join(lines))


if __name__ == "__main__":
    main()
