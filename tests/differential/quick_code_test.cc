// Code that is compiled quickly computes the same bits as optimized code (NaNs excepted), alone and mixed with
// optimized objects.
#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/testing/case_count.h"
#include "compiler/compile.h"
#include "compiler/testing/for_seeds.h"
#include "compiler/testing/memory_objects.h"
#include "compiler/testing/random_program.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"
#include "tests/differential/run_on_devices.h"

namespace xlad {
namespace {

// Keeps about half of the objects that are added.
class HalfOfTheObjects final : public compiler::MemoryObjects {
 public:
  void Add(const std::string& key, absl::string_view object) override {
    if (Hash64(key) % 2 == 0) MemoryObjects::Add(key, object);
  }
};

Executable CompileWith(const hlo::Module& module, int devices, const compiler::CompileOptions& options) {
  CompileRequest request;
  request.set_partitioned_module(*hlo::SerializeProto(module));
  request.add_mesh()->set_name("x");
  request.mutable_mesh(0)->set_size(devices);
  auto result = compiler::CompileWithListings(request, options, false);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? std::move(result->executable) : Executable();
}

// The results of both must be equal, except that NaNs of floating-point operations may have other signs and payloads.
std::vector<compiler::Exactness> SameNumbers(std::vector<compiler::Exactness> exactness) {
  for (compiler::Exactness& of_result : exactness) {
    const bool keeps_nans = of_result.agreement == compiler::Agreement::kBits && of_result.error == 0;
    of_result = {keeps_nans ? compiler::Agreement::kBits : compiler::Agreement::kNumbers, 0};
  }
  return exactness;
}

// Adds 1 to `quick_programs` if the program has quickly compiled code.
void ExpectSameBits(uint64_t seed, int instructions, int devices, int* quick_programs) {
  const compiler::RandomModule made = compiler::RandomLocalProgram(seed, instructions, devices);
  const auto random = SeededRandom(seed + 1);
  DeviceArrays inputs;
  for (int d = 0; d < devices; ++d) {
    inputs.push_back(compiler::RandomInputs(*made.module, random.get(), made.special));
  }
  HalfOfTheObjects objects;
  compiler::CompileOptions options;
  options.objects = &objects;
  Executable optimized = CompileWith(*made.module, devices, options);
  EXPECT_FALSE(optimized.quick());
  const auto expected = RunOnDevices(optimized, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  options.quick = true;
  for (compiler::ObjectCache* const cache : {static_cast<compiler::ObjectCache*>(nullptr),
                                            static_cast<compiler::ObjectCache*>(&objects)}) {
    options.objects = cache;
    const size_t kept = objects.size();
    Executable quick = CompileWith(*made.module, devices, options);
    EXPECT_EQ(objects.size(), kept) << "quickly compiled objects are not kept";
    if (cache == nullptr && quick.quick()) ++*quick_programs;
    const auto found = RunOnDevices(quick, inputs);
    ASSERT_TRUE(found.ok()) << found.status();
    for (int d = 0; d < devices; ++d) {
      const absl::Status same = compiler::CompareResults((*found)[d], (*expected)[d], SameNumbers(made.exactness));
      ASSERT_TRUE(same.ok()) << "device " << d << ": " << same << "\n" << hlo::PrintText(*made.module);
    }
    if (!quick.quick()) EXPECT_EQ(quick.SerializeAsString(), optimized.SerializeAsString());
    quick.clear_quick();
    *quick.mutable_object_code() = optimized.object_code();
    EXPECT_EQ(quick.SerializeAsString(), optimized.SerializeAsString()) << "only the code differs";
  }
}

TEST(QuickCode, OneDevice) {
  const uint64_t cases = CaseCount(40, 1000);
  int quick_programs = 0;
  const bool all_tried = compiler::ForSeeds(0, cases, [&](uint64_t seed) {
    ExpectSameBits(seed, 3 + static_cast<int>(seed % 40), 1, &quick_programs);
  });
  if (all_tried) EXPECT_GT(quick_programs, cases / 2);
}

TEST(QuickCode, ManyDevices) {
  const uint64_t cases = CaseCount(12, 200);
  int quick_programs = 0;
  const bool all_tried = compiler::ForSeeds(500'000, cases, [&](uint64_t seed) {
    ExpectSameBits(seed, 3 + static_cast<int>(seed % 25), 2 + static_cast<int>(seed % 4), &quick_programs);
  });
  if (all_tried) EXPECT_GT(quick_programs, cases / 2);
}

}  // namespace
}  // namespace xlad
