"""Grammars: refused where llama.cpp would die of them, followed token by token, and obeyed whatever drafts."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest

from specgen.errors import ConfigError
from specgen.llama.gbnf import check_gbnf
from specgen.llama.grammar import Grammar
from specgen.llama.json_schema import ignored_keywords, schema_to_gbnf
from specgen.llama.samplers import ChainSampler, make_sampler
from specgen.types import AcceptRule, DraftType, FinishReason, SamplingParams
from tests import tiny_gguf
from tests.gguf.helpers import answer, open_session, some_tokens, vocabulary_of
from tests.unit.helpers import check_counts

N_CTX_TRAIN = 512
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "größe": {"enum": ["klein", "groß", None]},
        "ages": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
        "is_on": {"type": "boolean"},
    },
    "required": ["name", "größe", "ages"],
}
JSON_GRAMMAR = schema_to_gbnf(json.dumps(SCHEMA))
ALL = tuple(DraftType)
NONE: tuple[DraftType, ...] = ()


@pytest.fixture(scope="module")
def vocabulary(tiny_models):
    with vocabulary_of(tiny_models.llama) as vocabulary:
        yield vocabulary


@pytest.fixture
def grammar(vocabulary):
    return lambda text: Grammar(vocabulary, text)


def tokens_of(vocabulary, text):
    return vocabulary.tokenize(text, parse_special=False)


def accept_text(grammar, vocabulary, text):
    for token in tokens_of(vocabulary, text):
        grammar.accept(token)


def next_texts(grammar, vocabulary):
    """What may come next, and `None` where the text may end."""
    ids = np.arange(vocabulary.n_tokens, dtype=np.int32)
    allowed = [*ids[grammar.allows(ids)].tolist()]
    return {None if token in vocabulary.eog_ids else vocabulary.token_bytes(token).decode() for token in allowed}


def assert_fits(text):
    value = json.loads(text)
    assert list(value)[:3] == ["name", "größe", "ages"]
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 8
    assert value["größe"] in ("klein", "groß", None)
    assert 1 <= len(value["ages"]) <= 3
    assert all(isinstance(age, int) for age in value["ages"])
    assert set(value) <= set(SCHEMA["properties"])


# What is refused


WRONG = {
    "": "there is no rule root",
    "# nothing": "there is no rule root",
    "root": "expecting ::=",
    "root := a": "expecting ::=",
    "::= a": "expecting the name",
    'root ::= "a': "expecting text in quotes",
    r'root ::= "\q"': "expecting text in quotes",
    r'root ::= "\x4"': "expecting text in quotes",
    "root ::= [a-": "expecting characters in brackets",
    "root ::= other": "there is no rule other",
    'other ::= "a"': "there is no rule root",
    'root ::= ("a"': "expecting )",
    'root ::= "a")': "expecting the end of the line",
    "root ::= *": "nothing stands before",
    'root ::= ""*': "nothing stands before",
    'root ::= "a" | ?': "nothing stands before",
    'root ::= "a"{x}': "expecting a repetition",
    'root ::= "a"{2001}': "more than 2,000",
    'root ::= ("a"{0,100}){100}': "more than 2,000",
    'root ::= "a"{3,1}': "ends before it begins",
    'root ::= <think> "a"': "token elements",
    "root ::= !<[5]>": "token elements",
    "root ::= root": "rule root can begin with itself",
    'root ::= "a" | root "b"': "rule root can begin with itself",
    'root ::= space* root "b" | "a"\nspace ::= " "': "rule root can begin with itself",
    'root ::= a root "b" | "a"\na ::= b\nb ::= ""': "rule root can begin with itself",
    'root ::= (a "b" | "c")\na ::= ("" root)': "can begin with itself",
    'root ::= "\0"': "NUL",
    'root ::= "\ud800"': "half a character",
    f"root ::= {'(' * 2001}{')' * 2001}": "nested deeper",
    "\n".join(f"r{i} ::= r{i + 1}" for i in range(20_001)): "more than 20,000 rules",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_wrong_grammar_is_refused_with_its_line_and_nothing_is_printed(grammar, capfd, text):
    with pytest.raises(ConfigError, match=f"line [0-9]+: .*{re.escape(WRONG[text])}") as caught:
        grammar(text)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert capfd.readouterr() == ("", "")


def test_the_line_is_counted():
    with pytest.raises(ConfigError, match="line 3: there is no rule nowhere"):
        check_gbnf('root ::= a\n# comment\na ::= "a" nowhere\n')


def test_what_only_llama_cpp_refuses_has_its_reason(grammar, capfd):
    with pytest.raises(ConfigError, match="left recursion"):
        grammar('root ::= ("" | "a")*')
    assert capfd.readouterr() == ("", "")


RIGHT = [
    "root ::= .",
    'root ::= [^"\\\\\\n] [a-z] [-+*/] [a-] [\\]\\[] "\\x41\\u00e9\\U0001F600" ""',
    'root ::= "a"{2} "b"{2,} "c"{0,5000} "d"{0} ("e" | "f"){ 1 , 3 }',
    "root ::= (\n  a |\n  b # comment\n  )+ a? b*\r\na ::= 'x'\n".replace("'", '"')
    + "b ::= [0-9]{1,\n3}".replace("\n", ""),
    'root ::= a a*\na ::= "x"*',
    'root ::= "a" root | ""',
    f"root ::= {'(' * 1900}[a]{')' * 1900}",
    "\n".join([f"r{i} ::= r{i + 1}" for i in range(15_000)] + ['r15000 ::= "a"', "root ::= r0"]),
]


@pytest.mark.parametrize("text", RIGHT, ids=range(len(RIGHT)))
def test_a_right_grammar_is_taken_by_llama_cpp_too(grammar, capfd, text):
    grammar(text)
    assert capfd.readouterr() == ("", "")


def random_grammar(seed):
    """Rules of a few symbols; half of them broken somewhere."""
    choose = random.Random(seed)

    def alternatives(depth):
        return " | ".join(" ".join(symbol(depth) for _ in range(choose.randrange(4))) for _ in range(1 + depth % 2))

    def symbol(depth):
        kinds = ['"x"', "[a-z]", '[^"\\\\]', "a", "b", '"é"', ".", '""', "root", "("]
        kind = choose.choice(kinds[: 9 + (depth < 3)])
        text = f"({alternatives(depth + 1)})" if kind == "(" else kind
        return text + choose.choice(["", "", "", "*", "?", "+", "{2}", "{0,2}", "{1,}", "{2,1}", "{0}"])

    text = "\n".join(f"{name} ::= {alternatives(0)}" for name in ("root", "a", "b"))
    at = choose.randrange(len(text))
    return text if choose.random() < 0.7 else text[:at] + choose.choice('()|*"[\n{') + text[at + 1 :]


def test_what_is_checked_is_what_llama_cpp_takes(vocabulary, capfd):
    """Grammars that pass neither print nor crash, and any token may be tried on them."""
    n_followed = 0
    for seed in range(1500):
        try:
            grammar = Grammar(vocabulary, random_grammar(seed))
        except ConfigError:
            continue
        n_followed += 1
        choose = np.random.default_rng(seed)
        ids = np.arange(vocabulary.n_tokens, dtype=np.int32)
        for _ in range(3):
            fork = grammar.fork()
            for token in choose.integers(-1, vocabulary.n_tokens + 9, 3):
                fork.accept(int(token))
            allowed = ids[grammar.allows(ids)]
            assert grammar.can_continue == bool({*allowed.tolist()} - vocabulary.eog_ids - vocabulary.hidden_ids)
            assert grammar.is_complete == bool({*allowed.tolist()} & vocabulary.eog_ids)
            if allowed.size:
                grammar.accept(int(choose.choice(allowed)))
            assert not grammar.is_lost
    assert n_followed > 100
    assert capfd.readouterr() == ("", "")


# Following a text


def test_it_allows_what_may_come_next_and_the_end_where_it_is_complete(grammar, vocabulary):
    yes_or_no = grammar('root ::= "th" ("e" | "ing")?')
    assert next_texts(yes_or_no, vocabulary) == {"t", "the"}
    assert not yes_or_no.is_complete
    accept_text(yes_or_no, vocabulary, "th")
    assert next_texts(yes_or_no, vocabulary) == {"e", "i", "in", "ing", None}
    assert yes_or_no.is_complete
    accept_text(yes_or_no, vocabulary, "e")
    assert next_texts(yes_or_no, vocabulary) == {None}
    assert not yes_or_no.can_continue
    yes_or_no.reset()
    assert next_texts(yes_or_no, vocabulary) == {"t", "the"}


def test_a_token_that_breaks_it_ends_the_constraint_and_not_the_process(grammar, vocabulary):
    digits = grammar("root ::= [0-9]+")
    for token in (*tokens_of(vocabulary, "x"), -1, vocabulary.n_tokens, 10**6, *vocabulary.hidden_ids):
        fork = digits.fork()
        fork.accept(token)
        assert fork.is_lost
        fork.accept(token)
        assert fork.can_continue
        assert fork.allows(np.arange(5, dtype=np.int32)).all()
    assert not digits.is_lost
    assert next_texts(digits, vocabulary) == set("0123456789")


def test_a_fork_goes_its_own_way(grammar, vocabulary):
    first = grammar('root ::= "ab" | "cd"')
    fork = first.fork()
    accept_text(fork, vocabulary, "a")
    accept_text(first, vocabulary, "c")
    assert next_texts(fork, vocabulary) == {"b"}
    assert next_texts(first, vocabulary) == {"d"}
    del first
    accept_text(fork, vocabulary, "b")
    assert not fork.can_continue


@pytest.mark.parametrize(
    ("text", "said", "forced"),
    [
        ('root ::= "name" ("s" | ":")', "", "name"),
        ('root ::= "name" ("s" | ":")', "na", "me"),
        ('root ::= "größe🦙" .', "", "größe🦙"),
        ('root ::= "a" "b"?', "", "a"),
        ('root ::= "end"', "e", "nd"),
        ("root ::= [a-b]", "", ""),
        ("root ::= .*", "", ""),
    ],
)
def test_forced_text_ends_where_there_is_a_choice(grammar, vocabulary, text, said, forced):
    followed = grammar(text)
    accept_text(followed, vocabulary, said)
    assert followed.forced(100) == forced.encode()
    assert followed.forced(2) == forced.encode()[:2]
    assert followed.forced(100) == forced.encode()


def test_forced_text_goes_on_in_the_middle_of_a_character(grammar, vocabulary):
    followed = grammar('root ::= "éa"')
    followed.accept(tiny_gguf.FIRST_BYTE + 0xC3)
    assert followed.forced(9) == b"\xa9a"


def test_text_without_end_is_forced_as_far_as_is_asked(grammar):
    assert grammar('root ::= "ab" root').forced(7) == b"abababa"


# In the chain


PICKY = {
    "defaults": {},
    "no cut": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "top-p": {"top_p": 0.7, "min_p": 0.0},
    "min-p": {"top_p": 1.0, "min_p": 0.2},
    "narrow": {"top_k": 3},
    "typical": {"typical_p": 0.5},
    "penalties": {"repeat_penalty": 1.5, "presence_penalty": -1.0},
    "DRY": {"dry_multiplier": 2.0, "dry_allowed_length": 1},
    "bias": {"logit_bias": ((tiny_gguf.FIRST_BYTE + ord("b"), 9.0),)},
    "greedy": {"temperature": 0.0},
    "greedy with penalty": {"temperature": 0.0, "repeat_penalty": 2.0},
}
GRAMMARS = {
    "few": 'root ::= "b" | "cd" | "the"',
    "many": 'root ::= [^"]*',
    "words": "root ::= [a-m]+",
    "json": JSON_GRAMMAR,
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A vocabulary so large that few candidates are looked at first, with 3,000 words."""
    letters = "abcdefghijklmno"
    first = len(tiny_gguf.bpe().tokens)
    words = [a + b + c for a in letters for b in letters for c in letters if a + b + c not in tiny_gguf.bpe().tokens]
    words = words[:3000]
    tokenizer = tiny_gguf.bpe().padded(first + 3000)
    types = (*tokenizer.types[:first], *(tiny_gguf.TokenType.NORMAL for _ in words))
    tokenizer = tiny_gguf.replace(tokenizer.renamed(dict(enumerate(words, first))), types=types)
    path = tmp_path_factory.mktemp("models") / "wide.gguf"
    with vocabulary_of(tiny_gguf.write_llama(path, tokenizer=tokenizer, n_layer=1)) as vocabulary:
        yield vocabulary


