"""Random programs as exact distributions: every branch of every random number is followed, with its probability.

A program asks for uniform random numbers and compares them, with thresholds that only it knows. So a number is handed
out undecided: it is an interval, and each comparison that cuts the interval takes first one side, then the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import TypeVar

from specgen.engine.verify import Uniform

Result = TypeVar("Result", bound=Hashable)


def distribution_of(program: Callable[[Uniform], Result]) -> dict[Result, float]:
    """The probability of everything that `program(uniform)` can return, to rounding."""
    found: dict[Result, float] = defaultdict(float)
    path = _Path([])
    while True:
        result = program(path.uniform)
        found[result] += path.prob
        choices = path.choices
        while choices and not choices[-1]:
            choices.pop()
        if not choices:
            return dict(found)
        path = _Path([*choices[:-1], False])


class _Path:
    """One way through a program: the given choices, then yes to every question."""

    def __init__(self, choices: list[bool]) -> None:
        self.choices = choices
        self.prob = 1.0
        self._n_made = 0

    def uniform(self) -> _Undecided:
        return _Undecided(self, 0.0, 1.0)

    def choose(self, chance: float) -> bool:
        if self._n_made == len(self.choices):
            self.choices.append(True)
        choice = self.choices[self._n_made]
        self._n_made += 1
        self.prob *= chance if choice else 1.0 - chance
        return choice


class _Undecided:
    """A number in [low, high) about which no more is known; compares with floats, also inside `np.searchsorted`."""

    def __init__(self, path: _Path, low: float, high: float) -> None:
        self._path, self._low, self._high = path, low, high

    def __mul__(self, factor: float) -> _Undecided:
        return _Undecided(self._path, self._low * factor, self._high * factor)

    def __lt__(self, bound: float) -> bool:
        if bound is self:  # how numpy looks for NaN
            return False
        if not self._low < bound < self._high:
            return self._high <= bound
        if self._path.choose((bound - self._low) / (self._high - self._low)):
            self._high = bound
            return True
        self._low = bound
        return False

    def __gt__(self, bound: float) -> bool:
        return bound is not self and not self < bound  # they are equal with probability zero
