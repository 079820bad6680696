CREATE TABLE account (
  chain BIGINT NOT NULL,
  asset TEXT NOT NULL,
  address TEXT NOT NULL,
  low BIGINT NOT NULL,
  low_at BIGINT NOT NULL,
  wanted_from BIGINT NOT NULL,
  CONSTRAINT pk_account PRIMARY KEY (chain, asset, address)
);
CREATE TABLE book_day (
  chain BIGINT NOT NULL,
  asset TEXT NOT NULL,
  pay_to TEXT NOT NULL,
  day INTEGER NOT NULL,
  difference TEXT NOT NULL,
  checked_at BIGINT NOT NULL,
  CONSTRAINT pk_book_day PRIMARY KEY (chain, asset, pay_to, day)
);
CREATE TABLE budget (
  name TEXT NOT NULL,
  gap_us BIGINT NOT NULL,
  taken_until_us BIGINT DEFAULT '0' NOT NULL,
  CONSTRAINT pk_budget PRIMARY KEY (name)
);
CREATE TABLE bundle (
  variant TEXT NOT NULL,
  as_of BIGINT NOT NULL,
  took_ms BIGINT NOT NULL,
  policy_version BIGINT NOT NULL,
  records BIGINT NOT NULL,
  scored BIGINT NOT NULL,
  size BIGINT NOT NULL,
  digest TEXT NOT NULL,
  signature TEXT,
  key_id TEXT,
  body BYTEA NOT NULL,
  CONSTRAINT pk_bundle PRIMARY KEY (variant)
);
CREATE TABLE buyer_report (
  chain BIGINT NOT NULL,
  payer BYTEA NOT NULL,
  nonce BYTEA NOT NULL,
  endpoint_id TEXT NOT NULL,
  pay_to BYTEA NOT NULL,
  outcome TEXT NOT NULL,
  at BIGINT NOT NULL,
  signature BYTEA NOT NULL,
  weight BIGINT NOT NULL,
  CONSTRAINT pk_buyer_report PRIMARY KEY (chain, payer, nonce)
);
CREATE INDEX ix_buyer_report_at ON buyer_report (at);
CREATE INDEX ix_buyer_report_endpoint ON buyer_report (endpoint_id);
CREATE INDEX ix_buyer_report_payer ON buyer_report (chain, payer, pay_to, at);
CREATE TABLE calibration_day (
  day INTEGER NOT NULL,
  policy_version INTEGER NOT NULL,
  horizon TEXT NOT NULL,
  measure TEXT NOT NULL,
  value TEXT NOT NULL,
  count INTEGER NOT NULL,
  hits INTEGER NOT NULL,
  CONSTRAINT pk_calibration_day PRIMARY KEY (day, policy_version, horizon, measure, value)
);
CREATE TABLE chain_cursor (
  chain BIGINT NOT NULL,
  number BIGINT NOT NULL,
  hash BYTEA NOT NULL,
  at BIGINT NOT NULL,
  finalized BIGINT NOT NULL,
  audited BIGINT NOT NULL,
  audited_at BIGINT NOT NULL,
  version BIGINT NOT NULL,
  CONSTRAINT pk_chain_cursor PRIMARY KEY (chain)
);
CREATE TABLE chain_header (
  chain BIGINT NOT NULL,
  number BIGINT NOT NULL,
  hash BYTEA NOT NULL,
  CONSTRAINT pk_chain_header PRIMARY KEY (chain, number)
);
CREATE TABLE chain_wallet (
  chain BIGINT NOT NULL,
  address TEXT NOT NULL,
  site TEXT NOT NULL,
  low BIGINT NOT NULL,
  low_at BIGINT NOT NULL,
  done BOOLEAN NOT NULL,
  touched BOOLEAN NOT NULL,
  marked_at BIGINT NOT NULL,
  CONSTRAINT pk_chain_wallet PRIMARY KEY (chain, address)
);
CREATE INDEX ix_chain_wallet_low ON chain_wallet (chain, done, low);
CREATE INDEX ix_chain_wallet_touched ON chain_wallet (chain, touched);
CREATE TABLE crawl (
  id BIGSERIAL NOT NULL,
  source TEXT NOT NULL,
  started BIGINT NOT NULL,
  "offset" BIGINT DEFAULT '0' NOT NULL,
  finished_at BIGINT,
  complete BOOLEAN,
  taken_at BIGINT,
  listed INTEGER,
  skipped INTEGER DEFAULT '0' NOT NULL,
  unreadable INTEGER DEFAULT '0' NOT NULL,
  suspicious BOOLEAN DEFAULT false NOT NULL,
  CONSTRAINT pk_crawl PRIMARY KEY (id)
);
CREATE UNIQUE INDEX ix_crawl_open ON crawl (source) WHERE finished_at IS NULL;
CREATE INDEX ix_crawl_started ON crawl (started);
CREATE TABLE delivery (
  id TEXT NOT NULL,
  watch_id TEXT NOT NULL,
  destination_id TEXT NOT NULL,
  event_id TEXT NOT NULL,
  type TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  state TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  due BIGINT NOT NULL,
  last_status BIGINT,
  last_error TEXT NOT NULL,
  done_at BIGINT,
  CONSTRAINT pk_delivery PRIMARY KEY (id)
);
CREATE INDEX ix_delivery_destination_id_state ON delivery (destination_id, state);
CREATE INDEX ix_delivery_done_at ON delivery (done_at) WHERE done_at IS NOT NULL;
CREATE INDEX ix_delivery_state_due ON delivery (state, due);
CREATE INDEX ix_delivery_watch_id ON delivery (watch_id);
CREATE TABLE deposit (
  chain BIGINT NOT NULL,
  number BIGINT NOT NULL,
  block_hash BYTEA NOT NULL,
  log_index INTEGER NOT NULL,
  asset TEXT NOT NULL,
  pay_to TEXT NOT NULL,
  payer TEXT NOT NULL,
  value TEXT NOT NULL,
  nonce TEXT,
  transaction TEXT NOT NULL,
  at BIGINT NOT NULL,
  CONSTRAINT pk_deposit PRIMARY KEY (chain, number, block_hash, log_index)
);
CREATE INDEX ix_deposit_key ON deposit (chain, asset, payer, nonce);
CREATE INDEX ix_deposit_pay_to ON deposit (chain, asset, pay_to, at);
CREATE TABLE destination (
  id TEXT NOT NULL,
  watch_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  sealed_url BYTEA NOT NULL,
  masked TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  removed_at BIGINT,
  disabled_at BIGINT,
  disabled_reason TEXT NOT NULL,
  failures BIGINT NOT NULL,
  lease_owner TEXT,
  lease_until BIGINT NOT NULL,
  CONSTRAINT pk_destination PRIMARY KEY (id)
);
CREATE INDEX ix_destination_failing ON destination (id) WHERE failures > 0;
CREATE INDEX ix_destination_watch_id ON destination (watch_id);
CREATE TABLE evidence (
  digest TEXT NOT NULL,
  document BYTEA NOT NULL,
  named_at BIGINT NOT NULL,
  CONSTRAINT pk_evidence PRIMARY KEY (digest)
);
CREATE INDEX ix_evidence_named ON evidence (named_at);
CREATE TABLE followed_address (
  chain BIGINT NOT NULL,
  owner TEXT NOT NULL,
  address TEXT NOT NULL,
  until TEXT NOT NULL,
  until_slot BIGINT NOT NULL,
  top TEXT NOT NULL,
  top_slot BIGINT NOT NULL,
  before TEXT NOT NULL,
  began_at BIGINT NOT NULL,
  at BIGINT NOT NULL,
  low_at BIGINT NOT NULL,
  CONSTRAINT pk_followed_address PRIMARY KEY (chain, owner, address)
);
CREATE TABLE forecast (
  hour BIGINT NOT NULL,
  endpoint_id TEXT NOT NULL,
  policy_version BIGINT NOT NULL,
  as_of BIGINT NOT NULL,
  payable_now BIGINT NOT NULL,
  payable_24h BIGINT NOT NULL,
  grade TEXT NOT NULL,
  recommendation TEXT NOT NULL,
  age_days BIGINT NOT NULL,
  last_probe BIGINT NOT NULL,
  average_24h BIGINT NOT NULL,
  uptime_7d BIGINT NOT NULL,
  uptime_30d BIGINT NOT NULL,
  CONSTRAINT pk_forecast PRIMARY KEY (hour, endpoint_id, policy_version)
);
CREATE TABLE host (
  host TEXT NOT NULL,
  site TEXT DEFAULT '' NOT NULL,
  free_at BIGINT DEFAULT '0' NOT NULL,
  next_claim BIGINT DEFAULT '4611686018427387904' NOT NULL,
  next_watched BIGINT DEFAULT '4611686018427387904' NOT NULL,
  pace_ms BIGINT DEFAULT '0' NOT NULL,
  round_ms BIGINT DEFAULT '0' NOT NULL,
  sharing INTEGER DEFAULT '0' NOT NULL,
  takes_turns BOOLEAN DEFAULT false NOT NULL,
  turn_at BIGINT DEFAULT '0' NOT NULL,
  wildcard BOOLEAN,
  wildcard_at BIGINT,
  recheck_at BIGINT DEFAULT '0' NOT NULL,
  CONSTRAINT pk_host PRIMARY KEY (host)
);
CREATE INDEX ix_host_next_claim ON host (next_claim, host);
CREATE INDEX ix_host_next_watched ON host (next_watched, host) WHERE next_watched < 4611686018427387904;
CREATE INDEX ix_host_site ON host (site);
CREATE TABLE host_lease (
  host TEXT NOT NULL,
  owner TEXT NOT NULL,
  claimed_at BIGINT NOT NULL,
  until BIGINT NOT NULL,
  CONSTRAINT pk_host_lease PRIMARY KEY (host)
);
CREATE TABLE job_round (
  name TEXT NOT NULL,
  ended_at BIGINT NOT NULL,
  took_ms BIGINT NOT NULL,
  expected_by BIGINT NOT NULL,
  done_at BIGINT,
  failed_at BIGINT,
  error TEXT NOT NULL,
  CONSTRAINT pk_job_round PRIMARY KEY (name)
);
CREATE TABLE lease (
  name VARCHAR(64) NOT NULL,
  owner VARCHAR(64) NOT NULL,
  until BIGINT NOT NULL,
  CONSTRAINT pk_lease PRIMARY KEY (name)
);
CREATE TABLE meta (
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  CONSTRAINT pk_meta PRIMARY KEY (key)
);
CREATE TABLE payment (
  id TEXT NOT NULL,
  state TEXT NOT NULL,
  owner TEXT NOT NULL,
  lease_until BIGINT NOT NULL,
  digest TEXT NOT NULL,
  route TEXT NOT NULL,
  network TEXT NOT NULL,
  asset TEXT NOT NULL,
  payer TEXT NOT NULL,
  nonce TEXT NOT NULL,
  amount TEXT NOT NULL,
  pay_to TEXT NOT NULL,
  valid_before_s TEXT NOT NULL,
  header TEXT NOT NULL,
  transaction TEXT,
  reason TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  CONSTRAINT pk_payment PRIMARY KEY (id),
  CONSTRAINT payment_key UNIQUE (network, asset, payer, nonce)
);
CREATE INDEX payment_due ON payment (state, lease_until);
CREATE INDEX payment_newest ON payment (created_at);
CREATE INDEX payment_payer ON payment (payer, state, created_at);
CREATE INDEX payment_transaction ON payment (transaction);
CREATE TABLE payment_answer (
  payment_id TEXT NOT NULL,
  status BIGINT NOT NULL,
  body BYTEA NOT NULL,
  shown_at BIGINT,
  stored_at BIGINT DEFAULT '0' NOT NULL,
  CONSTRAINT pk_payment_answer PRIMARY KEY (payment_id)
);
CREATE INDEX ix_payment_answer_stored_at ON payment_answer (stored_at);
CREATE TABLE payment_attempt (
  id BIGSERIAL NOT NULL,
  payment_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  at BIGINT NOT NULL,
  ended_at BIGINT NOT NULL,
  outcome TEXT NOT NULL,
  transaction TEXT,
  host TEXT,
  CONSTRAINT pk_payment_attempt PRIMARY KEY (id)
);
CREATE INDEX payment_attempt_host ON payment_attempt (host, at) WHERE host IS NOT NULL;
CREATE INDEX payment_attempt_of ON payment_attempt (payment_id);
CREATE TABLE payto_announcement (
  host TEXT NOT NULL,
  network TEXT NOT NULL,
  before TEXT NOT NULL,
  after TEXT NOT NULL,
  not_before BIGINT NOT NULL,
  seen_at BIGINT NOT NULL,
  CONSTRAINT pk_payto_announcement PRIMARY KEY (host, network, before, after, not_before)
);
CREATE INDEX ix_payto_announcement_not_before ON payto_announcement (not_before);
CREATE TABLE payto_site_list (
  network TEXT NOT NULL,
  pay_to TEXT NOT NULL,
  sites TEXT NOT NULL,
  issued BIGINT NOT NULL,
  expires BIGINT NOT NULL,
  host TEXT NOT NULL,
  seen_at BIGINT NOT NULL,
  CONSTRAINT pk_payto_site_list PRIMARY KEY (network, pay_to)
);
CREATE INDEX ix_payto_site_list_expires ON payto_site_list (expires);
CREATE INDEX ix_payto_site_list_host ON payto_site_list (host);
CREATE TABLE probe (
  day INTEGER NOT NULL,
  endpoint_id TEXT NOT NULL,
  at BIGINT NOT NULL,
  outcome TEXT NOT NULL,
  attribution TEXT NOT NULL,
  up BOOLEAN NOT NULL,
  status BIGINT,
  compliance BIGINT NOT NULL,
  compliant BOOLEAN NOT NULL,
  payable BOOLEAN NOT NULL,
  payable_by INTEGER NOT NULL,
  version BIGINT,
  quote BYTEA,
  accepts BIGINT,
  reason TEXT NOT NULL,
  method TEXT NOT NULL,
  tls_not_after BIGINT,
  holds BIGINT NOT NULL,
  confirms BOOLEAN NOT NULL,
  dns BIGINT,
  connect BIGINT,
  tls BIGINT,
  ttfb BIGINT,
  total BIGINT NOT NULL,
  rules BYTEA NOT NULL,
  CONSTRAINT pk_probe PRIMARY KEY (day, endpoint_id, at)
);
CREATE TABLE probe_day (
  day INTEGER NOT NULL,
  endpoint_id TEXT NOT NULL,
  packed BYTEA NOT NULL,
  CONSTRAINT pk_probe_day PRIMARY KEY (day, endpoint_id)
);
CREATE TABLE seller_file (
  host TEXT NOT NULL,
  next_due BIGINT NOT NULL,
  asked_at BIGINT,
  read_at BIGINT,
  contact TEXT DEFAULT '' NOT NULL,
  statement TEXT DEFAULT '' NOT NULL,
  opt_out BOOLEAN DEFAULT false NOT NULL,
  problems TEXT DEFAULT '[]' NOT NULL,
  CONSTRAINT pk_seller_file PRIMARY KEY (host)
);
CREATE INDEX ix_seller_file_next_due ON seller_file (next_due);
CREATE TABLE settlement_attempt (
  chain BIGINT NOT NULL,
  day INTEGER NOT NULL,
  submitter BYTEA NOT NULL,
  form TEXT NOT NULL,
  outcome TEXT NOT NULL,
  delay_s INTEGER NOT NULL,
  count INTEGER NOT NULL,
  CONSTRAINT pk_settlement_attempt PRIMARY KEY (chain, day, submitter, form, outcome, delay_s)
);
CREATE TABLE share (
  week BIGINT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  count BIGINT NOT NULL,
  counted_at BIGINT NOT NULL,
  CONSTRAINT pk_share PRIMARY KEY (week, kind, name)
);
CREATE TABLE shared_pay_to (
  chain BIGINT NOT NULL,
  endpoint_id TEXT NOT NULL,
  as_of BIGINT NOT NULL,
  result TEXT NOT NULL,
  CONSTRAINT pk_shared_pay_to PRIMARY KEY (chain, endpoint_id)
);
CREATE TABLE transfer (
  chain BIGINT NOT NULL,
  number BIGINT NOT NULL,
  block_hash BYTEA NOT NULL,
  log_index INTEGER NOT NULL,
  wallet BYTEA NOT NULL,
  other BYTEA NOT NULL,
  incoming BOOLEAN NOT NULL,
  value TEXT NOT NULL,
  nonce BYTEA,
  transaction BYTEA NOT NULL,
  at BIGINT NOT NULL,
  submitter BYTEA,
  app_code TEXT DEFAULT '' NOT NULL,
  CONSTRAINT pk_transfer PRIMARY KEY (chain, number, block_hash, log_index, wallet)
);
CREATE INDEX ix_transfer_wallet ON transfer (chain, wallet, at);
CREATE INDEX ix_transfer_without_submitter ON transfer (chain, number) WHERE incoming AND submitter IS NULL;
CREATE TABLE transfer_day (
  chain BIGINT NOT NULL,
  wallet BYTEA NOT NULL,
  day INTEGER NOT NULL,
  other BYTEA NOT NULL,
  transfers INTEGER NOT NULL,
  paid TEXT NOT NULL,
  returned TEXT NOT NULL,
  CONSTRAINT pk_transfer_day PRIMARY KEY (chain, wallet, day, other)
);
CREATE TABLE wallet_demand (
  chain BIGINT NOT NULL,
  wallet BYTEA NOT NULL,
  as_of BIGINT NOT NULL,
  result TEXT NOT NULL,
  CONSTRAINT pk_wallet_demand PRIMARY KEY (chain, wallet)
);
CREATE TABLE wallet_income (
  chain BIGINT NOT NULL,
  wallet BYTEA NOT NULL,
  as_of BIGINT NOT NULL,
  result TEXT NOT NULL,
  CONSTRAINT pk_wallet_income PRIMARY KEY (chain, wallet)
);
CREATE TABLE watch_event (
  id BIGSERIAL NOT NULL,
  watch_id TEXT NOT NULL,
  at BIGINT NOT NULL,
  type TEXT NOT NULL,
  detail TEXT NOT NULL,
  CONSTRAINT pk_watch_event PRIMARY KEY (id)
);
CREATE INDEX ix_watch_event_watch_id ON watch_event (watch_id, id);
CREATE TABLE watch_payment (
  payment_id TEXT NOT NULL,
  watch_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  at BIGINT NOT NULL,
  applied BOOLEAN NOT NULL,
  CONSTRAINT pk_watch_payment PRIMARY KEY (payment_id)
);
CREATE INDEX ix_watch_payment_applied ON watch_payment (applied);
CREATE INDEX ix_watch_payment_watch_id ON watch_payment (watch_id);
CREATE TABLE endpoint (
  id TEXT NOT NULL,
  resource TEXT NOT NULL,
  host TEXT NOT NULL,
  query TEXT NOT NULL,
  method TEXT,
  body BYTEA,
  learned TEXT,
  status TEXT NOT NULL,
  first_seen BIGINT NOT NULL,
  last_seen BIGINT NOT NULL,
  last_probed BIGINT,
  next_due BIGINT NOT NULL,
  watched_until BIGINT NOT NULL,
  paused_until BIGINT NOT NULL,
  asked_at BIGINT,
  listing_changed_at BIGINT,
  down_since BIGINT,
  payable BOOLEAN,
  failing_since BIGINT,
  payable_since BIGINT,
  unconfirmed_at BIGINT,
  forms TEXT NOT NULL,
  extensions TEXT NOT NULL,
  offers TEXT NOT NULL,
  payto_history TEXT,
  service_name TEXT NOT NULL,
  description TEXT NOT NULL,
  tags TEXT NOT NULL,
  sources TEXT NOT NULL,
  quote_at BIGINT,
  templated BOOLEAN NOT NULL,
  simulated BOOLEAN NOT NULL,
  site TEXT NOT NULL,
  up_at BIGINT,
  version INTEGER,
  adopted BOOLEAN NOT NULL,
  quote_network TEXT,
  quote_asset TEXT,
  quote_amount TEXT,
  quote_pay_to TEXT,
  quote_source TEXT,
  score_due BIGINT NOT NULL,
  score_next BIGINT,
  scored_at BIGINT,
  score_tenths INTEGER,
  rank_key BIGINT,
  confidence_hundredths INTEGER DEFAULT '0' NOT NULL,
  recommendation TEXT DEFAULT 'unverified' NOT NULL,
  grade TEXT,
  uptime_tenths INTEGER,
  compliant BOOLEAN DEFAULT false NOT NULL,
  latency_ms INTEGER,
  payable_now_permille INTEGER,
  payable_24h_permille INTEGER,
  demand TEXT,
  outage_since BIGINT,
  outage_reason TEXT,
  outage_confirmed BOOLEAN,
  CONSTRAINT pk_endpoint PRIMARY KEY (id),
  CONSTRAINT fk_endpoint_host FOREIGN KEY(host) REFERENCES host (host),
  CONSTRAINT uq_endpoint_resource UNIQUE (resource)
);
CREATE INDEX ix_endpoint_adopted ON endpoint (first_seen) WHERE adopted;
CREATE INDEX ix_endpoint_host_next_due ON endpoint (host, next_due, id);
CREATE INDEX ix_endpoint_host_score ON endpoint (host, rank_key, id);
CREATE INDEX ix_endpoint_last_probed ON endpoint (last_probed);
CREATE INDEX ix_endpoint_quote_pay_to ON endpoint (quote_pay_to, quote_network, host, adopted);
CREATE INDEX ix_endpoint_rank ON endpoint (rank_key, id, recommendation, host, grade, score_tenths, uptime_tenths, compliant, outage_confirmed) WHERE status = 'listed' AND NOT adopted AND score_tenths IS NOT NULL;
CREATE INDEX ix_endpoint_score_due ON endpoint (score_due);
CREATE INDEX ix_endpoint_simulated ON endpoint (simulated, adopted, status);
CREATE INDEX ix_endpoint_site_first_seen ON endpoint (site, first_seen, id);
CREATE INDEX ix_endpoint_watched ON endpoint (host, next_due) WHERE watched_until > 0;
CREATE TABLE alternative_count (
  endpoint_id TEXT NOT NULL,
  better INTEGER NOT NULL,
  CONSTRAINT pk_alternative_count PRIMARY KEY (endpoint_id),
  CONSTRAINT fk_alternative_count_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES endpoint (id)
);
CREATE TABLE closed_days (
  endpoint_id TEXT NOT NULL,
  recent BYTEA NOT NULL,
  older BYTEA,
  CONSTRAINT pk_closed_days PRIMARY KEY (endpoint_id),
  CONSTRAINT fk_closed_days_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES endpoint (id)
);
CREATE TABLE discovery_event (
  id BIGSERIAL NOT NULL,
  endpoint_id TEXT NOT NULL,
  at BIGINT NOT NULL,
  event TEXT NOT NULL,
  source TEXT NOT NULL,
  before TEXT DEFAULT '' NOT NULL,
  after TEXT DEFAULT '' NOT NULL,
  announced BOOLEAN DEFAULT false NOT NULL,
  price TEXT,
  CONSTRAINT pk_discovery_event PRIMARY KEY (id),
  CONSTRAINT fk_discovery_event_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES endpoint (id)
);
CREATE INDEX ix_discovery_event_at ON discovery_event (at);
CREATE INDEX ix_discovery_event_endpoint_id_at ON discovery_event (endpoint_id, at);
CREATE INDEX ix_discovery_event_payto_after ON discovery_event (after, at) WHERE event = 'payto-changed';
CREATE INDEX ix_discovery_event_payto_before ON discovery_event (before, at) WHERE event = 'payto-changed';
CREATE TABLE flip (
  id BIGSERIAL NOT NULL,
  endpoint_id TEXT NOT NULL,
  type TEXT NOT NULL,
  at BIGINT NOT NULL,
  severity TEXT NOT NULL,
  reason TEXT NOT NULL,
  before TEXT NOT NULL,
  after TEXT NOT NULL,
  evidence TEXT NOT NULL,
  sensitivity BIGINT,
  dispatched_at BIGINT,
  host TEXT DEFAULT '' NOT NULL,
  CONSTRAINT pk_flip PRIMARY KEY (id),
  CONSTRAINT fk_flip_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES endpoint (id)
);
CREATE INDEX ix_flip_at ON flip (at);
CREATE INDEX ix_flip_endpoint_id ON flip (endpoint_id, id);
CREATE INDEX ix_flip_host ON flip (host, id);
CREATE INDEX ix_flip_type_at ON flip (type, at);
CREATE INDEX ix_flip_waiting ON flip (id) WHERE dispatched_at IS NULL;
CREATE TABLE listing (
  endpoint_id TEXT NOT NULL,
  source TEXT NOT NULL,
  crawl_id BIGINT NOT NULL,
  first_seen BIGINT NOT NULL,
  last_seen BIGINT NOT NULL,
  delisted_at BIGINT,
  quote TEXT,
  scheme TEXT DEFAULT '' NOT NULL,
  statement TEXT,
  CONSTRAINT pk_listing PRIMARY KEY (endpoint_id, source),
  CONSTRAINT fk_listing_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES endpoint (id)
);
CREATE INDEX ix_listing_dropped ON listing (source, delisted_at) WHERE delisted_at IS NOT NULL;
CREATE INDEX ix_listing_source_crawl_id ON listing (source, crawl_id);
CREATE TABLE offered_address (
  network TEXT NOT NULL,
  pay_to TEXT NOT NULL,
  endpoint_id TEXT NOT NULL,
  fee_payer TEXT NOT NULL,
  CONSTRAINT pk_offered_address PRIMARY KEY (network, pay_to, endpoint_id),
  CONSTRAINT fk_offered_address_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES endpoint (id)
);
CREATE INDEX ix_offered_address_endpoint ON offered_address (endpoint_id);
CREATE TABLE score (
  endpoint_id TEXT NOT NULL,
  as_of BIGINT NOT NULL,
  policy_version INTEGER NOT NULL,
  score_tenths INTEGER,
  evidence BYTEA NOT NULL,
  result BYTEA NOT NULL,
  named_at BIGINT,
  CONSTRAINT pk_score PRIMARY KEY (endpoint_id),
  CONSTRAINT fk_score_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES endpoint (id)
);
CREATE TABLE standing (
  endpoint_id TEXT NOT NULL,
  state TEXT NOT NULL,
  CONSTRAINT pk_standing PRIMARY KEY (endpoint_id),
  CONSTRAINT fk_standing_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES endpoint (id)
);
CREATE TABLE vantage_probe (
  endpoint_id TEXT NOT NULL,
  vantage TEXT NOT NULL,
  "primary" BOOLEAN DEFAULT false NOT NULL,
  next_due BIGINT,
  asked_at BIGINT,
  at BIGINT,
  outcome TEXT,
  attribution TEXT,
  reason TEXT,
  status INTEGER,
  up BOOLEAN,
  payable BOOLEAN,
  latency_ms INTEGER,
  up_at BIGINT,
  down_since BIGINT,
  CONSTRAINT pk_vantage_probe PRIMARY KEY (endpoint_id, vantage),
  CONSTRAINT fk_vantage_probe_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES endpoint (id)
);
CREATE INDEX ix_vantage_probe_at ON vantage_probe (vantage, at);
CREATE INDEX ix_vantage_probe_due ON vantage_probe (vantage, next_due);
CREATE TABLE watch (
  id TEXT NOT NULL,
  secret_hash TEXT NOT NULL,
  endpoint_id TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  state TEXT NOT NULL,
  sealed_key BYTEA,
  ended_at BIGINT,
  expiring_told BOOLEAN NOT NULL,
  digest_at BIGINT NOT NULL,
  rotated_at BIGINT,
  old_probes BIGINT NOT NULL,
  old_scored BIGINT NOT NULL,
  events TEXT NOT NULL,
  sensitivity BIGINT NOT NULL,
  digest BOOLEAN NOT NULL,
  due BIGINT NOT NULL,
  CONSTRAINT pk_watch PRIMARY KEY (id),
  CONSTRAINT fk_watch_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES endpoint (id),
  CONSTRAINT uq_watch_secret_hash UNIQUE (secret_hash)
);
CREATE INDEX ix_watch_endpoint_id_state ON watch (endpoint_id, state);
CREATE INDEX ix_watch_expires_at ON watch (expires_at);
CREATE INDEX ix_watch_state_due ON watch (state, due);
-- 1% of these rows is deleted every day: vacuum after two days instead of twenty.
ALTER TABLE probe SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE probe_day SET (autovacuum_vacuum_scale_factor = 0.02);
