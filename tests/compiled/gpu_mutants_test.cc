// Damaged kernels of the examples: the checking mode of gpu_sim must report an error, or the results must differ, for
// at least 95 % of the mutants that are not equivalent to the intact kernel.
// docs/decisions/0036-mutants-of-gpu-kernels.md has the rules and the figures.
//
// XLAD_MUTANTS=N draws at most N mutants of each kind. The default is 45 mutants of each kind, of at most 60 kernels
// that move at most 100 KiB each.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>

#include "base/file_system.h"
#include "base/random.h"
#include "compiler/compile.h"
#include "compiler/kernel/gpu_target.h"
#include "hlo/analysis/leaves.h"
#include "tests/compiled/checked_run.h"

namespace xlad::compiler {
namespace {

using runtime::AccessError;
using tensor::Array;

// The step programs of the examples, for one device.
std::vector<std::string> Programs() {
  std::vector<std::string> paths = {"examples/spiral_mlp/step.single.hlo"};
  for (const char* name :
       {"cnn", "digits_mlp", "dropout_rng", "lstm", "moe", "nano_gpt", "nano_gpt_bf16", "ring_shard_map"}) {
    paths.push_back(absl::StrCat(std::getenv("XLAD_EXAMPLES"), "/", name, "/step.single.hlo"));
  }
  return paths;
}

absl::StatusOr<Compilation> Compile(const std::string& path) {
  CompileRequest request;
  request.mutable_target()->set_device_kind(kGpuSimChecked);
  XLAD_ASSIGN_OR_RETURN(*request.mutable_partitioned_module(), RealFileSystem().Read(path));
  return CompileToSteps(request);
}

int64_t BytesOf(const KernelRequest& kernel) {
  int64_t bytes = 0;
  for (const tensor::Shape& shape : hlo::LeafShapes(kernel.root->shape())) bytes += shape.bytes();
  for (const hlo::Instruction* operand : kernel.root->operands()) {
    for (const tensor::Shape& shape : hlo::LeafShapes(operand->shape())) bytes += shape.bytes();
  }
  return bytes;
}

// A kernel, its inputs, and a run of the undamaged kernel.
struct Sample {
  std::string program;
  const KernelRequest* kernel;
  std::vector<Array> inputs;
  CheckedRun run;
  Places places;
};

struct Mutant {
  const Sample* sample;
  Mutation mutation;
};

template <typename T>
void Shuffle(std::vector<T>* values, Random* random) {
  for (size_t i = values->size(); i > 1; --i) std::swap((*values)[i - 1], (*values)[random->Below(i)]);
}

// The outcomes of the mutants of one kind.
struct Counts {
  std::map<std::string, int> by;
  int all = 0, equivalent = 0, missed = 0;
  std::string missed_mutants;
};

class GpuMutants : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("XLAD_EXAMPLES") == nullptr) GTEST_SKIP() << "XLAD_EXAMPLES is not set";
    const char* const given = std::getenv("XLAD_MUTANTS");
    most_ = given == nullptr ? 45 : std::atoi(given);
    // If the variable is not set, kernels that move more bytes than this are skipped, because they take too long.
    const int64_t most_bytes = given == nullptr ? 100 << 10 : int64_t{1} << 40;
    for (const std::string& path : Programs()) {
      auto compiled = Compile(path);
      ASSERT_TRUE(compiled.ok()) << path << ": " << compiled.status();
      programs_.push_back(*std::move(compiled));
      for (const KernelRequest& kernel : programs_.back().steps.kernels) {
        if (BytesOf(kernel) <= most_bytes) samples_.push_back({path, &kernel, {}, {}, {}});
      }
    }
    Shuffle(&samples_, random_.get());
    if (given == nullptr) samples_.resize(std::min<size_t>(samples_.size(), 60));
    for (Sample& sample : samples_) {
      sample.inputs = RandomOperands(*sample.kernel, 1);
      auto run = RunChecked(*sample.kernel, sample.inputs, {.places = &sample.places});
      ASSERT_TRUE(run.ok()) << sample.program << " " << sample.kernel->symbol << ": " << run.status();
      EXPECT_EQ(run->report.message, "") << sample.program;
      sample.run = *std::move(run);
    }
  }

  // Returns all mutants of a kind, in random order.
  std::vector<Mutant> MutantsOf(Mutation::Kind kind) {
    std::vector<Mutant> mutants;
    for (const Sample& sample : samples_) {
      const Places& places = sample.places;
      const int64_t count = kind == Mutation::Kind::kNoBarrier     ? places.barriers
                            : kind == Mutation::Kind::kNextElement ? places.accesses
                                                                   : places.lane_accesses;
      for (int64_t i = 0; i < count; ++i) mutants.push_back({&sample, {kind, i}});
    }
    Shuffle(&mutants, random_.get());
    return mutants;
  }

  // The first ones are those of AccessError.
  enum Outcome : int { kEquivalent = 0, kOtherResults = 5, kEndless, kMissed, kNotRun };
  static constexpr const char* kFound[] = {"", "race", "outside", "uninitialized", "unwritten", "results", "endless"};
  static constexpr rlim_t kMaxCpuSeconds = 5;

  // Returns how the runs of a mutant differ from the run of its kernel.
  static Outcome OutcomeOf(const Mutant& mutant) {
    const Sample& sample = *mutant.sample;
    // A mutant without a barrier counts as equivalent only after both orders of the threads have been tried.
    const bool has_orders = mutant.mutation.kind == Mutation::Kind::kNoBarrier;
    bool is_same = true;
    for (const bool descending : {false, true}) {
      if (descending && !has_orders) break;
      const auto run =
          RunChecked(*sample.kernel, sample.inputs, {.mutation = mutant.mutation, .descending = descending});
      if (!run.ok()) std::cerr << run.status() << "\n";
      if (!run.ok()) return kNotRun;
      if (run->report.error != AccessError::kNone) return static_cast<Outcome>(run->report.error);
      if (!SameBits(run->results, sample.run.results)) return kOtherResults;
      is_same = is_same && run->report.trace == sample.run.report.trace;
    }
    return is_same ? kEquivalent : kMissed;
  }

  // Runs a mutant in a child process with a limit of CPU time, because a damaged loop may not end.
  void Try(const Mutant& mutant, Counts* counts) {
    ++counts->all;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const rlimit limit = {kMaxCpuSeconds, kMaxCpuSeconds};
      setrlimit(RLIMIT_CPU, &limit);
      _exit(OutcomeOf(mutant));
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const bool is_endless = WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL);
    const std::string name = absl::StrCat(mutant.sample->program, " ", mutant.sample->kernel->symbol, ": place ",
                                          mutant.mutation.number, "\n");
    ASSERT_TRUE(WIFEXITED(status) || is_endless) << name << "ended with signal " << WTERMSIG(status);
    const int outcome = is_endless ? kEndless : WEXITSTATUS(status);
    ASSERT_NE(outcome, kNotRun) << name;
    if (outcome == kEquivalent) {
      ++counts->equivalent;
    } else if (outcome == kMissed) {
      ++counts->missed;
      counts->missed_mutants += name;
    } else {
      ++counts->by[kFound[outcome]];
    }
  }

  const std::unique_ptr<Random> random_ = SeededRandom(1);
  int64_t most_ = 0;
  std::vector<Compilation> programs_;
  std::vector<Sample> samples_;
};

