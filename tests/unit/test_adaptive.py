from __future__ import annotations

import json

import pytest

from specgen.drafting.chain import Chain
from specgen.engine.acceptance import Acceptance
from specgen.engine.adaptive import AdaptivePolicy
from specgen.engine.cost import CostTable, band_of
from specgen.engine.fake import ScriptedDrafter
from specgen.engine.knowledge import Knowledge
from tests.unit.helpers import World, always, at_random, check_counts, never, true_text


def adaptive_world(knowledge: Knowledge | None = None, **settings) -> World:
    """A world whose policy chooses; costs in plain steps."""
    world = World(**settings)
    world.engine.policy = AdaptivePolicy(knowledge or Knowledge(), "model")
    return world


def gpu(n: int) -> float:
    return 1.0 + 0.02 * (n - 1)


def compute_bound(n: int) -> float:
    return 1.0 if n == 1 else 0.2 + n


def cheap(n: int) -> float:
    return 0.05 + 0.001 * (n - 1)  # what it was left behind by is taken in at once


def dear(n: int) -> float:
    return 0.7 + 0.2 * n


@pytest.mark.parametrize("agreement", [always, never, at_random])
@pytest.mark.parametrize("cost", [gpu, compute_bound])
def test_the_text_does_not_depend_on_the_policy(agreement, cost):
    world = adaptive_world(agreement=agreement, target_cost_s=cost, draft_cost_s=cheap)
    metrics = world.run(200)
    assert metrics.token_ids == true_text(200)
    check_counts(metrics)


def test_a_good_draft_on_a_flat_curve_gets_long_drafts():
    world = adaptive_world(agreement=always, target_cost_s=gpu, draft_cost_s=cheap)
    metrics = world.run(200)
    assert [r.n_drafted for r in metrics.rounds[-6:-1]] == [16] * 5
    assert metrics.stats().decode_s < 200 / 4


@pytest.mark.parametrize(("cost", "draft_cost"), [(gpu, cheap), (compute_bound, cheap), (gpu, dear)])
def test_a_draft_that_is_never_right_costs_next_to_nothing(cost, draft_cost):
    world = adaptive_world(agreement=never, target_cost_s=cost, draft_cost_s=draft_cost)
    metrics = world.run(400)
    assert metrics.stats().decode_s < 400 / 0.94
    assert sum(r.n_drafted > 0 for r in metrics.rounds) < 40


def test_where_no_length_can_pay_a_perfect_draft_is_left_alone():
    world = adaptive_world(agreement=always, target_cost_s=compute_bound, draft_cost_s=cheap)
    metrics = world.run(400)
    assert metrics.stats().decode_s < 400 / 0.97
    assert (
        sum(r.n_drafted > 0 for r in metrics.rounds) < 20
    )  # each width is tried, and tried again, where it could be best


def test_what_was_learned_spares_the_next_answer_the_trying():
    knowledge = Knowledge()
    settings = {"agreement": never, "target_cost_s": gpu, "draft_cost_s": dear}
    adaptive_world(knowledge, **settings).run(300)
    kept = Knowledge.from_data(json.loads(json.dumps(knowledge.as_data())))
    metrics = adaptive_world(kept, **settings).run(60)
    assert metrics.stats().decode_s < 60 / 0.97


def test_a_draft_that_becomes_good_is_found_again():
    def late(prefix):
        return always(prefix) if len(prefix) > 150 else never(prefix)

    world = adaptive_world(agreement=late, target_cost_s=gpu, draft_cost_s=cheap)
    metrics = world.run(600)
    late_rounds = [r for r in metrics.rounds if r.n_past > 350]
    assert sum(r.n_accepted for r in late_rounds) / len(late_rounds) > 8


def test_a_draft_that_becomes_bad_is_dropped():
    def early(prefix):
        return always(prefix) if len(prefix) < 150 else never(prefix)

    world = adaptive_world(agreement=early, target_cost_s=gpu, draft_cost_s=lambda n: 0.2 * n)
    metrics = world.run(500)
    late_rounds = [r for r in metrics.rounds if r.n_past > 260]
    assert sum(r.n_drafted for r in late_rounds) / len(late_rounds) < 0.5


def test_a_cliff_in_the_curve_is_not_stepped_over():
    def cliff(n: int) -> float:
        return 1.2 if n <= 8 else 3.0

    world = adaptive_world(agreement=at_random, target_cost_s=cliff, draft_cost_s=lambda n: 0.02 * n)
    metrics = world.run(400)
    assert sum(r.n_drafted > 7 for r in metrics.rounds[20:]) < 0.15 * len(metrics.rounds)


