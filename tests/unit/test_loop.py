from __future__ import annotations

import pytest

from specgen.engine.fake import ScriptedDrafter
from specgen.engine.policy import FixedPolicy, Plan
from specgen.errors import BackendError, ContextLengthError, SpecgenError
from specgen.types import TARGET, Ending, FinishReason, Proposal
from tests.unit.helpers import (
    AGREEMENTS,
    EOG,
    N_VOCAB,
    PROMPT,
    World,
    always,
    at_random,
    check_counts,
    every_second,
    never,
    next_token,
    true_text,
)

GAMMAS = range(9)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_the_text_is_the_targets_whatever_the_draft(gamma, agreement):
    world = World(gamma=gamma, agreement=AGREEMENTS[agreement])
    metrics = world.run(40)
    assert metrics.token_ids == true_text(40)
    assert metrics.finish_reason is FinishReason.LENGTH
    check_counts(metrics)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_no_model_decodes_a_token_twice(gamma, agreement):
    """Every pass is new work: what a cache holds is never decoded again, and nothing rejected stays."""
    world = World(gamma=gamma, agreement=AGREEMENTS[agreement])
    metrics = world.run(40)
    history = [*PROMPT, *true_text(40)]
    n_rejected = metrics.stats().n_drafted - metrics.stats().n_accepted
    assert sum(map(len, world.target.passes)) == len(history) - 1 + n_rejected
    # The draft lacks at most what it drafted last; every pass of it is a proposal or the catching up before one.
    assert sum(map(len, world.draft.passes)) <= len(history) - 1 + n_rejected
    assert world.draft.cache == history[: len(world.draft.cache)]


def test_full_acceptance_costs_the_draft_one_pass_per_proposal():
    world = World(gamma=4, agreement=always)
    metrics = world.run(41)
    stats = metrics.stats()
    assert len(world.draft.passes) == stats.n_drafted
    assert {len(tokens) for tokens in world.draft.passes[4::4]} == {2}  # the last drafted token and the bonus token


def test_the_first_token_comes_before_the_draft_is_touched():
    world = World(gamma=4)
    steps = world.steps()
    first = next(steps)
    assert [event.token for event in first.tokens] == true_text(1)
    assert first.round is None
    assert world.draft.passes == []
    steps.close()


def test_plain_decoding_never_feeds_the_draft():
    world = World(gamma=0)
    world.run(10)
    assert world.draft.passes == []
    assert [len(tokens) for tokens in world.target.passes[1:]] == [1] * 9


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 3, 5, 17])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_the_token_limit_is_exact(max_tokens, agreement):
    world = World(gamma=8, agreement=AGREEMENTS[agreement])
    metrics = world.run(max_tokens)
    assert metrics.token_ids == true_text(max_tokens)
    assert metrics.finish_reason is FinishReason.LENGTH
    check_counts(metrics)


def test_a_draft_is_never_longer_than_what_is_wanted():
    world = World(gamma=8)
    metrics = world.run(5)
    assert [r.n_drafted for r in metrics.rounds] == [3]


@pytest.mark.parametrize("n_ctx", range(len(PROMPT), 14))
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_a_full_context_ends_the_answer(n_ctx, agreement):
    world = World(gamma=4, n_ctx=n_ctx, agreement=AGREEMENTS[agreement])
    metrics = world.run(100)
    assert metrics.finish_reason is FinishReason.LENGTH
    assert metrics.token_ids == true_text(n_ctx - len(PROMPT) + 1)
    check_counts(metrics)


def test_a_prompt_beyond_the_context_is_refused():
    with pytest.raises(ContextLengthError, match="3 tokens, the context holds 2"):
        World(n_ctx=2).run()


@pytest.mark.parametrize("n_draft_ctx", [1, 3, 8, 9, 20])
def test_beyond_the_drafts_context_decoding_goes_on_plainly(n_draft_ctx):
    world = World(gamma=4, n_draft_ctx=n_draft_ctx)
    metrics = world.run(40)
    assert metrics.token_ids == true_text(40)
    assert metrics.rounds[-1].n_drafted == 0
    assert any(r.n_drafted for r in metrics.rounds) == (n_draft_ctx > len(PROMPT))


