#!/usr/bin/env bash
# The checks that need no build: formatting, and clang-tidy over the host sources of the library and
# the bindings. The tool's take ten times as long, for the headers they include: with a pattern.
#   scripts/lint.sh [pattern]    pattern: the sources whose path matches it, for instance tools
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/format.sh --check
echo "lint: formatting is right"

if [[ ! -f build/host/build.ninja ]]; then
  cmake --preset host >/dev/null
fi
sources="^${PWD}/(src|bindings)/.*\.cpp$"
if [[ $# -gt 0 ]]; then
  sources="^${PWD}/(src|tools|bindings)/.*$1.*\.cpp$"
fi
run-clang-tidy-19 -p build/host -quiet -j "$(nproc)" -extra-arg=-Wno-unknown-warning-option \
  "${sources}" 2>/dev/null
echo "lint: clang-tidy found nothing"
