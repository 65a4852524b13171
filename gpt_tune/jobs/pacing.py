"""Owns when a cluster is asked next: at the engine's pace, for whoever looks, with the call rate as a figure."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Collection

from gpt_tune.jobs import polling


class Budget:
    """The requests that a cluster's controller got in the background: never more than REQUESTS_A_MINUTE in any minute.

    clock: seconds that only go forward. told: requests made because a file told of a change. These leave room for the
    next poll of all runs, however much the files tell.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: deque[tuple[float, int, bool]] = deque()

    def spend(self, requests: int, told: bool = False) -> None:
        self._spent.append((self._clock(), requests, told))

    def free_at(self, requests: int, told: bool = False) -> float:
        """From when on so many may be sent, on the clock; in the past when they may be sent now."""
        now = self._clock()
        while self._spent and now - self._spent[0][0] >= polling.WINDOW_SECONDS:
            self._spent.popleft()
        at = _free_at(requests, polling.REQUESTS_A_MINUTE, [(at, n) for at, n, _ in self._spent])
        if not told:
            return at
        return max(
            at,
            _free_at(requests, polling.TOLD_A_MINUTE, [(at, n) for at, n, by_file in self._spent if by_file]),
        )

    def allows(self, requests: int, told: bool = False) -> bool:
        return self.free_at(requests, told) <= self._clock()


def _free_at(requests: int, limit: int, spent: list[tuple[float, int]]) -> float:
    left, at = limit - sum(n for _, n in spent), float("-inf")
    for spent_at, number in spent:  # oldest first: as each leaves the minute, there is room for more
        if left >= requests:
            break
        left, at = left + number, spent_at + polling.WINDOW_SECONDS
    return at


class Pacer:
    """One for each screen or command that follows jobs of one cluster. It asks nothing itself.

    Never more than polling.POLLS_A_MINUTE in any minute, but for the few quick ones after something the user did.
    clock: seconds that only go forward. chance: 0..1. budget: shared with whoever else asks that cluster.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random,
        budget: Budget | None = None,
    ) -> None:  # fmt: skip
        self.budget = budget or Budget(clock)
        self._clock = clock
        self._chance = chance
        self._due: float | None = clock()  # the first look
        self._quick = 0
        self._forward = False  # whether a file told that something changed
        self._files_tell = False
        self._failures = 0
        self._answered = self._changed = clock()
        self._calls: deque[float] = deque(maxlen=600)

    # -- what happened ----------------------------------------------------------------------------
    def acted(self) -> None:
        """The user did something: ask at once, and a few times quickly."""
        self._quick = polling.QUICK_POLLS
        self._failures = 0
        self._due = self._clock()

    def hinted(self) -> None:
        """A file says that something changed (a job began or ended): ask as soon as the pace allows."""
        if self._due is not None:
            self._forward = True

    def polled(
        self, states: Collection[str], *, scheduler: str = "slurm", calls: int = 0, changed: bool = False,
        failed: bool = False, visible: bool = True, files_tell: bool = False,
    ) -> None:  # fmt: skip
        """A poll is over. states: of the runs that are still active. calls: commands sent to the controller, 0 when
        somebody else's answer was good enough."""
        now = self._clock()
        if calls and not self._quick:
            self.budget.spend(polling.POLL_REQUESTS)
        self._quick = max(0, self._quick - 1)
        self._forward = False
        self._files_tell = files_tell
        self.count(calls)
        self._failures = self._failures + 1 if failed else 0
        if not failed:
            self._answered = now
        if changed:
            self._changed = now
        wait = polling.refresh_interval(
            states,
            scheduler=scheduler,
            visible=visible,
            quick_left=self._quick,
            unchanged_seconds=now - self._changed,
            failures=self._failures,
            jitter=self._chance(),
            files_tell=files_tell,
        )
        self._due = None if wait is None else now + wait

    def count(self, calls: int) -> None:
        """Commands that were sent to the controller, for the rate on screen."""
        self._calls.extend([self._clock()] * calls)

    # -- what follows -----------------------------------------------------------------------------
    @property
    def due_at(self) -> float | None:
        """When to ask next, on the clock; None while nothing is active."""
        if self._due is None or self._quick:
            return self._due
        due = self._clock() if self._forward else self._due
        return max(due, self.budget.free_at(polling.POLL_REQUESTS))

    @property
    def due(self) -> bool:
        due = self.due_at
        return due is not None and self._clock() >= due

    @property
    def max_age_seconds(self) -> float:
        """How old an answer that another gpt-tune of this user got may be."""
        if self._quick:
            return 0.0
        if self._forward:
            return polling.HINT_SHARED_SECONDS
        # Two that follow one cluster take turns by it, so that together they ask no more than one would.
        return polling.shared_seconds(self._files_tell)

    @property
    def calls_last_minute(self) -> int:
        """Commands sent to the controller in the last minute: for the screen."""
        now = self._clock()
        return sum(now - at < polling.WINDOW_SECONDS for at in self._calls)

    @property
    def silent_seconds(self) -> float:
        """How long there has been no answer; 0 while there is one."""
        return self._clock() - self._answered if self._failures else 0.0
