#!/usr/bin/env bash
# Fuzzes the readers, the evaluator and the handling of the coordinator's messages with libFuzzer, under
# AddressSanitizer and UBSan. Each target runs RUNS inputs. The programs of the tests are the seeds of text, proto and
# eval.
#   scripts/fuzz.sh RUNS [text|proto|eval|messages|safetensors|index|job ...]    e.g. scripts/fuzz.sh 2000000 eval
# Deterministic for a given RUNS. Inputs that fail are written to build/fuzz/found, and the exit code is then not 0. An
# input fails if the target crashes, takes more than ten seconds of wall-clock time or (text, proto and eval) one second
# of CPU time, allocates more than 512 MiB at once, or uses more than 2,560 MiB. As many targets run at a time as there
# are cores. A target that fails does not end the others. Each line of the output begins with its target.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:?usage: scripts/fuzz.sh RUNS [text|proto|eval|messages|safetensors|index|job ...]}
shift
targets=("$@")
((${#targets[@]})) || targets=(text proto eval messages safetensors index job)

work=build/fuzz
mkdir -p "$work/found" "$work/seeds"
rm -rf "$work/seeds"
XLAD_FUZZ_SEEDS=$work/seeds build/release/bin/hlo_test --gtest_filter=Mutants.AreMadeOfSeeds >"$work/seeds.log" ||
  { cat "$work/seeds.log"; exit 1; }
find hlo -name '*.hlo' -size -20k | while read -r file; do cp "$file" "$work/seeds/text/${file//\//_}"; done
cp -r "$work/seeds/text" "$work/seeds/eval"
# The dictionary: every word of the tables of opcodes, types and attributes.
cat hlo/opcode.def hlo/text/attribute_table.cc hlo/enum_names.h hlo/text/parse_module.cc tensor/element_type.cc |
  grep -oE '"[A-Za-z][A-Za-z0-9_-]*"' | sort -u >"$work/words.dict"

# Prints the statistics of a target, or the end of its output if an input failed.
fuzz() {  # Arguments: TARGET
  local target=$1 corpus=$work/corpus_$1 program=hlo_$1_fuzz dictionary=()
  case $target in
    text | eval) dictionary=(-dict="$work/words.dict") ;;
    messages) program=service_messages_fuzz ;;
    safetensors) program=tensor_safetensors_fuzz ;;
    index) program=storage_index_fuzz ;;
    job) program=client_job_fuzz ;;
  esac
  rm -rf "$corpus"
  mkdir -p "$corpus" "$work/seeds/$target"
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=0 \
    "$work/bin/$program" "$corpus" "$work/seeds/$target" \
    -runs="$runs" -seed=1 -timeout=10 -malloc_limit_mb=512 -rss_limit_mb=2560 -max_len=4096 \
    -len_control=0 -print_final_stats=1 -artifact_prefix="$work/found/$target-" "${dictionary[@]}" \
    >"$work/$target.log" 2>&1 || { tail -60 "$work/$target.log" | sed "s/^/$target: /"; exit 1; }
  grep -E 'stat::|DONE' "$work/$target.log" | sed "s/^/$target: /"
}
export -f fuzz
export work runs
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'fuzz {}'
