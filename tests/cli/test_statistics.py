"""The statistics of `--json` add up for every kind of answer."""

from __future__ import annotations

import pytest

from tests.cli.conftest import PROMPT

SAMPLED = ["--temperature", "1", "--seed", "3"]
KINDS = {
    "a full draft each round": ["{target}", "--draft", "{target}", "--gamma", "3", "-n", "50"],
    "sampled": ["{target}", "--draft", "{draft}", "--gamma", "5", "-n", "80", *SAMPLED],
    "plain": ["{target}", "-n", "20"],
    "a stop string inside a draft": ["{target}", "--draft", "{target}", "--gamma", "8", "-n", "80", "--stop", "nonon"],
    "ended by the model": ["{ending}", "--draft", "{ending}", "--gamma", "4", "--raw", "-n", "400"],
    "no token": ["{target}", "--draft", "{draft}", "--gamma", "4", "-n", "0"],
    "a full context": ["{target}", "--draft", "{draft}", "--gamma", "4", "-n", "400", "-c", "60"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_statistics_add_up(specgen, models, kind):
    paths = {name: str(getattr(models, name)) for name in ("target", "draft", "ending")}
    words = [word.format_map(paths) for word in KINDS[kind]]
    found = specgen.run(words[0], PROMPT, *words[1:], "--json").json
    stats = found["stats"]

    n_of_rounds = stats["n_accepted"] + stats["n_recovered"] + stats["n_bonus"]
    n_first = 0 if kind == "no token" else 1
    n_ended_by_model = 1 if kind == "ended by the model" else 0
    assert found["finish_reason"] == ("stop" if kind.startswith(("a stop", "ended")) else "length")
    assert len(found["token_ids"]) == stats["n_generated"]
    assert n_first + n_of_rounds == stats["n_generated"] + n_ended_by_model
    _counts_agree(stats, n_of_rounds)
    _times_agree(stats)


def _counts_agree(stats, n_of_rounds):
    assert sum(stats["accept_histogram"]) == stats["n_rounds"]
    assert sum(n * count for n, count in enumerate(stats["accept_histogram"])) == stats["n_accepted"]
    for key in ("n_drafted", "n_accepted"):
        assert sum(position[key] for position in stats["accept_by_position"]) == stats[key]
        assert sum(drafter[key] for drafter in stats["by_drafter"].values()) == stats[key]
    assert stats["n_accepted"] <= stats["n_drafted"]
    assert stats["n_recovered"] + stats["n_bonus"] <= stats["n_rounds"]
    assert stats["draft_acceptance_rate"] == ratio(stats["n_accepted"], stats["n_drafted"])
    assert stats["alpha_hat"] == ratio(stats["n_accepted"], stats["n_accepted"] + stats["n_recovered"])
    assert stats["mean_accepted_length"] == ratio(n_of_rounds, stats["n_rounds"])


def _times_agree(stats):
    times = ("load_s", "calibration_s", "prefill_s", "draft_prefill_s", "decode_s", "target_s", "draft_s", "overhead_s")
    assert all(stats[name] >= 0 for name in times)
    parts = [stats[name] for name in ("target_s", "draft_s", "draft_prefill_s", "overhead_s")]
    assert sum(parts) == pytest.approx(stats["decode_s"])
    assert sum(d["draft_s"] for d in stats["by_drafter"].values()) == pytest.approx(stats["draft_s"])
    if stats["n_generated"]:
        assert stats["ttft_s"] >= stats["prefill_s"] > 0
    else:
        assert stats["ttft_s"] is None
    n_after_first = max(0, stats["n_generated"] - 1)
    assert stats["decode_tok_s"] == ratio(n_after_first, stats["decode_s"] if n_after_first else 0)


def ratio(numerator, denominator):
    """About the quotient; null where it means nothing."""
    return pytest.approx(numerator / denominator) if denominator else None
