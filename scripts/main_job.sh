#!/usr/bin/env bash
# The main job: a real video's tokens through plan, attention forward and backward, oracle and
# report. Sets up and builds what is missing.
#   scripts/main_job.sh [--all | --frames N] [--video CLIP]    --all: the whole clip, not a cut of it
# Results lie in data/: the capture, the outputs and report.html.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh

cmake --preset release >/dev/null
cmake --build --preset release --target kpage_cli

mkdir -p data
capture=data/capture.safetensors
.venv/bin/python scripts/make_capture.py "${capture}" "$@" | tee data/capture.txt
grid="$(sed -n 's/^grid \([0-9x]*\),.*/\1/p' data/capture.txt)"

build/release/bin/kpage run "${capture}" --grid "${grid}" --layout vsa --cube 4x4x4 --keep 0.1 \
  --backward --output data/outputs.safetensors --report data/report.html
