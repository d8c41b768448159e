#!/usr/bin/env bash
# The checks that need no build: formatting, and clang-tidy over the host sources of the library, the
# tool and the bindings (a quarter of an hour on two cores).
#   scripts/lint.sh [pattern]    pattern: only sources whose path matches it, for instance tools/kpage
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/format.sh --check
echo "lint: formatting is right"

if [[ ! -f build/host/build.ninja ]]; then
  cmake --preset host >/dev/null
fi
sources="^${PWD}/(?=(src|tools|bindings)/).*${1:-}.*\.cpp$"
said="$(mktemp)"
run-clang-tidy-19 -p build/host -quiet -j "$(nproc)" -extra-arg=-Wno-unknown-warning-option \
  "${sources}" 2>/dev/null | tee "${said}"
if grep -q 'Running clang-tidy for 0 files' "${said}"; then
  echo "lint: no source matches ${sources}"
  exit 2
fi
echo "lint: clang-tidy found nothing"
