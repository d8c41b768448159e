#!/usr/bin/env bash
# Formats all C++ and CUDA sources in place; with --check, only reports those that differ.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(-i)
if [[ "${1:-}" == --check ]]; then
  mode=(--dry-run -Werror)
fi
# Files that git knows or would add, so that build trees and environments stay out.
git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh' |
  while IFS= read -r -d '' file; do
    # A file deleted in the work tree is still in the index.
    if [[ -f "${file}" ]]; then printf '%s\0' "${file}"; fi
  done |
  xargs -0 -r clang-format-19 "${mode[@]}"
