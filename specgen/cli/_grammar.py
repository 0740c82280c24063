"""What an answer must look like: `--grammar` and `--json-schema`, each the text itself or a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specgen.errors import ConfigError, UsageError
from specgen.llama.gbnf import check_gbnf
from specgen.llama.json_schema import ignored_keywords, schema_to_gbnf


def read_grammar(grammar: str | None, json_schema: str | None, note: Callable[[str], None]) -> str:
    """The grammar that the options ask for, as GBNF; empty without any.

    Args:
        grammar: GBNF, or a file of it.
        json_schema: a JSON schema, or a file of it.
        note: told about parts of a schema that are not enforced.

    Raises:
        UsageError: both are given.
        ConfigError: a file that cannot be read; text that is no grammar or schema.
    """
    if grammar is not None and json_schema is not None:
        raise UsageError("--grammar and --json-schema contradict each other", "leave out one of them")
    if grammar is not None:
        text = grammar if "::=" in grammar else _read("--grammar", grammar, """'root ::= "yes" | "no"'""")
        check_gbnf(text)
        return text
    if json_schema is None:
        return ""
    is_text = json_schema.lstrip().startswith("{")
    text = json_schema if is_text else _read("--json-schema", json_schema, """'{"type": "object"}'""")
    ignored = ignored_keywords(text)
    if ignored:
        note(f"--json-schema: not enforced: {', '.join(ignored)}")
    return schema_to_gbnf(text)


def _read(flag: str, file: str, example: str) -> str:
    hint = f"give a file, or the text itself: {flag} {example}"
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{flag} {file}: no such file", hint) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{flag} {file}: not UTF-8 text", hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{flag}: the file cannot be read: {reason}", hint) from None