def ending_at(n: int):
    """A target that ends its text after n tokens."""
    return lambda prefix: EOG if len(prefix) >= len(PROMPT) + n else next_token(prefix)


@pytest.mark.parametrize("n", range(9))
@pytest.mark.parametrize("does_draft_know", [True, False])
def test_end_of_generation_ends_everything_wherever_it_comes(n, does_draft_know):
    says = ending_at(n)
    world = World(gamma=5, target_says=says, agreement=says if does_draft_know else always)
    metrics = world.run(40)
    assert metrics.token_ids == true_text(n)
    assert metrics.finish_reason is FinishReason.STOP
    check_counts(metrics, ended_by_eog=True)
    assert world.target.cache == [*PROMPT, *true_text(n)][: len(world.target.cache)]


def test_a_drafted_end_of_generation_counts_as_accepted_but_not_as_generated():
    says = ending_at(3)
    world = World(gamma=5, target_says=says, agreement=says)
    metrics = world.run(40)
    (only,) = metrics.rounds
    assert (only.n_accepted, only.ending, len(metrics.token_ids)) == (3, Ending.CUT, 3)


def test_ignored_end_of_generation_is_a_token_like_others():
    says = ending_at(3)
    world = World(gamma=3, target_says=says, agreement=says, ignore_eog=True)
    metrics = world.run(10)
    assert metrics.token_ids == true_text(10, choose=says)
    assert EOG in metrics.token_ids


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_stop_string_inside_an_accepted_run_ends_there(gamma):
    letters = "".join(chr(ord("A") + t % 26) for t in true_text(40))
    stop = letters[10:13]
    at = letters.index(stop)
    world = World(gamma=gamma)
    metrics = world.run(40, stop=(stop,))
    assert metrics.text == letters[:at]
    assert metrics.token_ids == true_text(at + 3)
    assert metrics.finish_reason is FinishReason.STOP
    check_counts(metrics)
    assert len(world.target.cache) <= len(PROMPT) + at + 2


def test_an_answer_closed_early_leaves_both_caches_ready():
    world = World(gamma=4, agreement=every_second)
    steps = world.steps(40)
    for _ in range(3):
        next(steps)
    steps.close()
    history = [*PROMPT, *true_text(40)]
    assert world.target.cache == history[: len(world.target.cache)]
    assert world.draft.cache == history[: len(world.draft.cache)]
    assert world.run(40).token_ids == true_text(40)


def test_a_second_shorter_prompt_gives_the_text_of_a_fresh_engine():
    world = World(gamma=4, agreement=at_random)
    world.run(40, prompt=[5, 6, 7, 8, 9])
    again = world.run(20, prompt=[7, 7])
    assert again.token_ids == true_text(20, prompt=[7, 7])


def test_a_backend_that_refuses_rollback_is_an_error_not_wrong_text():
    world = World(gamma=4, agreement=never)
    world.target.fail_rollback = True
    with pytest.raises(BackendError, match="cannot take back"):
        world.run()


def test_a_memory_without_rollback_decodes_plainly():
    world = World(gamma=4, rollback_limit=0)
    metrics = world.run(20)
    assert metrics.token_ids == true_text(20)
    assert metrics.stats().n_drafted == 0


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_memory_with_limited_rollback_limits_the_draft(limit):
    world = World(gamma=4, rollback_limit=limit, agreement=never)
    metrics = world.run(20)
    assert metrics.token_ids == true_text(20)
    assert max(r.n_drafted for r in metrics.rounds) == limit


def test_a_drafted_id_outside_the_targets_vocabulary_ends_the_draft():
    def beyond(prefix):
        return N_VOCAB + 3 if len(prefix) % 5 == 0 else next_token(prefix)

    world = World(gamma=4, agreement=beyond, draft_vocab=N_VOCAB + 10)
    metrics = world.run(40)
    assert metrics.token_ids == true_text(40)
    assert all(token < N_VOCAB for tokens in world.target.passes for token in tokens)


@pytest.mark.parametrize("token", [-1, N_VOCAB, 10**9])
def test_an_impossible_proposal_never_reaches_the_target(token):
    world = World(agreement=None)
    world.engine.drafter = ScriptedDrafter(lambda prefix: token)
    world.engine.policy = FixedPolicy(3)
    metrics = world.run(10)
    assert metrics.token_ids == true_text(10)
    assert metrics.stats().n_drafted == 0


