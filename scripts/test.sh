#!/usr/bin/env bash
# What every change must pass: the release build with all tests, the threaded folders under ThreadSanitizer, the parsers
# under AddressSanitizer and UBSan, clang-tidy on what changed. --all: everything under everything.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --python
all=false
[[ "${1:-}" == --all ]] && all=true

step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }
build() {  # preset targets...
  local preset=$1
  shift
  mkdir -p build
  cmake --preset "$preset" >"build/$preset.cmake.log" || { cat "build/$preset.cmake.log"; exit 1; }
  ninja -C "build/$preset" "$@" | grep -vE '^\[[0-9]+/[0-9]+\]' || ((PIPESTATUS[0] == 0))
}

step "release: build"
build release
step "release: tests"
ctest --test-dir build/release --output-on-failure -j2

tsan_tests='collectives_exec_test|runtime_test|worker_test'
asan_tests='tensor_test|hlo_test'
if $all; then tsan_tests='.*' asan_tests='.*'; fi
for preset in tsan asan; do
  tests=${preset}_tests
  targets=()
  if ! $all; then IFS='|' read -ra targets <<<"${!tests}"; fi
  step "$preset: build"
  build "$preset" "${targets[@]}"
  step "$preset: tests"
  TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1" UBSAN_OPTIONS=print_stacktrace=1 \
    ASAN_OPTIONS=detect_leaks=0 ctest --test-dir "build/$preset" -R "^(${!tests})\$" -LE slow --output-on-failure -j2
done

step "fuzz: build"
build fuzz hlo_text_fuzz hlo_proto_fuzz hlo_eval_fuzz
step "fuzz: a short run"
scripts/fuzz.sh 5000

step "tidy"
scripts/tidy.sh
step "done"
