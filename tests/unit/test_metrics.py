from __future__ import annotations

import pytest

from specgen.engine.cost import CostTable
from specgen.engine.fake import FakeClock
from specgen.engine.metrics import Metrics
from specgen.types import Ending, FinishReason, Round, Step, TokenEvent


def round_(n_drafted=0, n_accepted=0, ending=Ending.BONUS, source="model", **times) -> Round:
    return Round(10, (source,) * n_drafted, 0, n_accepted, ending, times.pop("target_s", 1.0), **times)


def step(n_tokens, round_=None, reason=None) -> Step:
    return Step(tuple(TokenEvent(1, "target") for _ in range(n_tokens)), "x" * n_tokens, round_, reason)


def gather(*steps: Step, seconds=2.0) -> Metrics:
    clock = FakeClock()
    metrics = Metrics(7, clock=clock)
    for item in steps:
        clock.advance(seconds)
        metrics.add(item)
    return metrics


def test_nothing_happened_gives_nulls_not_zeros_or_infinities():
    stats = gather(step(0, None, FinishReason.LENGTH)).stats()
    assert stats.decode_tok_s is None
    assert stats.ttft_s is None
    assert stats.draft_acceptance_rate is None
    assert stats.alpha_hat is None
    assert stats.mean_accepted_length is None
    assert (stats.n_rounds, stats.accept_histogram, stats.accept_by_position, stats.by_drafter) == (0, [], [], {})


def test_a_single_token_has_a_first_token_time_but_no_rate():
    stats = gather(step(1, None, FinishReason.LENGTH)).stats()
    assert (stats.ttft_s, stats.decode_tok_s, stats.decode_s) == (2.0, None, 0.0)


def test_ratios_count_what_their_names_say():
    metrics = gather(
        step(1),
        step(3, round_(4, 2, Ending.RECOVERED)),
        step(5, round_(4, 4, Ending.BONUS)),
        step(1, round_(0, 0, Ending.BONUS)),
    )
    stats = metrics.stats()
    assert stats.draft_acceptance_rate == pytest.approx(6 / 8)
    assert stats.alpha_hat == pytest.approx(6 / 7)
    assert stats.mean_accepted_length == pytest.approx(9 / 3)
    assert stats.accept_histogram == [1, 0, 1, 0, 1]
    assert [(p.n_drafted, p.n_accepted) for p in stats.accept_by_position] == [(2, 2), (2, 2), (2, 1), (2, 1)]
    assert (stats.n_recovered, stats.n_bonus) == (1, 2)


def test_decoding_speed_leaves_the_first_token_to_the_prefill():
    stats = gather(step(1), step(3, round_(2, 2)), step(3, round_(2, 2))).stats()
    assert (stats.ttft_s, stats.decode_s) == (2.0, 4.0)
    assert stats.decode_tok_s == pytest.approx(6 / 4.0)


def test_time_is_shared_out_completely():
    stats = gather(step(1), step(2, round_(1, 1, target_s=1.2, draft_s=0.3, draft_prefill_s=0.1))).stats()
    assert stats.overhead_s == pytest.approx(2.0 - 1.2 - 0.3 - 0.1)


def test_drafters_are_told_apart():
    mixed = Round(
        10, ("lookup", "lookup", "model"), 0, 2, Ending.RECOVERED, 1.0, 0.5, 0.0, (("lookup", 0.1), ("model", 0.4))
    )
    stats = gather(step(1), step(3, mixed)).stats()
    assert (stats.by_drafter["lookup"].n_drafted, stats.by_drafter["lookup"].n_accepted) == (2, 2)
    assert (stats.by_drafter["model"].n_drafted, stats.by_drafter["model"].n_accepted) == (1, 0)
    assert stats.by_drafter["model"].draft_s == pytest.approx(0.4)


def test_speedups_come_from_measured_costs_and_are_null_without_them():
    def stats(cost):
        clock = FakeClock()
        metrics = Metrics(7, clock=clock, cost=cost)
        for item in (step(1), step(3, round_(2, 2)), step(3, round_(2, 2))):
            clock.advance(2.0)
            metrics.add(item)
        return metrics.stats()

    assert (stats(None).speedup_estimated, stats(CostTable()).speedup_predicted) == (None, None)
    cost = CostTable()
    for _ in range(3):
        cost.add_verify(10, 1, 1.0)
        cost.add_verify(10, 3, 1.5)
        cost.add_step("model", 0.25)
    assert stats(cost).speedup_estimated == pytest.approx(6 / 4 * 1.0)
    assert stats(cost).speedup_predicted == pytest.approx(3 / (2 * 0.25 + 1.5))
