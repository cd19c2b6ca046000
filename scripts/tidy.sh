#!/usr/bin/env bash
# Runs clang-tidy on at most 12 C++ sources (.cc) that have changed since this branch left its upstream branch. Without
# an upstream branch, these are the sources that have changed since HEAD~1.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || git rev-parse -q --verify HEAD~1 || true)
files=()
if [[ -n "$base" ]]; then mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- '*.cc'); fi
if ((${#files[@]} > 12)); then
  echo "tidy: checks 12 of the ${#files[@]} changed sources; to check another: clang-tidy-19 -p build/tidy FILE"
  # The commit chooses them, so that a repeated run checks the same sources.
  mapfile -t files < <(printf '%s\n' "${files[@]}" | shuf -n 12 --random-source=<(yes "$(git rev-parse HEAD)"))
fi
if ((${#files[@]} == 0)); then echo "tidy: nothing changed"; exit 0; fi
# The preset dev compiles each source by itself, as clang-tidy requires. The other presets compile several at once.
cmake --preset dev -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >build/tidy.cmake.log ||
  { cat build/tidy.cmake.log; exit 1; }
ninja -C build/tidy --quiet xlad_proto_generated
# Skips sources that no target compiles because a library is not installed.
mapfile -t files < <(printf '%s\n' "${files[@]}" | while read -r file; do
  if grep -q "\"file\": \"$PWD/$file\"" build/tidy/compile_commands.json; then echo "$file"; fi
done)
if ((${#files[@]} == 0)); then echo "tidy: no changed source is compiled"; exit 0; fi
printf '%s\n' "${files[@]}" | xargs -P2 -n4 clang-tidy-19 -p build/tidy --quiet --warnings-as-errors='*'
