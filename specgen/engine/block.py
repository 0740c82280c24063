"""Block verification: a draft is weighed whole, so that a likely token can save an unlikely one before it.

Token by token, a draft ends at the first token that the target likes less than the draft did and that the dice go
against. Weighed whole, what counts is the likelihood ratio of a prefix, capped at one on the way. Of all rules that
keep the target's distribution this one accepts the most tokens on average. The price: every row is looked at, up to the
first token that the target rules out.

With M for target_probs, m for draft_probs and a draft x_1..x_γ:

    p_0 = 1, p_i = min(1, p_{i-1} · M(x_i) / m(x_i))    chance that x_1..x_i stand, over all that may follow them
    S_i = Σ_x max(0, p_i · M(x) - m(x))                 what the target has more than the draft, after x_1..x_i
    h_i = S_i / (S_i + 1 - p_i), h_γ = p_γ              chance that the run ends after x_i, if it ends no later

They hold for every draft of which each next distribution, and whether there is a next token, depend on nothing but the
tokens before it: point masses, models, both in one draft, drafts that a policy ends early.

Source: Sun et al. 2024, arXiv:2403.10444, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specgen.engine.sampling import Sampler
from specgen.engine.verify import Uniform, excess, residual
from specgen.types import Decision, Distribution, FloatArray, Proposal


@dataclass(frozen=True, slots=True)
class _Place:
    """A proposal's place, where the accepted run may end before it.

    Attributes:
        target: the target's distribution there.
        weight: p_i, how the accepted tokens weigh.
        chance: h_i, that the run ends here if it does not end later.
    """

    target: Distribution
    weight: float
    chance: float


def verify_as_block(
    rows: FloatArray, draft: Sequence[Proposal], sampler: Sampler, uniform: Uniform
) -> Iterator[Decision]:
    """Accept the longest prefix that chance lets stand, then draw the target's token; a `Rule`.

    The emitted tokens have the target's distribution, whatever the draft. A draft of one token is decided as by
    rejection sampling. The bonus token's row is looked at last, with the caller's own sampler.
    """
    places, whole = _look_ahead(rows, draft, sampler)
    chances = [*(place.chance for place in places), whole]
    # A certainty takes no random number: a plain step then draws the same token by every rule.
    n_accepted = next(i for i in reversed(range(len(chances))) if chances[i] == 1 or uniform() < chances[i])
    for proposal in draft[:n_accepted]:
        yield Decision(proposal.token, is_accepted=True)
    if n_accepted < len(places):
        place = places[n_accepted]
        last = residual(place.target, draft[n_accepted], place.weight)
    else:
        last = sampler.distribution(rows[n_accepted])
    yield Decision(last.draw(uniform()), is_accepted=False)


def _look_ahead(rows: FloatArray, draft: Sequence[Proposal], sampler: Sampler) -> tuple[list[_Place], float]:
    """The places of the proposals that matter, and the weight of them all.

    They end with the first that cannot stand, or after which a grammar allows nothing: so does the answer then. The
    first place's chance is one, so the run always ends somewhere.
    """
    places: list[_Place] = []
    weight = 1.0
    for i, proposal in enumerate(draft):
        if i > 0:
            sampler = sampler.fork() if i == 1 else sampler
            sampler.accept(draft[i - 1].token)
            if sampler.is_finished():
                break
        target = sampler.distribution(rows[i])
        surplus = float(excess(target, proposal, weight).sum())
        room = surplus + (1.0 - weight)  # added so that the first place's chance is one to the last bit
        # No room: draft and target agree, so the next token stands, and an end here matters only to the last bit.
        places.append(_Place(target, weight, surplus / room if room > 0 else 1.0))
        weight = min(1.0, weight * target.prob(proposal.token) / proposal.draft_prob)
        if weight == 0:
            break
    return places, weight
