"""Free JSON routes: data of monitor/reports in the form of web/wire."""

from __future__ import annotations

from typing import Annotated, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.chain.trace.result import DECODERS, NETWORKS, Model
from tollgauge.core.endpoint.identity import page_url
from tollgauge.core.lint.accounts import evm_address, solana_key
from tollgauge.core.sale.signature import Typ
from tollgauge.monitor import calibration as forecasts
from tollgauge.monitor import directories as directory_reports
from tollgauge.monitor import facilitators as facilitator_records
from tollgauge.monitor import statistics
from tollgauge.monitor.directories import DirectoryEntry, DirectoryFigures
from tollgauge.monitor.recording import PayableError, RecheckedError, request_probe
from tollgauge.monitor.reports import overview, trust_reports
from tollgauge.monitor.reports.snapshots import read_detailed
from tollgauge.monitor.reports.trust_reports import find_evidence
from tollgauge.monitor.reports.wallets import Wallet, read_wallet
from tollgauge.store.endpoints import ranking
from tollgauge.web.dependencies import Dependencies, Service, unknown_resource, unknown_wallet
from tollgauge.web.edge.messages import accepts_page, read_body
from tollgauge.web.edge.problem import Problem
from tollgauge.web.route import (
    INVALID_OBJECT,
    INVALID_QUERY,
    INVALID_RESOURCE,
    UNKNOWN_RESOURCE,
    Routes,
)
from tollgauge.web.signing import signature_header
from tollgauge.web.wire import directory_answers, facilitator_answers, openapi, snapshots, trust
from tollgauge.web.wire.calibration_answers import CalibrationResponse
from tollgauge.web.wire.calibration_answers import calibration as build_calibration
from tollgauge.web.wire.examples import RESOURCE, read_example
from tollgauge.web.wire.parameters import (
    Digest,
    DirectoryName,
    EndpointId,
    ResourceQuery,
    WalletAddress,
    Weeks,
)
from tollgauge.web.wire.request_model import RequestModel, read_resource
from tollgauge.web.wire.response_model import OneOf, ResponseModel, dump, from_attribute
from tollgauge.web.wire.snapshots import SnapshotResponse
from tollgauge.web.wire.statistics_answers import EcosystemResponse, SharesResponse, ecosystem
from tollgauge.web.wire.statistics_answers import shares as weekly_shares
from tollgauge.web.wire.trust import PreviewResponse
from tollgauge.web.wire.wallet_answers import WalletResponse, wallet_response

PREVIEW_PATH: Final = "/v1/x402-trust-preview"
IMMUTABLE: Final = "public, max-age=31536000, immutable"
ROUTES: Final = Routes(tag="free", cached=True, strict_query=True)
_OF_RESOURCE: Final = f"?resource={RESOURCE}"


@ROUTES.get(
    "/trust/leaderboard", openapi.free(snapshots.LeaderboardResponse, "leaderboard"), example=""
)
async def leaderboard(service: Service) -> Response:
    """Get the leaderboard of the 25 best endpoints."""
    return json_response(await build_leaderboard(service))


async def build_leaderboard(service: Dependencies) -> snapshots.LeaderboardResponse:
    """Build the leaderboard."""
    board = await service.read_now(overview.leaderboard)
    return snapshots.leaderboard(board, base_url=service.base_url)


@ROUTES.get("/trust/stats", openapi.free(EcosystemResponse, "stats"), example="")
async def stats(service: Service) -> Response:
    """Get statistics of all known endpoints."""
    return json_response(await build_statistics(service))


async def build_statistics(service: Dependencies) -> EcosystemResponse:
    """Build the statistics of all endpoints."""
    counts = await service.read_now(overview.ecosystem)
    return ecosystem(counts, await service.read_now(statistics.current))


