"""Token bytes to text that may be shown: characters whole, stop strings never.

Knows nothing of models beyond the bytes of a token. One instance serves one answer.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from specgen.engine.backend import Vocabulary


class TextStream:
    """Turns tokens into text, holding back what later tokens may still change.

    Held back are the bytes of an incomplete UTF-8 character and any tail that may be the beginning of a stop string.
    Bytes that cannot be UTF-8 whatever follows become U+FFFD; a character that the answer's end cuts is dropped.

    Args:
        vocabulary: gives the bytes of each token.
        stop: strings that end the text; the earliest occurrence wins, and the text ends before it.

    Raises:
        ValueError: an empty stop string.
    """

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str] = ()) -> None:
        if "" in stop:
            raise ValueError("a stop string must not be empty")
        self._vocabulary = vocabulary
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self.is_stopped = False

    def push(self, token: int) -> str:
        """Take in one token and return the text that became certain. After a stop string everything is ignored."""
        if self.is_stopped:
            return ""
        self._held += self._decoder.decode(self._vocabulary.token_bytes(token))
        at = min((i for i in map(self._held.find, self._stop) if i >= 0), default=-1)
        if at >= 0:
            self.is_stopped = True
            ready, self._held = self._held[:at], ""
            return ready
        n_ready = len(self._held) - self._n_possible_stop()
        ready, self._held = self._held[:n_ready], self._held[n_ready:]
        return ready

    def finish(self) -> str:
        """The text still held back at the end of the answer; an incomplete character is dropped."""
        ready, self._held = self._held, ""
        self._decoder.reset()
        return ready

    def _n_possible_stop(self) -> int:
        """Length of the longest tail that is the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for n in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-n:]
            if any(stop.startswith(tail) for stop in self._stop):
                return n
        return 0
