"""Drafting from all that was said before: the prompt, the answer so far, and perhaps earlier texts.

Where the history ends like some place before, the token that followed there most often is the guess, and so on from
there; long matches and agreement among several of them make it confident.

Source: the idea is SuffixDecoding's, arXiv:2411.04975, which keeps suffix trees of the prompt and of earlier outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from specgen.drafting.automaton import SuffixAutomaton
from specgen.drafting.corpus import CorpusContext, CorpusIndex
from specgen.drafting.evidence import MAX_MATCH, Context
from specgen.drafting.offering import OfferingDrafter
from specgen.types import Proposal

NAME = "suffix"

_LEAST_SURVIVAL = 0.02
"""A guess that is reached less often than this is not worth a row."""


class SuffixDrafter(OfferingDrafter):
    """Offers what followed the longest match, in the live text or in a corpus; where they tie, in the live text.

    Args:
        corpus: earlier texts; None for the live text alone.
        clock: seconds.
    """

    def __init__(self, corpus: CorpusIndex | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(NAME, clock)
        self._corpus = corpus
        self._forget()

    def _forget(self) -> None:
        self._live = SuffixAutomaton()
        self._in_corpus: CorpusContext | None = self._corpus.root if self._corpus else None

    def _take_in(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._live.append(token)
        if self._in_corpus:
            for token in tokens[-MAX_MATCH:]:  # older ones are outside the longest context
                self._in_corpus = self._in_corpus.after(token)

    def _guess(self, n: int) -> list[Proposal]:
        contexts: list[Context] = [self._live.context, *([self._in_corpus] if self._in_corpus else [])]
        made: list[Proposal] = []
        survival = 1.0
        while len(made) < n:
            guess = max(contexts, key=lambda context: context.n_matched).guess()
            survival *= guess[1] if guess else 0.0
            if guess is None or survival < _LEAST_SURVIVAL:
                break
            made.append(Proposal(guess[0], NAME, guess[1]))
            contexts = [context.after(guess[0]) for context in contexts]
        return made
