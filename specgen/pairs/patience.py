"""How long to wait for a server, and how often to ask again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from huggingface_hub import constants

from specgen.pairs.hub_errors import TransientError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of waiting.

    Attributes:
        n_attempts: requests in a row that may fail without a byte of progress, the first one included.
        first_wait_s: before the second attempt; doubles from then on.
        longest_wait_s: limit of a wait, also where the server asks for a longer one.
        timeout_s: without an answer or a byte.
    """

    n_attempts: int = 5
    first_wait_s: float = 1.0
    longest_wait_s: float = 30.0
    timeout_s: float = float(constants.HF_HUB_DOWNLOAD_TIMEOUT)

    def wait_s(self, n_failed: int, error: TransientError) -> float:
        """Seconds to wait after so many failures in a row."""
        return min(self.longest_wait_s, max(error.retry_after_s, self.first_wait_s * 2.0 ** (n_failed - 1)))


QUESTION = Patience(n_attempts=3, timeout_s=float(constants.HF_HUB_ETAG_TIMEOUT))
"""For small questions: someone without a network should hear of it soon."""


def ask(question: Callable[[], T], patience: Patience = QUESTION) -> T:
    """The answer to a small question, asked again while it fails for reasons that pass.

    Raises:
        TransientError: the last of the failures.
    """
    for n_failed in range(1, patience.n_attempts):
        try:
            return question()
        except TransientError as error:
            time.sleep(patience.wait_s(n_failed, error))
    return question()
