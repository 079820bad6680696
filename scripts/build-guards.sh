#!/usr/bin/env bash
# Build the packages of the payment guards into build/guards: a wheel and an npm package.
# `tollgauge run` serves them under /guard if server.guards names that folder.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/guards
rm -rf "$out"
mkdir -p "$out"
bash scripts/setup.sh typescript_guard
(cd guard/python && ../../.venv/bin/python -m hatchling build --target wheel --directory "../../$out")
npm pack --silent --workspace guard/typescript --pack-destination "$out"
