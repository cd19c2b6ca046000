#!/usr/bin/env bash
# clang-tidy on the C++ sources that differ from the upstream branch (or the last commit), at most 40 of them.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || git rev-parse -q --verify HEAD~1 || true)
if [[ -n "$base" ]]; then
  mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- '*.cc' | head -40)
else
  files=()
fi
if ((${#files[@]} == 0)); then echo "tidy: nothing changed"; exit 0; fi
printf '%s\n' "${files[@]}" | xargs -P2 -n4 clang-tidy-19 -p build/release --quiet --warnings-as-errors='*'
