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

// ReplaceLibraryCalls does not change the program's results, and the program contains `opcode` afterwards.
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

struct BatchOfMatrices {
  const char* dims;     // "2,3".
  const char* numbers;  // The numbers of the batch's dimensions: "0,1".
  int ndim;
};

TEST(LibraryCalls, Cholesky) {
  for (const char* type : {"s:f32", "d:f64", "c:c64", "z:c128"}) {
    for (const BatchOfMatrices& batch : std::vector<BatchOfMatrices>{{"", "", 0}, {"3", "0", 1}, {"2,3", "0,1", 2}}) {
      for (const char uplo : {'L', 'U'}) {
        const std::string name = std::string(type).substr(2);
        const std::string sizes = absl::StrCat(batch.dims, batch.ndim > 0 ? "," : "", "5,5");
        // x x^T + 40 I is positive definite if x is real and small.
        ExpectReplaced(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = T[SIZES] parameter(0)
  i = s32[SIZES] iota(), iota_dimension=ROW
  j = s32[SIZES] iota(), iota_dimension=COLUMN
  same = pred[SIZES] compare(i, j), direction=EQ
  one = T[SIZES] convert(same)
  forty = T[] constant(40)
  forties = T[SIZES] broadcast(forty), dimensions={}
  big = T[SIZES] multiply(one, forties)
  a = T[SIZES] dot(x, x), lhs_batch_dims={DIMS}, rhs_batch_dims={DIMS},
    lhs_contracting_dims={COLUMN}, rhs_contracting_dims={COLUMN}
  s = T[SIZES] add(a, big)
  ROOT c = (T[SIZES], s32[BATCH]) custom-call(s), custom_call_target="lapack_Kpotrf_ffi",
    backend_config={uplo = UPLO : ui8}
})",
                                           {{"T[", absl::StrCat(name, "[")},
                                            {"SIZES", sizes},
                                            {"BATCH", batch.dims},
                                            {"DIMS", batch.numbers},
                                            {"ROW", absl::StrCat(batch.ndim)},
                                            {"COLUMN", absl::StrCat(batch.ndim + 1)},
                                            {"Kpotrf", absl::StrCat(std::string(1, type[0]), "potrf")},
                                            {"UPLO", absl::StrCat(static_cast<int>(uplo))}}),
                       "cholesky(");
      }
    }
  }
}

TEST(LibraryCalls, CholeskySaysWhichColumnFails) {
  const char* text = R"(HloModule m
ENTRY e {
  a = f32[3,2,2] constant({{{1,0},{0,1}},{{-1,0},{0,1}},{{1,2},{2,1}}})
  c = (f32[3,2,2], s32[3]) custom-call(a), custom_call_target="lapack_spotrf_ffi", backend_config={uplo = 76 : ui8}
  ROOT info = s32[3] get-tuple-element(c), index=1
})";
  ExpectReplaced(text, "cholesky(");
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

// Factorizations that become loops, of square, tall and wide matrices, without and with a batch.
TEST(LibraryCalls, Loops) {
  const auto text = [](const std::string& type, const char* batch, const char* call) {
    const std::string b = batch;
    return absl::StrReplaceAll(call, {{"$B,", b.empty() ? "" : b + ","}, {"$B", b}, {"$T", type},
                                      {"$L", type == "f32" ? "s" : "d"}});
  };
  for (const char* batch : {"", "3", "2,2"}) {
    for (const char* type : {"f32", "f64"}) {
      for (const char* size : {"5,5", "7,4", "4,6", "1,1"}) {
        const std::string k = absl::StrCat(std::min(size[0] - '0', size[2] - '0'));
        const std::string lu = absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = $T[$B,SIZE] parameter(0)
  ROOT c = ($T[$B,SIZE], s32[$B,K], s32[$B]) custom-call(x), custom_call_target="lapack_$Lgetrf_ffi"
})",
                                                   {{"SIZE", size}, {"K", k}});
        ExpectReplaced(text(type, batch, lu.c_str()), "while(");
        const std::string qr = absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = $T[$B,SIZE] parameter(0)
  ROOT c = ($T[$B,SIZE], $T[$B,K]) custom-call(x), custom_call_target="lapack_$Lgeqrf_ffi"
})",
                                                   {{"SIZE", size}, {"K", k}});
        ExpectReplaced(text(type, batch, qr.c_str()), "while(");
      }
      ExpectReplaced(text(type, batch, R"(HloModule m
ENTRY e {
  x = $T[$B,6,4] parameter(0)
  c = ($T[$B,6,4], $T[$B,4]) custom-call(x), custom_call_target="lapack_$Lgeqrf_ffi"
  a = $T[$B,6,4] get-tuple-element(c), index=0
  t = $T[$B,4] get-tuple-element(c), index=1
  ROOT q = $T[$B,6,4] custom-call(a, t), custom_call_target="lapack_$Lorgqr_ffi"
})"),
                     "while(");
      // The signs of the eigenvectors are not determined, so their squares are compared.
      for (const char* uplo : {"76", "85"}) {
        const std::string eigen = absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = $T[$B,5,5] parameter(0)
  c = ($T[$B,5,5], $T[$B,5], s32[$B]) custom-call(x), custom_call_target="lapack_$Lsyevd_ffi",
    backend_config={mode = 86 : ui8, uplo = UPLO : ui8}
  v = $T[$B,5,5] get-tuple-element(c), index=0
  w = $T[$B,5] get-tuple-element(c), index=1
  s = $T[$B,5,5] multiply(v, v)
  ROOT r = ($T[$B,5,5], $T[$B,5]) tuple(s, w)
})",
                                                      {{"UPLO", uplo}});
        ExpectReplaced(text(type, batch, eigen.c_str()), "while(");
      }
    }
  }
}

// A column without a pivot is reported and not changed.
TEST(LibraryCalls, SingularMatrix) {
  ExpectReplaced(R"(HloModule m
ENTRY e {
  a = f32[3,3] constant({{1,2,3},{2,4,6},{1,2,5}})
  ROOT c = (f32[3,3], s32[3], s32[]) custom-call(a), custom_call_target="lapack_sgetrf_ffi"
})",
                 "while(");
}

// A call whose shapes are not those of the routine is not changed.
TEST(LibraryCalls, OthersStay) {
  for (const char* call : {
           "c = (f32[4,4], s32[5], s32[]) custom-call(x), custom_call_target=\"lapack_sgetrf_ffi\"",
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
