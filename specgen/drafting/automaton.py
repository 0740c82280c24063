"""A suffix automaton that grows with a text and counts: where has the end of this text stood before, and what followed?

A state is a set of strings that end at the same positions of the text, so it has one count and one set of followers for
strings of several lengths. There are at most two states per token, and taking in a token is amortised O(1) plus a walk
over the states of its contexts, of which there are at most `max_match`.

Source: Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text", Theor. Comput. Sci. 40.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specgen.drafting.evidence import MAX_MATCH, confidence

MAX_TOKENS = 1 << 17
"""About 65 MB of states."""

_ROOT = 0


class SuffixAutomaton:
    """All substrings of a growing text, with exact counts for those of up to `max_match` + 1 tokens.

    The counts of longer strings are left alone: a text of one repeated token would have to change as many of them with
    every token as it has tokens.

    Args:
        max_match: longest context, at least 1.
        max_tokens: later tokens are matched, but no longer learned: the text up to there keeps answering.
    """

    def __init__(self, max_match: int = MAX_MATCH, max_tokens: int = MAX_TOKENS) -> None:
        self._n_tokens = 0  # learned
        self._max_match = max_match
        self._max_tokens = max_tokens
        self._length = [0]  # of a state's longest string
        self._link = [-1]  # the state of its longest end that is not in it
        self._next: list[dict[int, int]] = [{}]
        self._count = [0]
        self._last_end = [0]
        self._favourite = [-1]  # the token that followed most often, of several the most recent
        self._whole = _ROOT  # the state of the whole text
        self._here = (_ROOT, 0)  # the state of its last `max_match` tokens, and how many they are

    @property
    def context(self) -> LiveContext:
        """The end of the text. Valid until the next `append`."""
        return self._settled(*self._here)

    def append(self, token: int) -> None:
        """Take in the next token of the text."""
        if self._n_tokens < self._max_tokens:
            self._extend(token)
            self._count_after(self._here[0], token)
        self._here = self._step(*self._here, token)

    def _extend(self, token: int) -> None:
        """Blumer's step: a state for the whole text, and perhaps one split off from another."""
        self._n_tokens += 1
        new = self._add_state(self._n_tokens, {})
        state = self._whole
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        self._link[new] = self._strict_target(state, token) if state >= 0 else _ROOT
        self._whole = new

    def _strict_target(self, state: int, token: int) -> int:
        """Where `token` leads from `state`, split so that no longer strings share the state."""
        target = self._next[state][token]
        length = self._length[state] + 1
        if self._length[target] == length:
            return target
        clone = self._add_state(length, dict(self._next[target]), self._count[target], self._favourite[target])
        self._link[clone] = self._link[target]
        self._link[target] = clone
        while state >= 0 and self._next[state].get(token) == target:
            self._next[state][token] = clone
            state = self._link[state]
        return clone

    def _add_state(self, length: int, targets: dict[int, int], count: int = 0, favourite: int = -1) -> int:
        self._length.append(length)
        self._link.append(-1)
        self._next.append(targets)
        self._count.append(count)
        self._last_end.append(0)  # it is the end of the text, and is counted next
        self._favourite.append(favourite)
        return len(self._length) - 1

    def _count_after(self, state: int, token: int) -> None:
        """Count `token` after the string of `state` and after each of that string's ends."""
        targets, count, favourite = self._next, self._count, self._favourite
        counted = -1
        while state >= 0:
            target = targets[state][token]
            if target != counted:  # the contexts of several states may lead to one
                counted = target
                count[target] += 1
                self._last_end[target] = self._n_tokens
            rival = favourite[state]
            if rival != token and (rival < 0 or count[target] >= count[targets[state][rival]]):
                favourite[state] = token
            state = self._link[state]

    def _step(self, state: int, n_matched: int, token: int) -> tuple[int, int]:
        """The longest end of a context and one more token that is in the text."""
        while token not in self._next[state]:
            state = self._link[state]
            if state < 0:
                return _ROOT, 0
            n_matched = self._length[state]
        state = self._next[state][token]
        n_matched = min(n_matched + 1, self._max_match)
        while self._length[self._link[state]] >= n_matched:
            state = self._link[state]
        return state, n_matched

    def _settled(self, state: int, n_matched: int) -> LiveContext:
        """The longest end of a context that was followed by something."""
        while state > _ROOT and not self._n_followed(state):
            state = self._link[state]
            n_matched = self._length[state]
        return LiveContext(self, state, n_matched)

    def _n_followed(self, state: int) -> int:
        """Occurrences of a state's strings, but for one at the very end of the text."""
        return self._count[state] - (self._last_end[state] == self._n_tokens)

    def _evidence(self, state: int, n_matched: int, token: int) -> Iterator[tuple[int, int, int]]:
        while state > _ROOT:
            shorter = self._link[state]
            n_agreeing = self._count[self._next[state][token]]
            yield n_agreeing, self._n_followed(state), n_matched - self._length[shorter]
            state, n_matched = shorter, self._length[shorter]


@dataclass(frozen=True, slots=True)
class LiveContext:
    """A place in the text of a suffix automaton; valid until that grows. See `Context`.

    Attributes:
        text: what was read so far.
        state: of the matched tokens.
        n_matched: how many they are.
    """

    text: SuffixAutomaton
    state: int
    n_matched: int

    def guess(self) -> tuple[int, float] | None:
        """What followed most often, the most recent of several, with its confidence."""
        if self.state == _ROOT:
            return None
        token = self.text._favourite[self.state]
        return token, confidence(self.text._evidence(self.state, self.n_matched, token))

    def after(self, token: int) -> LiveContext:
        """The context one token on."""
        return self.text._settled(*self.text._step(self.state, self.n_matched, token))
