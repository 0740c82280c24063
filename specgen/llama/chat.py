"""Prompts into tokens: chat templates, BOS, and what a user wrote.

Three rules. The template is the GGUF's own Jinja template, rendered in a sandbox. BOS appears once: it is added where
the vocabulary wants it and the template has not written it. What a user wrote never becomes a special token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from specgen.errors import ConfigError
from specgen.llama.model import LlamaModel
from specgen.llama.vocabulary import LlamaVocabulary

_MARK = re.compile("\ue0a5(\\d+)\ue0a6")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: str
    content: str


def has_template(model: LlamaModel) -> bool:
    """Whether the file carries a chat template; base models have none."""
    return model.chat_template is not None


def encode_raw(vocabulary: LlamaVocabulary, text: str) -> list[int]:
    """The text as it is: special tokens parsed, BOS as the vocabulary says."""
    return _with_bos(vocabulary, vocabulary.tokenize(text, parse_special=True))


def encode_chat(model: LlamaModel, messages: list[Message]) -> list[int]:
    """Messages through the model's template, ready for the answer.

    Raises:
        ConfigError: the template refuses the messages, or cannot be rendered.
    """
    vocabulary = model.vocabulary
    if not any(_has_special(vocabulary, message.content) for message in messages):
        return _with_bos(vocabulary, vocabulary.tokenize(_render(model, messages), parse_special=True))
    # Something in a message reads like a special token: the template's parts and the messages go separate ways. (Where
    # they meet, a SentencePiece vocabulary may add a space.)
    marked = [Message(message.role, _mark(i)) for i, message in enumerate(messages)]
    tokens: list[int] = []
    for i, part in enumerate(_MARK.split(_render(model, marked))):
        is_message = i % 2 == 1
        text = messages[int(part)].content if is_message else part
        tokens += vocabulary.tokenize(text, parse_special=not is_message)
    return _with_bos(vocabulary, tokens)


def _mark(i: int) -> str:
    """Private-use characters around the number of a message, to find it again wherever the template puts it."""
    return f"\ue0a5{i}\ue0a6"


def _render(model: LlamaModel, messages: list[Message]) -> str:
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    vocabulary = model.vocabulary
    try:
        formatter = Jinja2ChatFormatter(
            template=model.chat_template or "",
            eos_token=_text(vocabulary, vocabulary.eos_id),
            bos_token=_text(vocabulary, vocabulary.bos_id),
        )
        rendered = formatter(messages=[{"role": m.role, "content": m.content} for m in messages])
    except Exception as error:  # a template is a program of somebody else's, and can fail in any way
        raise ConfigError(
            f"{model.path.name}: its chat template fails: {' '.join(str(error).split())}",
            "use --raw, or leave out --system if the model knows no system message",
        ) from error
    prompt: str = rendered.prompt
    return prompt


def _text(vocabulary: LlamaVocabulary, token: int) -> str:
    return vocabulary.token_text(token).decode() if token >= 0 else ""


def _has_special(vocabulary: LlamaVocabulary, text: str) -> bool:
    return vocabulary.tokenize(text, parse_special=True) != vocabulary.tokenize(text, parse_special=False)


def _with_bos(vocabulary: LlamaVocabulary, tokens: list[int]) -> list[int]:
    if vocabulary.adds_bos and vocabulary.bos_id >= 0 and tokens[:1] != [vocabulary.bos_id]:
        return [vocabulary.bos_id, *tokens]
    return tokens
