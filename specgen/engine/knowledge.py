"""What is learned about a pair, and worth keeping between answers and runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specgen.engine.acceptance import Acceptance
from specgen.engine.cost import CostTable


@dataclass
class Knowledge:
    """Costs and acceptance, as plain data that a store outside the engine keeps.

    Attributes:
        cost: measured times.
        acceptance: by drafter.
        n_unasked: answers since the draft model was last asked for a token.
    """

    cost: CostTable = field(default_factory=CostTable)
    acceptance: dict[str, Acceptance] = field(default_factory=dict)
    n_unasked: int = 0

    def as_data(self) -> dict[str, Any]:
        """Plain data that `from_data` reads."""
        return {
            "cost": self.cost.as_data(),
            "acceptance": {name: acceptance.as_data() for name, acceptance in self.acceptance.items()},
            "n_unasked": self.n_unasked,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Knowledge:
        """What was learned before."""
        acceptance = {name: Acceptance.from_data(kept) for name, kept in data["acceptance"].items()}
        return cls(CostTable.from_data(data["cost"]), acceptance, int(data["n_unasked"]))
