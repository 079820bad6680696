"""Handlers of the free JSON routes: data of monitor/reports in the form of web/wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.chain.trace.result import DECODERS, NETWORKS, Model
from tollgauge.core.endpoint.identity import page_url
from tollgauge.core.lint.parsing import evm_address, solana_key
from tollgauge.core.sale.signature import Typ
from tollgauge.monitor import calibration, directories, statistics
from tollgauge.monitor import facilitators as facilitator_records
from tollgauge.monitor.directories import DirectoryEntry, DirectoryFigures
from tollgauge.monitor.recording import PayableError, RecheckedError, request_probe
from tollgauge.monitor.reports import overview, trust_reports
from tollgauge.monitor.reports.snapshots import read_detailed
from tollgauge.monitor.reports.trust_reports import evidence_of
from tollgauge.monitor.reports.wallets import Wallet, read_wallet
from tollgauge.store.endpoints import ranking
from tollgauge.web.dependencies import Dependencies, unknown_resource, unknown_wallet
from tollgauge.web.edge.messages import accepts_page, read_body
from tollgauge.web.edge.problem import Problem
from tollgauge.web.signing import signature_header
from tollgauge.web.wire import (
    calibration_answers,
    directory_answers,
    openapi,
    snapshots,
    trust,
)
from tollgauge.web.wire.facilitator_answers import facilitators
from tollgauge.web.wire.parameters import (
    Digest,
    DirectoryName,
    EndpointId,
    ResourceQuery,
    WalletAddress,
    Weeks,
)
from tollgauge.web.wire.request_model import RequestModel, resource_of
from tollgauge.web.wire.response_model import OneOf, ResponseModel, dump, from_attribute
from tollgauge.web.wire.snapshots import LeaderboardResponse
from tollgauge.web.wire.statistics_answers import EcosystemResponse, ecosystem, shares
from tollgauge.web.wire.trust import PreviewResponse
from tollgauge.web.wire.wallet_answers import wallet_response

PREVIEW_PATH: Final = "/v1/x402-trust-preview"
PREVIEW: Final = "Get three sample reports: best, median and worst endpoint"
IMMUTABLE: Final = "public, max-age=31536000, immutable"
EMPTY_OBJECT: Final = openapi.body({"type": "object"}, {}, required=False)


class RecheckResponse(ResponseModel):
    """The endpoint will be probed within a minute, unless it asked for a pause (Retry-After) or the
    service is behind schedule.
    """

    resource: str
    probe: str


@dataclass(frozen=True, slots=True)
class FreeApi:
    """Handlers of the free JSON routes; the free tools of web/mcp call them too."""

    dependencies: Dependencies

    async def preview(self) -> Response:
        """Return reports on the best, the median and the worst endpoint."""
        return self._signed_response(await self.samples(), "tollgauge-report")

    async def samples(self) -> PreviewResponse:
        """Build the sample reports."""
        samples = await self.dependencies.read_now(trust_reports.preview)
        return trust.preview(samples, base_url=self.dependencies.base_url)

    async def preview_by_post(self, request: Request) -> Response:
        """Return the preview; the optional body has no parameters."""
        if await request.body():
            RequestModel.read(await read_body(request))
        return await self.preview()

    async def leaderboard(self) -> Response:
        """Return the leaderboard."""
        return json_response(await self.best())

    async def best(self) -> LeaderboardResponse:
        """Build the leaderboard."""
        board = await self.dependencies.read_now(overview.leaderboard)
        return snapshots.leaderboard(board, base_url=self.dependencies.base_url)

    async def stats(self) -> Response:
        """Return the statistics of all endpoints."""
        return json_response(await self.counts())

    async def counts(self) -> EcosystemResponse:
        """Build the statistics of all endpoints."""
        stats = await self.dependencies.read_now(overview.ecosystem)
        spread = await self.dependencies.read_now(statistics.current)
        return ecosystem(stats, spread)

    async def shares(self, weeks: Weeks = 12) -> Response:
        """Return weekly counts of schemes, networks, extensions, versions and facilitators."""
        counted = await self.dependencies.store.reading(ranking.load_shares, limit=weeks)
        return json_response(shares(counted))

    async def facilitators(self) -> Response:
        """Return the facilitators of the indexed chains, and the configured one."""
        known = await self.dependencies.store.reading(facilitator_records.report)
        return json_response(facilitators(known))

    async def directory_figures(self) -> Response:
        """Return the figures of all directories."""
        report = await self.dependencies.read_now(directories.current)
        return json_response(directory_answers.directories(report))

    async def directory_detail(self, name: DirectoryName) -> Response:
        """Return a directory with the entries that it dropped last."""
        found = await read_known_directory(self.dependencies, name)
        return json_response(directory_answers.directory(*found))

    async def directories(self, resource: ResourceQuery) -> Response:
        """Return an endpoint's entry in each directory."""
        known = resource_of(resource, self.dependencies.perimeter)
        entries = await self.dependencies.read_endpoint(directories.read_entries, known.id)
        return json_response(directory_answers.entries(known.url, entries))

    async def calibration(self) -> Response:
        """Return the accuracy of forecasts by policy."""
        report = await self.dependencies.read_now(calibration.report)
        return json_response(calibration_answers.calibration(report, now=self.dependencies.clock()))

    async def wallet(self, address: WalletAddress) -> Response:
        """Return the report on a payTo address."""
        report = await read_known_wallet(self.dependencies, address)
        return json_response(wallet_response(report, base_url=self.dependencies.base_url))

    async def snapshot(self, resource: ResourceQuery) -> Response:
        """Return a snapshot by URL; its query is ignored, because the identity is host and path."""
        return await self.snapshot_by_id(resource_of(resource, self.dependencies.perimeter).id)

    async def snapshot_by_id(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """Return a snapshot by endpoint ID."""
        now, base_url = self.dependencies.clock(), self.dependencies.base_url
        snapshot = await self.dependencies.read_endpoint(read_detailed, id, now=now)
        model = snapshots.snapshot(snapshot, now=now, base_url=base_url)
        return self._signed_response(model, "tollgauge-snapshot")

    async def evidence(self, digest: Digest) -> Response:
        """Return an evidence document. It is immutable, and clients can cache it forever."""
        document = await self.dependencies.store.reading(
            evidence_of, digest, now=self.dependencies.clock()
        )
        if document is None:
            raise Problem(
                404,
                "unknown-evidence",
                "No report of the last 90 days has evidence with this digest.",
            )
        return Response(
            document, media_type="application/json", headers={"Cache-Control": IMMUTABLE}
        )

    async def recheck(self, id: EndpointId, request: Request) -> Response:  # noqa: A002 - the path's name
        """Queue a probe of an endpoint that its seller fixed; browsers are sent back to its page.

        Raises Problem 404, 409 or 429.
        """
        now = self.dependencies.clock()
        try:
            endpoint = await self.dependencies.store.writing(request_probe, id, now=now)
        except PayableError as error:
            hint = "It is probed about every 30 minutes; a paid report contains a probe made now."
            raise Problem(409, "already-payable", f"{error} {hint}") from error
        except RecheckedError as error:
            wait_s = -(-(error.next_at - now) // SECOND_MS)
            detail = f"{error} Try again in {wait_s} seconds."
            raise Problem(429, "rechecked", detail, retry_after=wait_s) from error
        if endpoint is None:
            raise unknown_resource()
        if accepts_page(request.headers.get("accept", "")):
            return RedirectResponse(page_url(self.dependencies.base_url, id), 303)
        return json_response(RecheckResponse(resource=endpoint.resource, probe="queued"))

    def _signed_response(self, model: ResponseModel, typ: Typ) -> Response:
        """Build a signed response. The cache stores it with the signature, so it is signed once."""
        response, key = json_response(model), self.dependencies.signing_key
        now = self.dependencies.clock()
        response.headers.update(signature_header(key, bytes(response.body), typ, now))
        return response


async def read_known_directory(
    dependencies: Dependencies, name: str
) -> tuple[DirectoryFigures, tuple[DirectoryEntry, ...]]:
    """Read a directory and the entries that it dropped last.

    Raises:
        Problem: 404 for an unknown name.
    """
    found = await dependencies.read_now(directories.read_directory, name)
    if found is None:
        raise Problem(404, "unknown-directory", "No directory with this name was crawled.")
    return found


async def read_known_wallet(dependencies: Dependencies, address: str) -> Wallet:
    """Read the report on a payTo address.

    Raises:
        Problem: 404 if the text is not an address, or if no public endpoint names or named it.
    """
    canonical = evm_address(address) or solana_key(address)
    if canonical is None:
        raise unknown_wallet()
    report = await dependencies.read_now(read_wallet, canonical)
    if report is None:
        raise unknown_wallet()
    return report


def json_response(model: ResponseModel) -> Response:
    """Build an HTTP response with a JSON body."""
    return Response(dump(model), media_type="application/json")


class ModelResponse(ResponseModel):
    """A decoder: the node methods that it needs, its result, and its price in dollars, which is
    added to the price of the route.
    """

    id: Annotated[str, OneOf(Model)] = from_attribute("model")
    needs: list[str]
    gives: str
    price_usd: float


class ModelsResponse(ResponseModel):
    """The decoders, cheapest first, and the supported networks."""

    models: list[ModelResponse]
    networks: list[str]


CATALOGUE: Final = ModelsResponse.build(models=DECODERS, networks=[*NETWORKS])


async def models() -> Response:
    """Return the decoders with their requirements and prices."""
    return json_response(CATALOGUE)
