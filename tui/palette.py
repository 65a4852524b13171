"""Owns the command palette: everything the keys of a screen do, by name, what is likeliest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider

from tui.screens.dialogs import OBVIOUS
from tui.widgets.keybar import ORDER, binding_words, key_words


@dataclass(frozen=True, slots=True)
class Command:
    """One line of the palette: its name, what it does and by which key, and doing it."""

    name: str
    words: str
    run: Callable[[], Any]


class KeyCommands(Provider):
    """What the keys of the current screen do, so that nothing needs to be remembered; then what works everywhere."""

    def commands(self) -> list[Command]:
        """Those of the footer first, in its order; then the other keys of the screen; then the app's own."""
        found: dict[str, tuple[tuple[bool, float], Command]] = {}
        for node, binding, enabled, tip in self.screen.active_bindings.values():
            if (
                enabled
                and binding.description
                and not binding.system
                and not binding.action.startswith(OBVIOUS)
            ):
                key = key_words(self.app, binding)
                words = f"{tip or binding.tooltip or binding.description} (key: {key})"
                name = binding_words(self.screen, binding) or binding.description
                run = partial(self.app.run_action, binding.action, node)
                place = (not binding.show, ORDER.get(key, 0))
                found.setdefault(binding.action, (place, Command(name, words, run)))
        keys = [command for _, command in sorted(found.values(), key=lambda item: item[0])]
        names = {command.name for command in keys}
        system = [Command(c.title, c.help, c.callback) for c in self.app.get_system_commands(self.screen)]
        return [*keys, *(c for c in system if c.name not in names)]

    async def discover(self) -> Hits:
        for command in self.commands():
            yield DiscoveryHit(command.name, command.run, help=command.words)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self.commands():
            score = max(matcher.match(command.name), matcher.match(command.words) / 2)
            if score > 0:
                yield Hit(score, matcher.highlight(command.name), command.run, help=command.words)
