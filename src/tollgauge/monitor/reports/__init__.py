"""The read side: the one place from which API, MCP, pages and the command line get their figures.

Every figure here is an integer in the unit that its name says: tenths (of a point or of a percent),
hundredths, permille, milliseconds, or milliseconds UTC. web/wire turns them into JSON, and
web/pages/views into HTML. There is a file for each noun: `snapshots` (of one endpoint, of a host),
`leaderboard` (the best), `incidents` (what changed), `endpoint` (a whole page of one, and its raw
probes), `pace` (how often it is probed), `lint` (what its last probe found wrong), `improvements`
(what would raise its score), `trust` (reports, and the preview's samples) and `counts` (the
ecosystem).
"""

from tollgauge.monitor.ranking import MoreOfSite
from tollgauge.monitor.reports.counts import Ecosystem, ecosystem
from tollgauge.monitor.reports.endpoint import (
    DayBar,
    EndpointView,
    TimelineEvent,
    history,
    view,
    views,
)
from tollgauge.monitor.reports.incidents import Incidents, incidents
from tollgauge.monitor.reports.leaderboard import Leaderboard, leaderboard
from tollgauge.monitor.reports.lint import StoredLint, stored_lint
from tollgauge.monitor.reports.snapshots import (
    EndpointRow,
    Provider,
    Snapshot,
    detailed,
    provider,
    row_of,
    snapshot,
    snapshot_of,
)
from tollgauge.monitor.reports.trust import (
    Sample,
    Scored,
    TrustReport,
    evidence_of,
    live,
    preview,
    scored_again,
    scored_last,
    shared,
)

__all__ = [
    "DayBar",
    "Ecosystem",
    "EndpointRow",
    "EndpointView",
    "Incidents",
    "Leaderboard",
    "MoreOfSite",
    "Provider",
    "Sample",
    "Scored",
    "Snapshot",
    "StoredLint",
    "TimelineEvent",
    "TrustReport",
    "detailed",
    "ecosystem",
    "evidence_of",
    "history",
    "incidents",
    "leaderboard",
    "live",
    "preview",
    "provider",
    "row_of",
    "scored_again",
    "scored_last",
    "shared",
    "snapshot",
    "snapshot_of",
    "stored_lint",
    "view",
    "views",
]
