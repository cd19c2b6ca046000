// Kernels in C that lack a barrier: the test double of the driver must find a race, or the results must differ.
// tests/compiled/gpu_mutants_test.cc does the same with generated kernels.
#include <gtest/gtest-spi.h>

#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/case_count.h"
#include "runtime/devices/cpu/testing/attention_writer.h"
#include "runtime/devices/cuda/cuda_device_fixture.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using testing::Arrays;
using testing::AttentionSizes;
using testing::AttentionWriter;

struct OpCase {
  LibraryOp op;
  Arrays operands;
  std::vector<int64_t> result_bytes;
};

class KernelMutantsTest : public CudaLibraryOpTest {
 protected:
  struct Outcome {
    Arrays results;
    std::string errors;  // The errors that the device has reported.
  };
  Outcome Run(const OpCase& c) {
    ::testing::TestPartResultArray errors;
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &errors);
    Outcome outcome{testing::RunLibraryOp((*Make()).get(), c.op, c.operands, c.result_bytes), ""};
    for (int i = 0; i < errors.size(); ++i) {
      absl::StrAppend(&outcome.errors, errors.GetTestPartResult(i).message(), "\n");
    }
    return outcome;
  }

  // Removes barriers of the module that computes the ops, one at a time: all of these if AllCases, otherwise every
  // fourth. A removal must change the results of an op or be a race (RunGrid). Other errors, for example of a module
  // that cannot be loaded, do not count.
  void ExpectFound(const std::vector<OpCase>& cases, const std::vector<int>& barriers) {
    std::vector<Arrays> expected;
    Configure("races=1");
    for (const OpCase& c : cases) {
      const Outcome intact = Run(c);
      ASSERT_EQ(intact.errors, "") << "of intact kernels";
      expected.push_back(intact.results);
    }
    int tried = 0, found = 0;
    for (size_t b = 0; b < barriers.size(); b += AllCases() ? 1 : 4) {
      const int barrier = barriers[b];
      Configure(absl::StrCat("races=1,drop_barrier=", barrier));
      bool is_found = false;
      std::string errors;
      for (size_t i = 0; i < cases.size() && !is_found && errors.empty(); ++i) {
        const Outcome outcome = Run(cases[i]);
        errors = outcome.errors;
        is_found =
            errors.empty() ? outcome.results != expected[i] : absl::StrContains(errors, "CUDA_ERROR_LAUNCH_FAILED");
      }
      ++tried;
      found += is_found ? 1 : 0;
      if (!is_found) std::cout << "not found: barrier " << barrier << "\n" << errors;
    }
    std::cout << "found " << found << " of " << tried << " missing barriers\n";
    EXPECT_GE(20 * found, 19 * tried);
  }
};

TEST_F(KernelMutantsTest, Attention) {
  std::vector<OpCase> cases;
  const AttentionSizes s = {1, 19, 70, 20, 9};
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16, ElementType::kF16}) {
    for (const float masked : {-1e30f, -0.5f}) {
      OpCase c;
      *c.op.mutable_attention() = AttentionWriter(s, type).Softmax(masked, 5, true);
      for (const int64_t count : {s.rows * s.depth, s.columns * s.depth, s.columns * s.width}) {
        ArrayShape shape;
        SetShape(&shape, type, {s.batch * count});
        c.operands.push_back(RandomBytes(shape));
      }
      for (const AttentionOp::Result& result : c.op.attention().results()) {
        c.result_bytes.push_back(tensor::ShapeFromWire(result.array().shape()).bytes());
      }
      cases.push_back(std::move(c));
    }
  }
  // Barrier 0 is not in the sample: another one follows it before a thread reads what other threads have stored.
  ExpectFound(cases, {4, 8, 12, 16, 20});
}

TEST_F(KernelMutantsTest, Dots) {
  std::vector<OpCase> cases;
  const auto add = [&](ElementType operands, ElementType result, int64_t size) {
    OpCase c;
    c.op = MakeDot({{size, 40}, {40, size}, {size, size}, {}, {1}, {0}}, {operands, operands, result});
    c.operands = {RandomBytes(c.op.dot().lhs()), RandomBytes(c.op.dot().rhs())};
    c.result_bytes = {tensor::ShapeFromWire(c.op.dot().result()).bytes()};
    cases.push_back(std::move(c));
  };
  for (const int64_t size : {18, 64}) {
    add(ElementType::kF32, ElementType::kF32, size);
    add(ElementType::kF64, ElementType::kF64, size);
    add(ElementType::kS8, ElementType::kS32, size);
  }
  add(ElementType::kBF16, ElementType::kBF16, 18);
  add(ElementType::kF16, ElementType::kF16, 18);
  // Barriers 13 and 15 are those of the large tiles of tensor cores, which need more blocks than can be tested.
  ExpectFound(cases, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14});
}

}  // namespace
}  // namespace xlad::runtime
