#!/usr/bin/env bash
# What every change must pass: the release build with all tests, the threaded folders under ThreadSanitizer, the parsers
# under AddressSanitizer and UBSan, a short fuzzing run, and clang-tidy on changed files. With --all, the test programs
# of every folder run under AddressSanitizer and UBSan, those of every folder with threads under ThreadSanitizer, and
# the tests of the release build try all their cases. Prints the time of each part at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
all=false
[[ "${1:-}" == --all ]] && all=true
mkdir -p build

times=()
part=""
part_start=0
# Begins a part, and records the time of the previous part.
step() {
  if [[ -n $part ]]; then times+=("$(printf '%5d s  %s' $((SECONDS - part_start)) "$part")"); fi
  part=$1
  part_start=$SECONDS
  printf '\n== %s\n' "$1"
}
build() {  # Arguments: PRESET TARGETS...
  local preset=$1
  shift
  cmake --preset "$preset" >"build/$preset.cmake.log" || { cat "build/$preset.cmake.log"; exit 1; }
  ninja -C "build/$preset" "$@" | grep -vE '^\[[0-9]+/[0-9]+\]' || ((PIPESTATUS[0] == 0))
}

# Runs the tests of a preset. A test of the release build that fails runs once more, because the load of the machine can
# break a test that has a race, and one such test should not refuse a good change. Its first run is printed again at the
# end, because the race is still to be mended. Reports of sanitizers are errors even if they are rare. Arguments: PRESET
# FLAGS_OF_CTEST...
run_tests() {
  local preset=$1 log=build/$1.ctest.log result=0 limit_s=600 runs=1
  shift
  if $all; then limit_s=3600; fi
  if [[ $preset == release ]]; then runs=2; fi
  ctest --test-dir "build/$preset" --output-on-failure -j2 --timeout "$limit_s" --repeat "until-pass:$runs" "$@" |
    tee "$log" || result=$?
  if grep -E ' Test +#[0-9]+: .*\*\*\*(Failed|Timeout|Exception)' "$log"; then
    echo "$preset: found the failed runs above, expected none; a test that passed the second time has a race: mend it"
  fi
  return $result
}

tsan_tests='collectives_exec_test|runtime_test|worker_test'
fuzz_tests='tensor_test|hlo_test'
fuzz_inputs=(text proto eval safetensors index)
tsan_targets=(collectives_exec_test runtime_test worker_test)
fuzz_targets=(tensor_test hlo_test hlo_text_fuzz hlo_proto_fuzz hlo_eval_fuzz tensor_safetensors_fuzz
              storage_index_fuzz)
# Tests of the installed command with real processes run only in the release build, because they have time limits.
if $all; then
  # All but the tests of folders that start no threads. These would take ten times as long and could find nothing.
  tsan_tests='(base|storage|observe|security|collectives_exec|compiler|simulate|runtime|device_[a-z_]+|worker|service|'
  tsan_tests+='service_build|client|cuda_driver_double|nccl_double|simulation|differential|compiled)_test'
  fuzz_tests='.*_test'
  fuzz_inputs+=(messages job)  # Their targets need most of the folders.
  tsan_targets=(all) fuzz_targets=(all)
fi
# Builds the programs with sanitizers at idle priority: the compiler uses the cores only while other processes wait. The
# preset fuzz is the preset asan with libFuzzer's instrumentation.
build_with_sanitizers() {
  chrt --idle --pid 0 $BASHPID
  build tsan "${tsan_targets[@]}"
  build fuzz "${fuzz_targets[@]}"
}

# Starts a command in the background, in a process group of its own. The file LOG gets its output.
start() {  # Arguments: LOG COMMAND...
  local log=$1
  shift
  set -m
  "$@" >"$log" 2>&1 &
  set +m
}
# Waits for a command of start(). Prints its output, and ends the script if the command failed.
finish() {  # Arguments: LOG PID
  local result=0
  wait "$2" || result=$?
  cat "$1"
  return $result
}
trap 'for pid in $(jobs -p); do kill -- "-$pid" 2>/dev/null || true; done' EXIT

step "release: build, and Python packages"
start build/python.log scripts/setup.sh --python
python_setup=$!
build release
finish build/python.log $python_setup
step "release: tests, and a part of the build with sanitizers"
start build/sanitizers.log build_with_sanitizers
sanitizers=$!
if $all; then export XLAD_ALL_CASES=1; fi
run_tests release
unset XLAD_ALL_CASES  # Programs with sanitizers are much slower.
step "tsan, fuzz: the rest of the build"
finish build/sanitizers.log $sanitizers
for preset in tsan fuzz; do
  tests=${preset}_tests
  step "$preset: tests"
  # UCX replaces functions of the C library to track memory, and this makes programs crash under ThreadSanitizer. MPI is
  # not built with ThreadSanitizer. The tests of both run only in the release build.
  filter='*'
  [[ $preset == tsan ]] && filter='-*/ucx:*/mixed_ucx:*/openmpi'
  GTEST_FILTER=$filter \
    TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1" UBSAN_OPTIONS=print_stacktrace=1 \
    ASAN_OPTIONS=detect_leaks=0 run_tests "$preset" -R "^(${!tests})\$" -LE slow
done

step "fuzz: a short run"
scripts/fuzz.sh 5000 "${fuzz_inputs[@]}"

step "tidy"
scripts/tidy.sh
step "done: parts and their times"
printf '%s\n' "${times[@]}" "$(printf '%5d s  in total' "$SECONDS")"
