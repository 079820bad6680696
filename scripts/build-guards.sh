#!/usr/bin/env bash
# `make packages`: build the wheel and the npm package of the payment guards into build/guards, twice,
# and print their digests. `tollgauge run` serves them under /guard if server.guards names that folder.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/guards
again=build/guards-again
source=build/guards-source

# The npm package is built in a copy: a build removes guard/typescript/dist, which tests may be using.
build() {
  local to=$PWD/$1
  rm -rf "$1" $source
  mkdir -p "$1" $source/typescript
  (cd guard/python && ../../.venv/bin/python -m hatchling build --target wheel --directory "$to") >/dev/null
  tar -c -C guard --exclude=node_modules --exclude=dist --exclude=test typescript python/src | tar -x -C $source
  ln -s "$PWD/guard/typescript/node_modules" $source/typescript/node_modules
  (cd $source/typescript && npm pack --silent --pack-destination "$to") >/dev/null
  rm -rf $source
}

# Packages of the same sources are not built again.
stamp=$(tar -c --sort=name --mtime=@0 --exclude=node_modules --exclude=dist --exclude=test --exclude=__pycache__ \
  package-lock.json requirements-dev.lock scripts/build-guards.sh guard/python guard/typescript | sha256sum)
if [ "$(cat "$out.stamp" 2>/dev/null)" != "$stamp" ] || [ ! -d "$out" ]; then
  build "$out"
  build "$again"
  diff -r "$out" "$again" || { echo "packages: two builds differ" >&2; exit 1; }
  rm -rf "$again"
  printf '%s' "$stamp" >"$out.stamp"
fi
(cd "$out" && sha256sum -- *)
# A `./` marks a file: npm would read the path as a repository's name.
printf 'pip install "./%s[evm]" && npm install ./%s @x402/core @x402/fetch @x402/evm viem\n' "$out"/*.whl "$out"/*.tgz
