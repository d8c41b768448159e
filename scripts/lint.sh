#!/usr/bin/env bash
# The checks that need no build: formatting, and clang-tidy over our host sources.
#   scripts/lint.sh [pattern]    pattern: only the sources whose path matches it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/format.sh --check
echo "lint: formatting is right"

if [[ ! -f build/host/build.ninja ]]; then
  cmake --preset host >/dev/null
fi
run-clang-tidy-19 -p build/host -quiet -j "$(nproc)" -extra-arg=-Wno-unknown-warning-option \
  "^${PWD}/(src|tools|bindings)/.*${1:-}.*\.cpp$" 2>/dev/null
echo "lint: clang-tidy found nothing"
