"""Owns the names of keys' actions ("monitor.cancel-job") and the user's own keys for them.

A screen's bindings get their names from the screen and from what the footer calls them, so that there is one list:
footer, `?`, palette, `gpt-tune keys` and the user's `[keys]` all come from it.
"""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import iter_modules

from textual.binding import Binding, BindingType
from textual.keys import Keys, _character_to_key
from textual.screen import Screen
from textual.widget import Widget

from gpt_tune.errors import UserError, nearest, shown, unknown_name

_MODIFIERS = ("ctrl", "alt", "shift", "super", "meta", "hyper")
_NAMED = (
    frozenset(k.value for k in Keys)
    | {"enter", "space", "tab", "backspace", "delete"}
    | {_character_to_key(c) for c in string.punctuation}
)
# What a terminal never hands on, or means something else by.
_UNUSABLE = {"ctrl+s": "stops the output", "ctrl+q": "lets the output go on", "ctrl+i": "is Tab", "ctrl+m": "is Enter",
             "ctrl+j": "is a line feed", "ctrl+h": "is Backspace", "ctrl+[": "is Esc"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """One action that a key can be given to. keys: its own, Textual's names with commas."""

    name: str
    keys: str
    what: str


def slug(text: str) -> str:
    """`Cancel job` as `cancel-job`."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def family(cls: type) -> str:
    """What the keys of a widget or window are filed under: `LogPane` under log, `SaveProfile` under save-profile."""
    name = re.sub(r"(Dialog|Window|Pane|View)$", "", cls.__name__) or cls.__name__
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name)


def with_names(owner: str, bindings: Iterable[BindingType]) -> list[BindingType]:
    """A screen's bindings, each with a name where it has none. owner: the class, `ReviewStep`."""
    screen = slug(owner.removesuffix("Step") or owner)
    actions: dict[str, str] = {}
    named: list[BindingType] = []
    for binding in bindings:
        if isinstance(binding, Binding) and binding.id is None and binding.description:
            name = f"{screen}.{slug(binding.description)}"
            while actions.setdefault(name, binding.action) != binding.action:
                name += "-too"  # two actions that the footer calls the same
            binding = replace(binding, id=name)
        named.append(binding)
    return named


def screens() -> list[type]:
    """Every screen and window that keys can be moved on. Imports them all."""
    from tui.app import _SCREENS

    for module in iter_modules(import_module("tui.screens").__path__):
        import_module(f"tui.screens.{module.name}")
    found = [getattr(import_module(module), cls) for module, cls in _SCREENS.values()]
    windows = sorted(_below(import_module("tui.screens.window").Window), key=lambda cls: cls.__name__)
    return [*found, import_module("tui.screens.home").Home, *windows]


def _below(cls: type) -> set[type]:
    """Every class built on one."""
    found: set[type] = set(cls.__subclasses__())
    return found.union(*(_below(sub) for sub in found))


def widgets_of(screen: type) -> list[type]:
    """Widgets with keys of their own that a screen's modules name, and so may show."""
    modules = [sys.modules[cls.__module__] for cls in screen.__mro__ if cls.__module__.startswith("tui.")]
    named = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    ours = [
        cls for cls in dict.fromkeys(named) if cls.__module__.startswith("tui.") and issubclass(cls, Widget)
    ]
    return [cls for cls in ours if _own(cls) and not issubclass(cls, Screen)]


def _own(cls: type) -> list[Binding]:
    return [b for b in cls.__dict__.get("BINDINGS", ()) if isinstance(b, Binding)]


def names_of(screen: type) -> dict[str, Named]:
    """What has a name on one screen: its own keys, those of its widgets, and the app's."""
    from tui.app import GptTune

    found = _names((*screen.__mro__, GptTune))
    for widget in widgets_of(screen):
        for name, named in _names((widget,)).items():
            found.setdefault(name, named)
    return found


def _names(classes: Iterable[type]) -> dict[str, Named]:
    """The names of classes, the nearest first."""
    found: dict[str, Named] = {}
    hidden: set[str] = set()  # keys that a nearer class binds anew
    for one in classes:
        own = _own(one)
        for b in own:
            if b.id and b.key not in hidden:
                found.setdefault(b.id, Named(b.id, b.key, b.tooltip or b.description))
        hidden |= {b.key for b in own}
    return found


def known() -> dict[str, Named]:
    """Every name there is."""
    found: dict[str, Named] = {}
    for screen in screens():
        for name, named in names_of(screen).items():
            found.setdefault(name, named)
    return found


def keymap(wanted: Mapping[str, str], where: str) -> dict[str, str]:
    """The user's keys, checked: names that exist, keys that a terminal has, no two actions of a screen on one key."""
    names = known()
    checked: dict[str, str] = {}
    for name, keys in wanted.items():
        if name not in names:
            raise unknown_name("key name", name, names, where)
        checked[name] = ",".join(_checked(part, name, where) for part in keys.split(","))
    for screen in screens() if checked else ():
        _refuse_clashes(names_of(screen), checked, where)
    return checked


def _checked(text: str, name: str, where: str) -> str:
    """One key in Textual's words."""
    word = text.strip() if text.strip() else text
    *modifiers, key = word.split("+") if len(word) > 1 else [word]
    if len(key) == 1 and key.isprintable() and key != " ":
        key = key if modifiers or key.isalnum() else _character_to_key(key)
    elif key.strip() == "" or key.lower() not in _NAMED:
        close = nearest(key, _NAMED) if key.strip() else None
        hint = (
            f"Did you mean {close}?"
            if close
            else "Write a character, or such as ctrl+x, f5, space, enter, pageup."
        )
        raise UserError(f"{name} in {where}: there is no key {shown(word)}.", hint)
    else:
        key = key.lower()
    wrong = next((m for m in modifiers if m not in _MODIFIERS), None)
    if wrong is not None:
        raise UserError(
            f"{name} in {where}: {shown(wrong)} is no modifier.", f"Use {', '.join(_MODIFIERS[:3])}."
        )
    whole = "+".join([*modifiers, key])
    if whole in _UNUSABLE:
        raise UserError(
            f"{name} in {where}: {whole} {_UNUSABLE[whole]} in a terminal.",
            "Choose another key, such as ctrl+x.",
        )
    return whole


def _refuse_clashes(names: Mapping[str, Named], wanted: Mapping[str, str], where: str) -> None:
    """UserError when a key that was given away would hide another action of the same screen.

    Keys that two share from the start (Enter of a list and of its page) are meant to: the nearer one counts.
    """
    taken: dict[str, str] = {}
    for name in sorted(names, key=lambda n: n in wanted):  # those with their own keys first
        for key in wanted.get(name, names[name].keys).split(","):
            other = taken.setdefault(key, name)
            shared = key in names[name].keys.split(",") and key in names[other].keys.split(",")
            if other != name and name in wanted and not shared:
                raise UserError(
                    f"{name} in {where}: {key} is the key of {other} already.",
                    f"Give {other} another key too, or choose another one.",
                )


def rows(wanted: Mapping[str, str]) -> Sequence[Named]:
    """Every name with the keys it has now, by screen."""
    return [
        replace(n, keys=wanted.get(n.name, n.keys)) for n in sorted(known().values(), key=lambda n: n.name)
    ]
