#!/usr/bin/env bash
# Print the path of a Python of the given minor version, from pyenv or PATH; exit 1 without one.
set -u
for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python "$(command -v "python$1")"; do
  if [ -x "$python" ] && "$python" -c '' 2>/dev/null; then
    printf '%s\n' "$python"
    exit 0
  fi
done
exit 1
