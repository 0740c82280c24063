"""A short comparison on the real demo pair."""

from __future__ import annotations

from specgen.bench.compare import PairFiles, Task, Watchers, compare
from specgen.bench.record import Role
from specgen.bench.statistics import Summary
from specgen.bench.verdict import verdict
from specgen.bench.workload import built_in
from specgen.session import SessionParams


def test_a_comparison_measures_the_demo_pair(demo):
    prompts = tuple(p for p in built_in() if p.name in ("edit 1", "chat 1"))
    pairs = (PairFiles("demo", demo.draft),)
    report = compare(Task(demo.target, pairs, SessionParams(n_threads=2), (4,), prompts, "two", 10.0), Watchers())
    summary = Summary(report)
    fixed = summary.row(report.arms_of(Role.FIXED)[0])
    assert fixed.n_drafted > 0
    assert fixed.predicted is not None
    (pair,) = report.pairs
    assert pair.n_agreed / pair.n_compared > 0.6
    assert report.verify_s[8] > report.verify_s[1]
    assert "is a tie" in verdict(summary)[-1]
