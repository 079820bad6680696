"""Every table of the database. Importing the modules that define tables registers them."""

from __future__ import annotations

from typing import Final

from tollgauge.db import leases
from tollgauge.db.schema import metadata
from tollgauge.store.chain import cursors, deposits, transfers, wallets
from tollgauge.store.endpoints import alternative_counts
from tollgauge.store.ledger import attempts, books, payments
from tollgauge.store.probes import changes
from tollgauge.store.watches import destinations, outbox, watch_events, watch_payments, watches

_BESIDE_CODE: Final = (
    leases.lease,
    alternative_counts.alternative_count,
    payments.payment,
    attempts.payment_attempt,
    cursors.chain_cursor,
    cursors.chain_header,
    wallets.chain_wallet,
    transfers.transfer,
    transfers.transfer_day,
    deposits.account,
    deposits.deposit,
    books.book_day,
    watches.watch,
    watch_payments.watch_payment,
    watch_events.watch_event,
    destinations.destination,
    changes.change_state_row,
    changes.change,
    outbox.delivery,
)
"""Tables that are defined beside the code that uses them; the others are db/schema's."""
TABLES: Final = tuple(metadata.sorted_tables)
