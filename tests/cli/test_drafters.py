"""What drafts: `--draft-type`, `--draft-corpus`, and that the text never depends on it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import PROMPT

TYPES = ["none", "lookup", "suffix", "model", "lookup,suffix", "suffix,model", "model,lookup,suffix", "auto"]


@pytest.fixture(scope="module")
def plain(specgen, models):
    return specgen.run(models.target, PROMPT, "-n", 150, "--gamma", 0, "-q").out


@pytest.mark.parametrize("gamma", ["auto", 1, 5])
@pytest.mark.parametrize("types", TYPES)
def test_the_text_is_that_of_plain_decoding(specgen, models, plain, types, gamma):
    words = ["--draft", models.draft, "--draft-type", types, "--gamma", gamma]
    assert specgen.run(models.target, PROMPT, "-n", 150, *words, "-q").out == plain


@pytest.mark.parametrize("types", TYPES)
def test_a_seed_means_one_text_under_match(specgen, models, types):
    words = ["-n", 80, "--temperature", 1, "--seed", 3, "--accept", "match", "-q"]
    plain = specgen.run(models.target, PROMPT, *words, "--gamma", 0).out
    drafted = specgen.run(models.target, PROMPT, *words, "--draft", models.draft, "--draft-type", types, "--gamma", 3)
    assert drafted.out == plain


def test_each_drafter_has_statistics_of_its_own(specgen, models):
    words = ["--draft", models.draft, "--draft-type", "suffix,model", "--gamma", 4, "--json"]
    found = specgen.run(models.target, PROMPT, "-n", 150, *words).json
    assert found["speculation"]["drafters"] == ["suffix", "model"]
    by_drafter = found["stats"]["by_drafter"]
    assert by_drafter.keys() == {"suffix", "model"}
    assert all(part["n_drafted"] > 0 for part in by_drafter.values())


def test_a_target_alone_drafts_by_suffix(specgen, models):
    found = specgen.run(models.target, PROMPT, "-n", 60, "--json").json
    assert found["speculation"]["drafters"] == ["suffix"]
    assert found["settings"]["gamma"] is None


def test_an_unknown_drafter_is_a_usage_error(specgen, models):
    found = specgen.run(models.target, PROMPT, "--draft-type", "suffix,eagle")
    found.assert_error(2, "--draft-type does not know 'eagle'", "lookup, suffix, model")


def test_a_corpus_with_the_answer_makes_it_faster(specgen, models, tmp_path):
    text = specgen.run(models.target, PROMPT, "-n", 150, "--gamma", 0, "-q").stdout
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "one.txt").write_text(PROMPT + text, encoding="utf-8")
    (tmp_path / "answers" / "image.png").write_bytes(b"\x89PNG\0\0")
    words = [models.target, PROMPT, "-n", 150, "--gamma", 8, "--json"]
    alone = specgen.run(*words).json["stats"]
    helped = specgen.run(*words, "--draft-corpus", tmp_path / "answers").json["stats"]
    assert helped["n_accepted"] > alone["n_accepted"]
    assert specgen.run(*words, "--draft-corpus", tmp_path / "answers" / "one.txt").json["stats"] is not None


@pytest.mark.parametrize("content", [None, b"", b"\0\1\2", b"\xff\xfe\xff"], ids=["missing", "empty", "zeros", "latin"])
def test_a_corpus_without_text_is_an_error(specgen, models, tmp_path, content):
    path = tmp_path / "corpus"
    if content is not None:
        path.write_bytes(content)
    specgen.run(models.target, PROMPT, "--draft-corpus", path).assert_error(3, "--draft-corpus")


def test_a_corpus_is_only_read(specgen, models, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("something", encoding="utf-8")
    assert specgen.run(models.target, PROMPT, "-n", 5, "--draft-corpus", path).code == 0
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
    assert path.read_text(encoding="utf-8") == "something"


def test_a_draft_that_is_left_out_is_noted(specgen, models):
    words = ["--draft", models.draft, "--draft-type", "suffix"]
    assert any("--draft has no effect" in line for line in specgen.run(models.target, PROMPT, "-n", 3, *words).notes())
