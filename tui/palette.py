"""Owns the command palette: every binding of the screen, by name, plus the app's own commands."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from tui.widgets.keybar import key_words


class KeyCommands(Provider):
    """What the keys of the current screen do, so that nothing needs to be remembered."""

    def _commands(self) -> list[tuple[str, str, str]]:
        found: dict[str, tuple[str, str, str]] = {}
        for _, binding, enabled, tip in self.screen.active_bindings.values():
            if enabled and binding.description and not binding.system:
                key = key_words(self.app, binding)
                found.setdefault(
                    binding.action,
                    (binding.description, f"{tip or binding.description}  [{key}]", binding.key),
                )
        return list(found.values())

    async def discover(self) -> Hits:
        for name, help_text, key in self._commands():
            yield DiscoveryHit(name, partial(self.app.simulate_key, key), help=help_text)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, help_text, key in self._commands():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, matcher.highlight(name), partial(self.app.simulate_key, key), help=help_text)