TEST_F(GpuMutants, AreFound) {
  static const char* const kKinds[] = {"", "no barrier", "next element", "next lane"};
  int64_t all = 0, found = 0;
  for (const Mutation::Kind kind :
       {Mutation::Kind::kNoBarrier, Mutation::Kind::kNextElement, Mutation::Kind::kNextLane}) {
    Counts counts;
    std::vector<Mutant> mutants = MutantsOf(kind);
    mutants.resize(std::min<size_t>(mutants.size(), most_));
    for (const Mutant& mutant : mutants) Try(mutant, &counts);
    std::string line = absl::StrCat(kKinds[static_cast<int>(kind)], ": ", counts.all, " mutants of ", samples_.size(),
                                    " kernels, ", counts.equivalent, " equivalent, ", counts.missed, " missed");
    for (const auto& [how, number] : counts.by) absl::StrAppend(&line, ", ", number, " ", how);
    std::cout << line << "\n" << counts.missed_mutants;
    const int64_t real = counts.all - counts.equivalent;
    all += real;
    found += real - counts.missed;
  }
  EXPECT_GE(all, 100);
  EXPECT_GE(static_cast<double>(found), 0.95 * static_cast<double>(all));
  std::cout << "found: " << found << " of " << all << "\n";
}

}  // namespace
}  // namespace xlad::compiler
