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

failed_runs=()
# Runs the tests of a preset. A test of the release build that fails runs once more, because the load of the machine can
# break a test that has a race, and one such test should not refuse a good change. Its first run is printed again as the
# last output of this script, because the race is still to be mended, and is an error with --all. Reports of sanitizers
# are errors even if they are rare. Many tests of the release build wait for processes, so two more of them than there
# are cores run at a time. Arguments: PRESET FLAGS_OF_CTEST...
run_tests() {
  local preset=$1 log=build/$1.ctest.log result=0 limit_s=600 runs=1 jobs failed
  jobs=$(nproc)
  shift
  if $all; then limit_s=3600; fi
  if [[ $preset == release ]]; then runs=2 jobs=$((jobs + 2)); fi
  ctest --test-dir "build/$preset" --output-on-failure -j"$jobs" --timeout "$limit_s" --repeat "until-pass:$runs" "$@" |
    tee "$log" || result=$?
  if failed=$(grep -E ' Test +#[0-9]+: .*\*\*\*(Failed|Timeout|Exception)' "$log"); then
    printf '%s: found these failed runs, expected none:\n%s\n' "$preset" "$failed"
    failed_runs+=("$failed")
    if $all; then result=1; fi
  fi
  return $result
}

tsan_tests=(collectives_exec_test runtime_test worker_test)
fuzz_tests=(tensor_test hlo_test)
fuzz_programs=(hlo_text_fuzz hlo_proto_fuzz hlo_eval_fuzz tensor_safetensors_fuzz storage_index_fuzz)
fuzz_inputs=(text proto eval safetensors index)
if $all; then fuzz_inputs+=(messages job); fi  # Their programs need most of the folders.

# The preset fuzz is the preset asan with libFuzzer's instrumentation. The presets tsan and fuzz have no line numbers,
# which would take a seventh of the time to compile.
build_with_sanitizers() {
  if $all; then
    build tsan
    build fuzz
  else
    build tsan "${tsan_tests[@]}"
    build fuzz "${fuzz_tests[@]}" "${fuzz_programs[@]}"
  fi
}
# Tests of the installed command with real processes run only in the release build, because they have time limits.
run_with_sanitizer() {  # Arguments: PRESET TESTS...
  local preset=$1 filter='*' selected
  shift
  selected=(-R "^($(IFS='|'; echo "$*"))(_[0-9]+)?\$" -LE slow)  # NAME_1, NAME_2, ... are parts of a test.
  if $all; then selected=(-R '_test(_[0-9]+)?$' -LE slow); fi
  if [[ $preset == tsan ]]; then
    # UCX replaces functions of the C library to track memory, and this makes programs crash under ThreadSanitizer. MPI
    # is not built with ThreadSanitizer. The tests of both run only in the release build.
    filter='-*/ucx:*/mixed_ucx:*/openmpi'
    # The folders of these tests start no threads. They would take ten times as long.
    selected+=(-E '^(machine|tensor|hlo|compiler_tpu|house|house_prose|simulation_mutants)_test$')
  elif ! $all; then
    # Training steps of the larger examples would take 53 s. The small examples and the cases of SliceTest, which have
    # every opcode, run the same code.
    filter='-*/ExamplesTest.*/cnn:*/ExamplesTest.*/lstm:*/ExamplesTest.*/moe:*/ExamplesTest.*/nano_gpt*'
  fi
  GTEST_FILTER=$filter \
    TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1" UBSAN_OPTIONS=print_stacktrace=1 \
    ASAN_OPTIONS=detect_leaks=0 run_tests "$preset" "${selected[@]}" || {
    if $all; then set -- TEST; fi
    echo "$preset: if a stack needs line numbers, run cmake --preset $preset -DCMAKE_CXX_FLAGS_DEBUG='-O1 -g1' &&" \
      "ninja -C build/$preset $* and the program build/$preset/bin/TEST"
    return 1
  }
}

# Runs a command in the background, in a process group of its own. Its output goes to build/NAME.log.
start() {  # Arguments: NAME COMMAND...
  local log=build/$1.log
  shift
  set -m
  "$@" >"$log" 2>&1 &
  set +m
}
# Ends all processes of a background command.
stop() {  # Arguments: PID
  kill -- "-$1" 2>/dev/null || return 0
  while kill -0 -- "-$1" 2>/dev/null; do sleep 0.1; done
}
trap 'for pid in $(jobs -p); do stop "$pid"; done' EXIT

step "release: build, and Python packages"
scripts/setup.sh
start python scripts/setup.sh --python
python_setup=$!
if $all; then build release all bench/all; else build release; fi
wait $python_setup || { cat build/python.log; exit 1; }

step "release: tests"
if $all; then export XLAD_ALL_CASES=1; fi
run_tests release
unset XLAD_ALL_CASES  # Programs with sanitizers are much slower.

step "tsan, fuzz: build"
build_with_sanitizers
step "tsan: tests"
run_with_sanitizer tsan "${tsan_tests[@]}"
step "fuzz: tests"
run_with_sanitizer fuzz "${fuzz_tests[@]}"
step "fuzz: a short run"
scripts/fuzz.sh 5000 "${fuzz_inputs[@]}"

step "tidy"
scripts/tidy.sh
step "done: parts and their times"
printf '%s\n' "${times[@]}" "$(printf '%5d s  in total' "$SECONDS")"
if ((${#failed_runs[@]} > 0)); then
  printf '%s\n' "found failed runs of tests that passed the second time, expected none; mend their races:" \
    "${failed_runs[@]}"
fi
