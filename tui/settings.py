"""Owns the user's settings of the faces, `settings.toml` beside the profiles: notifications and keys.

[notify]
when = ["start", "fail", "end"]   # of a run
bell = true
desktop = "auto"                  # auto, osc9, osc777 or off: a message that the terminal shows

[keys]
"monitor.cancel" = "ctrl+x"       # names: `gpt-tune keys`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpt_tune.errors import UserError
from gpt_tune.resources import config_dir

When = Literal["start", "fail", "end"]


@dataclass(frozen=True, slots=True)
class Notify:
    """What a run's change of state does beside the words on screen."""

    when: tuple[When, ...] = ("start", "fail", "end")
    bell: bool = True
    desktop: Literal["auto", "osc9", "osc777", "off"] = "auto"


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole file."""

    notify: Notify = field(default_factory=Notify)
    keys: dict[str, str] = field(default_factory=dict)


def path_of() -> Path:
    """Where the settings are."""
    return config_dir() / "settings.toml"


def load() -> Settings:
    """The settings, the defaults where there is no file. UserError names an unknown key with the nearest."""
    path = path_of()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path}: {error}.", "Correct or remove it.") from error
    from gpt_tune import toml
    from gpt_tune.strict import from_dict

    return from_dict(Settings, toml.parse(text, str(path)), str(path))
