#!/usr/bin/env bash
# Sets up the machine if needed, builds the command line tool and runs the main job.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh
cmake --preset release >/dev/null
cmake --build --preset release
if [[ -x build/release/bin/kpage ]]; then
  build/release/bin/kpage info
fi
