#!/usr/bin/env bash
# Print the path of a Python of the given minor version, from PATH or pyenv; exit 1 without one.
set -u
command -v "python$1" 2>/dev/null && "python$1" -c '' 2>/dev/null && exit 0
for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
  if [ -x "$python" ]; then printf '%s\n' "$python"; exit 0; fi
done
exit 1
