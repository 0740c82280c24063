"""Several drafters as one, in the loop: what is offered comes first, the draft model goes on from there."""

from __future__ import annotations

import pytest

from specgen.drafting.chain import Chain
from specgen.engine.fake import ScriptedDrafter
from tests.unit.helpers import AGREEMENTS, World, always, check_counts, never, true_text


def chained(n_offered, offers=always, **settings) -> World:
    """A world whose draft model comes after a free drafter that knows `n_offered` tokens at every third position."""
    world = World(**settings)

    def script(prefix):
        return offers(prefix) if len(prefix) % 12 < n_offered else None

    free = ScriptedDrafter(script, "free", is_free=True)
    world.engine.drafter = Chain([free, world.engine.drafter]) if world.engine.drafter else Chain([free])
    return world


@pytest.mark.parametrize("offers", AGREEMENTS.values(), ids=AGREEMENTS)
@pytest.mark.parametrize("agreement", [None, *AGREEMENTS.values()])
@pytest.mark.parametrize("gamma", [1, 4, 9])
def test_the_text_is_the_targets_own_and_the_counts_add_up(offers, agreement, gamma):
    world = chained(3, offers, agreement=agreement, gamma=gamma)
    metrics = world.run(80)
    assert metrics.token_ids == true_text(80)
    stats = check_counts(metrics)
    assert stats.by_drafter["free"].n_drafted > 0
    assert world.target.cache == [1, 2, 3, *true_text(79)]


def test_the_model_goes_on_where_the_offer_ends():
    metrics = chained(4, gamma=8).run(60)
    mixed = [r.drafted_by for r in metrics.rounds if len(set(r.drafted_by)) == 2]
    assert mixed
    assert all(list(sources) == sorted(sources) for sources in mixed)  # free before model
    assert all(r.n_accepted == r.n_drafted for r in metrics.rounds)


def test_a_draft_model_takes_in_each_token_once_beside_a_free_drafter():
    world = chained(4, agreement=always, gamma=8)
    metrics = world.run(60)
    fed = [token for tokens in world.draft.passes for token in tokens]
    assert len(fed) <= len(metrics.token_ids) + 3 + 8


def test_gamma_bounds_what_is_offered_too():
    metrics = chained(12, agreement=None, gamma=2).run(40)
    assert {r.n_drafted for r in metrics.rounds} <= {1, 2}


def test_an_offer_goes_on_where_the_draft_models_context_has_ended():
    world = chained(12, agreement=never, gamma=4, n_draft_ctx=10)
    metrics = world.run(60)
    assert metrics.token_ids == true_text(60)
    assert {source for r in metrics.rounds[10:] for source in r.drafted_by} == {"free"}


def test_the_first_drafter_with_something_to_offer_makes_the_offer():
    first = ScriptedDrafter(lambda prefix: 5 if len(prefix) % 2 else None, "first", is_free=True)
    second = ScriptedDrafter(lambda prefix: 6 if len(prefix) < 6 else None, "second", is_free=True)
    chain = Chain([first, second])
    assert [p.source for p in chain.offer([1, 2, 3], 4)] == ["first"]
    assert [p.source for p in chain.offer([1, 2], 3)] == ["second"] * 3
    assert chain.names == ("first", "second")
