"""Routes of the free JSON, feeds, lists, and discovery files."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import orjson

from tollgauge.core.sale.signature import DIRECTORY, DIRECTORY_TYPE, JWKS_PATH
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.free import downloads, endpoint_lists, lint, outcomes, preflight
from tollgauge.web.free.api import (
    CATALOGUE,
    EMPTY_OBJECT,
    PREVIEW,
    PREVIEW_PATH,
    FreeApi,
    ModelsResponse,
    RecheckResponse,
    models,
)
from tollgauge.web.free.discovery_files import (
    ATOM,
    LLMS,
    WELL_KNOWN,
    XML,
    DiscoveryFiles,
    Feeds,
    ResourcesResponse,
    Sitemap,
)
from tollgauge.web.free.keys import (
    DID,
    DidResponse,
    JwksResponse,
    KeyFiles,
    did,
    example_keys,
    jwks,
)
from tollgauge.web.free.preflight import PreflightResponse
from tollgauge.web.route import INVALID_FILTER, INVALID_QUERY, UNKNOWN_PAGE, DocumentedRoute, Route
from tollgauge.web.wire import examples, lists, openapi
from tollgauge.web.wire.calibration_answers import CalibrationResponse
from tollgauge.web.wire.directory_answers import (
    DirectoriesResponse,
    DirectoryDetailResponse,
    EntriesResponse,
)
from tollgauge.web.wire.examples import read_example
from tollgauge.web.wire.facilitator_answers import FacilitatorsResponse
from tollgauge.web.wire.lint_answers import LintResponse
from tollgauge.web.wire.snapshots import LeaderboardResponse, SnapshotResponse
from tollgauge.web.wire.statistics_answers import EcosystemResponse, SharesResponse
from tollgauge.web.wire.trust import PreviewResponse
from tollgauge.web.wire.wallet_answers import WalletResponse

_UNKNOWN: Final = {404: "This resource is not monitored"}
_UNKNOWN_EVIDENCE: Final = {404: "No report of the last 90 days has this evidence"}
_INVALID: Final = {
    422: "`resource` is missing or not a public https URL, or a query parameter is unknown"
}
_NO_OBJECT: Final = {
    400: "The body is not JSON",
    422: "The body is not a JSON object, or a query parameter is unknown",
}


def free_routes(dependencies: Dependencies) -> Iterable[Route]:
    """Yield all free routes."""
    yield from _json_routes(dependencies)
    yield from _bundle_routes(dependencies)
    yield from _guard_routes(dependencies)
    yield from _feed_routes(dependencies)
    yield from _list_routes(dependencies)
    yield from _lint_routes(dependencies)
    yield _outcome_route(dependencies)
    yield _recheck_route(dependencies)


def _json_routes(dependencies: Dependencies) -> Iterable[Route]:
    """Yield the JSON routes."""
    base_url, api = dependencies.base_url, FreeApi(dependencies)
    board = openapi.free(LeaderboardResponse, read_example("leaderboard", base_url))
    counts = openapi.free(EcosystemResponse, read_example("stats"))
    snapshot = partial(openapi.free, SnapshotResponse, read_example("snapshot", base_url))
    by_url, by_id = map(openapi.add_signature, (snapshot(_UNKNOWN | _INVALID), snapshot(_UNKNOWN)))
    samples = openapi.add_signature(openapi.free(PreviewResponse, read_example("preview")))
    decoders = openapi.free(ModelsResponse, CATALOGUE.model_dump(by_alias=True))
    calibration = openapi.free(CalibrationResponse, read_example("calibration"))
    document = openapi.document(read_example("evidence"), _UNKNOWN_EVIDENCE)
    query = f"?resource={examples.RESOURCE}"
    best = "Get the leaderboard of the 25 best endpoints"
    known = "Get statistics of all known endpoints"
    shares = openapi.free(SharesResponse, read_example("shares"), INVALID_QUERY)
    weekly = "Get weekly shares of schemes, networks, extensions, versions and facilitators"
    submit = "Get the facilitators of each indexed network, and the configured one"
    submitters = openapi.free(FacilitatorsResponse, read_example("facilitators"))
    listed = "Get an endpoint's entry in each directory, compared with its latest 402"
    entries = openapi.free(EntriesResponse, read_example("directories"), _UNKNOWN | _INVALID)
    figures = openapi.free(DirectoriesResponse, read_example("directory_figures"))
    crawled = "Get the number, age and errors of the entries of each directory"
    directory = openapi.free(
        DirectoryDetailResponse, read_example("directory"), {404: "Unknown directory"}
    )
    one = "Get a directory with the entries that it dropped last"
    paid_to = "Get the endpoints, income and changes of a payTo address"
    wallet = openapi.free(WalletResponse, read_example("wallet"), {404: "Unknown payTo address"})
    decoding = "List the decoders for payment traces"
    calibrated = "Get the accuracy of forecasts by policy"
    get = partial(Route, "GET", tag="free", cached=True)
    for path, summary, handler, answers, example in (
        ("/trust/leaderboard", best, api.leaderboard, board, ""),
        ("/trust/stats", known, api.stats, counts, ""),
        ("/trust/shares", weekly, api.shares, shares, "?weeks=4"),
        ("/trust/facilitators", submit, api.facilitators, submitters, ""),
        ("/trust/directories", listed, api.directories, entries, query),
        ("/trust/directories/{name}", one, api.directory_detail, directory, None),
        ("/directories.json", crawled, api.directory_figures, figures, ""),
        ("/trust/snapshot", "Get the snapshot of an endpoint", api.snapshot, by_url, query),
        ("/trust/snapshot/{id}", "Get a snapshot by ID", api.snapshot_by_id, by_id, None),
        ("/trust/wallet/{address}", paid_to, api.wallet, wallet, None),
        (PREVIEW_PATH, PREVIEW, api.preview, samples, ""),
        ("/calibration.json", calibrated, api.calibration, calibration, ""),
        ("/evidence/{digest}", "Get the evidence of a score", api.evidence, document, None),
        ("/v1/models", decoding, models, decoders, None),
    ):
        id_ = f"get_{handler.__name__}"
        yield get(path, summary, handler, id_, answers, example=example, strict_query=True)
    yield Route(
        "POST",
        PREVIEW_PATH,
        PREVIEW,
        api.preview_by_post,
        "post_preview",
        openapi.add_signature(openapi.free(PreviewResponse, read_example("preview"), _NO_OBJECT)),
        tag="free",
        request={"requestBody": EMPTY_OBJECT},
        strict_query=True,
    )


def _bundle_routes(dependencies: Dependencies) -> Iterable[Route]:
    """Yield the routes for decisions before a payment: preflight and bundles."""
    yield Route(
        "GET",
        preflight.PATH,
        preflight.SUMMARY,
        preflight.Preflights(dependencies).preflight,
        "get_preflight",
        openapi.free(PreflightResponse, read_example("preflight"), _INVALID),
        tag="free",
        cached=True,
        strict_query=True,
        request=preflight.PARAMETERS,
        example=f"?resource={examples.RESOURCE}&payTo={examples.PAY_TO}&amount=10000",
    )
    files = downloads.Bundles(dependencies)
    get = partial(Route, "GET", tag="free", strict_query=True)
    every = "Download the trust records of all listed endpoints as a signed file"
    avoided = "Download only the records of endpoints that must not be paid"
    answers = openapi.file(downloads.BUNDLE_TYPE, {503: "The first bundle is being built"})
    for path, summary, handler, example in (
        (downloads.BUNDLE_PATH, every, files.all, ""),
        (f"{downloads.BUNDLE_PATH}/avoid", avoided, files.avoid, None),
    ):
        id_ = f"get_bundle_{handler.__name__}"
        yield get(path, summary, handler, id_, answers, example=example, saved_as="bundle.zst")


def _guard_routes(dependencies: Dependencies) -> Iterable[Route]:
    """Yield the routes of the guards' packages."""
    packages, path = downloads.GuardPackages(dependencies), downloads.GUARD_PATH
    get = partial(Route, "GET", tag="free", strict_query=True)
    listed = openapi.free(downloads.GuardPackagesResponse, read_example("guard_packages"))
    unknown = {404: "No package has this name"}
    files = openapi.add_signature(openapi.page("application/octet-stream", own=unknown))
    summary = "List the packages of the payment guards"
    yield get(path, summary, packages.list_packages, "get_guard_packages", listed, example="")
    summary = "Download a package of a payment guard"
    yield get(f"{path}/{{name}}", summary, packages.file, "get_guard_package", files)


