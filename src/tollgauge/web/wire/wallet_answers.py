"""JSON of the report on a payTo address."""

from __future__ import annotations

from tollgauge.core.endpoint.identity import page_url
from tollgauge.core.lint.accounts import evm_address, solana_key
from tollgauge.monitor.reports.wallets import NetworkIncome, Wallet
from tollgauge.web.wire.response_model import (
    Day,
    Dollars,
    Grade,
    Recommendation,
    ResponseModel,
    Time,
    from_attribute,
)
from tollgauge.web.wire.snapshots import ProviderStatementResponse


class WalletEndpointResponse(ResponseModel):
    """A public endpoint that names the address now."""

    resource: str
    host: str
    network: str | None
    grade: Grade | None
    recommendation: Recommendation
    endpoint_page: str


class PayToChangeResponse(ResponseModel):
    """A change of an endpoint's payTo, to or from the address, in the last 90 days."""

    resource: str
    endpoint_page: str
    at: Time
    before: str
    after: str
    announced: bool
    source: str


class IncomeResponse(ResponseModel):
    """Payments of others in the last `days` complete UTC days. Proven payers also buy from
    established sellers; their figures are null if they are not measured.
    """

    days: int
    settlements: int = from_attribute("transfers")
    volume_usd: Dollars = from_attribute("volume")
    payers: int
    proven_payers: int | None
    proven_volume_usd: Dollars | None = from_attribute("proven_volume")


class TopPayerResponse(ResponseModel):
    """One of the largest payers of the longest period, with its share of the volume and the amount
    that the address sent back to it.
    """

    payer: str
    settlements: int = from_attribute("transfers")
    volume_usd: Dollars = from_attribute("paid")
    returned_usd: Dollars = from_attribute("returned")
    share: float
    proven: bool | None


class NetworkIncomeResponse(ResponseModel):
    """Income on a network. `site` is the site that the demand of the address belongs to: the first
    one that named it. `sharedBy` are the sites of a valid list that the address signed: they share
    its demand equally instead. `indexed` is false if payments on this network are not read; without
    payments `lastDay` is null.
    """

    network: str
    site: str | None = from_attribute("owner")
    shared_by: list[str]
    indexed: bool
    last_day: Day | None
    periods: list[IncomeResponse]
    top_payers: list[TopPayerResponse]


class WalletStatementResponse(ProviderStatementResponse):
    """The statement of a host that names the address."""

    host: str


class WalletResponse(ResponseModel):
    """A payTo address: the endpoints that name it, its income by network, the changes to and from
    it, and the statements of the hosts, which are unverified. `moreEndpoints` is true if more
    endpoints name it than are listed.
    """

    address: str
    endpoints: list[WalletEndpointResponse]
    more_endpoints: bool = from_attribute("more")
    networks: list[NetworkIncomeResponse]
    changes: list[PayToChangeResponse]
    statements: list[WalletStatementResponse] = from_attribute("seller_files")


def wallet_path(pay_to: str | None) -> str:
    """Return the path of a payTo address's page; empty for any other text."""
    address = evm_address(pay_to or "") or solana_key(pay_to or "")
    return f"/wallet/{address}" if address else ""


def wallet_response(wallet: Wallet, *, base_url: str) -> WalletResponse:
    """Build the JSON of a payTo address."""
    return WalletResponse.build(
        wallet,
        endpoints=[
            WalletEndpointResponse.build(row, endpoint_page=page_url(base_url, row.id))
            for row in wallet.rows
        ],
        networks=[_network(network) for network in wallet.networks],
        changes=[
            PayToChangeResponse.build(one, endpoint_page=page_url(base_url, one.endpoint_id))
            for one in wallet.changes
        ],
    )


def _network(network: NetworkIncome) -> NetworkIncomeResponse:
    income = network.income
    unproven = {} if network.measured else {"proven_payers": None, "proven_volume_usd": None}
    whole = max((one.volume for _, one in income.incomes), default=0) if income else 0
    return NetworkIncomeResponse.build(
        network,
        last_day=income.last_day if income else None,
        periods=[
            IncomeResponse.build(one, days=days, **unproven)
            for days, one in (income.incomes if income else ())
        ],
        top_payers=[
            TopPayerResponse.build(
                payer,
                share=round(payer.paid / whole, 4),
                proven=payer.proven if network.measured else None,
            )
            for payer in (income.top if income else ())
        ],
    )
