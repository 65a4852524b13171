"""Owns file access on this machine (and whatever file systems it has mounted)."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpt_tune.errors import UserError

HINTS = {
    errno.ENOSPC: "Free some space, or choose a run folder on another file system.",
    errno.EDQUOT: "Your quota is used up: delete something, or choose another run folder.",
    errno.EACCES: "Choose a folder that you may write to.",
    errno.EPERM: "Choose a folder that you may write to.",
    errno.EROFS: "That file system is read-only: choose another folder.",
    errno.ENOTDIR: "A part of that path is a file, not a folder.",
    errno.EEXIST: "There is a file where a folder is needed.",
    errno.ENAMETOOLONG: "Shorten the path.",
}


@contextmanager
def _in_words(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = HINTS.get(error.errno or 0, "Check the path.")
        raise UserError(f"Cannot {action} {path}: {error.strerror or error}.", hint) from error


class LocalFiles:
    """Files through the operating system."""

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        target = Path(path)
        with _in_words("write", path):
            descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(data)
                    os.fchmod(stream.fileno(), mode)
                    stream.flush()
                    os.fsync(stream.fileno())
                Path(temporary).replace(target)
            finally:
                Path(temporary).unlink(missing_ok=True)  # there is none once it has taken the file's place

    def touch(self, path: str, mode: int = 0o600) -> None:
        with _in_words("create", path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, mode))

    def make_dir(self, path: str, mode: int = 0o700) -> None:
        with _in_words("create the folder", path):
            # Every new level gets the mode: makedirs alone gives it to the last one only.
            for folder in reversed([Path(path), *Path(path).parents]):
                if not folder.is_dir():
                    folder.mkdir(mode=mode, exist_ok=True)
                    folder.chmod(mode)

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        with _in_words("read", path), Path(path).open("rb") as stream:
            stream.seek(offset)
            return stream.read(-1 if limit is None else limit)

    def size(self, path: str) -> int | None:
        try:
            return Path(path).stat().st_size
        except OSError:
            return None

    def list(self, path: str) -> builtins.list[str]:
        try:
            return sorted(p.name for p in Path(path).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise UserError(f"Cannot list {path}: {error.strerror}.", "Check its permissions.") from error

    def remove(self, path: str) -> None:
        target = Path(path)
        try:
            if target.is_dir() and not target.is_symlink():
                target.rmdir()
            else:
                target.unlink(missing_ok=True)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT, errno.ENOTDIR):
                raise UserError(f"Cannot remove {path}: {error.strerror}.", "Remove it by hand.") from error

    def set_group(self, path: str, group: str) -> None:
        try:
            with _in_words("share", path):
                shutil.chown(path, group=group)
                Path(path).chmod(Path(path).stat().st_mode | stat.S_ISGID)
        except LookupError as error:
            raise UserError(
                f"There is no Unix group {group!r} here.", "Set site.group to one of `id -Gn`."
            ) from error

    def check_writable(self, path: str) -> None:
        folder = Path(path)
        if not folder.is_absolute():
            raise UserError(f"The folder {path!r} is not an absolute path.", "Start it with '/'.")
        existing = next(p for p in [folder, *folder.parents] if os.path.lexists(p))
        action = "write in" if existing == folder else f"create {path} in"
        with _in_words(action, str(existing)):
            if not existing.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            # Only trying tells: root, ACLs and network file systems make access() unreliable.
            descriptor, probe = tempfile.mkstemp(prefix=".gpt-tune-", dir=existing)
            try:
                os.write(descriptor, b"gpt-tune")  # a full disk still makes empty files
            finally:
                os.close(descriptor)
                Path(probe).unlink()