def test_the_prompt_is_taken_in_by_passes_that_can_be_interrupted():
    world = World(max_batch=5)
    world.engine.is_cancelled = lambda: len(world.target.passes) == 2
    metrics = world.run(10, prompt=list(range(1, 20)))
    assert metrics.finish_reason is FinishReason.INTERRUPTED
    assert [len(tokens) for tokens in world.target.passes] == [5, 5]
    assert metrics.token_ids == []
    world.engine.is_cancelled = lambda: False
    assert world.run(10).token_ids == true_text(10)


def test_a_cancelled_answer_keeps_what_it_has():
    world = World(gamma=4)
    world.engine.is_cancelled = lambda: len(world.target.passes) >= 4
    metrics = world.run(100)
    assert metrics.finish_reason is FinishReason.INTERRUPTED
    assert metrics.token_ids == true_text(len(metrics.token_ids))
    assert len(metrics.token_ids) > 4
    check_counts(metrics)


def test_cancelling_while_the_draft_catches_up_proposes_nothing():
    world = World(gamma=4, max_batch=8)
    steps = world.steps(10, prompt=list(range(1, 40)))
    next(steps)
    world.engine.drafter._is_cancelled = lambda: True
    round_ = next(steps).round
    assert (round_.n_drafted, world.draft.passes) == (0, [])


class DroppingPolicy:
    """Drafts four, sends two."""

    def begin(self, outlook):
        return Plan(0, min(4, outlook.limit))

    def next(self, draft):
        return min(2, len(draft)) if len(draft) == 4 else None

    def observe(self, round_):
        pass


def test_dropped_tokens_are_counted_and_forgotten():
    world = World(gamma=4)
    world.engine.policy = DroppingPolicy()
    metrics = world.run(20)
    assert metrics.token_ids == true_text(20)
    stats = check_counts(metrics)
    assert stats.n_dropped == sum(r.n_dropped for r in metrics.rounds) > 0
    assert max(r.n_drafted for r in metrics.rounds) == 3  # the last rounds want fewer and are not cut


def test_every_token_says_where_it_came_from():
    world = World(gamma=3, agreement=every_second)
    sources = [event.source for step in world.steps(20) for event in step.tokens]
    assert sources[0] == TARGET
    assert sources.count("model") == sum(source != TARGET for source in sources) > 0


def test_times_add_up_and_the_drafts_prefill_is_told_apart():
    world = World(gamma=4, agreement=always)
    metrics = world.run(41, prompt=list(range(1, 31)))
    stats = check_counts(metrics)
    assert stats.draft_prefill_s == pytest.approx(
        0.1 * 30
    )  # the 30 tokens of the prompt; the first token starts the draft
    assert stats.draft_s == pytest.approx(sum(0.1 * len(tokens) for tokens in world.draft.passes) - 3.0)
    assert stats.target_s == pytest.approx(sum(1 + 0.1 * len(tokens) for tokens in world.target.passes[1:]))
    assert stats.overhead_s == pytest.approx(0)
    assert stats.decode_tok_s == pytest.approx(40 / stats.decode_s)


def test_a_pass_that_returns_too_few_rows_is_a_bug_and_raises():
    world = World(gamma=2)
    whole = world.target.eval
    world.target.eval = lambda tokens, n_rows, pad_to=1: whole(tokens, n_rows, pad_to)[: n_rows - 1 or 1]
    with pytest.raises(SpecgenError, match="2 rows for a draft of 2"):
        world.run(10)


def test_a_scripted_drafter_may_end_its_draft_early():
    world = World(agreement=None)
    world.engine.drafter = ScriptedDrafter(lambda prefix: next_token(prefix) if len(prefix) % 3 else None)
    world.engine.policy = FixedPolicy(8)
    metrics = world.run(30)
    assert metrics.token_ids == true_text(30)
    assert 0 < metrics.stats().n_drafted < 8 * metrics.stats().n_rounds


def test_proposals_carry_a_confidence():
    world = World(gamma=1)
    proposal = next(iter(world.engine.drafter.propose(PROMPT)))
    assert isinstance(proposal, Proposal)
    assert proposal.confidence == pytest.approx(1 / (1 + (N_VOCAB - 1) * 2.718281828**-10))
