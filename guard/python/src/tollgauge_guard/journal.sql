-- The journal of the payment guard, shared by the Python and the TypeScript guard.
-- Times are unix seconds. Money is in micro-dollars (INTEGER); token amounts are decimal TEXT.
-- EVM addresses, nonces and hashes are lower-case hex; Solana values keep their case.
-- The file has mode 0600 and journal_mode WAL. A guard creates the tables in one transaction that
-- ends with the PRAGMA below, and refuses a file with another user_version.

CREATE TABLE payments (
  id INTEGER PRIMARY KEY,
  handle TEXT NOT NULL UNIQUE,        -- 32 hexadecimal digits, given to callers
  account TEXT NOT NULL,              -- guard/cases/purchases.json
  purchase TEXT NOT NULL,             -- "key:<given>" or "sha256:<digest>"
  session TEXT NOT NULL,              -- of the guard that reserved it
  owner TEXT NOT NULL,                -- "<process id>-<random>" of the process that has it in flight
  state TEXT NOT NULL CHECK (state IN ('reserved', 'signed', 'in-flight', 'open', 'delivered',
    'paid-unanswered', 'dead', 'lapsed', 'written-off')),
  at INTEGER NOT NULL,                -- reserved at; its budgets are in the bucket of this time
  changed_at INTEGER NOT NULL,        -- of the last change of state
  host TEXT NOT NULL,
  resource TEXT NOT NULL,             -- canonical URL without its query, which may hold secrets
  url_digest TEXT NOT NULL,           -- hex SHA-256 of the canonical URL with its query
  scheme TEXT NOT NULL,
  method TEXT NOT NULL CHECK (method IN ('eip3009', 'permit2', 'solana', 'channel')),
  network TEXT NOT NULL,
  asset TEXT NOT NULL,
  pay_to TEXT NOT NULL,
  amount TEXT NOT NULL,               -- atomic units of the offer
  exposure INTEGER NOT NULL,          -- micro-dollars that count as spent; 0 once dead
  payer TEXT NOT NULL,
  nonce TEXT,                         -- NULL while reserved
  valid_before INTEGER NOT NULL,      -- end of validity (EIP-3009 validBefore, Permit2 deadline)
  valid_height INTEGER,               -- Solana: last valid block height
  evidence TEXT,                      -- JSON that a scheme needs to find the payment on its chain
  payload TEXT,                       -- value of the payment header; dropped when final
  payment_id TEXT,                    -- of the extension payment-identifier
  status INTEGER,                     -- of the last answer
  settlement TEXT,                    -- transaction that an answer named: a hint, no evidence
  found_at INTEGER,                   -- when the chain first showed it used
  replaces INTEGER                    -- id of the payment that the owner wrote off for this one
) STRICT;
CREATE UNIQUE INDEX payments_nonce ON payments (nonce, payer, network, asset)
  WHERE nonce IS NOT NULL;
CREATE INDEX payments_channel ON payments (payer, pay_to) WHERE method = 'channel';
CREATE INDEX payments_reserved ON payments (state) WHERE state = 'reserved';
CREATE INDEX payments_purchase ON payments (purchase);
CREATE INDEX payments_lost ON payments (host, changed_at)
  WHERE state IN ('paid-unanswered', 'lapsed', 'written-off');
-- Not changed_at, which each transition would write to the index; a row is never changed before `at`.
CREATE INDEX payments_at ON payments (at);

-- Sums that are reserved or spent: guard/cases/budgets.json.
CREATE TABLE budgets (
  account TEXT NOT NULL,
  network TEXT NOT NULL,
  asset TEXT NOT NULL,
  scope TEXT NOT NULL,                -- "all", "host:<host>", "session:<session>" or "lifetime"
  bucket INTEGER NOT NULL,            -- at / 300 for "all" and "host:", otherwise 0
  spent INTEGER NOT NULL,             -- micro-dollars
  PRIMARY KEY (account, network, asset, scope, bucket)
) STRICT, WITHOUT ROWID;
CREATE INDEX budgets_bucket ON budgets (bucket);

-- Decisions other than allow; kept for 30 days, at most 100,000.
CREATE TABLE refusals (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  account TEXT NOT NULL,
  host TEXT NOT NULL,
  resource TEXT NOT NULL,
  decision TEXT NOT NULL CHECK (decision IN ('ask', 'refuse')),
  code TEXT NOT NULL,
  reason TEXT NOT NULL,
  network TEXT,
  pay_to TEXT,
  amount TEXT
) STRICT;
CREATE INDEX refusals_at ON refusals (at);

-- Questions that wait for the approver. One row permits one payment of one offer for 10 minutes.
CREATE TABLE approvals (
  id TEXT PRIMARY KEY,                -- 32 hexadecimal digits
  account TEXT NOT NULL,
  offer TEXT NOT NULL,                -- hex digest of the offer: guard/cases/README.md
  at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  host TEXT NOT NULL,
  pay_to TEXT NOT NULL,
  exposure INTEGER NOT NULL,
  code TEXT NOT NULL,
  prompt TEXT NOT NULL,               -- the guard's own text
  answer TEXT CHECK (answer IN ('yes', 'no')),
  signature TEXT,                     -- of the approver over the answer
  used_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_open ON approvals (account, offer);

PRAGMA user_version = 2;
