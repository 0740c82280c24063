"""Acceptance rules: pure functions from two distributions and one random number to one decision.

Each rule decides one position, so the rows after the first rejection are never looked at, and penalties, grammar and
random numbers advance per emitted token, never per round. Greedy decoding needs no rule of its own: two point masses
make rejection sampling the greedy match.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from specgen.types import Decision, Distribution, Proposal

Uniform = Callable[[], float]
"""A source of random numbers in [0, 1)."""

Rule = Callable[[Distribution, Proposal | None, Uniform], Decision]
"""Decides one position; without a proposal the target's token is drawn (a plain step, or the bonus token)."""


def verify_by_rejection(target: Distribution, proposal: Proposal | None, uniform: Uniform) -> Decision:
    """Keep the drafted token with probability min(1, target / draft), else draw from the residual.

    Whatever the draft, the decided token has the target's distribution. A proposal without a distribution is a point
    mass, so it is kept with the target's probability of it.

    Source: Leviathan et al. 2023, arXiv:2211.17192, Algorithm 1.
    """
    if proposal is None:
        return Decision(target.draw(uniform()), is_accepted=False)
    target_prob = target.prob(proposal.token)
    draft_prob = 1.0 if proposal.distribution is None else proposal.distribution.prob(proposal.token)
    if target_prob >= draft_prob or uniform() * draft_prob < target_prob:
        return Decision(proposal.token, is_accepted=True)
    return Decision(residual(target, proposal).draw(uniform()), is_accepted=False)


def verify_by_match(target: Distribution, proposal: Proposal | None, uniform: Uniform) -> Decision:
    """Draw the target's token as plain decoding would; the drafted one is kept if it is the same.

    One random number per position, so one seed gives one text whatever the draft.
    """
    token = target.draw(uniform())
    return Decision(token, is_accepted=proposal is not None and proposal.token == token)


def residual(target: Distribution, proposal: Proposal) -> Distribution:
    """What a rejected proposal leaves of the target: max(0, target - draft), renormalised.

    Where rounding leaves nothing (a draft equal to the target, rejected by the last bit), the target itself.
    """
    if proposal.distribution is None:
        left = np.where(target.ids == proposal.token, 0.0, target.probs)
    else:
        left = np.maximum(target.probs - _probs_of(proposal.distribution, target), 0.0)
    total = left.sum()
    return Distribution(target.ids, left / total) if total > 0 else target


def _probs_of(draft: Distribution, target: Distribution) -> np.ndarray:
    """The draft's probabilities of the target's ids, (k,) in the target's order."""
    order = np.argsort(draft.ids)
    at = np.minimum(np.searchsorted(draft.ids, target.ids, sorter=order), draft.ids.size - 1)
    found = order[at]
    return np.where(draft.ids[found] == target.ids, draft.probs[found], 0.0)