def test_the_same_times_give_the_same_decisions():
    def lengths():
        return [r.n_drafted for r in adaptive_world(agreement=at_random, target_cost_s=gpu).run(200).rounds]

    assert lengths() == lengths()


def test_a_long_catch_up_must_be_paid_back_by_the_tokens_still_wanted():
    knowledge = Knowledge()
    settings = {"agreement": at_random, "target_cost_s": gpu, "draft_cost_s": lambda n: 0.2 * n}
    adaptive_world(knowledge, **settings).run(300, prompt=[1 + i % 40 for i in range(100)])
    prompt = [1 + i % 40 for i in range(600)]
    metrics = adaptive_world(knowledge, **settings).run(12, prompt=prompt)
    assert metrics.stats().n_drafted == 0


def test_unmeasured_costs_come_from_their_neighbours_and_known_ones_stay():
    table = CostTable()
    assert table.verify_s(10, 1) == []
    table.add_verify(10, 1, 1.0)
    table.add_verify(10, 5, 2.0)
    table.add_verify(10, 5, 2.0)
    assert table.verify_s(10, 1)[-1] == pytest.approx(1.0)
    assert table.verify_s(10, 5)[-1] == pytest.approx(2.0)
    assert 1.0 < table.verify_s(10, 3)[-1] < 1.5
    assert table.verify_s(10, 9)[-1] > 2.0


def test_a_first_sample_beside_another_program_is_doubted_and_a_second_one_puts_it_right():
    table = CostTable()
    table.add_verify(10, 1, 1.0)
    table.add_verify(10, 5, 20.0)
    assert table.verify_s(10, 5)[-1] < 7.0
    table.add_verify(10, 5, 2.0)
    assert table.verify_s(10, 5)[-1] == pytest.approx(2.0)


def test_a_machine_that_slows_down_slows_every_width():
    table = CostTable()
    for _ in range(5):
        table.add_verify(10, 1, 1.0)
        table.add_verify(10, 5, 2.0)
    for _ in range(20):
        table.add_verify(10, 1, 1.5)
    assert table.verify_s(10, 5)[-1] == pytest.approx(3.0, rel=0.15)


def test_one_pass_beside_another_program_does_not_spoil_a_width():
    table = CostTable()
    for _ in range(5):
        table.add_verify(10, 4, 1.0)
    table.add_verify(10, 4, 50.0)
    assert table.verify_s(10, 4)[-1] < 2.0


def test_a_longer_cache_has_costs_of_its_own_and_borrows_until_it_knows_them():
    table = CostTable()
    for n in (1, 3, 5):
        table.add_verify(10, n, 1.0 + 0.1 * n)
    assert band_of(10) != band_of(5000)
    table.add_verify(5000, 1, 2.2)
    assert table.verify_s(5000, 5)[-1] == pytest.approx(2 * table.verify_s(10, 5)[-1])


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.95])
def test_useless_confidences_are_calibrated_to_the_rate(rate):
    acceptance = Acceptance()
    for i in range(600):
        is_accepted = (i * 0.618034) % 1 < rate
        acceptance.observe([(i * 0.754877) % 1], int(is_accepted))
    predictions = [acceptance.predict(c / 10) for c in range(11)]
    assert sum(predictions) / len(predictions) == pytest.approx(rate, abs=0.15)
    outlook = acceptance.outlook()
    assert outlook == sorted(outlook)
    assert sum(outlook) / len(outlook) == pytest.approx(rate, abs=0.15)


def test_informative_confidences_are_told_apart():
    acceptance = Acceptance()
    for i in range(300):
        is_sure = i % 2 == 0
        acceptance.observe([0.98 if is_sure else 0.3], int(is_sure or i % 10 == 1))
    assert acceptance.predict(0.98) > 0.85
    assert acceptance.predict(0.3) < 0.45


def test_optimism_shrinks_with_what_is_known():
    def gap(acceptance):
        return acceptance.outlook(optimism=1.0)[0] - acceptance.outlook()[0]

    acceptance = Acceptance()
    new = gap(acceptance)
    for i in range(100):
        acceptance.observe([0.8], int(i % 4 > 0))
    assert 0 < gap(acceptance) < new / 2


def test_acceptance_that_changes_is_followed_within_twenty_tokens():
    acceptance = Acceptance()
    for i in range(300):
        acceptance.observe([0.9], int(i % 20 > 0))
    assert acceptance.predict(0.9) > 0.88
    for i in range(20):
        acceptance.observe([0.9], int(i % 5 == 0))
    assert acceptance.predict(0.9) < 0.5


