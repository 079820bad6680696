"""`tollgauge keys`: the key that signs answers (docs/signatures.md)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
import typer

from tollgauge.cli.terminal import ConfigFile, Json, errors, load_config, read_input, show
from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.core.sale.answer_signature import SigningKey

VARIABLE: Final = "TOLLGAUGE_SIGNING_KEY"
RESTART_S: Final = 3_600
"""How long a retired key may still sign, until every process has the new one."""
_STANDARD_OUTPUT: Final = "-"

keys_app = typer.Typer(help="Make and retire the key that signs answers.", no_args_is_help=True)


@keys_app.callback()
def keys_commands() -> None:
    """Make and retire the key that signs answers."""


@keys_app.command(name="new")
def new(
    pem: Annotated[bool, typer.Option("--pem/--jwk", help="PEM, or a JWK of one line.")] = False,
    out: Annotated[
        str, typer.Option("--out", help="A new file for the private key; - to print it.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Make a new Ed25519 key, write it to a file for its owner alone, and say what to do with it.

    Without --out the file is signing-key.jwk or signing-key.pem. A file
    that exists is left as it is (exit 2).
    """
    from tollgauge.core.sale.answer_signature import SigningKey
    from tollgauge.web.signing import new_key

    text = new_key(pem=pem)
    key = SigningKey.of(text)
    file = out or ("signing-key.pem" if pem else "signing-key.jwk")
    if file == _STANDARD_OUTPUT:
        sys.stdout.write(text)
        for line in _words(key, file):
            errors.print(line, soft_wrap=True, markup=False)
        return
    _write_new(text, Path(file))
    document = {"file": file, "fingerprint": key.fingerprint, "publicJwk": key.public_jwk}
    show(document, _words(key, file), as_json=as_json)


@keys_app.command(name="retire")
def retire(
    file: Annotated[
        str, typer.Argument(help="The old private key's file; else the configured key.")
    ] = "",
    since: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="The day (UTC) when it began to sign."),
    ] = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Print the entry by which an old key stays known, to append to tollgauge.toml.

    The old key counts for what it signs within the next hour, so that
    every process can be started again with the new one.
    """
    from tollgauge.core.sale.answer_signature import SigningKey

    key = SigningKey.of(_text(file)) if file else load_config(config).signing.signing_key
    if key is None:
        raise TollgaugeError(
            "There is no key to retire.", hint=f"Name its file, or set {VARIABLE} to the old key."
        )
    entry = {name: key.public_jwk[name] for name in ("kty", "crv", "x")} | {
        "nbf": int(since.replace(tzinfo=UTC).timestamp()) if since else 0,
        "exp": int(time.time()) + RESTART_S,
    }
    show(entry, _entry_lines(key, entry), as_json=as_json)


def _text(file: str) -> str:
    try:
        return read_input(file).decode()
    except UnicodeDecodeError:
        raise TollgaugeError(
            f"{file} is no text.", hint="Name the file that holds the private key."
        ) from None


def _write_new(text: str, path: Path) -> None:
    """Write a new file that its owner alone may read. Raises TollgaugeError."""
    try:
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(text, encoding="ascii")
    except FileExistsError as error:
        raise TollgaugeError(
            f"{path} exists, and is left as it is.",
            hint="Name another file with --out: a key that was lost cannot be made again.",
        ) from error
    except OSError as error:
        raise TollgaugeError(
            f"{path} cannot be written: {error.strerror}.", hint="Name another file with --out."
        ) from error


def _words(key: SigningKey, file: str) -> Iterator[str]:
    if file != _STANDARD_OUTPUT:
        yield f"wrote {file}, which you alone can read"
    yield f"fingerprint {key.fingerprint}"
    yield f"public key  {orjson.dumps(key.public_jwk).decode()}"
    where = "" if file == _STANDARD_OUTPUT else f", or {VARIABLE}_FILE to {Path(file).absolute()}"
    yield f"To sign with it set {VARIABLE} to its text{where}, and start every process again."
    yield "A key that signed before must stay known: `tollgauge keys retire` prints its entry."


def _entry_lines(key: SigningKey, entry: dict[str, Any]) -> Iterator[str]:
    until = datetime.fromtimestamp(entry["exp"], UTC)
    yield f"# {key.fingerprint}, which signs until {until:%Y-%m-%d %H:%M} UTC"
    yield "[[signing.retired]]"
    for name, value in entry.items():
        yield f"{name} = {orjson.dumps(value).decode()}"
