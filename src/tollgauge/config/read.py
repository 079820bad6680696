"""Converts the tables of a file and the variables of an environment to frozen sections.

pydantic validates in strict mode, because TOML has types; a variable is first converted to the
value that TOML would contain.
"""

from __future__ import annotations

import difflib
import json
import re
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tollgauge.config.settings import FILE, PREFIX, Setting, list_sections
from tollgauge.core.base.units import NETWORK_NAMES, SOLANA_NETWORKS

T = TypeVar("T")

ALIASES: Final = {"store.url": "DATABASE_URL"}
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_SOLANA_NAMES: Final = {
    NETWORK_NAMES[network].upper().replace("-", "_"): network for network in SOLANA_NETWORKS
}
NODES: Final = re.compile(
    PREFIX + rf"CHAINS_([0-9]{{1,15}}|{'|'.join(_SOLANA_NAMES)})_NODES", re.ASCII
)
"""A variable with the nodes of a chain of `[[chains]]`, by the chain's number or name."""
# Messages for pydantic's errors (docs.pydantic.dev, "Validation Errors").
_MESSAGES: Final[Mapping[str, str]] = {
    "bool_type": "must be true or false",
    "callable_type": "is not a setting",
    "dataclass_type": "must be a table",
    "dict_type": "must be a table in the file",
    "enum": "must be one of {expected}",
    "float_type": "must be a number",
    "frozen_set_type": "must be a list",
    "greater_than": "must be above {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le:.15g}",
    "missing": "is missing",
    "string_too_short": "must not be empty",
    "string_type": "must be a string",
    "too_long": "must be a list of {max_length}",
    "tuple_type": "must be a list",
}


def secret_files(settings: Iterable[Setting]) -> dict[str, str]:
    """Map each variable that may name a secret's file to the variable that it replaces."""
    secrets = [setting.variable for setting in settings if setting.secret]
    return {name + FILE: name for name in (*secrets, *ALIASES.values())}


def read_secret_files(
    environment: Mapping[str, str], settings: Iterable[Setting], problems: list[str]
) -> dict[str, str]:
    """Return the environment with the contents of its secret files, stripped.

    An empty file sets nothing. Files that cannot be used are added to `problems`.
    """
    result = dict(environment)
    nodes = [name for name in environment if NODES.fullmatch(name.removesuffix(FILE))]
    of_nodes = {name: name.removesuffix(FILE) for name in nodes if name.endswith(FILE)}
    for variable, name in (secret_files(settings) | of_nodes).items():
        if not (path := result.pop(variable, "")):
            continue
        if name in result:
            problems.append(f"{name} and {variable} are both set: keep one")
            continue
        try:
            if text := Path(path).read_text(encoding="utf-8").strip():
                result[name] = text
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            problems.append(f"{variable}: {path} cannot be read: {why}")
    return result


def apply_environment(
    document: dict[str, Any], environment: Mapping[str, str], settings: Iterable[Setting]
) -> None:
    """Set a document's values from the environment, which takes precedence."""
    for setting in settings:
        names = (setting.variable, ALIASES.get(setting.path, ""))
        text = next((environment[name] for name in names if name in environment), None)
        table = _find_table(document, setting.path)
        if text is not None and isinstance(table, dict):  # otherwise the validation reports it
            table[setting.name] = _parse_text(text, setting.hint)


def remove_secrets(document: dict[str, Any], settings: Iterable[Setting]) -> list[str]:
    """Remove the secrets from a document and return a message for each."""
    problems = []
    for setting in settings:
        table = _find_table(document, setting.path) if setting.secret else None
        if isinstance(table, dict) and table.pop(setting.name, None) is not None:
            problems.append(f"{setting.path} is a secret: set {setting.variable} instead")
    return problems


