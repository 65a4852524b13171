"""Owns where profiles live: shipped starters, the user's own, a project's file, and how they are layered."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_tune import toml
from gpt_tune.errors import UserError, check_given, shown, unknown_name
from gpt_tune.profiles import settings
from gpt_tune.profiles.build import from_dict, migrated, to_dict
from gpt_tune.profiles.files import write_private
from gpt_tune.profiles.schema import Profile
from gpt_tune.resources import config_dir, data_dir, existing_dir, existing_file, path_of

PROJECT_FILE = "gpt-tune.toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One profile on the list. kind: "starter" (shipped) or "own"."""

    name: str
    kind: str
    path: Path
    description: str
    recipe: str


@dataclass(frozen=True, slots=True)
class Layered:
    """A profile with the origin of every setting that is not a default: dotted key -> words."""

    profile: Profile
    origins: Mapping[str, str]


def with_settings(profile: Profile, changes: Iterable[str]) -> Profile:
    """The profile with KEY=VALUE changes applied in order."""
    return settings.with_settings(profile, changes)


def names() -> list[str]:
    """Every profile's name, the user's own first; an own one hides a starter of the same name."""
    own, shipped = _own_paths(), _starter_paths()
    return [*own, *(n for n in shipped if n not in own)]


def entries() -> list[Entry]:
    """The list with what each profile is for. A broken file is listed with its error as description."""
    own, shipped = _own_paths(), _starter_paths()
    listed = [(n, "own", p) for n, p in own.items()]
    listed += [(n, "starter", p) for n, p in shipped.items() if n not in own]
    return [_entry(name, kind, path) for name, kind, path in listed]


def load(name_or_path: str) -> Profile:
    """A profile by name or by the path of a file, with the site's, the user's and the project's layers."""
    return load_layered(name_or_path).profile


def load_layered(name_or_path: str, changes: Iterable[str] = ()) -> Layered:
    """As `load`, with --set changes on top and where each value comes from.

    Lowest first: defaults, a starter, the site's and the user's `defaults.toml`, the user's profile, the
    project's file, a profile given as a path, the command line.
    """
    return _laid(_layers(name_or_path), name_or_path, changes)


def defaults(changes: Iterable[str] = ()) -> Layered:
    """What a new run starts from when no profile is named: the site's, the user's and the project's settings."""
    site, user, project = _files_around(None)
    return _laid(_there([*site, *user, *project]), "the defaults", changes)


def _laid(layers: Iterable[tuple[str, Path]], name: str, changes: Iterable[str]) -> Layered:
    """Layers over one another, lowest first."""
    table: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for words, path in layers:
        data = _read(path)
        from_dict(Profile, data, str(path))  # each layer is checked alone, so that an error names its file
        _overlay(table, migrated(data, str(path)), origins, words, "")
    profile = from_dict(Profile, table, name)
    changes = list(changes)
    for change in changes:
        origins[change.partition("=")[0].strip()] = "command line"
    return Layered(settings.with_settings(profile, changes), origins)


def check_name(name: str) -> None:
    """UserError for a text that is no name for a profile of the user's own."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{shown(name)} is no good profile name.",
            "Use up to 64 letters, digits, '.', '_' and '-', for example gpt-1.3b.",
        )


def name_for(text: str) -> str:
    """A good profile name made of any text, "" when nothing of it can stay."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", text.removesuffix(".toml"))
    return safe.lstrip("._-")[:64].rstrip("._-")


def is_own(name: str) -> bool:
    """Whether the user has a profile of this name already."""
    return name in _own_paths()


def save(profile: Profile, name: str) -> Path:
    """Write a profile of the user's own under this name. UserError for a bad name or a secret in it."""
    check_name(name)
    data = to_dict(profile)
    data["name"] = name
    from_dict(Profile, data, f"profile {name}")
    return write_private(own_path(name), toml.dump(_ordered(data)))


def remove(name: str) -> None:
    """Delete a profile of the user's own."""
    own = _own_paths()
    if name in own:
        own[name].unlink()
        return
    if name in _starter_paths():
        raise UserError(
            f"{name!r} is a shipped starter and cannot be removed.",
            "Save your own under that name to hide it.",
        )
    raise unknown_name("profile", name, own)


def export(name: str, everything: bool = False) -> str:
    """One profile as TOML text for a colleague, layers of this machine left out."""
    profile = from_dict(Profile, _read(find(name)), str(find(name)))
    return toml.dump(_ordered(to_dict(profile, everything)))


def from_text(text: str, name: str) -> Profile:
    """A profile from the text of its file, as an editor left it. UserError for what is wrong in it."""
    return from_dict(Profile, toml.parse(text, f"profile {name}"), f"profile {name}")