def _feed_routes(dependencies: Dependencies) -> Iterable[Route]:
    """Yield the Atom feeds of incidents."""
    feeds, answers = Feeds(dependencies), openapi.page(ATOM, own=UNKNOWN_PAGE)
    get = partial(Route, "GET", tag="free", cached=True)
    for path, summary, handler in (
        ("/endpoint/{id}/feed.xml", "Incidents of an endpoint (Atom)", feeds.of_endpoint),
        ("/provider/{host}/feed.xml", "Incidents of a provider (Atom)", feeds.of_provider),
    ):
        yield get(path, summary, handler, f"feed_{handler.__name__}", answers)
    every = "Incidents of all endpoints (Atom)"
    yield get(
        "/incidents/feed.xml",
        every,
        feeds.of_all,
        "feed_of_all",
        openapi.page(ATOM, own=INVALID_QUERY),
        strict_query=True,
    )


def _list_routes(dependencies: Dependencies) -> Iterable[Route]:
    """Yield the routes of search and lists."""
    endpoints, base_url = endpoint_lists.EndpointLists(dependencies), dependencies.base_url
    results = openapi.free(lists.SearchResponse, read_example("search", base_url), INVALID_FILTER)
    get = partial(Route, "GET", tag="free", cached=True, strict_query=True)
    search = "Search endpoints by URL, host, payTo address or keywords"
    for path, handler, id_, example in (
        (endpoint_lists.SEARCH, endpoints.search, "get_search", "?q=weather%20forecast&minGrade=B"),
        (endpoint_lists.SEMANTIC_SEARCH, endpoints.search, "get_semantic_search", None),
    ):
        yield get(
            path,
            search,
            handler,
            id_,
            results,
            example=example,
            request=endpoint_lists.SEARCH_PARAMETERS,
        )
    yield Route(
        "POST",
        endpoint_lists.SEMANTIC_SEARCH,
        search,
        endpoints.search_by_post,
        "post_semantic_search",
        openapi.free(lists.SearchResponse, read_example("search", base_url), _NO_OBJECT),
        tag="free",
        request={"requestBody": endpoint_lists.SearchRequest.body(endpoint_lists.EXAMPLE)},
        strict_query=True,
        example=orjson.dumps(endpoint_lists.EXAMPLE).decode(),
    )
    page = openapi.free(
        lists.EndpointListResponse, read_example("endpoint_list", base_url), INVALID_FILTER
    )
    csv = openapi.csv(INVALID_FILTER)
    either = {**page, 200: openapi.either(page[200], csv[200])}
    every = "List all endpoints, 100 per page, as JSON or CSV"
    query = "?sort=price&grade=A"
    get = partial(get, request=endpoint_lists.LIST_PARAMETERS)
    yield get(
        endpoint_lists.ENDPOINTS, every, endpoints.endpoints, "get_endpoints", either, example=query
    )
    as_csv, path = "List all endpoints as CSV", f"{endpoint_lists.ENDPOINTS}.csv"
    yield get(path, as_csv, endpoints.endpoints_csv, "get_endpoints_csv", csv, example=query)


