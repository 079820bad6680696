#!/usr/bin/env bash
# `make packages`: build the wheel and the npm package of the payment guards into build/guards, twice,
# and print their digests. `tollgauge run` serves them under /guard if server.guards names that folder.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/guards
again=build/guards-again

build() {
  rm -rf "$1"
  mkdir -p "$1"
  (cd guard/python && ../../.venv/bin/python -m hatchling build --target wheel --directory "../../$1") >/dev/null
  npm pack --silent --workspace guard/typescript --pack-destination "$1" >/dev/null
}

bash scripts/setup.sh typescript_guard
build "$out"
build "$again"
diff -r "$out" "$again" || { echo "packages: two builds differ" >&2; exit 1; }
rm -rf "$again"
(cd "$out" && sha256sum -- *)
# A `./` marks a file: npm would read the path as a repository's name.
printf 'pip install ./%s && npm install ./%s\n' "$out"/*.whl "$out"/*.tgz