def test_what_is_kept_of_acceptance_predicts_the_same():
    acceptance = Acceptance()
    for i in range(50):
        acceptance.observe([0.5 + i % 5 / 10], int(i % 3 > 0))
    kept = Acceptance.from_data(json.loads(json.dumps(acceptance.as_data())))
    for known in (kept, acceptance):
        known.begin()
    assert kept.predict(0.7) == pytest.approx(acceptance.predict(0.7))
    assert kept.outlook() == pytest.approx(acceptance.outlook())


def test_tokens_after_a_rejection_teach_nothing():
    acceptance = Acceptance()
    acceptance.observe([0.9, 0.9, 0.2, 0.2], 1)
    assert acceptance.n_tested == 2


def test_costs_that_were_learned_beside_another_program_are_mended_by_a_few_plain_steps():
    spoilt = CostTable()
    for _ in range(4):
        for n in (1, 2, 5):
            spoilt.add_verify(10, n, 10 * (1.0 + 0.1 * n))
        spoilt.add_step("model", 10 * 0.2)
    table = CostTable.from_data(json.loads(json.dumps(spoilt.as_data())))
    for _ in range(2):
        table.add_verify(10, 1, 1.1)
    assert table.verify_s(10, 5) == pytest.approx([1.1, 1.2, 1.3 * 0.85, 1.4 * 0.85, 1.5], rel=0.2)
    assert table.step_s("model") == pytest.approx(0.2, rel=0.2)


def test_a_draft_that_was_found_too_dear_is_looked_at_again_after_some_answers():
    knowledge = Knowledge()
    dear_settings = {"agreement": always, "target_cost_s": gpu, "draft_cost_s": lambda n: 1.2 * n}
    adaptive_world(knowledge, **dear_settings).run(60)
    now_cheap = {"agreement": always, "target_cost_s": gpu, "draft_cost_s": cheap}
    drafted = [adaptive_world(knowledge, **now_cheap).run(60).stats().n_drafted for _ in range(10)]
    assert drafted[0] == 0
    assert drafted[-1] > 30


def test_it_says_why_it_does_not_draft():
    world = adaptive_world(agreement=never, target_cost_s=gpu, draft_cost_s=dear)
    world.run(60)
    reason = world.engine.policy.reason
    assert "no draft length pays" in reason
    assert "a draft token costs 0.90 plain steps" in reason
    world = adaptive_world(agreement=always, target_cost_s=gpu, draft_cost_s=cheap)
    world.run(60)
    assert world.engine.policy.reason == ""


def offering_world(offers, **settings) -> World:
    """A world whose policy chooses between a free drafter and, where there is one, the draft model."""
    world = World(**settings)
    free = ScriptedDrafter(offers, "free", is_free=True)
    model = world.engine.drafter
    world.engine.drafter = Chain([free, model]) if model else free
    world.engine.policy = AdaptivePolicy(Knowledge(), "model" if model else None)
    return world


@pytest.mark.parametrize("cost", [gpu, compute_bound])
@pytest.mark.parametrize("agreement", [None, always, never, at_random])
def test_offers_that_are_never_right_cost_next_to_nothing(cost, agreement):
    settings = {"agreement": agreement, "target_cost_s": cost, "draft_cost_s": cheap}
    without = adaptive_world(**settings).run(400).stats().decode_s if agreement else 400.0
    metrics = offering_world(never, **settings).run(400)
    assert metrics.token_ids == true_text(400)
    assert metrics.stats().decode_s < without / 0.93


def test_offers_that_are_always_right_make_drafts_as_long_as_they_pay():
    metrics = offering_world(always, agreement=None, target_cost_s=gpu).run(300)
    assert metrics.stats().decode_s < 300 / 8


def test_a_good_offer_spares_asking_the_model():
    metrics = offering_world(always, agreement=always, target_cost_s=gpu, draft_cost_s=lambda n: 0.3 * n).run(300)
    drafted = metrics.stats().by_drafter
    assert drafted["free"].n_drafted > 5 * drafted["model"].n_drafted


def test_a_good_model_is_asked_in_place_of_bad_offers():
    metrics = offering_world(never, agreement=always, target_cost_s=gpu, draft_cost_s=cheap).run(300)
    drafted = metrics.stats().by_drafter
    assert drafted["model"].n_drafted > 5 * drafted["free"].n_drafted
