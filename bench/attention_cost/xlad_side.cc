// Measures programs with attention as library ops and as separate steps, alternately, on one thread.
//
//   attention_cost_xlad BLOCKS BLOCK_MS
//
// Each line of standard input names a file with HLO. The program answers with a line of JSON:
//   {"fused_ns": 812.0, "separate_ns": 790.5, "chosen": "separate", "fused": {"call": [2, 100]}, "separate": {}}
// A time is the CPU time of one run: the smallest of the means of BLOCKS blocks, each of which takes about BLOCK_MS
// milliseconds. After kLongNs, no further block begins, except that there are at least 3 for each form of the program.
// "chosen" is the compiler's choice: "fused" if all attention becomes library ops. "fused" and "separate" have the
// terms of the estimates, summed over all recognized attention: for each term, its count and the nanoseconds per unit.
// After an error, the program prints one line to standard error and exits with code 1.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/random.h"
#include "compiler/compile.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/step_program.h"
#include "tensor/small_float.h"
#include "tensor/wire.h"

namespace xlad {
namespace {

using compiler::AttentionChoice;

// After this wall-clock time of measuring a program, no block begins beyond the first 3 of each form.
constexpr int64_t kLongNs = 600 * kNsPerMs;

// An executable with memory, ready to run.
class Program {
 public:
  static absl::StatusOr<std::unique_ptr<Program>> Load(runtime::Device* device, Executable executable) {
    auto program = std::make_unique<Program>();
    XLAD_ASSIGN_OR_RETURN(program->loaded_, device->Load(std::move(executable)));
    XLAD_ASSIGN_OR_RETURN(program->steps_, runtime::StepProgram::Prepare(*program->loaded_));
    XLAD_ASSIGN_OR_RETURN(program->stream_, device->MakeStream());
    XLAD_ASSIGN_OR_RETURN(program->launcher_, program->loaded_->MakeLauncher(0, program->stream_.get()));
    XLAD_RETURN_IF_ERROR(program->FillMemory(device));
    return program;
  }

  absl::Status Run() {
    runtime::StepEnvironment environment;
    environment.stream = stream_.get();
    environment.launcher = launcher_.get();
    environment.allocations = addresses_;
    environment.scratch = scratch_->address();
    return steps_->Run(environment);
  }

  // Returns the CPU time of one run in nanoseconds: the mean over `runs` runs.
  absl::StatusOr<double> Measure(int64_t runs) {
    const std::clock_t start = std::clock();
    for (int64_t i = 0; i < runs; ++i) XLAD_RETURN_IF_ERROR(Run());
    constexpr double kNsOfTick = 1e9 / CLOCKS_PER_SEC;
    return kNsOfTick * static_cast<double>(std::clock() - start) / static_cast<double>(runs);
  }

 private:
  // Fills parameters of the types f32, bf16 and f16 with random numbers between -1 and 1. Others are zero.
  absl::Status FillMemory(runtime::Device* device) {
    const Executable& executable = loaded_->executable();
    for (const Allocation& allocation : executable.allocations()) {
      XLAD_ASSIGN_OR_RETURN(memory_.emplace_back(), device->Allocate(allocation.bytes()));
      addresses_.push_back(static_cast<std::byte*>(memory_.back()->address()));
      std::memset(addresses_.back(), 0, static_cast<size_t>(allocation.bytes()));
      std::memcpy(addresses_.back(), allocation.blob().data(), allocation.blob().size());
    }
    const std::unique_ptr<Random> random = SeededRandom(1);
    const auto number = [&] { return static_cast<float>(2 * random->Unit() - 1); };
    for (const EntryValue& parameter : executable.parameters()) {
      std::byte* at = addresses_[parameter.buffer().allocation()] + parameter.buffer().offset();
      const tensor::Shape shape = tensor::ShapeFromWire(parameter.local());
      for (int64_t i = 0; i < shape.elements(); ++i) {
        if (shape.type == tensor::ElementType::kF32) reinterpret_cast<float*>(at)[i] = number();
        if (shape.type == tensor::ElementType::kBF16 || shape.type == tensor::ElementType::kF16) {
          reinterpret_cast<uint16_t*>(at)[i] = tensor::EncodeSmallFloat(shape.type, number());
        }
      }
    }
    XLAD_ASSIGN_OR_RETURN(scratch_, device->Allocate(steps_->scratch_bytes()));
    return absl::OkStatus();
  }