def _lint_routes(dependencies: Dependencies) -> Iterable[Route]:
    """Yield the route of the linter."""
    linting = lint.Linting(dependencies)
    yield Route(
        "POST",
        lint.LINT_PATH,
        lint.SUMMARY,
        linting.lint,
        "post_lint",
        openapi.free(LintResponse, lint.example_answer(), lint.ERRORS),
        tag="free",
        request={"requestBody": lint.LintRequest.body(lint.EXAMPLE)},
        example=orjson.dumps(lint.EXAMPLE).decode(),
        strict_query=True,
    )


def _outcome_route(dependencies: Dependencies) -> Route:
    """Return the route of buyers' reports."""
    return Route(
        "POST",
        outcomes.PATH,
        outcomes.SUMMARY,
        outcomes.BuyersReporting(dependencies).submit,
        "post_outcome",
        openapi.free(outcomes.OutcomeResponse, outcomes.EXAMPLE_ANSWER, outcomes.ERRORS),
        tag="free",
        request={"requestBody": outcomes.OutcomeRequest.body(outcomes.EXAMPLE)},
        strict_query=True,
    )


def _recheck_route(dependencies: Dependencies) -> Route:
    """Return the route that queues a probe."""
    errors = {
        404: "This resource is not monitored",
        409: "The last probe found the endpoint payable",
        429: "A probe of the same host was requested in the last 10 minutes",
    }
    return Route(
        "POST",
        "/endpoint/{id}/recheck",
        "Probe an endpoint now that was not payable",
        FreeApi(dependencies).recheck,
        "post_recheck",
        openapi.free(RecheckResponse, {"resource": examples.RESOURCE, "probe": "queued"}, errors),
        tag="free",
        strict_query=True,
    )


def discovery_routes(
    dependencies: Dependencies, documented: tuple[DocumentedRoute, ...]
) -> Iterable[Route]:
    """Yield the files at well-known paths."""
    files, sitemap = DiscoveryFiles(dependencies, documented), Sitemap(dependencies)
    keys, example = KeyFiles(dependencies), example_keys()
    key_example = jwks(example).model_dump(by_alias=True)
    key_set = openapi.free(JwksResponse, key_example)
    document = did(dependencies.base_url, example, example).model_dump(by_alias=True)
    did_document = openapi.free(
        DidResponse, document, {404: "This service does not sign responses"}
    )
    sold = openapi.free(ResourcesResponse, {"version": 1, "resources": files.list_paid_routes()})
    text, xml = openapi.page("text/plain"), openapi.page(XML)
    parts = openapi.page(XML, own={404: "The sitemap has no part with this name"})
    for path, summary, handler, answers in (
        (WELL_KNOWN, "List the paid routes", files.well_known, sold),
        (JWKS_PATH, "Get the signing keys as a JWK Set", keys.jwks, key_set),
        (DID, "Get the signing keys as a did:web document", keys.did, did_document),
        (LLMS, "Description of the service for language models", files.llms, text),
        ("/robots.txt", "Rules for crawlers", sitemap.robots, text),
        ("/sitemap.xml", "Index of the sitemap", sitemap.index, xml),
        ("/sitemap/{name}", "Part of the sitemap", sitemap.part, parts),
    ):
        id_ = f"get_{handler.__name__}"
        yield Route("GET", path, summary, handler, id_, answers, tag="free", cached=True)
    unsigned = {404: "This service does not sign requests"}
    directory = openapi.document(key_example, unsigned, media_type=DIRECTORY_TYPE)
    # Not cached: each response has its own signature.
    yield Route(
        "GET",
        DIRECTORY,
        "Get the keys with which the prober signs requests",
        keys.directory,
        "get_directory",
        directory,
        tag="free",
    )