@pytest.mark.parametrize("text", GRAMMARS.values(), ids=GRAMMARS)
@pytest.mark.parametrize("setting", PICKY.values(), ids=PICKY)
@pytest.mark.parametrize("shift", [0.0, -12.0], ids=["wanted", "unwanted"])
def test_a_few_candidates_give_what_the_whole_vocabulary_gives(wide, text, setting, shift):
    """Also where the model wants what the grammar forbids."""
    params = SamplingParams(**{"temperature": 0.8, "seed": 3, **setting}, grammar=text)
    few, every = (ChainSampler(wide, params, N_CTX_TRAIN) for _ in range(2))
    every._widths = (wide.n_tokens,)
    choose = np.random.default_rng(1)
    for sampler in (few, every):
        sampler.reset(some_tokens(30))
    for _ in range(10):
        logits = choose.normal(0, 3, wide.n_tokens).astype(np.float32)
        allowed = few._grammar.allows(few._all_ids)
        logits[allowed] += shift
        found, expected = (sampler.distribution(logits.copy()) for sampler in (few, every))
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.probs, expected.probs)
        assert allowed[found.ids].all()
        token = expected.draw(choose.random())
        if token in wide.eog_ids:
            break
        for sampler in (few, every):
            sampler.accept(token)
        if few.is_finished():
            break