  std::unique_ptr<runtime::Stream> stream_;
  std::unique_ptr<runtime::LoadedExecutable> loaded_;
  std::unique_ptr<runtime::StepProgram> steps_;
  std::unique_ptr<runtime::Launcher> launcher_;
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memory_;
  std::vector<std::byte*> addresses_;
  std::unique_ptr<runtime::DeviceMemory> scratch_;
};

nlohmann::json ToJson(const std::vector<compiler::CostTerms>& all) {
  nlohmann::json json;
  for (const compiler::CostTerms& terms : all) {
    for (const compiler::CostTerm& term : terms) {
      const double before = json.contains(term.name) ? json[term.name][0].get<double>() : 0;
      json[term.name] = {before + term.count, term.ns};
    }
  }
  return json;
}

class Bench {
 public:
  Bench(int64_t blocks, int64_t block_ms) : blocks_(blocks), block_ns_(block_ms * kNsPerMs) {}

  absl::Status Run(const std::string& path) {
    CompileRequest request;
    XLAD_ASSIGN_OR_RETURN(*request.mutable_partitioned_module(), RealFileSystem().Read(path));
    std::vector<compiler::AttentionCost> costs;
    XLAD_ASSIGN_OR_RETURN(const auto chosen, Compile(request, AttentionChoice::kByCost, &costs));
    XLAD_ASSIGN_OR_RETURN(const auto fused, Compile(request, AttentionChoice::kAlways, nullptr));
    XLAD_ASSIGN_OR_RETURN(const auto separate, Compile(request, AttentionChoice::kNever, nullptr));
    if (costs.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": found no attention, expected some"));
    double ns[2] = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    Program* programs[2] = {fused.get(), separate.get()};
    int64_t runs[2];
    for (const int i : {0, 1}) {
      XLAD_RETURN_IF_ERROR(programs[i]->Run());
      XLAD_ASSIGN_OR_RETURN(const double once, programs[i]->Measure(1));
      runs[i] = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(block_ns_) / std::max(once, 1e3)));
    }
    const int64_t start = RealClock().NowNs();
    for (int64_t block = 0; block < 3 || (block < blocks_ && RealClock().NowNs() < start + kLongNs); ++block) {
      for (const int i : {0, 1}) {
        XLAD_ASSIGN_OR_RETURN(const double mean, programs[i]->Measure(runs[i]));
        ns[i] = std::min(ns[i], mean);
      }
    }
    bool is_fused = true;
    std::vector<compiler::CostTerms> fused_terms, separate_terms;
    for (const compiler::AttentionCost& cost : costs) {
      is_fused = is_fused && cost.is_fused;
      fused_terms.push_back(cost.fused);
      separate_terms.push_back(cost.separate);
    }
    const nlohmann::json line = {{"fused_ns", ns[0]},
                                 {"separate_ns", ns[1]},
                                 {"chosen", is_fused ? "fused" : "separate"},
                                 {"fused", ToJson(fused_terms)},
                                 {"separate", ToJson(separate_terms)}};
    std::printf("%s\n", line.dump().c_str());
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::unique_ptr<Program>> Compile(const CompileRequest& request, AttentionChoice choice,
                                                   std::vector<compiler::AttentionCost>* costs) {
    compiler::CompileOptions options;
    options.attention = choice;
    options.attention_costs = costs;
    XLAD_ASSIGN_OR_RETURN(compiler::CompileResult result, compiler::CompileWithListings(request, options, false));
    return Program::Load(device_.get(), std::move(result.executable));
  }

  const int64_t blocks_, block_ns_;
  std::unique_ptr<runtime::Device> device_ = runtime::MakeCpuDevice();
};

}  // namespace
}  // namespace xlad

int main(int argc, char** argv) {
  int64_t blocks = 0, block_ms = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[1], &blocks) || !absl::SimpleAtoi(argv[2], &block_ms) || blocks < 1) {
    std::fprintf(stderr, "usage: attention_cost_xlad BLOCKS BLOCK_MS\n");
    return 2;
  }
  xlad::Bench bench(blocks, block_ms);
  for (std::string path; std::getline(std::cin, path);) {
    if (const absl::Status status = bench.Run(path); !status.ok()) {
      std::fprintf(stderr, "attention_cost_xlad: %s\n", std::string(status.message()).c_str());
      return 1;
    }
    std::fflush(stdout);
  }
  return 0;
}
