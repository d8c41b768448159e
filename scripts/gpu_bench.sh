#!/usr/bin/env bash
# Benchmarks on one GPU, from a finished build; nothing is compiled.
#   scripts/gpu_bench.sh BUILD [FOLDER] [SECONDS] [SUITE...]
# BUILD: build/cuda, or a folder with its python/kpage/_ops.so. Results go to FOLDER (bench/results)
# as <date>-<gpu>.json, in the form that docs/benchmarks.md tells, and as a page beside it. SUITE: see
# `python -m kpage.bench --help`; default: all. A run that was ended goes on where it
# stopped; a file of another commit is refused.
# Peers that Python can import are measured; the file says which could not be, and why.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build="$(realpath "${1:?usage: scripts/gpu_bench.sh BUILD [FOLDER] [SECONDS] [SUITE...]}")"
folder="${2:-bench/results}"
seconds="${3:-3600}"
suites=("${@:4}")
python="${PYTHON:-python3}"
mkdir -p "${folder}"

# What is measured is a copy, which lies in no repository.
export KPAGE_COMMIT="${KPAGE_COMMIT:-$("${python}" -I python/kpage/bench/commit.py)}"

package="$(mktemp -d)"
cp -rL python/kpage "${package}/"
cp "${build}/python/kpage/_ops.so" "${package}/kpage/"
export PYTHONPATH="${package}${PYTHONPATH:+:${PYTHONPATH}}" PYTHONUNBUFFERED=1

gpu="$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | awk '{print tolower($NF)}')"
name="${folder}/$(date +%F)-${gpu}"
timeout -k 5 $((seconds + 60)) "${python}" -m kpage.bench --suite "${suites[@]:-all}" \
  --seconds "${seconds}" --output "${name}.json" --report "${name}.html" --table