def test_the_best_candidates_that_are_forbidden_are_ruled_out_in_the_logits(wide):
    """A draft's confidence is the probability among what is left."""
    sampler = make_sampler(wide, SamplingParams(grammar='root ::= "b"'), N_CTX_TRAIN)
    sampler.reset([])
    logits = np.random.default_rng(1).normal(0, 3, wide.n_tokens).astype(np.float32)
    (token,) = sampler.distribution(logits).ids
    assert wide.token_bytes(int(token)) == b"b"
    assert logits.argmax() == token


def test_invisible_tokens_are_no_part_of_an_answer_with_a_grammar(vocabulary):
    """To llama.cpp `<s>` is three characters; the reader of the answer sees none."""
    sampler = make_sampler(vocabulary, SamplingParams(grammar='root ::= "<s>" | "a"'), N_CTX_TRAIN)
    sampler.reset([])
    logits = np.zeros(vocabulary.n_tokens, dtype=np.float32)
    logits[tiny_gguf.BOS] = 9
    assert sampler.distribution(logits).ids != [tiny_gguf.BOS]


def test_text_that_no_token_spells_is_an_error(vocabulary):
    sampler = make_sampler(vocabulary, SamplingParams(grammar=r"root ::= [^\x00-\UFFFFFFFF]"), N_CTX_TRAIN)
    sampler.reset([])
    with pytest.raises(ConfigError, match="no token of the model spells"):
        sampler.is_finished()
    assert sampler.fork().is_finished()


