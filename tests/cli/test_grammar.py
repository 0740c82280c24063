"""`--grammar` and `--json-schema`: text or file, obeyed, and refused in two lines."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import PROMPT

YES_OR_NO = 'root ::= "yes" | "no"'
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "boolean"}}, "required": ["n", "s"]}


@pytest.fixture
def files(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize("draft", [True, False])
@pytest.mark.parametrize("is_file", [True, False])
def test_an_answer_is_what_the_grammar_allows(specgen, models, files, is_file, draft):
    grammar = files("grammar.gbnf", YES_OR_NO + "\n") if is_file else YES_OR_NO
    drafts = ["--draft", models.draft] if draft else []
    found = specgen.run(models.target, PROMPT, *drafts, "--grammar", grammar)
    assert (found.code, found.stdout) in ((0, "yes\n"), (0, "no\n"))
    assert "within a grammar" in found.stderr


@pytest.mark.parametrize("is_file", [True, False])
def test_an_answer_is_json_of_the_schema(specgen, models, files, is_file):
    text = json.dumps(SCHEMA)
    schema = files("schema.json", text) if is_file else text
    found = specgen.run(models.target, PROMPT, "--json-schema", schema, "--json", "--temperature", 1, "--seed", 5)
    value = json.loads(found.json["text"])
    assert [*value] == ["n", "s"]
    assert "root ::=" in found.json["settings"]["grammar"]
    assert found.json["speculation"]["drafters"][0] == "grammar"
    assert found.json["finish_reason"] == "stop"


def test_what_of_a_schema_is_not_enforced_is_noted(specgen, models):
    found = specgen.run(models.target, PROMPT, "-n", 2, "--json-schema", '{"type": "integer", "minimum": 3}')
    assert "--json-schema: not enforced: minimum" in found.notes()


def test_the_end_of_a_grammar_is_the_end_of_an_endless_answer(specgen, models):
    found = specgen.run(models.target, PROMPT, "--ignore-eos", "--grammar", YES_OR_NO, "--json")
    assert found.json["finish_reason"] == "stop"


WRONG = {
    "both": (2, ["--grammar", YES_OR_NO, "--json-schema", "{}"], "--json-schema"),
    "no such grammar file": (3, ["--grammar", "nowhere.gbnf"], "no such file"),
    "no such schema file": (3, ["--json-schema", "nowhere.json"], "no such file"),
    "a folder": (3, ["--grammar", "/"], "cannot be read"),
    "nothing": (3, ["--grammar", ""], "cannot be read"),
    "a long line": (3, ["--json-schema", "x" * 9999], "cannot be read"),
    "not UTF-8": (2, ["--grammar", b"root ::= \xff"], "not UTF-8"),
    "broken": (3, ["--grammar", 'root ::= "yes'], "line 1"),
    "left recursion": (3, ["--grammar", "root ::= root"], "begin with itself"),
    "what only llama.cpp sees": (3, ["--grammar", 'root ::= ("" | "a")*'], "left recursion"),
    "not JSON": (3, ["--json-schema", "{"], "not JSON"),
    "no schema": (3, ["--json-schema", '{"type": "strin"}'], "Unrecognized"),
    "drafts of no grammar": (3, ["--draft-type", "grammar"], "--draft-type grammar"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_grammar_is_two_lines(specgen, models, case):
    code, words, said = WRONG[case]
    specgen.run(models.target, PROMPT, *words, "-q").assert_error(code, said)


def test_files_of_bytes_are_refused(specgen, models, files):
    path = files("grammar.gbnf", b"root ::= \xff")
    specgen.run(models.target, PROMPT, "-q", "--grammar", path).assert_error(3, "not UTF-8")


def test_a_grammar_that_the_model_cannot_spell_is_said(specgen, models):
    found = specgen.run(models.target, PROMPT, "-q", "--grammar", r"root ::= [^\x00-\UFFFFFFFF]")
    found.assert_error(3, "no token of the model spells")
