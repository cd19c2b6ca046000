#include "sharding/import/library_calls.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

// Expects that ReplaceLibraryCalls does not change the program's results, and that the program contains `opcode`
// afterwards.
void ExpectReplaced(const std::string& text, const std::string& opcode) {
  SCOPED_TRACE(text);
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status();
  const std::vector<hlo::Literal> inputs = SampleInputs(**module, 7);
  const absl::StatusOr<hlo::Literal> before = hlo::Evaluate(**module, inputs);
  ASSERT_TRUE(before.ok()) << before.status();
  ReplaceLibraryCalls(module->get());
  ASSERT_TRUE(hlo::Verify(**module).ok()) << hlo::Verify(**module);
  for (size_t c = 0; c + 1 < (*module)->computations().size(); ++c) {
    EXPECT_NE((*module)->computations()[c].get(), (*module)->entry()) << "callees precede callers";
  }
  const std::string after = hlo::PrintText(**module);
  EXPECT_FALSE(absl::StrContains(after, "lapack")) << after;
  EXPECT_TRUE(absl::StrContains(after, opcode)) << after;
  const absl::StatusOr<hlo::Literal> now = hlo::Evaluate(**module, inputs);
  ASSERT_TRUE(now.ok()) << now.status();
  EXPECT_TRUE(CompareValues(*now, *before, 1e-5).ok()) << CompareValues(*now, *before, 1e-5) << after;
}

TEST(LibraryCalls, TriangularSolve) {
  for (const char* flags : {"L N L N", "L T L N", "L C U N", "R N L U", "R T U N", "R C L N", "L N U U", "R N U N"}) {
    const auto code = [&](int i) { return absl::StrCat(static_cast<int>(flags[2 * i])); };
    const bool left = flags[0] == 'L';
    for (const char* type : {"s:f32", "z:c128"}) {
      ExpectReplaced(
          absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = T[3,4,4] parameter(0)
  b = T[S] parameter(1)
  i = s32[3,4,4] iota(), iota_dimension=1
  j = s32[3,4,4] iota(), iota_dimension=2
  same = pred[3,4,4] compare(i, j), direction=EQ
  one = T[3,4,4] convert(same)
  nine = T[] constant(9)
  nines = T[3,4,4] broadcast(nine), dimensions={}
  big = T[3,4,4] multiply(one, nines)
  a = T[3,4,4] add(x, big)
  ROOT c = T[S] custom-call(a, b), custom_call_target="lapack_Ktrsm_ffi",
    backend_config={diag = V3 : ui8, side = V0 : ui8, trans_x = V1 : ui8, uplo = V2 : ui8}
})",
                              {{"T[S]", absl::StrCat(std::string(type).substr(2), left ? "[3,4,2]" : "[3,2,4]")},
                               {"T[", absl::StrCat(std::string(type).substr(2), "[")},
                               {"Ktrsm", absl::StrCat(std::string(type).substr(0, 1), "trsm")},
                               {"V0", code(0)}, {"V1", code(1)}, {"V2", code(2)}, {"V3", code(3)}}),
          "triangular-solve(");
    }
  }
}

// Neither calls to other routines nor a call of trsm with only one operand are replaced.
TEST(LibraryCalls, OtherCallsAreNotReplaced) {
  for (const char* call : {
           "c = (f32[4,4], s32[4], s32[]) custom-call(x), custom_call_target=\"lapack_sgetrf_ffi\"",
           "c = (f32[4,4], s32[]) custom-call(x), custom_call_target=\"lapack_spotrf_ffi\"",
           "c = (f32[4,4], s32[7]) custom-call(x), custom_call_target=\"lapack_spotrf_ffi\"",
           "c = f32[4,4] custom-call(x), custom_call_target=\"lapack_strsm_ffi\"",
       }) {
    const auto module = hlo::ParseText(
        absl::StrCat("HloModule m\nENTRY e {\n x = f32[4,4] parameter(0)\n ROOT ", call, "\n}\n"));
    ASSERT_TRUE(module.ok()) << module.status();
    const std::string before = hlo::PrintText(**module);
    ReplaceLibraryCalls(module->get());
    EXPECT_EQ(hlo::PrintText(**module), before);
  }
}

}  // namespace
}  // namespace xlad::sharding