# In a session


DRAFTERS = {
    "nothing": (0, NONE),
    "grammar": (5, (DraftType.GRAMMAR,)),
    "model": (4, (DraftType.MODEL,)),
    "all": (8, ALL),
    "grammar and model": (1, (DraftType.GRAMMAR, DraftType.MODEL)),
    "adaptive": (None, ALL),
}
SAMPLED = {"temperature": 1.5}


def ask_for_json(session, seed, **question):
    question = {"grammar": JSON_GRAMMAR, "seed": seed, "n_ctx": 512, **question}
    return answer(session, some_tokens(10, seed), 300, **question)


@pytest.mark.parametrize("accept", AcceptRule)
@pytest.mark.parametrize(("gamma", "draft_types"), DRAFTERS.values(), ids=DRAFTERS)
def test_every_sampled_answer_fits_the_schema_whatever_drafts(tiny_models, gamma, draft_types, accept):
    n_accepted = 0
    with open_session(tiny_models.llama, tiny_models.llama_draft, gamma, draft_types=draft_types) as session:
        for seed in range(4):
            metrics = ask_for_json(session, seed, accept=accept, **SAMPLED)
            assert metrics.finish_reason is FinishReason.STOP
            assert_fits(metrics.text)
            n_accepted += check_counts(metrics, ended_by_eog=ended_by_eog(metrics)).n_accepted
    if gamma is not None:
        assert bool(n_accepted) == (gamma > 0)