@ROUTES.get(
    "/trust/shares", openapi.free(SharesResponse, "shares", INVALID_QUERY), example="?weeks=4"
)
async def shares(service: Service, weeks: Weeks = 12) -> Response:
    """Get weekly shares of schemes, networks, extensions, versions and facilitators."""
    counted = await service.store.reading(ranking.load_shares, limit=weeks)
    return json_response(weekly_shares(counted))


@ROUTES.get(
    "/trust/facilitators",
    openapi.free(facilitator_answers.FacilitatorsResponse, "facilitators"),
    example="",
)
async def facilitators(service: Service) -> Response:
    """Get the facilitators of each indexed network, and the configured one."""
    known = await service.store.reading(facilitator_records.report)
    return json_response(facilitator_answers.facilitators(known))


@ROUTES.get(
    "/trust/directories",
    openapi.free(
        directory_answers.EntriesResponse, "directories", UNKNOWN_RESOURCE | INVALID_RESOURCE
    ),
    example=_OF_RESOURCE,
)
async def directories(service: Service, resource: ResourceQuery) -> Response:
    """Get an endpoint's entry in each directory, compared with its latest 402."""
    known = read_resource(resource, service.perimeter)
    entries = await service.read_endpoint(directory_reports.read_entries, known.id)
    return json_response(directory_answers.entries(known.url, entries))


@ROUTES.get(
    "/trust/directories/{name}",
    openapi.free(
        directory_answers.DirectoryDetailResponse, "directory", {404: "Unknown directory"}
    ),
)
async def directory_detail(service: Service, name: DirectoryName) -> Response:
    """Get a directory with the entries that it dropped last."""
    return json_response(directory_answers.directory(*await read_known_directory(service, name)))


@ROUTES.get(
    "/directories.json",
    openapi.free(directory_answers.DirectoriesResponse, "directory_figures"),
    example="",
)
async def directory_figures(service: Service) -> Response:
    """Get the number, age and errors of the entries of each directory."""
    report = await service.read_now(directory_reports.current)
    return json_response(directory_answers.directories(report))


@ROUTES.get(
    "/trust/snapshot",
    openapi.add_signature(
        openapi.free(SnapshotResponse, "snapshot", UNKNOWN_RESOURCE | INVALID_RESOURCE)
    ),
    example=_OF_RESOURCE,
)
async def snapshot(service: Service, resource: ResourceQuery) -> Response:
    """Get the snapshot of an endpoint. The query of its URL is ignored, because the identity is
    host and path.
    """
    return await snapshot_by_id(service, read_resource(resource, service.perimeter).id)


@ROUTES.get(
    "/trust/snapshot/{id}",
    openapi.add_signature(openapi.free(SnapshotResponse, "snapshot", UNKNOWN_RESOURCE)),
)
async def snapshot_by_id(service: Service, endpoint_id: EndpointId) -> Response:
    """Get a snapshot by ID."""
    now = service.clock()
    found = await service.read_endpoint(read_detailed, endpoint_id, now=now)
    model = snapshots.snapshot(found, now=now, base_url=service.base_url)
    return _signed_response(service, model, "tollgauge-snapshot")


@ROUTES.get(
    "/trust/wallet/{address}",
    openapi.free(WalletResponse, "wallet", {404: "Unknown payTo address"}),
)
async def wallet(service: Service, address: WalletAddress) -> Response:
    """Get the endpoints, income and changes of a payTo address."""
    report = await read_known_wallet(service, address)
    return json_response(wallet_response(report, base_url=service.base_url))


@ROUTES.get(
    PREVIEW_PATH, openapi.add_signature(openapi.free(PreviewResponse, "preview")), example=""
)
async def preview(service: Service) -> Response:
    """Get three sample reports: best, median and worst endpoint."""
    return _signed_response(service, await build_samples(service), "tollgauge-report")


async def build_samples(service: Dependencies) -> PreviewResponse:
    """Build the sample reports."""
    samples = await service.read_now(trust_reports.preview)
    return trust.preview(samples, base_url=service.base_url)


