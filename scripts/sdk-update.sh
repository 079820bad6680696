#!/usr/bin/env bash
# Move the pins of the official x402 SDKs to their newest versions, install them, regenerate
# src/tollgauge/core/base/sdk.json, bench/oracle/signers.json and the documents, and print what changed
# in the tables.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(@x402/evm @x402/fetch @x402/svm @circle-fin/x402-batching)
seller=(@x402/express @x402/extensions @x402/hono)
npm_options=(--save-dev --save-exact --ignore-scripts --omit-lockfile-registry-resolved --no-audit --no-fund)
npm install "${npm_options[@]}" "${packages[@]/%/@latest}"
npm install "${npm_options[@]}" --workspace guard/typescript "${seller[@]/%/@latest}"

compile=(.venv/bin/uv pip compile --quiet pyproject.toml --universal --generate-hashes --no-header
  --no-emit-index-url --upgrade-package x402)
"${compile[@]}" -o requirements.lock
"${compile[@]}" --group dev -c requirements.lock -o requirements-dev.lock
if grep -HnE 'https?://' requirements.lock requirements-dev.lock || grep -n '"resolved": "http' package-lock.json; then
  echo 'sdk-update: a lock file contains the host of an index' >&2
  exit 1
fi

bash scripts/setup.sh test
.venv/bin/python -m bench.oracle.tables
.venv/bin/python -m bench.oracle.signers
.venv/bin/python docs/generate.py
echo 'Run `tollgauge bench oracle`: it shows where the linter differs from the new clients.'
