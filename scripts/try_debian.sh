#!/usr/bin/env bash
# Installs the wheel of `make wheel` in a bare Debian root without a compiler, made by debootstrap, and measures the
# time of the steps of a new user: pip install, `xlad demo`, and the script of README.md. Fails if they take LIMIT
# seconds or more (default: 180).
#
#   make wheel && sudo scripts/try_debian.sh [FOLDER]
#
# The root is made in FOLDER and kept for the next run (default: a temporary folder, which is removed). Needs root,
# debootstrap and access to a Debian mirror (MIRROR; default: debootstrap's) and to PyPI.
set -euo pipefail
fail() { echo "try_debian: $1" >&2; exit 1; }
cd "$(dirname "$0")/.."
[[ $EUID == 0 ]] || fail "chroot needs root"
command -v debootstrap >/dev/null || fail "debootstrap is missing (apt-get install debootstrap)"
wheels=(build/wheel/*.whl)
[[ ${#wheels[@]} == 1 && -e ${wheels[0]} ]] || fail "expected one wheel in build/wheel; run make wheel"

root=${1:-$(mktemp -d)}
[[ $# -gt 0 ]] || trap 'rm -rf --one-file-system "$root"' EXIT
if [[ ! -x $root/usr/bin/python3 ]]; then
  debootstrap --variant=minbase --include=python3-venv,ca-certificates bookworm "$root" \
    ${MIRROR:+"$MIRROR"} >"$root.log" 2>&1 || { tail "$root.log" >&2; exit 1; }
fi
for compiler in cc gcc g++ clang; do
  [[ ! -e $root/usr/bin/$compiler ]] || fail "found $compiler in the root, expected no compiler"
done
rm -rf "$root/try" && mkdir "$root/try"
cp "${wheels[0]}" "$root/try/"
awk '/^```python$/ {on = 1; next} /^```$/ {on = 0} on' README.md >"$root/try/readme.py"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# The certificates include that of a proxy, if this machine has one.
cp "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$root/try/ca.crt"

cat >"$root/try/run.sh" <<'END'
set -eu
export HOME=/try PIP_CERT=/try/ca.crt PIP_DISABLE_PIP_VERSION_CHECK=1 JAX_PLATFORMS=cpu
cd /try
begin=$(date +%s)
lap() { echo "try_debian: $(($(date +%s) - begin)) s: $1"; }
python3 -m venv python
PATH=/try/python/bin:$PATH
pip install -q "$(echo /try/*.whl)[jax]"
lap "installed $(xlad version | head -n 1)"
xlad demo >demo.log 2>&1 || { cat demo.log; exit 1; }
lap "xlad demo: $(tail -n 1 demo.log)"
python readme.py >readme.log 2>&1 || { cat readme.log; exit 1; }
lap "the script of README.md"
[ $(($(date +%s) - begin)) -lt "$LIMIT" ]
END
unshare -m bash -c '
  mount -t proc proc "$0/proc" && mkdir -p "$0/dev/shm" && mount -t tmpfs tmpfs "$0/dev/shm" &&
  exec env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin LIMIT="$1" chroot "$0" bash /try/run.sh' "$root" "${LIMIT:-180}" ||
  fail "the steps failed, or took ${LIMIT:-180} s or more"
echo "the wheel trains in a bare Debian root"
