"""Acceptance rules: which proposals of a draft stand, and what the target says after them.

Owns the seam `Rule` and the rules that decide one position at a time: the rows after their first rejection are never
looked at. Block verification, which weighs a draft whole, is in `specgen.engine.block`. Greedy decoding needs no rule
of its own: two point masses make rejection sampling the greedy match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from specgen.engine.sampling import Sampler
from specgen.types import Decision, Distribution, FloatArray, ProbArray, Proposal

Uniform = Callable[[], float]
"""A source of random numbers in [0, 1)."""

Rule = Callable[[FloatArray, Sequence[Proposal], Sampler, Uniform], Iterator[Decision]]
"""Decides a draft: `rule(rows, draft, sampler, uniform)` yields accepted proposals and then one token of the target's.

rows is (n_drafted + 1, n_vocab) and may be overwritten; row i predicts the token after draft[:i]. The sampler stands
where the draft begins. The caller makes it accept every decided token before it asks for the next, and stops asking
where the answer ends: so penalties, grammar and the like move per emitted token, never per round, and a rule that looks
ahead does so on a fork. An empty draft is a plain step.
"""

Decide = Callable[[Distribution, Proposal | None, Uniform], Decision]
"""Decides one position; without a proposal the target's token is drawn (a plain step, or the bonus token)."""


def one_by_one(decide: Decide) -> Rule:
    """The rule that decides position after position, up to the first token of the target's own."""

    def verify(rows: FloatArray, draft: Sequence[Proposal], sampler: Sampler, uniform: Uniform) -> Iterator[Decision]:
        for row, proposal in zip(rows, [*draft, None], strict=True):
            decision = decide(sampler.distribution(row), proposal, uniform)
            yield decision
            if not decision.is_accepted:
                return

    return verify


def decide_by_rejection(target: Distribution, proposal: Proposal | None, uniform: Uniform) -> Decision:
    """Keep the drafted token with probability min(1, target / draft), else draw from the residual.

    Whatever the draft, the decided token has the target's distribution. A proposal without a distribution is a point
    mass, so it is kept with the target's probability of it.

    Source: Leviathan et al. 2023, arXiv:2211.17192, Algorithm 1.
    """
    if proposal is None:
        return Decision(target.draw(uniform()), is_accepted=False)
    target_prob, draft_prob = target.prob(proposal.token), proposal.draft_prob
    if target_prob >= draft_prob or uniform() * draft_prob < target_prob:
        return Decision(proposal.token, is_accepted=True)
    return Decision(residual(target, proposal).draw(uniform()), is_accepted=False)


def decide_by_match(target: Distribution, proposal: Proposal | None, uniform: Uniform) -> Decision:
    """Draw the target's token as plain decoding would; the drafted one is kept if it is the same.

    One random number per position, so one seed gives one text whatever the draft.
    """
    token = target.draw(uniform())
    return Decision(token, is_accepted=proposal is not None and proposal.token == token)


verify_by_rejection: Rule = one_by_one(decide_by_rejection)
verify_by_match: Rule = one_by_one(decide_by_match)


def excess(target: Distribution, proposal: Proposal, weight: float = 1.0) -> ProbArray:
    """max(0, weight · target - draft), not renormalised.

    Args:
        target: (k,) probabilities where the proposal was made.
        proposal: carries the draft's; its token is a point mass where it carries none.
        weight: of the target, in [0, 1].

    Returns:
        (k,) float64 in the order of target.ids.
    """
    if proposal.distribution is None:
        return np.where(target.ids == proposal.token, 0.0, weight * target.probs)
    left: ProbArray = np.maximum(weight * target.probs - _probs_of(proposal.distribution, target), 0.0)
    return left


def residual(target: Distribution, proposal: Proposal, weight: float = 1.0) -> Distribution:
    """What a rejected proposal leaves of the target: the excess, renormalised.

    Where rounding leaves nothing (a draft equal to the target, rejected by the last bit), the target itself.
    """
    left = excess(target, proposal, weight)
    total = left.sum()
    return Distribution(target.ids, left / total) if total > 0 else target


def _probs_of(draft: Distribution, target: Distribution) -> np.ndarray:
    """The draft's probabilities of the target's ids, (k,) in the target's order."""
    order = np.argsort(draft.ids)
    at = np.minimum(np.searchsorted(draft.ids, target.ids, sorter=order), draft.ids.size - 1)
    found = order[at]
    return np.where(draft.ids[found] == target.ids, draft.probs[found], 0.0)
