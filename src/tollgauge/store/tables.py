"""Every table of the database. Importing the modules that define tables registers them."""

from __future__ import annotations

from typing import Final

from tollgauge.db import leases
from tollgauge.db.schema import metadata
from tollgauge.store.chain import cursors, deposits, transfers, volumes, wallets
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.ledger import answers, attempts, books, payments
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes import closed_days, vantages
from tollgauge.store.schedule import job_rounds
from tollgauge.store.scores import bundles, evidence, forecasts
from tollgauge.store.watches import destinations, outbox, watch_events, watch_payments, watches

_MODULES: Final = (
    *(leases, rated_endpoints, answers, attempts, books, payments, cursors, deposits, transfers),
    *(
        volumes,
        wallets,
        changes,
        closed_days,
        vantages,
        evidence,
        forecasts,
        destinations,
        outbox,
    ),
    *(watch_events, watch_payments, watches, job_rounds, seller_files, bundles),
)
"""The modules that define tables beside the code that uses them; the others are db/schema's."""
TABLES: Final = tuple(metadata.sorted_tables)
