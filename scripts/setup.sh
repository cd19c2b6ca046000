#!/usr/bin/env bash
# Installs the dependencies of xlad on Debian 12, as root or with sudo. Does nothing if the dependencies are installed.
#   scripts/setup.sh           packages for building and running
#   scripts/setup.sh --python  also build/venv with jax and the Python package, for the demo and the tests
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
for package in $(grep -v '^#' scripts/packages.txt); do
  dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  sudo=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { echo "setup: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
    sudo=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

# The environment is updated if one of its inputs has changed.
ready=build/venv/ready
if [[ "${1:-}" == --python ]] && { [[ ! -e $ready ]] || [[ -n $(find scripts/requirements.txt proto python/setup.py \
    python/pyproject.toml -newer $ready -print -quit) ]]; }; then
  # Uses the oldest installed Python that the tested version of jax supports. If there is none, pip fails.
  for python in python3.11 python3.12 python3.13 python3; do
    command -v "$python" >/dev/null && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' && break
  done
  mkdir -p build
  [[ -x build/venv/bin/pip ]] || "$python" -m venv build/venv
  echo "setup: installing jax and python/ into build/venv"
  build/venv/bin/pip install -q --disable-pip-version-check -r scripts/requirements.txt -e python
  touch $ready
fi
