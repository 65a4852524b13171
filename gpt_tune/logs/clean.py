"""Owns turning raw log bytes into text that is safe to parse and to show: no control character survives."""

from __future__ import annotations

import re

import numpy as np

# Longer lines are cut before any pattern sees them; 8 KiB holds every known record, glued ones included.
MAX_LINE = 8192
MAX_RAW_LINE = 4 * MAX_LINE  # before escape sequences are taken out

# Every part is bounded, so an unfinished sequence can neither run away nor swallow the line behind it.
_ESCAPE_BODY = (
    rb"(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]?"  # CSI, colours included
    rb"|\][^\x07\x1b\n\r]{0,512}(?:\x07|\x1b\\)"  # OSC with its end: titles, links
    rb"|[PX^_][^\x1b\n\r]{0,512}\x1b\\"  # DCS, SOS, PM, APC with their end
    rb"|[ -/]{1,4}[0-~]|[0-Z\\-~])?"  # character sets and the two-byte ones
)
_ESCAPE = re.compile(rb"\x1b" + _ESCAPE_BODY)
# C0 but tab, line feed and carriage return, and DEL.
_CONTROL = bytes(b for b in range(32) if b not in (9, 10, 13)) + b"\x7f"
# C1, and what would reorder, hide or break a line on screen.
_UNSAFE = re.compile("[\x80-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")
# A C1 CSI is 0x9b on its own or, in UTF-8, the two bytes c2 9b.
_C1_CSI = re.compile(rb"(?:\xc2)?\x9b[0-?]{0,64}[ -/]{0,8}[@-~]?")


# The same as bytes.
_UNSAFE_BYTES = re.compile(
    rb"\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8b\x8e\x8f\xa8-\xae]|\xe2\x81[\xa0-\xa9]|\xef\xbb\xbf|\xef\xbf[\xb9-\xbb]"
)


def is_safe(text: bytes | bytearray, size: int) -> bool:
    """Whether the first `size` bytes, which hold no ASCII control character, hold nothing else to be taken out."""
    return _UNSAFE_BYTES.search(text, 0, size) is None


def clean_bytes(block: bytes) -> bytes:
    """Whole lines without escape sequences and control characters; \\n, \\r and \\t stay, \\r\\n becomes \\n."""
    if b"\x1b" in block:
        block = _ESCAPE.sub(b"", block)
    if not block.isascii() and b"\x9b" in block:
        block = _strip_c1(block)
    block = block.translate(None, _CONTROL)
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    return block


def _strip_c1(block: bytes) -> bytes:
    # 0x9b is also a continuation byte of ordinary UTF-8 letters, so only c2 9b is a control character.
    return _C1_CSI.sub(lambda m: b"" if m.group().startswith(b"\xc2") else m.group(), block)


def decode(raw: bytes) -> str:
    """Clean bytes as text, with what is not UTF-8 replaced and unsafe characters removed."""
    text = raw.decode("utf-8", "replace")
    if not text.isascii():
        text = _UNSAFE.sub("", text)
    return text


def clean_line(raw: bytes | str) -> str:
    """One raw line as safe text of at most MAX_LINE characters, tabs as blanks; of a progress bar, all states."""
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "replace")
    text = decode(clean_bytes(raw[:MAX_RAW_LINE]))
    return text.replace("\r", " ").replace("\n", " ").replace("\t", " ")[:MAX_LINE]


def plain_line(raw: bytes) -> str:
    """The same for a line of a block that cleaning would not change (see scan.Block.plain)."""
    return raw[:MAX_RAW_LINE].decode("utf-8", "replace")[:MAX_LINE]


def split_lines(block: bytes) -> tuple[list[str], set[int]]:
    """A block of whole raw lines as safe text, and the indexes of lines that ended in a carriage return.

    Those are states of a progress bar: each was overwritten on screen by the next.
    """
    if len(block) > MAX_RAW_LINE:
        block = _cut_long_lines(block)
    text = decode(clean_bytes(block))
    if text.endswith("\n"):
        text = text[:-1]
    if "\t" in text:
        text = text.replace("\t", " ")
    lines = text.split("\n")
    transient: set[int] = set()
    if "\r" in text:
        lines, transient = _split_bars(lines)
    if len(text) > MAX_LINE:
        lines = [line if len(line) <= MAX_LINE else line[:MAX_LINE] for line in lines]
    return lines, transient


def _cut_long_lines(block: bytes) -> bytes:
    """The block with every line of more than MAX_RAW_LINE bytes cut, so that no pattern meets a megabyte."""
    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero((data == 10) | (data == 13))
    edges = np.concatenate(([-1], ends, [len(block)]))
    if int(np.diff(edges).max()) <= MAX_RAW_LINE:
        return block
    pieces = []
    for start, stop in zip((edges[:-1] + 1).tolist(), edges[1:].tolist()):
        pieces.append(block[start : min(stop, start + MAX_RAW_LINE)] + block[stop : stop + 1])
    return b"".join(pieces)


def _split_bars(lines: list[str]) -> tuple[list[str], set[int]]:
    out: list[str] = []
    transient: set[int] = set()
    for line in lines:
        if "\r" not in line:
            out.append(line)
            continue
        states = [state for state in line.split("\r") if state.strip()] or [""]
        # What stands behind the last carriage return stays on screen; everything before it was overwritten.
        transient.update(range(len(out), len(out) + len(states) - (not line.endswith("\r"))))
        out.extend(states)
    return out, transient
