// Compiled kernels against the evaluator, opcode by opcode.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "compiler/llvm/test_harness.h"

namespace xlad::compiler {
namespace {

using Kind = hlo::Tolerance::Kind;

hlo::Tolerance Ulp(int64_t ulp) { return {Kind::kUlp, ulp, 0, 0}; }
hlo::Tolerance Close(double relative) { return {Kind::kClose, 0, relative, relative}; }

std::string Entry(const std::string& body) { return "HloModule m\nENTRY e {\n" + body + "}\n"; }
std::string WithAdd(const std::string& type, const std::string& body) {
  return absl::StrCat("HloModule m\nadd {\n a = ", type, "[] parameter(0)\n b = ", type,
                      "[] parameter(1)\n ROOT r = ", type, "[] add(a, b)\n}\nENTRY e {\n", body, "}\n");
}

TEST(Kernel, AddsVectors) {
  ExpectSame(Entry("x = f32[37] parameter(0)\n y = f32[37] parameter(1)\n ROOT z = f32[37] add(x, y)\n"));
}

TEST(Kernel, FusesElementwiseChains) {
  ExpectSame(Entry(R"(
    x = f32[5,7] parameter(0)
    b = f32[7] parameter(1)
    s = f32[] constant(2)
    bb = f32[5,7] broadcast(b), dimensions={1}
    ss = f32[5,7] broadcast(s), dimensions={}
    a = f32[5,7] add(x, bb)
    m = f32[5,7] multiply(a, ss)
    t = f32[7,5] transpose(m), dimensions={1,0}
    r = f32[35] reshape(t)
    ROOT n = f32[35] negate(r)
)"));
}

TEST(Kernel, ReducesRowsAndColumns) {
  for (const char* dims : {"0", "1", "2", "0,1", "0,2", "1,2", "0,1,2"}) {
    std::string out;
    for (int d = 0; d < 3; ++d) {
      if (std::string(dims).find(static_cast<char>('0' + d)) == std::string::npos) {
        absl::StrAppend(&out, out.empty() ? "" : ",", std::vector<int>{3, 17, 29}[static_cast<size_t>(d)]);
      }
    }
    ExpectSame(WithAdd("f32", absl::StrCat("x = f32[3,17,29] parameter(0)\n z = f32[] parameter(1)\n ROOT r = f32[",
                                           out, "] reduce(x, z), dimensions={", dims, "}, to_apply=add\n")),
               Close(1e-5));
  }
}

TEST(Kernel, SoftmaxLikeFusion) {
  ExpectSame(WithAdd("f32", R"(
    x = f32[6,33] parameter(0)
    z = f32[] constant(0)
    e = f32[6,33] exponential(x)
    s = f32[6] reduce(e, z), dimensions={1}, to_apply=add
    l = f32[6] log(s)
    b = f32[6,33] broadcast(l), dimensions={0}
    d = f32[6,33] subtract(x, b)
    ROOT t = (f32[6,33], f32[6]) tuple(d, s)
)"),
             Close(1e-5));
}

}  // namespace
}  // namespace xlad::compiler
