"""A JSON schema as a grammar, by llama-cpp-python's converter; and what of the schema it leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from specgen.errors import ConfigError
from specgen.llama import library
from specgen.llama.gbnf import check_gbnf

_IGNORED = {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "contains", "not"),
    *("minProperties", "maxProperties", "patternProperties", "propertyNames", "unevaluatedProperties"),
    *("dependentRequired", "dependentSchemas", "if", "then", "else"),
}
_NAMES_BELOW = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords whose keys are names of the user's, not keywords."""
_DATA_BELOW = ("const", "enum", "default", "examples", "required")

_ANY_CHAR = r'[^"\\]'
_JSON_CHAR = r'[^"\\\x7F\x00-\x1F]'


def schema_to_gbnf(text: str) -> str:
    """A grammar of the JSON texts that a schema describes, with properties in the schema's order.

    Raises:
        ConfigError: no JSON, no schema, or one with parts that the converter does not know.
        BackendError: llama-cpp-python cannot be loaded.
    """
    schema = _parse(text)
    if "$ref" in schema:  # beside a reference the converter sees nothing, so no definitions
        schema["anyOf"] = [{"$ref": schema.pop("$ref")}]
    library.load()
    from llama_cpp.llama_grammar import SchemaConverter

    converter = SchemaConverter(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
    converter._format_literal = _literal
    try:
        converter.visit(converter.resolve_refs(schema, "schema"), "")
        # The converter lets control characters into strings, which JSON forbids.
        grammar: str = converter.format_grammar().replace(f"char ::= {_ANY_CHAR}", f"char ::= {_JSON_CHAR}")
        check_gbnf(grammar)
    except ConfigError as error:
        raise _error(error.message.partition(": ")[2]) from None
    except (AssertionError, ValueError) as error:  # what the converter says itself
        raise _error(" ".join(str(error).split())) from error
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError) as error:  # where it stumbles
        raise _error(f"it is no valid schema ({' '.join(str(error).split())})") from error
    return grammar


def ignored_keywords(text: str) -> list[str]:
    """The keywords of a schema that the grammar does not enforce, each once."""
    return sorted({*_ignored(_parse(text))})


def _ignored(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for part in schema:
            yield from _ignored(part)
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in _IGNORED:
            yield key
        if key in _NAMES_BELOW and isinstance(value, dict):
            yield from _ignored(list(value.values()))
        elif key not in _DATA_BELOW:
            yield from _ignored(value)


def _parse(text: str) -> Any:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the JSON schema is not JSON: {error}", "check it with a JSON validator") from None
    if not isinstance(schema, dict):
        raise ConfigError("the JSON schema must be an object", 'begin with {"type": "object", "properties": ...}')
    return schema


def _literal(json_text: str) -> str:
    """JSON text as a literal of GBNF. The converter's own does not escape backslashes."""
    readable = json.dumps(json.loads(json_text), ensure_ascii=False)
    escaped = readable.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _error(reason: str) -> ConfigError:
    return ConfigError(
        f"the JSON schema cannot become a grammar: {reason}",
        "leave that part out, or write the grammar yourself and give it as --grammar",
    )
