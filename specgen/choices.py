"""What a user chooses, as frozen values. They need no numpy, so that `--help` is there at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AcceptRule(StrEnum):
    """How sampled tokens are verified; at temperature 0 all are the greedy match."""

    BLOCK = "block"  # block verification: the target's distribution, with the most accepted tokens
    REJECT = "reject"  # rejection sampling, token by token: the target's distribution
    MATCH = "match"  # sample-and-match: the same text as plain decoding with the same seed


class DraftType(StrEnum):
    """Where guesses may come from, cheapest first."""

    GRAMMAR = "grammar"  # what a grammar leaves no choice about
    LOOKUP = "lookup"  # what followed these tokens last time
    SUFFIX = "suffix"  # what followed the longest match in prompt, answer and corpus most often
    MODEL = "model"  # a small model


ALL_LAYERS = -1
"""Of a model: on GPUs."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the layers of one model go.

    Attributes:
        n_gpu_layers: the last layers and the output, on GPUs; ALL_LAYERS for all, 0 for none.
        devices: names of the GPUs to use, in this order; empty for all of them, ("CPU",) for none.
        tensor_split: what part each of them gets; empty for parts by free memory.
    """

    n_gpu_layers: int = ALL_LAYERS
    devices: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()

    @property
    def is_on_cpu(self) -> bool:
        """Whether no layer may leave the CPU."""
        return self.n_gpu_layers == 0 or self.devices == ("CPU",)


ANYWHERE = Placement()
"""All layers on the GPUs, on the CPU where there are none."""
