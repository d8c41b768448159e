#!/usr/bin/env bash
# Passes the tests that need a GPU, from a finished build; nothing is compiled.
#   scripts/gpu_tests.sh BUILD [LOGS]     BUILD: build/cuda, or a folder with its bin/kpage_gpu_tests
#                                         and python/kpage/_ops.so; LOGS: folder for logs
# KPAGE_PROPERTY_COUNT, KPAGE_DEVICE_PLANS: numbers of random layouts (504; 1,000).
# KPAGE_SANITIZER_COUNT: of those under each tool of compute-sanitizer (16; 0: none).
# KPAGE_STEP_SECONDS: after which a step is ended and counts as failed (240).
# Prints a line for each step and a closing line; exit code 1 where a step failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build="$(realpath "${1:?usage: scripts/gpu_tests.sh BUILD [LOGS]}")"
logs="${2:-$(mktemp -d)}"
mkdir -p "${logs}"
program="${build}/bin/kpage_gpu_tests"
python="${PYTHON:-python3}"
limit="${KPAGE_STEP_SECONDS:-240}"
shards=8
failed=0
begin=${SECONDS}

# step <name> <seconds> <command>...
step() {
  local name="$1" seconds="$2" from=${SECONDS}
  shift 2
  if timeout -k 5 "${seconds}" "$@" >"${logs}/${name}.log" 2>&1; then
    echo "ok      ${name} ($((SECONDS - from)) s)"
  else
    echo "FAILED  ${name} (exit code $?, $((SECONDS - from)) s), ${logs}/${name}.log:"
    grep -E 'Failure|error|Error|FAILED|===' "${logs}/${name}.log" | tail -12
    return 1
  fi
}

# at_once <command>: begins it; finish waits for all of them.
pids=()
at_once() {
  "$@" &
  pids+=($!)
}
finish() {
  local pid
  for pid in "${pids[@]}"; do
    wait "${pid}" || failed=$((failed + 1))
  done
  pids=()
}

# Small ones first: whether anything runs at all.
KPAGE_PROPERTY_COUNT=8 step small 60 "${program}" \
  --gtest_filter='*Gpu*/0:*CudaAttention*/0:ManyOwners*' ||
  failed=$((failed + 1))

at_once step device-plans "${limit}" "${program}" --gtest_filter='DevicePlan*'
at_once step tokens "${limit}" "${program}" --gtest_filter='TokensGpu*'
for ((shard = 0; shard < shards; ++shard)); do
  at_once step "forward-${shard}" "${limit}" "${program}" --gtest_filter="*ForwardGpu*/${shard}"
  at_once step "attention-${shard}" "${limit}" "${program}" --gtest_filter="*CudaAttention*/${shard}"
done
if [[ -f "${build}/python/kpage/_ops.so" ]]; then
  package="$(mktemp -d)"
  cp -rL python/kpage "${package}/"
  cp "${build}/python/kpage/_ops.so" "${package}/kpage/"
  at_once step python "${limit}" env PYTHONPATH="${package}" "${python}" -m pytest -q --maxfail=10 \
    -p no:cacheprovider tests/python/test_cuda.py tests/python/test_tokens.py \
    tests/python/test_layouts_cuda.py
fi

count="${KPAGE_SANITIZER_COUNT:-16}"
if ((count > 0)) && command -v compute-sanitizer >/dev/null; then
  sanitize() {  # <step> <tool> <layouts> <filter>
    step "$1" "${limit}" env KPAGE_PROPERTY_COUNT="$3" KPAGE_DEVICE_PLANS="$3" \
      compute-sanitizer --tool "$2" --error-exitcode 9 "${program}" --gtest_filter="$4"
  }
  for tool in memcheck synccheck initcheck; do
    at_once sanitize "${tool}" "${tool}" "${count}" \
      '*Gpu*/0:*ForwardGpu*:*CudaAttention*:DevicePlan.EqualsTheHostsOnRandom*:DevicePlan.Tells*'
  done
  # A hundred times slower than the others: a layout a shard.
  at_once sanitize racecheck-forward racecheck "${shards}" '*ForwardGpu.HoldsOnRandom*/*'
  at_once sanitize racecheck-attention racecheck "${shards}" \
    '*CudaAttention.HoldsOnRandom*/*:ManyOwners*'
else
  echo "skipped compute-sanitizer"
fi
finish

if ((failed == 0)); then
  echo "gpu_tests: all passed in $((SECONDS - begin)) s"
else
  echo "gpu_tests: ${failed} steps FAILED in $((SECONDS - begin)) s"
  exit 1
fi
