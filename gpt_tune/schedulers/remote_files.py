"""Owns file access at the far end of ssh, by small POSIX shell scripts: nothing need be installed there."""

from __future__ import annotations

import builtins
import errno
import os
import posixpath
import re
import secrets
from dataclasses import dataclass
from shlex import quote

from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.schedulers.commands import Completed
from gpt_tune.schedulers.local_files import HINTS
from gpt_tune.schedulers.ssh import Connection

_SECONDS = 60.0
_MISSING = 44  # our scripts' exit code for "there is no such file"
_CUT = 45  # less arrived than was sent: the line broke on the way
# What strerror says, to errno, for the hints shared with local files.
_REASONS = {os.strerror(number): number for number in HINTS}


@dataclass(frozen=True, slots=True)
class RemoteStat:
    """size in bytes; identity changes when the file was replaced; modified in seconds since the epoch."""

    size: int
    identity: str
    modified: float


class RemoteFiles:
    """Files of a login node's file systems. Every call is one round trip over the existing line."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        folder, name = posixpath.split(path)
        # Our own name, not mktemp's: a second try after a broken line must not leave the first one's file.
        temporary = f"{folder}/.{name[:40]}.{secrets.token_hex(4)}"
        self._do(
            "write", path,
            f"umask 077; t={quote(temporary)}\n"
            f"cat >\"$t\" || {{ rm -f -- \"$t\"; exit 1; }}\n"
            f'[ "$(wc -c <"$t")" -eq {len(data)} ] || {{ rm -f -- "$t"; exit {_CUT}; }}\n'
            f'chmod {mode:o} -- "$t" && {{ sync -- "$t" 2>/dev/null || :; }} && mv -fT -- "$t" {quote(path)} '
            f'|| {{ rm -f -- "$t"; exit 1; }}',
            stdin=data,
        )  # fmt: skip

    def touch(self, path: str, mode: int = 0o600) -> None:
        p = quote(path)
        self._do("create", path, f"[ -e {p} ] || {{ umask {0o777 & ~mode:o}; : >>{p}; }}")

    def make_dir(self, path: str, mode: int = 0o700) -> None:
        # Every new level gets the mode, as for local files.
        levels = [path]
        while (parent := posixpath.dirname(levels[-1])) not in ("", "/", levels[-1]):
            levels.append(parent)
        steps = "\n".join(
            f"[ -d {q} ] || {{ mkdir -m {mode:o} -- {q} || [ -d {q} ] || exit 1; }}"
            for q in map(quote, reversed(levels))
        )
        self._do("create the folder", path, steps)

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        cut = "" if limit is None else f" | head -c {limit}"
        p = quote(path)
        # The first redirection makes the shell itself complain about a missing or unreadable file.
        done = self._do("read", path, f": <{p} || exit 1\ntail -c +{offset + 1} -- {p}{cut}")
        return done.stdout

    def stat(self, path: str) -> RemoteStat | None:
        """A file's size, identity and time of change; None when there is none (or it cannot be seen)."""
        done = self._do(
            "look at", path, f"stat -L -c '%s %d:%i %Y' -- {quote(path)} || exit {_MISSING}", (_MISSING,)
        )
        words = done.text.split()
        return RemoteStat(int(words[0]), words[1], float(words[2])) if len(words) == 3 else None

    def size(self, path: str) -> int | None:
        found = self.stat(path)
        return None if found is None else found.size

    def list(self, path: str) -> builtins.list[str]:
        p = quote(path)
        done = self._do(
            "list", path,
            f"[ -d {p} ] || exit {_MISSING}\nfind -H {p} -mindepth 1 -maxdepth 1 -printf '%f\\0'", (_MISSING,),
        )  # fmt: skip
        return sorted(n.decode("utf-8", "surrogateescape") for n in done.stdout.split(b"\0") if n)

    def expand(self, pattern: str) -> builtins.list[str]:
        """The files that match a pattern with `*`, `?` and `[...]` in its last part."""
        folder, name = posixpath.split(pattern)
        done = self._do(
            "list", folder,
            f"find -H {quote(folder)} -mindepth 1 -maxdepth 1 -name {quote(name)} -printf '%p\\0' || exit {_MISSING}",
            (_MISSING,),
        )  # fmt: skip
        return sorted(n.decode("utf-8", "surrogateescape") for n in done.stdout.split(b"\0") if n)

    def renamed(self, path: str, identity: str) -> str | None:
        """Where the file that stood at `path` under this identity was moved to, in the same folder."""
        folder, name = posixpath.split(path)
        inode = identity.rpartition(":")[2]
        if not inode.isdigit():
            return None
        done = self._do(
            "list", folder,
            f"find -H {quote(folder)} -mindepth 1 -maxdepth 1 -inum {inode} -printf '%f\\0' || exit {_MISSING}",
            (_MISSING,),
        )  # fmt: skip
        names = [n.decode("utf-8", "surrogateescape") for n in done.stdout.split(b"\0") if n]
        return next((f"{folder}/{n}" for n in names if n.startswith(name) and n != name), None)

    def remove(self, path: str) -> None:
        p = quote(path)
        self._do(
            "remove", path,
            f"if [ -d {p} ] && [ ! -L {p} ]; then rmdir --ignore-fail-on-non-empty -- {p}; else rm -f -- {p}; fi",
        )  # fmt: skip

    def set_group(self, path: str, group: str) -> None:
        p, g = quote(path), quote(group)
        try:
            self._do("share", path, f"chgrp -- {g} {p} && chmod g+s -- {p}")
        except SchedulerError:
            raise
        except UserError as error:
            if "invalid group" in error.message:
                raise UserError(
                    f"There is no Unix group {group!r} on {self.connection.target.host}.",
                    "Set site.group to one of `id -Gn` there.",
                ) from error
            raise

    def check_writable(self, path: str) -> None:
        if not path.startswith("/"):
            raise UserError(f"The folder {path!r} is not an absolute path.", "Start it with '/'.")
        probe = f".gpt-tune-{secrets.token_hex(4)}"
        # Only trying tells, and a full disk still makes empty files.
        self._do(
            "write in", path,
            f'd={quote(path)}\nwhile [ ! -e "$d" ] && [ ! -L "$d" ]; do d=$(dirname -- "$d"); done\n'
            f'[ -d "$d" ] || {{ echo "$d: Not a directory" >&2; exit 1; }}\n'
            f'umask 077; echo gpt-tune >"$d/{probe}"; code=$?; rm -f -- "$d/{probe}"; exit $code',
        )  # fmt: skip

    def _do(
        self, action: str, path: str, script: str, expected: tuple[int, ...] = (), stdin: bytes = b""
    ) -> Completed:
        if "\0" in path or "\n" in path:
            raise UserError(f"The path {path!r} holds a line break or NUL.", "Choose another path.")
        done = self.connection.run(f"export LC_ALL=C\n{script}", stdin=stdin, timeout=_SECONDS)
        if done.returncode == _CUT:  # once more: the line broke while the file was on its way
            done = self.connection.run(f"export LC_ALL=C\n{script}", stdin=stdin, timeout=_SECONDS)
        if done.returncode and done.returncode not in expected:
            reason = _reason(done)
            hint = HINTS.get(_REASONS.get(reason, 0), "Check the path.")
            raise UserError(f"Cannot {action} {path} on {self.connection.target.host}: {reason}.", hint)
        return done


def _reason(done: Completed) -> str:
    """The operating system's words at the end of a tool's complaint."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    text = lines[-1] if lines else f"exit code {done.returncode}"
    known = next((r for r in _REASONS if text.endswith(r)), None)
    if known is not None:
        return known
    if re.search(r"no such file|directory nonexistent|cannot open", text, re.IGNORECASE):
        return os.strerror(errno.ENOENT)
    return text.rpartition(": ")[2] if ": " in text and "invalid group" not in text else text