@pytest.mark.parametrize("gamma", range(13))
def test_every_sampled_answer_fits_the_schema_for_every_draft_length(tiny_models, gamma):
    """104 seeds in all."""
    with open_session(tiny_models.llama, tiny_models.llama_draft, gamma, draft_types=ALL) as session:
        for seed in range(8 * gamma, 8 * gamma + 8):
            assert_fits(ask_for_json(session, seed, **SAMPLED).text)


def ended_by_eog(metrics):
    """A grammar that is at its end ends an answer without a token that says so."""
    n_decided = 1 + sum(round_.n_tokens for round_ in metrics.rounds)
    return n_decided == len(metrics.token_ids) + 1


@pytest.mark.parametrize("gamma", range(13))
def test_greedy_text_within_a_grammar_is_the_same_for_every_draft_length(tiny_models, gamma):
    paths = (tiny_models.llama, tiny_models.llama_draft)
    texts = {}
    for draft_types in (NONE, (DraftType.GRAMMAR,), ALL):
        with open_session(*paths, gamma if draft_types else 0, draft_types=draft_types) as session:
            texts[draft_types] = [ask_for_json(session, seed).text for seed in range(5)]
    for text in texts[NONE]:
        assert_fits(text)
    assert texts[(DraftType.GRAMMAR,)] == texts[ALL] == texts[NONE]


@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_a_seed_means_one_text_when_matching_within_a_grammar(tiny_models, gamma):
    paths = (tiny_models.llama, tiny_models.llama_draft)
    settings = {"accept": AcceptRule.MATCH, "temperature": 0.8}
    with open_session(*paths, 0) as plain, open_session(*paths, gamma, draft_types=ALL) as drafted:
        for seed in range(5):
            assert ask_for_json(drafted, seed, **settings).text == ask_for_json(plain, seed, **settings).text


def test_what_a_grammar_forces_is_drafted_without_a_model(tiny_models):
    """The tiny model cuts names into odd pieces; a grammar of single letters leaves it no choice."""
    forced = "".join(f'"{letter}" ' for letter in "zyxwvu" * 5)
    with open_session(tiny_models.llama, None, 8, draft_types=(DraftType.GRAMMAR,)) as session:
        metrics = answer(session, max_tokens=100, grammar=f"root ::= {forced}")
    assert metrics.text == "zyxwvu" * 5
    stats = check_counts(metrics)
    assert stats.n_accepted == stats.n_drafted == stats.by_drafter["grammar"].n_drafted
    assert stats.n_rounds < 10


@pytest.mark.parametrize("ignore_eog", [False, True])
@pytest.mark.parametrize(("gamma", "draft_types"), DRAFTERS.values(), ids=DRAFTERS)
def test_an_answer_ends_where_its_grammar_does(tiny_models, gamma, draft_types, ignore_eog):
    with open_session(tiny_models.llama, tiny_models.llama_draft, gamma, draft_types=draft_types) as session:
        for text in ("", "a", "the answer"):
            metrics = answer(session, max_tokens=50, grammar=f'root ::= "{text}"', ignore_eog=ignore_eog)
            assert (metrics.text, metrics.finish_reason) == (text, FinishReason.STOP)