def apply_nodes(document: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Set the nodes of `[[chains]]` from the environment; a chain that is not listed is added."""
    chains = document.get("chains", [])
    if not isinstance(chains, list):
        return  # the validation reports it
    for variable in sorted(environment):
        found = NODES.fullmatch(variable)
        urls = [url.strip() for url in environment[variable].split(",") if url.strip()]
        if found is None or not urls:
            continue
        network = _SOLANA_NAMES.get(found[1]) or f"eip155:{int(found[1])}"
        listed = (one for one in chains if isinstance(one, dict) and one.get("network") == network)
        chain = next(listed, None)
        if chain is None:
            chain = {"network": network}
            chains.append(chain)
        chain["nodes"] = urls
    if chains:
        document["chains"] = chains


def nodes_variable(network: str) -> str:
    """Return the variable with the nodes of a network (CAIP-2)."""
    names = {caip2: name for name, caip2 in _SOLANA_NAMES.items()}
    return f"{PREFIX}CHAINS_{names.get(network, network.removeprefix('eip155:'))}_NODES"


def remove_nodes(document: dict[str, Any]) -> list[str]:
    """Remove the nodes of `[[chains]]` from a document and return a message for each."""
    problems = []
    chains = document.get("chains")
    for index, chain in enumerate(chains if isinstance(chains, list) else []):
        if isinstance(chain, dict) and chain.pop("nodes", None) is not None:
            variable = nodes_variable(str(chain.get("network", "")))
            problems.append(f"chains[{index}].nodes is a secret: set {variable} instead")
    return problems


def validate(kind: type[T], document: Mapping[str, Any]) -> tuple[T, list[str], frozenset[str]]:
    """Return the settings of a document, a message for each error, and the invalid sections.

    An invalid section has its defaults in the result.
    """
    read = partial(TypeAdapter(kind).validate_json, strict=True, extra="forbid")
    try:
        return read(_to_json(document)), [], frozenset()
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    invalid = frozenset(str(detail["loc"][0]) for detail in details)
    valid = {name: section for name, section in document.items() if name not in invalid}
    return read(_to_json(valid)), [_format_error(kind, detail) for detail in details], invalid


def _find_table(document: dict[str, Any], path: str) -> Any:
    """Return the table of a setting; create it if it is missing."""
    table: Any = document
    for section in path.split(".")[:-1]:
        table = table.setdefault(section, {}) if isinstance(table, dict) else table
    return table


def _parse_text(text: str, hint: Any) -> Any:
    """Convert a variable to the value that TOML would contain; other types keep the text."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _parse_text(text, args[0])
    if origin in (tuple, frozenset) and typing.get_origin(args[0]) in (None, Annotated):
        return [_parse_text(item.strip(), args[0]) for item in text.split(",") if item.strip()]
    if hint is bool:
        return _BOOLEANS.get(text.lower(), text)
    if hint in (int, float):
        with suppress(ValueError):
            return hint(text)
    return text


def _to_json(document: Mapping[str, Any]) -> str:
    """Encode as JSON, whose lists pydantic accepts for tuples and sets in strict mode.

    A date becomes a string, and bytes of the environment that are not UTF-8 become U+FFFD.
    """
    text = json.dumps(document, default=str, ensure_ascii=False)
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _format_error(kind: type, detail: ErrorDetails) -> str:
    """Return path and reason, without the value: it may be a secret."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    path, context = "".join(parts).lstrip("."), detail.get("ctx", {})
    if cause := context.get("error"):
        return f"{path}: {cause} {getattr(cause, 'hint', '')}".rstrip()
    if detail["type"] == "unexpected_keyword_argument":
        what = "section" if len(detail["loc"]) == 1 else "setting"
        return f"{path} is not a {what}{_suggest(kind, detail['loc'])}"
    message = _MESSAGES.get(detail["type"])
    return f"{path} {message.format(**context) if message else detail['msg']}"


def _suggest(kind: type, location: tuple[int | str, ...]) -> str:
    """Suggest a setting with a similar name; empty if there is none."""
    *tables, name = (part for part in location if isinstance(part, str))
    parent = "".join(f"{table}." for table in tables)
    sections = list_sections(kind, describe=False)
    paths = [setting.path for section in sections for setting in section.settings]
    names = {path[len(parent) :].split(".")[0] for path in paths if path.startswith(parent)}
    near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""
