// For tests: compiles instructions, runs them on the cpu device, and compares the results with hlo::Evaluate.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "compiler/kernel/kernel_schedule.h"
#include "hlo/eval/conformance.h"
#include "hlo/literal.h"
#include "hlo/module.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// Returns a program whose entry is `body`. It has the reducers add, mul, max and min of `type`, and the comparators LT
// and GE if the type is ordered.
std::string Program(const std::string& body, const std::string& type = "f32");

// Returns the instruction to compile as a kernel: the root of the entry if its operands are the parameters, otherwise a
// fusion of all instructions of the entry.
const hlo::Instruction* AsKernel(hlo::Module* module);

// Runs hlo::Evaluate and returns the leaves of the result.
absl::StatusOr<std::vector<tensor::Array>> RunEvaluated(const hlo::Module& module,
                                                        const std::vector<tensor::Array>& inputs);

// Random values for a parameter: booleans, small integers, or floats with fractions, of both signs (unsigned integers
// wrap around). If `specials` is set, the values also include infinities, NaNs, zeros of both signs, denormal numbers
// and any integers. Other types, which have 8 bits or fewer, get any bit pattern.
tensor::Array RandomArray(Random& random, const tensor::Shape& shape, bool specials = false);

// Programs that are compiled, run, and compared with the evaluator. All programs are compiled into one object file,
// because one run of LLVM's pipeline costs more than one kernel in it. Each program is compiled as about five tiles if
// it can be divided. A program of a small batch is also compiled as one tile, and so is a quarter of the programs of a
// larger batch (all of them if AllCases). The tiles run on 1, 2, 3 and 7 threads, and the results must have the same
// bits. If the program has a kernel (compiler/kernel/kernel.h) and no in-place pairs, it is also compiled for the CPU
// with a random kernel schedule, which must not change bits. All programs are also compiled and run as code for GPUs
// (gpu_sim). The entry of a program becomes one fusion, or stays one instruction if that instruction's operands are the
// parameters.
class Batch {
 public:
  explicit Batch(uint64_t seed = 1) : random_(SeededRandom(seed)) {}

  // Adds a program, which gets random inputs.
  void Add(const std::string& text, const hlo::Tolerance& tolerance = {}, bool specials = false);
  // Adds a program that runs on ordinary inputs and on special inputs. It is compiled once for both.
  void AddOrdinaryAndSpecial(const std::string& text, const hlo::Tolerance& tolerance = {});
  // Adds a program that runs on these inputs.
  void AddOn(const std::string& text, std::vector<tensor::Array> inputs, const hlo::Tolerance& tolerance = {});
  // In the program added last, each pair (result leaf, operand leaf) shares memory, as in KernelRequest::in_place.
  void InPlace(std::vector<std::pair<int, int>> pairs) { cases_.back().in_place = std::move(pairs); }
  // The program added last is also compiled for the CPU with every fourth schedule of those that `xlad tune` measures
  // for its kernel (with all of them if AllCases). They must not change bits. Four successive programs begin at
  // different places of their lists. Run fails if the program has no kernel, has in-place pairs, or has no such
  // schedule.
  void WithCandidates() { cases_.back().has_candidates = true; }
  // Compiles, runs and compares all programs. Test failures contain the programs that differ.
  void Run();

 private:
  struct Case {
    std::string text;
    std::unique_ptr<hlo::Module> module;
    std::vector<std::vector<tensor::Array>> inputs;  // The program runs on each of these.
    hlo::Tolerance tolerance;
    std::vector<std::pair<int, int>> in_place;
    bool has_candidates = false;
  };
  std::vector<tensor::Array> RandomInputsOf(const hlo::Module& module, bool specials);
  // A random schedule and, if the case with this number has candidates, its share of those that `xlad tune` measures.
  std::vector<absl::StatusOr<ScheduledKernel>> OtherSchedules(const ScheduledKernel& usual, size_t number);
  // Compiles, runs and compares all programs for one target, whose code runs on this CPU.
  void RunOn(const Target& target);
  std::unique_ptr<Random> random_;
  std::vector<Case> cases_;
};

// Tests one program on random inputs.
void ExpectSame(const std::string& text, const hlo::Tolerance& tolerance = {}, bool specials = false,
                uint64_t seed = 1);

hlo::Tolerance Ulp(uint64_t ulp);       // Returns a tolerance of this many units in the last place.
hlo::Tolerance Close(double relative);  // Returns a tolerance with this relative and absolute error.

}  // namespace xlad::compiler
