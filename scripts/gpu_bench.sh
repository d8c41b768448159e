#!/usr/bin/env bash
# Benchmarks on one GPU, from a finished build; nothing is compiled.
#   scripts/gpu_bench.sh BUILD [FOLDER] [SECONDS] [PEER_SECONDS]
# BUILD: build/cuda, or a folder with its python/kpage/_ops.so. Results go to FOLDER (bench/results)
# as <date>-<gpu>.json and <date>-<gpu>-peers.json, in the form that docs/benchmarks.md tells.
# Peers that Python can import are measured; the files say which could not be, and why.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build="$(realpath "${1:?usage: scripts/gpu_bench.sh BUILD [FOLDER] [SECONDS] [PEER_SECONDS]}")"
folder="${2:-bench/results}"
seconds="${3:-1200}"
peer_seconds="${4:-1200}"
python="${PYTHON:-python3}"
mkdir -p "${folder}"

package="$(mktemp -d)"
cp -rL python/kpage "${package}/"
cp "${build}/python/kpage/_ops.so" "${package}/kpage/"
export PYTHONPATH="${package}${PYTHONPATH:+:${PYTHONPATH}}" PYTHONUNBUFFERED=1

gpu="$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | awk '{print tolower($NF)}')"
name="${folder}/$(date +%F)-${gpu}"
status=0
timeout -k 5 $((seconds + 30)) "${python}" -m kpage.bench --suite own --seconds "${seconds}" \
  --output "${name}.json" || status=$?
timeout -k 5 $((peer_seconds + 30)) "${python}" -m kpage.bench --suite peers \
  --seconds "${peer_seconds}" --output "${name}-peers.json" || status=$?
"${python}" -m kpage.bench --table "${name}"*.json
exit "${status}"
