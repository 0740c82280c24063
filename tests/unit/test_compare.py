"""Comparisons: their arithmetic, their verdicts, and the files they are kept in."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import specgen.bench
from specgen.bench import difference, tables
from specgen.bench.budget import Plan, Speed, choose, parse_duration, seconds_of
from specgen.bench.prediction import Obstacle, diagnose, predicted_speedup, verify_ratios
from specgen.bench.record import Role, from_data, load, save
from specgen.bench.statistics import ALL, Summary
from specgen.bench.verdict import verdict
from specgen.bench.workload import WARM_UP, built_in, read_prompts
from specgen.errors import ConfigError, ModelNotFoundError, UsageError
from tests.unit.comparisons import F32, Q4_1, report_of

SCHEMA = json.loads(Path(specgen.bench.__file__).with_name("schemas").joinpath("compare.schema.json").read_text())
GOOD = {"fast": {"code": 1.62, "chat": 1.30, "story": 1.0}}


def arm(summary, role=Role.PAIR, n=0):
    return summary.report.arms_of(role)[n]


def test_a_speed_is_all_tokens_over_all_time_and_a_speed_up_the_median_of_the_repeats():
    summary = Summary(report_of(GOOD))
    row = summary.row(arm(summary), "code")
    assert row.tok_s == pytest.approx(162)
    assert row.speedup.median == pytest.approx(1.62)
    assert (row.n_answers, row.n_tokens) == (3, 300)
    over_all = summary.row(arm(summary), ALL)
    assert over_all.tok_s == pytest.approx(300 / (100 / 162 + 100 / 130 + 1))


def test_a_difference_within_the_spread_of_two_equal_arms_is_a_tie():
    narrow = Summary(report_of({"a": {"code": 1.05, "chat": 1.05}}))
    wide = Summary(report_of({"a": {"code": 1.05, "chat": 1.05}}, wobble=(0.93, 1.0, 1.08)))
    assert narrow.spread == pytest.approx(0.01, abs=2e-3)
    assert wide.spread == pytest.approx(0.08, abs=2e-3)
    assert not narrow.row(arm(narrow)).speedup.is_tie
    assert wide.row(arm(wide)).speedup.is_tie


def test_few_ratios_of_the_control_claim_no_narrow_spread():
    assert Summary(report_of({"a": {"code": 1.2}}, wobble=(1.0,))).spread == 0.05


def test_an_answer_that_its_partners_lack_is_not_compared():
    report = report_of(GOOD)
    short = report.with_answers(report.answers[:5], "interrupted")
    summary = Summary(short)
    assert summary.row(arm(summary), "code").speedup.median == pytest.approx(1.62)
    assert summary.row(arm(summary), "story").speedup is None
    assert verdict(summary)
    assert verdict(Summary(report.with_answers((), "interrupted"))) == ["nothing was compared yet"]


def test_acceptance_is_counted_by_position_and_by_length():
    row = (summary := Summary(report_of(GOOD))).row(arm(summary), "code")
    assert [(p.n_drafted, p.n_accepted) for p in row.by_position] == [(3, 3), (3, 3), (3, 3), (3, 0)]
    assert [(p.n_drafted, p.n_accepted) for p in row.by_length] == [(0, 0), (0, 0), (0, 0), (12, 9)]
    assert row.alpha_hat == 9 / 12


def test_the_verdict_names_what_is_gained_where_and_what_it_costs():
    first, *rest = verdict(Summary(report_of(GOOD)))
    assert first == "use fast: 1.62x on code, 1.30x on chat, costs 0.9 GB more; no difference on story"
    assert any("predicted" in line and "measured" in line for line in rest)
    assert rest[-1].startswith("a difference of up to 1.0 % is a tie")


def test_a_pair_that_does_not_draft_has_switched_itself_off():
    first = verdict(Summary(report_of({"a": {"code": 1.5, "story": 1.0}}, gamma=0)))[0]
    assert first.endswith("on story it switches itself off")


def test_a_slower_category_is_said():
    assert verdict(Summary(report_of({"a": {"code": 1.5, "story": 0.9}})))[0].endswith("but slower: 0.90x on story")


def test_a_pair_compared_with_itself_is_a_tie():
    summary = Summary(report_of({"demo": {"code": 1.3, "chat": 1.2}, "demo (2)": {"code": 1.304, "chat": 1.198}}))
    assert any("are a tie" in line for line in verdict(summary))


def test_the_faster_of_two_pairs_is_recommended_and_the_other_set_beside_it():
    lines = verdict(Summary(report_of({"slow": {"code": 1.1, "chat": 1.1}, "fast": {"code": 1.5, "chat": 1.5}})))
    assert lines[0].startswith("use fast")
    assert any(line.startswith("slow runs at 0.73x of fast") for line in lines)


@pytest.mark.parametrize(
    ("costs", "step_s", "alpha", "reason", "numbers"),
    [
        (F32, 0.0050, 0.01, Obstacle.LOW_ACCEPTANCE, "α = 0.01, c = 0.32"),
        (Q4_1, 0.0066, 0.75, Obstacle.COMPUTE_BOUND, "v(2) = 1.75"),
        (F32, 0.0150, 0.90, Obstacle.SLOW_DRAFT, "c = 0.96"),
    ],
    ids=["an unrelated draft", "a 4-bit target", "a draft as slow as its target"],
)
def test_what_does_not_pay_is_explained_with_numbers(costs, step_s, alpha, reason, numbers):
    report = report_of({"a": {"code": 0.97, "chat": 0.99}}, verify_s=costs, step_s=step_s, alpha=alpha)
    lines = verdict(Summary(report))
    assert lines[0] == "decode plainly: a does not pay here"
    why = next(line for line in lines if "because" in line)
    assert reason in why
    assert numbers in why


def test_a_recorded_pair_that_pays_has_no_obstacle():
    assert not diagnose(0.9, 0.32, verify_ratios(F32)).obstacles


def test_the_prediction_is_the_papers_formula_and_plain_rounds_dilute_it():
    flat = {1: 1.0, 16: 1.0}
    assert predicted_speedup(0.8, 4, 4 * 0.05, flat) == pytest.approx((1 - 0.8**5) / 0.2 / 1.2)
    assert predicted_speedup(1.0, 4, 0.0, flat) == pytest.approx(5)
    assert predicted_speedup(1.0, 4, 0.0, flat, share=0.5) == pytest.approx(3)


def test_the_prediction_stands_beside_the_measurement():
    summary = Summary(report_of(GOOD))
    assert summary.row(arm(summary)).predicted == pytest.approx(
        predicted_speedup(0.75, 4, 0.4, verify_ratios(summary.report.verify_s), 1 / 3)
    )


def test_a_report_survives_its_file_and_fits_its_schema(tmp_path):
    report = report_of(GOOD)
    save(tables.as_report_data(Summary(report)), tmp_path / "new" / "report.json")
    assert load(tmp_path / "new" / "report.json") == report
    data = json.loads((tmp_path / "new" / "report.json").read_text())
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(data, SCHEMA)
    assert list(tmp_path.rglob("*.part")) == []
    assert from_data({**data, "added_later": 1}) == report


def test_the_schema_names_every_key_of_a_report():
    data = json.loads(json.dumps(tables.as_report_data(Summary(report_of(GOOD)))))

    def check(value, schema):
        schema = next((s for s in schema.get("anyOf", ()) if s.get("type") == "object"), schema)
        if isinstance(value, list):
            for item in value:
                check(item, schema["items"])
        elif isinstance(value, dict) and "properties" in schema:
            assert [*value] == [*schema["properties"]]
            for key, item in value.items():
                check(item, schema["properties"][key])

    check(data, SCHEMA)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema_version": 2, "kind": "compare"}', '{"schema_version": 1}'])
def test_what_is_no_report_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ConfigError, match="no report of specgen compare"):
        load(tmp_path / "x.json")
    with pytest.raises(ModelNotFoundError):
        load(tmp_path / "nothing.json")


def test_csv_has_a_line_per_arm_and_category():
    rows = list(csv.DictReader(io.StringIO(tables.as_csv(Summary(report_of(GOOD))))))
    assert len(rows) == 3 * 4
    (code,) = [row for row in rows if (row["arm"], row["category"]) == ("fast", "code")]
    assert float(code["speedup_median"]) == pytest.approx(1.62)


def test_tables_are_cut_off_nowhere():
    summary = Summary(report_of(GOOD))
    for table in tables.tables(summary):
        lines = tables.plain_text(table)
        assert all(len(line) <= 80 for line in lines)
        assert all(cell in "\n".join(lines) for row in table.rows for cell in row)
    narrow = tables.plain_text(tables.tables(summary)[0], width=30)
    assert "code: plain 100.0, tok/s 100.0" in narrow[1]
    assert "use fast: 1.62x on code" in tables.markdown(summary)


def test_two_reports_differ_only_beyond_their_noise():
    old = Summary(report_of(GOOD))
    same = Summary(report_of({"fast": {"code": 1.61, "chat": 1.31, "story": 1.0}}))
    worse = Summary(report_of({"fast": {"code": 1.20, "chat": 1.30, "story": 1.0}}))
    assert difference.verdict(old, same)[0].startswith("nothing changed beyond the noise")
    assert difference.verdict(old, worse) == ["speed-ups: 0 better, 2 worse, 6 the same"]
    assert ("fast, code", "speed-up", "1.62", "1.20", "-25.9 %") in difference.table(
        difference.changes(old, worse)
    ).rows
    assert "| fast, code | speed-up |" in difference.markdown(old, worse)


def test_two_reports_say_what_else_differs():
    old = report_of(GOOD)
    new = replace(old, versions={**old.versions, "llama_cpp": "2"})
    assert difference.notes(old, new) == ["llama_cpp version: 1 before, 2 now"]


def test_a_budget_decides_how_much_is_measured():
    lengths = [[20, 20], [600, 30]]
    quick, slow = [Speed(0.001, 0.01)] * 4, [Speed(0.5, 5.0)] * 4
    assert choose(lengths, quick, 180) == Plan(2, 128, 5)
    assert choose(lengths, slow, 180) == Plan(1, 8, 1)
    medium = choose(lengths, [Speed(0.003, 0.05)] * 4, 180)
    assert seconds_of(medium, [20, 600], [Speed(0.003, 0.05)] * 4) < 180
    assert Plan(1, 8, 1) != medium != Plan(2, 128, 5)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("3m", 180), ("1m30s", 90), ("1h", 3600)])
def test_a_budget_is_a_time(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "soon", "-3m", "3x"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="--budget"):
        parse_duration(text)


def test_the_built_in_prompts_are_distinct_and_of_eight_categories():
    prompts = built_in()
    assert len({p.text for p in (*prompts, *WARM_UP)}) == len(prompts) + len(WARM_UP)
    assert len({p.name for p in prompts}) == len(prompts)
    assert len({p.category for p in prompts}) == 8


def test_prompts_of_a_file(tmp_path):
    text, lines = tmp_path / "mine.txt", tmp_path / "mine.jsonl"
    text.write_text("one\n\nstill one\n---\ntwo\n---\n\n")
    lines.write_text('{"prompt": "a", "category": "x"}\n\n{"prompt": "b"}\n')
    assert [(p.category, p.text) for p in read_prompts(text)] == [("mine", "one\n\nstill one"), ("mine", "two")]
    assert [(p.category, p.text) for p in read_prompts(lines)] == [("x", "a"), ("mine", "b")]


@pytest.mark.parametrize("line", ["hello", "[]", '{"category": "x"}', '{"prompt": 1}', '{"prompt": " "}'])
def test_a_line_that_is_no_prompt_is_named(tmp_path, line):
    (tmp_path / "p.jsonl").write_text(f'{{"prompt": "good"}}\n{line}\n')
    with pytest.raises(UsageError, match="line 2"):
        read_prompts(tmp_path / "p.jsonl")
    (tmp_path / "empty.txt").write_text("---\n")
    with pytest.raises(UsageError, match="no prompts"):
        read_prompts(tmp_path / "empty.txt")
