"""Pagination of long paid answers, because an agent reads everything that a tool returns.

The ledger stores the complete answer with its payment. `answerId` gives access to all its pages
without another payment while the answer is stored.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final

import orjson
from pydantic import ConfigDict, Field, create_model

from tollgauge.core.sale.payment_state import State
from tollgauge.store.ledger.payments import LedgerRow
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.product import Brief, PaidDependencies
from tollgauge.web.paid.sale import HeldClaim
from tollgauge.web.wire.request_model import RequestModel, invalid
from tollgauge.web.wire.response_model import OneOf, camel

PAGE_BYTES: Final = 7_300
"""Size of a page, text and structured content; with its receipt a result is under 8,000 bytes."""
_ID: Final = r"[0-9a-f]{32}\.[A-Za-z0-9_-]{22}"
_MORE: Final = (
    "Paid. To read the next rows, call {tool} with only answerId and offset = nextOffset. To read "
    "complete rows, add details ({lists}). Free for 30 days."
)


class PageRequest(RequestModel):
    """The arguments that select a page of a stored answer."""

    model_config = ConfigDict(alias_generator=camel)

    answer_id: Annotated[str, Field(pattern=f"^{_ID}$")] | None = Field(
        None, description="`answerId` of a paid answer; replaces all other arguments"
    )
    offset: Annotated[int, Field(ge=0)] = Field(0, description="`nextOffset` of the previous page")
    details: str | None = Field(None, description="List whose rows are returned in full")


@cache
def page_request(brief: Brief) -> type[PageRequest]:
    """Return the model of a tool's page arguments."""
    field = Field(None, description=PageRequest.model_fields["details"].description)
    details: Any = Annotated[str, OneOf(brief.lists)] | None
    return create_model("PageRequest", __base__=PageRequest, details=(details, field))


def arguments_schema(brief: Brief, order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments: a new order, or a page of a paid answer."""
    page = page_request(brief).json_schema()
    return {
        **{name: value for name, value in order.items() if name != "required"},
        "properties": order["properties"] | page["properties"],
        "anyOf": [{"required": order["required"]}, {"required": ["answerId"]}],
    }


def with_id(
    compute: Callable[[PaidDependencies, Any, HeldClaim], Awaitable[bytes]],
) -> Callable[[PaidDependencies, Any, HeldClaim], Awaitable[bytes]]:
    """Add a new `answerId` to each computed answer."""

    async def compute_with_id(
        dependencies: PaidDependencies, order: Any, claim: HeldClaim
    ) -> bytes:
        body = await compute(dependencies, order, claim)
        # With a random part, because the ID of a payment can be computed from chain data.
        answer_id = f"{claim.payment_id}.{secrets.token_urlsafe(16)}"
        return orjson.dumps(orjson.loads(body) | {"answerId": answer_id})

    return compute_with_id


def stored_answer(row: LedgerRow | None, answer_id: str) -> bytes:
    """Return the complete answer from the row of its payment. Raises Problem 404."""
    if row is not None and row.state is State.SETTLED and row.answer is not None:
        known = str(orjson.loads(row.answer.body).get("answerId", ""))
        if hmac.compare_digest(known, answer_id):
            return row.answer.body
    raise Problem(
        404,
        "unknown-answer",
        "This tool has no answer with this answerId. Answers are stored for 30 days. Nothing was "
        "charged.",
    )


def page(body: bytes, brief: Brief, request: PageRequest, *, tool: str) -> bytes:
    """Return one page of an answer, with at least one row.

    Raises Problem 422 if the offset is past the last row.
    """
    answer = orjson.loads(body)
    document: dict[str, Any] = {}
    if request.details is not None:
        name, rows = request.details, answer[request.details]
    else:
        name, rows = "rows", brief.rows(answer)
        document = brief.head(answer) if request.offset == 0 else {}
        document["columns"] = brief.columns
    if request.offset and request.offset >= len(rows):
        raise invalid("offset", f"offset must be less than {len(rows)}, the number of rows.")
    document |= {
        "total": len(rows),
        "offset": request.offset,
        "answerId": answer["answerId"],
        "more": _MORE.format(tool=tool, lists=", ".join(brief.lists)),
    }
    shown = _take_fitting(
        rows[request.offset :], PAGE_BYTES - _bytes_in_result(document | {name: []})
    )
    end = request.offset + len(shown)
    if end < len(rows):
        document["nextOffset"] = end
    return orjson.dumps(document | {name: shown})


def _take_fitting(rows: list[Any], room: int) -> list[Any]:
    """Return the first rows that fit into `room` bytes of a result, at least one."""
    shown: list[Any] = []
    for row in rows:
        room -= _bytes_in_result(row)
        if room < 0 and shown:
            break
        shown.append(row)
    return shown


def _bytes_in_result(value: Any) -> int:
    # A result contains each value twice: in structured content, and in its text as a JSON string.
    text = orjson.dumps(value)
    return len(text) + len(orjson.dumps(text.decode())) + len(",,")
