"""Whether one file's token ids mean what another's mean, and the first reason why not."""

from __future__ import annotations

import pytest

from specgen.llama.model import LlamaModel
from specgen.pairs.compatibility import MAX_PADDING, N_TOLERATED, Compatibility, Match, compare
from tests.tiny_gguf import CONTROL, END_OF_TEXT, FIRST_BYTE, IM_START, NO_TOKENIZER, bpe, spm, write_llama

N_TOKENS = len(bpe().tokens)


@pytest.fixture
def verdict(tmp_path):
    """Compares two tokenizers as the files target.gguf and draft.gguf carry them."""

    def of(target=None, draft=None) -> Compatibility:
        write_llama(tmp_path / "target.gguf", tokenizer=target or bpe())
        write_llama(tmp_path / "draft.gguf", tokenizer=draft or bpe())
        with LlamaModel(tmp_path / "target.gguf") as one, LlamaModel(tmp_path / "draft.gguf") as other:
            return compare(one.vocabulary, other.vocabulary)

    return of


def refused(reason: str) -> Compatibility:
    return Compatibility(Match.REFUSED, reason)


@pytest.mark.parametrize("tokenizer", [bpe, spm])
def test_equal_vocabularies_match(verdict, tokenizer):
    assert verdict(tokenizer(), tokenizer()) == Compatibility(Match.MATCHES)


@pytest.mark.parametrize("n_padded", [N_TOKENS + 1, N_TOKENS + MAX_PADDING])
def test_a_padded_tail_is_noted(verdict, n_padded):
    padded = bpe().padded(n_padded)
    for target, draft in ((padded, bpe()), (bpe(), padded)):
        sizes = f"{len(target.tokens)} and {len(draft.tokens)}"
        assert verdict(target, draft) == Compatibility(
            Match.WITH_NOTES, notes=(f"padded tails differ: {sizes} tokens",)
        )


def test_sizes_too_far_apart_are_refused(verdict):
    n_tokens = N_TOKENS + MAX_PADDING + 1
    assert verdict(bpe().padded(n_tokens)) == refused(
        f"vocabulary sizes differ by more than padding: {n_tokens} and {N_TOKENS} tokens"
    )


def test_sizes_too_far_apart_name_the_first_different_token_too(verdict):
    renamed = bpe().renamed({77: "other"}).padded(1000)
    assert verdict(renamed).reason.endswith("and 283 tokens; token 77 is 'other' and 'H'")


def test_a_differing_token_is_named_with_id_and_both_texts(verdict):
    assert verdict(bpe(), bpe().renamed({100: "elsewhere", 200: "too"})) == refused("token 100 is '_' and 'elsewhere'")


@pytest.mark.parametrize("token", [N_TOLERATED, N_TOKENS - 1])
def test_the_first_compared_and_the_last_token_count(verdict, token):
    assert verdict(draft=bpe().renamed({token: "elsewhere"})).reason.startswith(f"token {token} is ")


def test_the_first_ids_may_differ_and_are_noted(verdict):
    assert FIRST_BYTE == N_TOLERATED
    assert verdict(draft=bpe().renamed({IM_START: "<|turn|>"})) == Compatibility(
        Match.WITH_NOTES, notes=(f"token {IM_START} is {CONTROL[IM_START]!r} and '<|turn|>'",)
    )


def test_tokenizer_types_must_be_equal(verdict):
    assert verdict(bpe(), spm()) == refused("tokenizer types differ: bpe and spm")
    assert verdict(bpe(), NO_TOKENIZER) == refused("tokenizer types differ: bpe and none")


@pytest.mark.parametrize(("word", "key"), [("BOS", "add_bos"), ("EOS", "add_eos")])
def test_a_token_that_only_one_adds_is_refused(verdict, word, key):
    adds, does_not = bpe(**{key: True}), bpe(**{key: False})
    assert verdict(adds, does_not) == refused(f"target.gguf begins or ends texts with {word}, draft.gguf does not")
    assert verdict(does_not, adds) == refused(f"draft.gguf begins or ends texts with {word}, target.gguf does not")


@pytest.mark.parametrize(("word", "key", "id_key"), [("BOS", "add_bos", "bos_id"), ("EOS", "add_eos", "eos_id")])
def test_an_added_token_must_have_one_id(verdict, word, key, id_key):
    one, other = bpe(**{key: True}), bpe(**{key: True, id_key: END_OF_TEXT})
    assert verdict(one, other) == refused(f"{word} is token {getattr(one, id_key)} and token {END_OF_TEXT}")


def test_ids_of_tokens_that_nobody_adds_may_differ(verdict):
    assert verdict(bpe(), bpe(bos_id=END_OF_TEXT, eos_id=END_OF_TEXT)).match is Match.MATCHES


def test_a_missing_add_bos_is_what_llama_cpp_makes_of_it(verdict):
    """Not false: SPM vocabularies add BOS unless the file says otherwise, this BPE one does not."""
    assert verdict(spm(add_bos=None), spm(add_bos=True)).match is Match.MATCHES
    assert verdict(spm(add_bos=None), spm(add_bos=False)).match is Match.REFUSED
    assert verdict(bpe(add_bos=None), bpe(add_bos=False)).match is Match.MATCHES