def export_to(name: str, path: str) -> Path:
    """Write one profile into a new file for a colleague. UserError for a file that is there already."""
    target = path_of(path).absolute()
    if target.exists():
        raise UserError(f"{target} is there already.", "Name a new file.")
    return write_private(target, export(name))


def import_(path: str, name: str | None = None, overwrite: bool = False) -> Path:
    """Keep a colleague's file as a profile of the user's own, checked first."""
    check_given(path, "the file")
    source = path_of(path)
    profile = from_dict(Profile, toml.load(source), str(source))
    chosen = name or profile.name or source.stem
    if not overwrite and chosen in _own_paths():
        raise UserError(f"A profile {chosen!r} already exists.", "Give another --name, or --overwrite.")
    return save(profile, chosen)


def own_path(name: str) -> Path:
    """Where a profile of the user's own lives, existing or not."""
    return config_dir() / "profiles" / f"{name}.toml"


def find(name_or_path: str) -> Path:
    """The file of a profile: one of the user's own, a starter, or the path of a file."""
    check_given(name_or_path, "the profile")
    own, shipped = _own_paths(), _starter_paths()
    if name_or_path in own:
        return own[name_or_path]
    if name_or_path in shipped:
        return shipped[name_or_path]
    path = existing_file(name_or_path)
    if path is not None:
        return path
    if existing_dir(name_or_path) is not None:
        raise UserError(f"{shown(name_or_path)} is a folder.", "Name the profile's file in it.")
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        raise UserError(
            f"There is no profile file {shown(name_or_path)}.", "`gpt-tune profiles list` shows the names."
        )
    raise unknown_name("profile", name_or_path, [*own, *shipped])


def _layers(name_or_path: str) -> list[tuple[str, Path]]:
    named, own, shipped = find(name_or_path), _own_paths(), _starter_paths()
    site, user, project = _files_around(named)
    if named in own.values():
        order = [*site, *user, (f"profile {name_or_path}", named), *project]
    elif named in shipped.values():
        order = [(f"starter {name_or_path}", named), *site, *user, *project]
    else:
        order = [*site, *user, *project, (str(named), named)]
    return _there(order)


Files = list[tuple[str, Path]]  # words for the origin, and the file


def _there(files: Files) -> Files:
    return [(words, path) for words, path in files if path.is_file()]


def _files_around(named: Path | None) -> tuple[Files, Files, Files]:
    """The site's, the user's and the project's settings, which hold whatever profile is named."""
    site = [("site defaults", p / "gpt-tune" / "defaults.toml") for p in _system_config_dirs()]
    user = [("your defaults", config_dir() / "defaults.toml")]
    project = [
        ("project file", p) for p in [_project_file()] if p and (named is None or p != named.resolve())
    ]
    return site, user, project


def _system_config_dirs() -> list[Path]:
    """Folders of site-wide settings by the XDG specification, least important first."""
    listed = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    return [Path(p) for p in reversed(listed.split(":")) if p.startswith("/")]


def _project_file() -> Path | None:
    """gpt-tune.toml of this folder or the nearest one above it."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        candidate = folder / PROJECT_FILE
        if candidate.is_file():
            return candidate.resolve()
        if folder == Path.home():
            break
    return None


def _overlay(
    table: dict[str, Any], data: Mapping[str, Any], origins: dict[str, str], words: str, prefix: str
) -> None:
    """Lay one table over another, key by key, and note where each value comes from."""
    for key, value in data.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            inner = table.setdefault(key, {})
            _overlay(inner, value, origins, words, f"{dotted}.")
            continue
        table[key] = value
        origins[dotted] = words
    # iterations and tokens exclude each other: the higher layer's choice replaces the lower one's.
    if prefix == "training.":
        for kept, dropped in (("iterations", "tokens"), ("tokens", "iterations")):
            if kept in data and dropped in table and dropped not in data:
                del table[dropped]
                origins.pop(f"training.{dropped}", None)


def _read(path: Path) -> dict[str, Any]:
    return toml.load(path)


def _entry(name: str, kind: str, path: Path) -> Entry:
    try:
        profile = from_dict(Profile, _read(path), str(path))
    except UserError as error:
        return Entry(name, kind, path, f"broken: {error.message}", "")
    return Entry(name, kind, path, profile.description, profile.recipe)


def _ordered(data: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values first, as TOML wants it, with name and schema on top."""
    first = {k: data[k] for k in ("name", "schema") if k in data}
    plain = {k: v for k, v in data.items() if not isinstance(v, Mapping)}
    tables = {k: v for k, v in data.items() if isinstance(v, Mapping)}
    return {**first, **plain, **tables}


def _own_paths() -> dict[str, Path]:
    return _paths(config_dir() / "profiles")


def _starter_paths() -> dict[str, Path]:
    return _paths(data_dir("profiles") / "starters")


def _paths(folder: Path) -> dict[str, Path]:
    return {p.stem: p for p in sorted(folder.glob("*.toml"))}
