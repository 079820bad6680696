"""What the commands share of a terminal: where results and words go, and how options read.

Results go to standard output, everything else to standard error. A result is text, on a terminal
and through a pipe alike, and JSON with --json only.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from tollgauge.core.base.errors import TollgaugeError

GOOD: Final = 0
BAD: Final = 1
FAILED: Final = 2

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
