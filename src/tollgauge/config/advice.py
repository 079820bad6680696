"""Advice about settings that work but are unwise.

`tollgauge config check` prints it, and every start logs it once. Settings that cannot work are
config/rules' business.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tollgauge.config.rules import is_loopback, is_loopback_host

if TYPE_CHECKING:
    from tollgauge.config import Config

_CONTACT: Final = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+|https?://[^\s/]+\.[^\s/]+", re.ASCII)


def advice(config: Config) -> tuple[str, ...]:
    """What an operator should know of a configuration that works: one or two sentences about each
    thing that it leaves out, and the consequence.
    """
    url, sells = config.server.base_url, bool(config.sale.pay_to)
    rules = (
        (not config.sources, _NO_SOURCES),
        (not config.probe.references, _references(config)),
        (not _CONTACT.search(config.egress.user_agent), _NO_CONTACT),
        (config.store.in_memory, _IN_MEMORY),
        (_unreachable(config), _UNREACHABLE),
        (_other_port(config), _OTHER_PORT),
        (sells and not config.sale.contact, _NO_SALE_CONTACT),
        (sells and not config.rpc.url, _NO_NODE),
        (sells and not config.watch.key, _NO_WATCH_KEY),
        (sells and config.signing.signing_key is None, _NO_SIGNING_KEY),
        (sells and url.startswith("http://") and not is_loopback(url), _PLAIN_HTTP),
    )
    return tuple(words for wrong, words in rules if wrong)


def _unreachable(config: Config) -> bool:
    return is_loopback(config.server.base_url) and not is_loopback_host(config.server.host)


def _other_port(config: Config) -> bool:
    url = config.server.base_url
    return is_loopback(url) and (urlsplit(url).port or 80) != config.server.port


def _references(config: Config) -> str:
    hosts = [urlsplit(url).hostname or url for url in config.references]
    if not hosts:
        return (
            "probe.references is empty, so nobody is asked whether this machine is online: an "
            "outage of yours may count against an endpoint, and a paid report on a name that is "
            "not found answers 503. Name two or three sites that are always up."
        )
    return (
        f"probe.references is empty: whether this machine is online is asked of "
        f"{', '.join(hosts)} alone. Name two or three sites that are always up."
    )


_NO_SOURCES: Final = (
    "There are no [[sources]], so no endpoint is found: monitored is only what "
    "`tollgauge discover` loads and what is asked for. Name a directory."
)
_NO_CONTACT: Final = (
    "egress.user_agent names no contact: say who probes and how to opt out, such as "
    '"tollgauge (x402 endpoint monitor; contact and opt-out: ops@example.com)".'
)
_NO_SALE_CONTACT: Final = (
    "sale.contact is empty: a buyer whose payment settled without a record here is not told whom "
    "to ask. Set an e-mail address or a URL."
)
_IN_MEMORY: Final = "store.url names a database in memory: everything is lost at the end."
_UNREACHABLE: Final = (
    "server.base_url is an address of this machine alone although server.host listens to others: "
    "links and offers lead nowhere. Set the public address."
)
_OTHER_PORT: Final = (
    "server.base_url names another port of this machine than server.port: links and offers lead "
    "nowhere unless something forwards it. Leave base_url out, or make them agree."
)
_NO_NODE: Final = (
    "rpc.url is not set, so a settlement that a facilitator leaves unclear cannot be proven, and "
    "no settlement counts towards a score (TOLLGAUGE_RPC_URL)."
)
_NO_WATCH_KEY: Final = (
    "watch.key is not set: no watch is sold, because its secrets could not be sealed "
    "(TOLLGAUGE_WATCH_KEY)."
)
_NO_SIGNING_KEY: Final = (
    "signing.key is not set: answers are not signed, so a buyer cannot prove what was said. Make "
    "one with `tollgauge keys new` (TOLLGAUGE_SIGNING_KEY)."
)
_PLAIN_HTTP: Final = (
    "server.base_url is http://: payments and secrets would travel in the open. Put a proxy with "
    "TLS in front and set its https:// address."
)
