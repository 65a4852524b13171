"""Owns the command palette: everything the keys of a screen do, by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider

from tui.screens.dialogs import OBVIOUS
from tui.widgets.keybar import binding_words, key_words

if TYPE_CHECKING:
    from textual.dom import DOMNode


class KeyCommands(Provider):
    """What the keys of the current screen do, so that nothing needs to be remembered."""

    def _commands(self) -> list[tuple[str, str, str, DOMNode]]:
        """(name, help, action, where it is bound) of each action that works now, once."""
        found: dict[str, tuple[str, str, str, DOMNode]] = {}
        for node, binding, enabled, tip in self.screen.active_bindings.values():
            if (
                enabled
                and binding.description
                and not binding.system
                and not binding.action.startswith(OBVIOUS)
            ):
                words = (
                    f"{tip or binding.tooltip or binding.description} (key: {key_words(self.app, binding)})"
                )
                name = binding_words(self.screen, binding) or binding.description
                found.setdefault(binding.action, (name, words, binding.action, node))
        return list(found.values())

    async def discover(self) -> Hits:
        for name, words, action, node in self._commands():
            yield DiscoveryHit(name, partial(self.app.run_action, action, node), help=words)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, words, action, node in self._commands():
            score = matcher.match(name)
            if score > 0:
                yield Hit(
                    score, matcher.highlight(name), partial(self.app.run_action, action, node), help=words
                )
