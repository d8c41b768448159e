#!/usr/bin/env bash
# Sets up the machine if needed, builds KPage and passes all tests: ctest, then pytest.
#   scripts/test.sh [preset]     preset: cuda where nvcc is found, else host; or asan
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh

default_preset=host
if command -v nvcc >/dev/null; then
  default_preset=cuda
fi
preset="${1:-${default_preset}}"
# The environment's Python comes first: it has torch, numpy and pytest.
export PATH="${PWD}/.venv/bin:${PATH}"

cmake --preset "${preset}"
cmake --build --preset "${preset}"
ctest --preset "${preset}"

# The sanitizer build has no PyTorch extension.
if [[ -f "build/${preset}/python/kpage/_ops.so" ]] && compgen -G 'tests/python/*test*.py' >/dev/null; then
  PYTHONPATH="${PWD}/build/${preset}/python" KPAGE_BIN="${PWD}/build/${preset}/bin/kpage" \
    python -m pytest -q tests/python
fi
