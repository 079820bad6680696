"""What the commands share: the configuration, the service behind it, input and output.

Results go to standard output, everything else to standard error. A result is text, on a terminal
and through a pipe alike, and JSON with --json.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import gzip
import os
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.app import Opened
    from tollgauge.config import Config
    from tollgauge.core.probe.exchange import Exchange


GOOD: Final = 0
BAD: Final = 1
FAILED: Final = 2
INPUT_MAX: Final = 16 * 1024 * 1024
DOWNLOAD_SECONDS: Final = 10
_NO_EVIDENCE: Final = (
    'Evidence is kept for 90 days. Buy a report with {"evidence": "full"}, which carries it.'
)

_WHOLE_FILE: Final = "Give a whole file, or - for standard input; a URL starts with https://."

errors = Console(stderr=True, highlight=False)
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="TOLLGAUGE_CONFIG", help="The TOML file to read."),
]


def show(document: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result: the document as indented JSON where --json asks for it, else the lines."""
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    else:
        for line in lines:
            print(line)
    sys.stdout.flush()


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere. It reports what is being done, how much of
    it is done, and how much there is: 0 where nobody knows.
    """
    columns = (
        TextColumn("{task.description:38}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}"),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("", total=1)

        def report(words: str, done: int, total: int) -> None:
            bar.update(task, description=words, completed=done, total=total or None)

        yield report


def print_error(error: TollgaugeError) -> None:
    """Print what is wrong, and below it what to do about it."""
    errors.print(f"[bold]tollgauge:[/] {escape(str(error))}", soft_wrap=True)
    if error.hint:
        errors.print(f"  {error.hint}", soft_wrap=True, markup=False)


R = TypeVar("R")


def load_config(path: Path | None) -> Config:
    """The configuration: a named file, else tollgauge.toml of this folder, and the environment."""
    # The settings live beside their consumers, which are the whole service: --help needs none.
    from tollgauge.config import load

    default = Path("tollgauge.toml")
    return load(default if path is None and default.exists() else path, os.environ)


def load_existing(path: Path | None) -> Config:
    """The configuration of a service whose database exists, for commands that must not make one.

    Raises TollgaugeError if its SQLite file does not exist.
    """
    from tollgauge.db.engine import is_sqlite, parse_url

    config = load_config(path)
    url = parse_url(config.store.url)
    if is_sqlite(url) and not config.store.in_memory and not Path(str(url.database)).is_file():
        raise TollgaugeError(
            f"There is no database {url.database}, and this command makes none.",
            hint="Name the service's own: --config FILE (its store.url), or DATABASE_URL. "
            "`tollgauge run` makes a new one.",
        )
    return config


def with_service(config: Config, work: Callable[[Opened], Awaitable[R]]) -> R:
    """What `work` gives while the resources that a configuration names are open."""
    from tollgauge.app import opened

    async def run() -> R:
        async with opened(config) as service:
            return await work(service)

    return asyncio.run(run())


def read_input(source: str, *, hint: str = _WHOLE_FILE) -> bytes:
    """The bytes of a file (unpacked where its name ends in .gz), or of standard input for -; a
    text that begins with a byte order mark comes as UTF-8 without it.

    Raises TollgaugeError, with a `hint` at what to do, for what cannot be read; and for what is too
    large.
    """
    try:
        data = sys.stdin.buffer.read(INPUT_MAX + 1) if source == "-" else _file(Path(source))
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "its end is missing, or it is not gzip"
        raise TollgaugeError(f"{source} cannot be read: {why}.", hint=hint) from error
    if len(data) > INPUT_MAX:
        raise TollgaugeError(f"{source} is larger than {INPUT_MAX // 1024 // 1024} MB.")
    if not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-16").encode()
    except UnicodeError as error:
        raise TollgaugeError(
            f"{source} begins as UTF-16 and does not go on so.", hint="Save it as UTF-8."
        ) from error


def _file(path: Path) -> bytes:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as stream:
        return bytes(stream.read(INPUT_MAX + 1))


def download(url: str, *, hint: str = _NO_EVIDENCE) -> bytes:
    """The body of a URL. Raises TollgaugeError for anything but 200, with a `hint` at what else
    would do; and for what is too large.
    """
    import httpx

    try:
        with httpx.stream("GET", url, timeout=DOWNLOAD_SECONDS) as response:
            if response.status_code != 200:
                raise TollgaugeError(
                    f"{url} answered {response.status_code}.",
                    hint=hint,
                )
            data = bytearray()
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > INPUT_MAX:
                    raise TollgaugeError(f"{url} is larger than {INPUT_MAX // 1024 // 1024} MB.")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TollgaugeError(
            f"{url} cannot be fetched ({type(error).__name__}).",
            hint=f"Check that the service runs there. {hint}",
        ) from error
    return bytes(data)


def exchange_input(source: str) -> Exchange:
    """The saved HTTP exchange of a file. Raises TollgaugeError."""
    from tollgauge.core.lint import CaptureError, read_capture

    text = read_input(source)
    if not text.strip():
        name = "Standard input" if source == "-" else source
        raise TollgaugeError(
            f"{name} is empty.",
            hint="Give what `curl -si URL` prints; if that is nothing, `curl -i URL` says why.",
        )
    try:
        return read_capture(text)
    except CaptureError as error:
        raise TollgaugeError(f"{source}: {error}", hint=error.hint) from error


def json_input(source: str) -> Any:
    """The JSON document of a file, None if `source` is empty. Raises TollgaugeError."""
    if not source:
        return None
    try:
        return orjson.loads(read_input(source))
    except orjson.JSONDecodeError as error:
        raise TollgaugeError(
            f"{source} is not JSON.",
            hint="Save what the node or explorer answered, as it came; cast needs --json.",
        ) from error
