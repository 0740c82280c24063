"""The arithmetic of `bench/`: what is compared with what."""

from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)


def run(tok_s, bare_tok_s=None, **counts):
    from arms import Run

    return Run(tok_s, bare_tok_s or tok_s, **{"n_prompt": 10, "n_tokens": 50, "peak_bytes": 0, **counts})


def measurements(arm, speeds, prompt):
    from measure import Measurement

    return [Measurement(arm, prompt, repeat, run(tok_s)) for repeat, tok_s in enumerate(speeds)]


def test_two_runs_of_specgen_are_compared_by_what_the_user_waits_for():
    from arms import ratio

    assert ratio(run(60, 90), run(30, 30)) == 2


def test_a_run_of_llama_cpp_is_compared_without_the_prefill_of_the_draft():
    from arms import ratio

    assert ratio(run(60, 90), run(None, 45)) == 2


def test_ratios_are_taken_within_a_repeat_so_that_a_drifting_machine_does_not_enter():
    from arms import Arm, Role
    from comparison import compare
    from prompts import Prompt

    plain, other = Arm("plain", Role.PLAIN, "specgen"), Arm("other", Role.FIXED, "specgen")
    list_, story = Prompt("list", "list", ""), Prompt("story", "story", "")
    measured = [
        *measurements(plain, [10, 20, 40], list_),
        *measurements(other, [20, 40, 80], list_),
        *measurements(plain, [10, 10, 10], story),
        *measurements(other, [4, 5, 80], story),
    ]
    comparison = compare(measured, other, plain)
    assert comparison.medians == {"list": 2.0, "story": 0.5}
    assert comparison.mean == pytest.approx(1.0)
    assert comparison.worst == ("story", 0.5)
    assert comparison.spread == (0.4, 8.0)


def test_the_best_arm_of_a_role_comes_first():
    from arms import Arm, Role
    from comparison import ranked
    from prompts import Prompt

    plain = Arm("plain", Role.PLAIN, "specgen")
    slow, fast = (Arm(name, Role.FIXED, "specgen", (name,)) for name in ("slow", "fast"))
    prompt = Prompt("list", "list", "")
    measured = [m for arm, speed in ((plain, 10), (slow, 5), (fast, 15)) for m in measurements(arm, [speed], prompt)]
    assert ranked(measured, Role.FIXED) == [fast, slow]
    assert ranked(measured, Role.PEER) == []


@pytest.mark.parametrize(("text", "n_counted"), [("The end.", 51), ("Another end.", 57)])
def test_tokens_behind_the_end_of_an_answer_do_not_count_where_they_can_be_told(text, n_counted):
    from arms import Task
    from llama_programs import without_surplus

    plain = run(10, text="The end.\n")
    task = Task(Path("t"), None, Path("p"), 160, 1, ignores_eos=False, plain=plain)
    assert without_surplus(57, text, task) == n_counted
