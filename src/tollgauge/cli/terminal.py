"""Shared by all commands: loading the configuration, opening the service, input and output.

Results go to standard output as text, or as JSON with --json; messages go to standard error.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import os
import sys
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import orjson
import typer

from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from tollgauge.app import Opened
    from tollgauge.config import Config
    from tollgauge.core.probe.exchange import Exchange
    from tollgauge.db.engine import Store


GOOD: Final = 0
BAD: Final = 1
FAILED: Final = 2
INPUT_MAX: Final = 16 * 1024 * 1024
DOWNLOAD_TIMEOUT_S: Final = 10
_NO_EVIDENCE: Final = (
    'Evidence is kept for 90 days. To receive it in the report, buy with {"evidence": "full"}.'
)

_WHOLE_FILE: Final = "Give a whole file, or - for standard input; URLs must begin with https://."

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="TOLLGAUGE_CONFIG", help="Configuration file (TOML)."),
]


def show(document: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result as indented JSON or as lines of text."""
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    else:
        for line in lines:
            print(line)
    sys.stdout.flush()


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar if standard error is a terminal.

    The yielded function takes a label, the completed amount, and the total (0 if unknown).
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:38}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}"),
    )
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=1)

        def report(label: str, done: int, total: int) -> None:
            bar.update(task, description=label, completed=done, total=total or None)

        yield report


def note(text: str) -> None:
    """Print a message."""
    print(text, file=sys.stderr, flush=True)


def print_error(error: TollgaugeError) -> None:
    """Print an error, and its hint below it."""
    typer.echo(f"{typer.style('tollgauge:', bold=True)} {error}", err=True)
    if error.hint:
        note(f"  {error.hint}")


R = TypeVar("R")


def run_async(
    main: Coroutine[Any, Any, R],
    *,
    loop_factory: Callable[[], AbstractEventLoop] | None = None,
) -> R:
    """Run a coroutine to its end. Raises KeyboardInterrupt if it is cancelled."""
    # Imported here, in all commands: asyncio takes 40 ms, half as long as the rest of --help.
    import asyncio

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            return runner.run(main)
        except asyncio.CancelledError as error:
            raise KeyboardInterrupt from error


def load_config(path: Path | None) -> Config:
    """Load a named file, or tollgauge.toml in the current folder, and the environment."""
    # Imported here: the settings import the whole service, which --help does not need.
    from tollgauge.config import load

    default = Path("tollgauge.toml")
    return load(default if path is None and default.exists() else path, os.environ)


def load_existing(path: Path | None) -> Config:
    """Load the configuration of a service whose database exists.

    For commands that must not create a database.

    Raises:
        TollgaugeError: The SQLite file does not exist.
    """
    from tollgauge.db.engine import is_sqlite, parse_url

    config = load_config(path)
    url = parse_url(config.store.url)
    if is_sqlite(url) and not config.store.in_memory and not Path(str(url.database)).is_file():
        raise TollgaugeError(
            f"The database {url.database} does not exist, and this command does not create one.",
            hint="Name the service's configuration with --config FILE (store.url), or set "
            "DATABASE_URL. `tollgauge run` creates a database.",
        )
    return config


def with_service(config: Config, work: Callable[[Opened], Awaitable[R]]) -> R:
    """Return the result of `work`, which runs while the service's resources are open."""
    from tollgauge.app import open_resources

    async def run() -> R:
        async with open_resources(config) as service:
            return await work(service)

    return run_async(run())


def with_store(config: Config, work: Callable[[Store], Awaitable[R]]) -> R:
    """Return the result of `work`, which runs while only the database is open.

    Raises:
        TollgaugeError: The tables are not those of this version.
    """
    from tollgauge.db.engine import Store, newest_version, version

    async def run() -> R:
        store = Store.open(config.store.url, pool_size=1)
        try:
            if await store.reading(version) != newest_version():
                raise TollgaugeError(
                    "The database's tables do not match this version.",
                    hint="Run `tollgauge migrate`. Starting the service does this too.",
                )
            return await work(store)
        finally:
            await store.close()

    return run_async(run())


def write_new_file(path: Path, text: str, *, mode: int = 0o666, hint: str = "") -> None:
    """Write a file that does not exist yet.

    Raises:
        TollgaugeError: The file exists, with `hint`, or cannot be written.
    """
    try:
        path.touch(mode=mode, exist_ok=False)
        path.write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise TollgaugeError(f"{path} already exists and was not changed.", hint=hint) from error
    except OSError as error:
        raise TollgaugeError(f"{path} cannot be written: {error.strerror}.", hint=hint) from error


def read_input(source: str, *, hint: str = _WHOLE_FILE) -> bytes:
    """Return the content of a file (decompressed if it ends in .gz), or of standard input for -.

    A byte order mark is removed, and UTF-16 is converted to UTF-8.

    Raises:
        TollgaugeError: The input cannot be read (with `hint`) or is larger than INPUT_MAX.
    """
    try:
        data = sys.stdin.buffer.read(INPUT_MAX + 1) if source == "-" else _file(Path(source))
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "it is truncated, or is not gzip"
        raise TollgaugeError(f"{source} cannot be read: {why}.", hint=hint) from error
    if len(data) > INPUT_MAX:
        raise TollgaugeError(f"{source} is larger than {INPUT_MAX // 1024 // 1024} MB.")
    if not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-16").encode()
    except UnicodeError as error:
        raise TollgaugeError(
            f"{source} begins with a UTF-16 mark but is not UTF-16.", hint="Save it as UTF-8."
        ) from error


def _file(path: Path) -> bytes:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as stream:
        return bytes(stream.read(INPUT_MAX + 1))


def download(url: str, *, hint: str = _NO_EVIDENCE) -> bytes:
    """Return the body of a URL.

    Raises:
        TollgaugeError: The status is not 200 (with `hint`), or the body is too large.
    """
    import httpx

    try:
        with httpx.stream("GET", url, timeout=DOWNLOAD_TIMEOUT_S) as response:
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
            hint=f"Check that the service is running. {hint}",
        ) from error
    return bytes(data)


def exchange_input(source: str) -> Exchange:
    """Return the HTTP exchange that was saved in a file. Raises TollgaugeError."""
    from tollgauge.core.lint.capture import CaptureError, read_capture

    text = read_input(source)
    if not text.strip():
        name = "Standard input" if source == "-" else source
        raise TollgaugeError(
            f"{name} is empty.",
            hint="Save the output of `curl -si URL`. If it is empty, `curl -i URL` prints why.",
        )
    try:
        return read_capture(text)
    except CaptureError as error:
        raise TollgaugeError(f"{source}: {error}", hint=error.hint) from error


def json_input(source: str) -> Any:
    """Return the JSON document in a file, None if `source` is empty. Raises TollgaugeError."""
    if not source:
        return None
    try:
        return orjson.loads(read_input(source))
    except orjson.JSONDecodeError as error:
        raise TollgaugeError(
            f"{source} is not JSON.",
            hint="Save the response of the node or explorer unchanged. cast needs --json.",
        ) from error