@ROUTES.post(
    PREVIEW_PATH,
    openapi.add_signature(openapi.free(PreviewResponse, "preview", INVALID_OBJECT)),
    name="post_preview",
    request={"requestBody": openapi.body({"type": "object"}, {}, required=False)},
)
async def preview_by_post(request: Request, service: Service) -> Response:
    """Get three sample reports: best, median and worst endpoint. The optional body has no
    parameters.
    """
    if await request.body():
        RequestModel.read(await read_body(request))
    return await preview(service)


@ROUTES.get("/calibration.json", openapi.free(CalibrationResponse, "calibration"), example="")
async def calibration(service: Service) -> Response:
    """Get the accuracy of forecasts by policy."""
    report = await service.read_now(forecasts.report)
    return json_response(build_calibration(report, now=service.clock()))


@ROUTES.get(
    "/evidence/{digest}",
    openapi.document(
        read_example("evidence"), {404: "No report of the last 90 days has this evidence"}
    ),
)
async def evidence(service: Service, digest: Digest) -> Response:
    """Get the evidence of a score. It is immutable, and clients can cache it forever."""
    document = await service.read_now(find_evidence, digest)
    if document is None:
        raise Problem(
            404,
            "unknown-evidence",
            "No report of the last 90 days has evidence with this digest.",
        )
    return Response(document, media_type="application/json", headers={"Cache-Control": IMMUTABLE})


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


_MODELS: Final = ModelsResponse.build(models=DECODERS, networks=[*NETWORKS])


@ROUTES.get("/v1/models", openapi.free(ModelsResponse, _MODELS.model_dump(by_alias=True)))
async def models() -> Response:
    """List the decoders for payment traces."""
    return json_response(_MODELS)


class RecheckResponse(ResponseModel):
    """The endpoint will be probed within a minute, unless it asked for a pause (Retry-After) or the
    service is behind schedule.
    """

    resource: str
    probe: str


@ROUTES.post(
    "/endpoint/{id}/recheck",
    openapi.free(
        RecheckResponse,
        {"resource": RESOURCE, "probe": "queued"},
        UNKNOWN_RESOURCE
        | {
            409: "The last probe found the endpoint payable",
            429: "A probe of the same host was requested in the last 10 minutes",
        },
    ),
)
async def recheck(service: Service, request: Request, endpoint_id: EndpointId) -> Response:
    """Probe an endpoint now that was not payable. Browsers are sent back to its page.

    Raises Problem 404, 409 or 429.
    """
    now = service.clock()
    try:
        endpoint = await service.store.writing(request_probe, endpoint_id, now=now)
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
        return RedirectResponse(page_url(service.base_url, endpoint_id), 303)
    return json_response(RecheckResponse(resource=endpoint.resource, probe="queued"))


def _signed_response(service: Dependencies, model: ResponseModel, typ: Typ) -> Response:
    """Build a signed response. The cache stores it with the signature, so it is signed once."""
    response = json_response(model)
    body, now = bytes(response.body), service.clock()
    response.headers.update(signature_header(service.signing_key, body, typ, now))
    return response


async def read_known_directory(
    service: Dependencies, name: str
) -> tuple[DirectoryFigures, tuple[DirectoryEntry, ...]]:
    """Read a directory and the entries that it dropped last.

    Raises:
        Problem: 404 for an unknown name.
    """
    found = await service.read_now(directory_reports.read_directory, name)
    if found is None:
        raise Problem(404, "unknown-directory", "No directory with this name was crawled.")
    return found


async def read_known_wallet(service: Dependencies, address: str) -> Wallet:
    """Read the report on a payTo address.

    Raises:
        Problem: 404 if the text is not an address, or if no public endpoint names or named it.
    """
    canonical = evm_address(address) or solana_key(address)
    report = None if canonical is None else await service.read_now(read_wallet, canonical)
    if report is None:
        raise unknown_wallet()
    return report


def json_response(model: ResponseModel) -> Response:
    """Build an HTTP response with a JSON body."""
    return Response(dump(model), media_type="application/json")
