"""Sources of bundles: bytes, a file, or a URL that is downloaded again in the background.

Only a bundle that an accepted key signed is used, and never one that is older than the one in use.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Final, Protocol
from urllib.parse import urljoin, urlsplit

import httpx

from tollgauge_guard.bundle import SIZE_MAX, Bundle, BundleError, read_bundle
from tollgauge_guard.decision import STALE_S
from tollgauge_guard.errors import GuardError
from tollgauge_guard.signature import Keyring

SIGNATURE_HEADER: Final = "Tollgauge-Signature"
SIGNATURE_SUFFIX: Final = ".jws"
"""Suffix of the file with the signature of a bundle."""
ALL, AVOID = "all", "avoid"
"""The variants of a bundle: all endpoints, or only the bad ones."""
REFRESH_S: Final = 3_600
"""Time between downloads."""
RETRY_S: Final = 60
"""The pause after a failed attempt."""
_DOWNLOAD_S: Final = 120.0
_SILENCE_S: Final = 30.0
"""Read timeout of a download; a payment waits less, and the next one uses the result."""
_JWKS_MAX: Final = 2**20
_log = logging.getLogger("tollgauge_guard")


class BundleSource(Protocol):
    """Provides the newest bundle."""

    def current(self) -> Bundle | None:
        """Return the bundle to decide by, None if none was loaded yet. Never raises."""

    def is_ready(self) -> bool:
        """Whether `current` returns without waiting for a download."""


@dataclass(frozen=True, slots=True)
class FixedBundle:
    """A bundle that does not change."""

    bundle: Bundle

    def current(self) -> Bundle:
        """Return the bundle."""
        return self.bundle

    def is_ready(self) -> bool:
        """Always."""
        return True


class NoBundle:
    """No bundle, for commands that decide about no offer."""

    def current(self) -> None:
        """Return no bundle."""

    def is_ready(self) -> bool:
        """Always."""
        return True


class FileBundle:
    """A bundle in a file, with its signature in the file of the same name and `.jws`.

    It is read again when either file has changed, so that another program may fetch it. Raises
    GuardError if the file cannot be used at first; later, the last good bundle stays in use.
    """

    def __init__(self, path: Path, key: Keyring) -> None:
        self._path, self._key = path, key
        self._signature = path.with_name(path.name + SIGNATURE_SUFFIX)
        self._lock = threading.Lock()
        self._state = self._stat()
        self._bundle = self._read()

    def current(self) -> Bundle:
        """The newest bundle of the file."""
        with self._lock:
            try:
                if (state := self._stat()) != self._state:
                    self._state = state
                    self._bundle = pick_newer(self._bundle, self._read())
            except GuardError as error:
                _log.warning("bundle.not_used path=%s reason=%s", self._path, error)
        return self._bundle

    def is_ready(self) -> bool:
        """Always: it is a file."""
        return True

    def _stat(self) -> tuple[int, ...]:
        try:
            states = (self._path.stat(), self._signature.stat())
        except OSError as error:
            raise BundleError(
                f"{self._path} and {self._signature.name} must both be there ({error.strerror}).",
                hint=f"Save the body of the bundle and its header {SIGNATURE_HEADER}.",
            ) from error
        return tuple(value for state in states for value in (state.st_mtime_ns, state.st_size))

    def _read(self) -> Bundle:
        try:
            with self._path.open("rb") as file:
                body = file.read(SIZE_MAX + 1)
            signature = self._signature.read_text(encoding="ascii")
        except (OSError, UnicodeError) as error:
            raise BundleError(f"{self._path} cannot be read.") from error
        return _check_variant(read_bundle(body, signature, self._key), self._path.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Download:
    """A body with its signature and the ETag (RFC 9110) that it came with."""

    body: bytes
    signature: str
    etag: str


class RemoteBundle:
    """The bundle of a URL. A separate thread requests it every hour and keeps it in a file, which
    is used if the service cannot be reached.

    A payment waits for it at most `timeout` seconds, and only if there is none or a stale one.
    `verify` is httpx's: the authorities that the TLS connection is checked with.
    """

    def __init__(
        self,
        url: str,
        key: Keyring,
        *,
        cache: Path | None,
        timeout: float = 5.0,
        verify: SSLContext | bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url, self._key, self._timeout = url, key, timeout
        self._verify, self._clock = verify, clock
        name = hashlib.sha256(url.encode()).hexdigest()[:32]
        self._file = None if cache is None else cache / f"{name}.bundle"
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._next = 0.0
        self._etag = ""
        self._bundle: Bundle | None = None
        self._jwks: object = {}
        self._load()

    def current(self) -> Bundle | None:
        """The newest bundle that was had."""
        thread = self._start_refresh()
        if thread is not None and not self._is_good():
            thread.join(self._timeout)
        return self._bundle

    def is_ready(self) -> bool:
        """Whether there is a bundle that is not stale, or the next attempt is not due."""
        return self._is_good() or (self._thread is None and time.monotonic() < self._next)

    def refresh(self) -> None:
        """Download now. Raises GuardError if the service has no usable bundle."""
        try:
            download = self._fetch()
            if download is not None and self._use(download):
                self._save(download)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise BundleError(f"{self._url} does not answer ({type(error).__name__}).") from error
        self._next = time.monotonic() + REFRESH_S

    def _is_good(self) -> bool:
        bundle = self._bundle
        return bundle is not None and self._clock() - bundle.as_of <= STALE_S

    def _start_refresh(self) -> threading.Thread | None:
        """Return the thread that downloads; start it if an attempt is due."""
        with self._lock:
            is_running = self._thread is not None and self._thread.is_alive()
            if not is_running and time.monotonic() >= self._next:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            return self._thread

    def _run(self) -> None:
        self._next = time.monotonic() + RETRY_S
        try:
            self.refresh()
        except GuardError as error:
            _log.warning("bundle.not_refreshed url=%s reason=%s", self._url, error)
        finally:
            with self._lock:
                self._thread = None

    def _fetch(self) -> _Download | None:
        """Return the download, None if the bundle in use is the newest (304)."""
        headers = {"Accept": "application/zstd", "Accept-Encoding": "identity"}
        if self._etag and self._bundle is not None:
            headers["If-None-Match"] = self._etag
        with httpx.Client(timeout=max(self._timeout, _SILENCE_S), verify=self._verify) as http:
            with http.stream("GET", self._url, headers=headers) as answer:
                if answer.status_code == httpx.codes.NOT_MODIFIED and "If-None-Match" in headers:
                    return None
                if answer.status_code != httpx.codes.OK:
                    raise BundleError(f"{self._url} answers {answer.status_code}.")
                download = _Download(
                    body=_read_limited(answer, SIZE_MAX),
                    signature=answer.headers.get(SIGNATURE_HEADER, ""),
                    etag=answer.headers.get("ETag", ""),
                )
            self._fetch_keys(http)
        return download

    def _fetch_keys(self, http: httpx.Client) -> None:
        jwks = urljoin(self._url, "/.well-known/jwks.json")
        try:
            with http.stream("GET", jwks) as answer:
                if answer.status_code == httpx.codes.OK:
                    self._follow(_json(_read_limited(answer, _JWKS_MAX)))
        except (httpx.HTTPError, BundleError):
            if any(key.public is None for key in self._key.keys):
                raise
            # The pinned keys are complete, and need nothing from the service.

    def _follow(self, document: object) -> None:
        """Accept the successors of the pinned keys, and the end of retired ones."""
        is_known = self._bundle is not None
        self._jwks = document
        self._key = self._key.follow(document, int(self._clock()), is_known=is_known)

    def _use(self, download: _Download) -> bool:
        """Use a download, unless the current bundle is newer."""
        now = int(self._clock())
        read = read_bundle(download.body, download.signature, self._key, now=now)
        bundle = _check_variant(read, self._url)
        if pick_newer(self._bundle, bundle) is not bundle:
            return False
        self._bundle, self._etag = bundle, download.etag
        return True

    def _load(self) -> None:
        """Use the file that a refresh wrote earlier."""
        if self._file is None:
            return
        try:
            with self._file.open("rb") as file:
                first = json.loads(file.readline(_JWKS_MAX))
                body = file.read(SIZE_MAX + 1)
            # This file was written here: its keys were accepted before.
            self._jwks = first["jwks"]
            self._key = self._key.follow(self._jwks, int(self._clock()), is_known=True)
            self._use(_Download(body=body, signature=first["signature"], etag=first["etag"]))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, GuardError) as error:
            _log.warning("bundle.file_not_used file=%s reason=%s", self._file, error)

    def _save(self, download: _Download) -> None:
        """Write the file in one step, so that no reader sees half of it."""
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            first = json.dumps(
                {"signature": download.signature, "etag": download.etag, "jwks": self._jwks}
            )
            with tempfile.NamedTemporaryFile(dir=self._file.parent, delete=False) as file:
                file.write(first.encode() + b"\n" + download.body)
            Path(file.name).replace(self._file)
        except OSError as error:
            _log.warning("bundle.not_kept file=%s reason=%s", self._file, error.strerror)


def _check_variant(bundle: Bundle, name: str) -> Bundle:
    """Return a bundle if it has the variant that its URL or file is named for.

    Raises BundleError for the other one: both are signed by one key, and the bundle of bad
    endpoints in place of the full one would make every good endpoint unknown.
    """
    is_avoid = urlsplit(name).path.rstrip("/").split("/")[-1].split(".")[0].endswith(AVOID)
    if bundle.variant != (AVOID if is_avoid else ALL):
        raise BundleError(
            f"{name} contains the bundle {bundle.variant!r}, which its name does not state.",
            hint="The bundle of bad endpoints is at an address, or in a file, of the name "
            f"{AVOID}.",
        )
    return bundle


def pick_newer(used: Bundle | None, other: Bundle) -> Bundle:
    """Return the newer of two bundles: anyone can send a signed old one again."""
    return other if used is None or other.as_of >= used.as_of else used


def _read_limited(answer: httpx.Response, limit: int) -> bytes:
    """The body of an answer as it was sent. Raises BundleError above a number of bytes and when it
    takes too long.
    """
    body = bytearray()
    ends = time.monotonic() + _DOWNLOAD_S
    for chunk in answer.iter_raw():
        body += chunk
        if len(body) > limit or time.monotonic() > ends:
            raise BundleError(f"The answer is longer than {limit} bytes, or takes too long.")
    return bytes(body)


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BundleError("The service's keys are not JSON.") from error