def test_a_grammar_that_may_end_does_not_when_ends_are_ignored(tiny_models):
    with open_session(tiny_models.llama, tiny_models.llama_draft) as session:
        metrics = answer(session, max_tokens=40, grammar="root ::= [a-z]*", ignore_eog=True, temperature=1.0)
    assert (len(metrics.token_ids), metrics.finish_reason) == (40, FinishReason.LENGTH)
    assert re.fullmatch("[a-z]+", metrics.text)


def test_a_second_answer_begins_its_grammar_anew(tiny_models):
    with open_session(tiny_models.llama, tiny_models.llama_draft, draft_types=ALL) as session:
        first, second = (ask_for_json(session, 1).text for _ in range(2))
    assert first == second


def test_a_spm_vocabulary_obeys_too(tiny_models):
    with open_session(tiny_models.gemma3, tiny_models.gemma3_draft, draft_types=ALL) as session:
        for seed in range(3):
            assert_fits(ask_for_json(session, seed, **SAMPLED).text)


# JSON schemas


WRONG_SCHEMAS = {
    "{": "is not JSON",
    "[]": "must be an object",
    '{"type": "strin"}': "Unrecognized schema",
    '{"$ref": "https://example.com/s.json"}': "remote schemas",
    '{"$ref": "#/nowhere"}': "nowhere",
    '{"properties": 3}': "no valid schema",
    '{"enum": []}': "expecting the end of the line",
    '{"type": "string", "pattern": "no anchors"}': "Pattern must start",
    '{"type": "string", "maxLength": 100000}': "nested deeper",
    '{"enum": ["\\ud800"]}': "half a character",
    '{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}': "can begin with itself",
}


@pytest.mark.parametrize("text", WRONG_SCHEMAS, ids=range(len(WRONG_SCHEMAS)))
def test_a_wrong_schema_is_refused(capfd, text):
    with pytest.raises(ConfigError, match=re.escape(WRONG_SCHEMAS[text])) as caught:
        schema_to_gbnf(text)
    assert "JSON schema" in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    assert capfd.readouterr() == ("", "")


def test_quotes_and_backslashes_in_names_and_values_stay_json(vocabulary):
    value = {'a"b\\c\n': 'C:\\dir "x"\té'}
    schema = {"type": "object", "properties": {name: {"const": text} for name, text in value.items()}}
    grammar = Grammar(vocabulary, schema_to_gbnf(json.dumps({**schema, "required": list(value)})))
    accept_text(grammar, vocabulary, json.dumps(value, ensure_ascii=False))
    assert not grammar.is_lost
    assert grammar.is_complete


def test_strings_hold_no_control_characters(vocabulary):
    grammar = Grammar(vocabulary, schema_to_gbnf('{"type": "string"}'))
    accept_text(grammar, vocabulary, '"a')
    for text in ("\n", "\t", "\x01"):
        fork = grammar.fork()
        accept_text(fork, vocabulary, text)
        assert fork.is_lost


def test_a_schema_that_refers_to_itself(vocabulary):
    node = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
    schema = {"$defs": {"node": {**node, "required": ["next"]}}, "$ref": "#/$defs/node"}
    grammar = Grammar(vocabulary, schema_to_gbnf(json.dumps(schema)))
    accept_text(grammar, vocabulary, '{"next": {"next": null}}')
    assert grammar.is_complete


def test_what_is_not_enforced_is_named():
    schema = {"properties": {"minimum": {"type": "integer", "minimum": 3}, "x": {"enum": [{"not": 1}]}}, "not": {}}
    assert ignored_keywords(json.dumps(schema)) == ["minimum", "not"]
    assert ignored_keywords(json.dumps(SCHEMA)) == []
