"""Alembic's entry point: run the versions on the connection that the store hands over."""

from alembic import context

from tollgauge.store import (
    books,
    chain,
    deposits,
    destinations,
    flips,
    leases,
    outbox,
    payments,
    similar,
    transfers,
    watch_events,
    watch_payments,
    watches,
)
from tollgauge.store.schema import metadata

TABLES = (
    leases.lease,
    similar.alternative_count,
    payments.payment,
    payments.payment_attempt,
    chain.chain_cursor,
    chain.chain_header,
    chain.chain_wallet,
    transfers.transfer,
    transfers.transfer_day,
    deposits.account,
    deposits.deposit,
    books.book_day,
    watches.watch,
    watch_payments.watch_payment,
    watch_events.watch_event,
    destinations.destination,
    flips.standing_row,
    flips.flip,
    outbox.delivery,
)
"""Nouns that keep their tables in their own module; importing them fills the metadata."""

connection = context.config.attributes["connection"]
if not connection.in_transaction():
    connection.begin()  # Alembic ends only what it began, and the transaction is the store's

context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
