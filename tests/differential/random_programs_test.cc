// Random programs are compiled to machine code and run by the runtime, with collectives between threads. The results
// are compared with those of the evaluator for the unpartitioned program. Programs run on one device, on many devices,
// partitioned by annotations, and partitioned by hand.
//
// Each program runs in a child process, so that a crash or a hang is reported as a failure with its seed. A failure
// prints a shrunk program. XLAD_RANDOM_PROGRAMS=N tries N programs of each kind, and XLAD_SEED=S begins at seed S.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/testing/case_count.h"
#include "compiler/testing/for_seeds.h"
#include "compiler/testing/random_program.h"
#include "compiler/testing/shrink.h"
#include "hlo/text/text.h"
#include "tests/differential/try_program.h"

namespace xlad {
namespace {

std::string Stage(const std::string& failure) { return failure.substr(0, failure.find(':')); }

void Check(Try run, const hlo::Module& module, const Case& test) {
  const std::string failure = InChild(run, module, test);
  if (failure.empty()) return;
  const auto fails = [&](const hlo::Module& candidate) {
    return Stage(InChild(run, candidate, test)) == Stage(failure);
  };
  const auto tries = static_cast<int>(NumberFrom("XLAD_SHRINK", 400));
  const std::unique_ptr<hlo::Module> small = compiler::Shrink(module, fails, tries);
  ADD_FAILURE() << failure << "\nShrunk (" << InChild(run, *small, test) << "):\n" << hlo::PrintText(*small);
}

TEST(RandomPrograms, OneDevice) {
  compiler::ForSeeds(0, CaseCount(15, 40), [](uint64_t seed) {
    const compiler::RandomModule made = compiler::RandomLocalProgram(seed, 3 + static_cast<int>(seed % 40), 1);
    Check(TryLocal, *made.module, {seed, *sharding::ParseMesh("x=1"), made.exactness, made.special});
  });
}

TEST(RandomPrograms, ManyDevices) {
  compiler::ForSeeds(100'000, CaseCount(10, 20), [](uint64_t seed) {
    const int devices = 2 + static_cast<int>(seed % 5);
    const compiler::RandomModule made = compiler::RandomLocalProgram(seed, 3 + static_cast<int>(seed % 25), devices);
    const sharding::Mesh mesh = *sharding::ParseMesh(absl::StrCat("x=", devices));
    Check(TryLocal, *made.module, {seed, mesh, made.exactness, made.special});
  });
}

TEST(RandomPrograms, Annotated) {
  compiler::ForSeeds(200'000, CaseCount(15, 40), [](uint64_t seed) {
    const compiler::RandomUserProgram made = compiler::RandomAnnotatedProgram(seed, 3 + static_cast<int>(seed % 30));
    Check(TryAnnotated, *made.program.module, {seed, made.mesh, made.program.exactness, made.program.special});
  });
}

TEST(RandomPrograms, Manual) {
  compiler::ForSeeds(300'000, CaseCount(12, 30), [](uint64_t seed) {
    const compiler::RandomUserProgram made =
        compiler::RandomAnnotatedProgram(seed, 3 + static_cast<int>(seed % 20), true);
    Check(TryAnnotated, *made.program.module, {seed, made.mesh, made.program.exactness, made.program.special});
  });
}

}  // namespace
}  // namespace xlad
