"""What followed the end of a history in some texts, by looking everywhere; and texts that repeat themselves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from specgen.drafting import evidence

Texts = Sequence[Sequence[int]]


def random_text(rng: random.Random, n: int, n_vocab: int) -> list[int]:
    return [rng.randrange(n_vocab) for _ in range(n)]


def followers(texts: Texts, context: Sequence[int]) -> list[int]:
    """The tokens after every occurrence of a context, in order."""
    n, context = len(context), list(context)
    return [text[i + n] for text in texts for i in range(len(text) - n) if list(text[i : i + n]) == context]


def longest_match(texts: Texts, history: Sequence[int], max_match: int) -> int:
    """The longest end of the history that something followed."""
    for n in range(min(max_match, len(history)), 0, -1):
        if followers(texts, history[-n:]):
            return n
    return 0


def most_frequent(tokens: Sequence[int]) -> int:
    """Of several the most recent."""
    counts = Counter(tokens)
    return max(counts, key=lambda token: (counts[token], max(i for i, other in enumerate(tokens) if other == token)))


def true_confidence(texts: Texts, history: Sequence[int], n_matched: int, token: int) -> float:
    """The recursion of `confidence`, length by length."""
    estimate = 0.0
    for n in range(1, n_matched + 1):
        followed = followers(texts, history[-n:])
        estimate = (followed.count(token) + evidence._DOUBT * estimate) / (len(followed) + evidence._DOUBT)
    return estimate


class CountingToken(int):
    """A token that counts how often it is looked up; what is linear in time is linear in this."""

    n_lookups = 0

    def __hash__(self) -> int:
        CountingToken.n_lookups += 1
        return int(self)


def periodic(prefix: Sequence[int]) -> int:
    """Says the same seven tokens again and again."""
    return (5, 8, 5, 9, 5, 8, 11)[len(prefix) % 7]


def stuck(prefix: Sequence[int]) -> int:
    """Says one token for ever."""
    return 7


def babbling(prefix: Sequence[int]) -> int:
    """Three tokens in random order."""
    return 1 + random.Random(",".join(map(str, prefix))).randrange(3)


def stammering(prefix: Sequence[int]) -> int:
    """Repeats what it said eleven tokens ago, now and then something new."""
    return babbling(prefix) if len(prefix) < 11 or len(prefix) % 17 == 0 else prefix[-11]


TARGETS = {"periodic": periodic, "stuck": stuck, "babbling": babbling, "stammering": stammering}
