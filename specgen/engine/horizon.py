"""What draft lengths are worth in one round: expected tokens - λ · time, over all lengths and not the next token only.

λ is the rate, in tokens per second, that can be had elsewhere: then time is worth exactly what it could earn (the
average-reward criterion of renewal theory). v(n) jumps from one row to two and may fall again later, so a draft may
stop before a cliff and go on to a dip behind it.

Asking for one more token costs a draft step and tells how sure the draft is of it; the draft can stop then. So what is
to come is weighed over the acceptances that the next token may turn out to have, not over their mean.

Sources: Leviathan et al. 2023, arXiv:2211.17192, for expected tokens, here with a measured v(n) instead of v = 1;
SpecDec++, arXiv:2405.19715, for stopping by predicted rejection.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Horizon:
    """The lengths of one round.

    Args:
        verify_s: (limit + 1,) seconds of a target pass that verifies m drafted tokens, m + 1 rows.
        step_s: seconds of a token that is asked for.
        outlook: acceptances that such a token may have, equally likely.
        rate: λ, tokens per second.
        ask_limit: longest draft that ends in a token that was asked for.
    """

    def __init__(
        self, verify_s: Sequence[float], step_s: float, outlook: Sequence[float], rate: float, ask_limit: int
    ) -> None:
        self.verify_s = verify_s
        self.step_s = step_s
        self.rate = rate
        self.typical = sum(outlook) / len(outlook)
        self._ask_limit = ask_limit
        runs = np.cumsum(self.typical ** np.arange(len(verify_s)))
        self._ahead = np.outer(outlook, runs)  # (outlook, limit + 1): tokens from the next one on, if it is reached
        self._spent = rate * (np.asarray(verify_s) + step_s * np.arange(len(verify_s)))  # by length, all asked for

    def gain(self, n: int, expected: float, survival: float) -> float:
        """How much more a round is worth that asks for a token after n drafted ones than one that sends these."""
        best = self.worth(expected, n)
        return self.asking(n, expected, survival, best) - best

    def worth(self, expected: float, m: int) -> float:
        """What a round is worth that sends m drafted tokens and is expected to yield `expected`, drafting excluded."""
        return expected - self.rate * self.verify_s[m]

    def asking(self, n: int, expected: float, survival: float, best: float) -> float:
        """What a round is worth that asks for one more token, and for as many after it as then pay.

        Args:
            n: tokens drafted.
            expected: tokens that sending all of them yields.
            survival: probability that all of them are accepted.
            best: what the best prefix of them is worth.
        """
        if self._ask_limit <= n:
            return float("-inf")
        spent = self._spent[n + 1 : self._ask_limit + 1] - (n + 1) * self.rate * self.step_s
        ahead = (survival * self._ahead[:, : len(spent)] - spent).max(axis=1)
        return float(np.maximum(best, expected + ahead).sum()) / len(ahead) - self.rate * self.step_s


def best_fixed(verify_s: Sequence[float], step_s: float, acceptance: float) -> tuple[float, int]:
    """The best constant draft length, each token accepted with the same probability.

    Returns:
        Its tokens per second, and the length; 0 is plain decoding.
    """
    best, survival, expected = (0.0, 0), 1.0, 1.0
    for m, seconds in enumerate(verify_s):
        best = max(best, (expected / (m * step_s + seconds), m))
        survival *= acceptance
        expected += survival
    return best
