// The error of the f32 functions, in units in the last place, over dense sweeps of all f32 values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/kernel_abi.h"
#include "compiler/kernel/object_emitter.h"
#include "hlo/text/text.h"
#include "runtime/devices/cpu/cpu_device.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kBlock = 1 << 20;

struct Function {
  const char* opcode;
  double (*exact)(double);
  double most_ulp;
};

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }
double Rsqrt(double x) { return 1 / std::sqrt(x); }

const Function kFunctions[] = {
    {"exponential", std::exp, 2}, {"exponential-minus-one", std::expm1, 2},
    {"log", std::log, 2},         {"log-plus-one", std::log1p, 2},
    {"tanh", std::tanh, 2},       {"erf", std::erf, 2},
    {"logistic", Logistic, 2.5},  {"rsqrt", Rsqrt, 2},
    {"cbrt", std::cbrt, 2},       {"sine", std::sin, 2},
    {"cosine", std::cos, 2},
};

// |got - exact| in units in the last place of f32 at `exact`.
double UlpError(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : INFINITY;
  if (std::fabs(exact) > 3.4028235677973366e38) return std::isinf(got) && (got > 0) == (exact > 0) ? 0 : INFINITY;
  if (!std::isfinite(got)) return INFINITY;
  int exponent;
  std::frexp(exact, &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::fabs(static_cast<double>(got) - exact) / ulp;
}

class Math : public testing::TestWithParam<Function> {};

TEST_P(Math, StaysWithinItsBound) {
  const Function& function = GetParam();
  const auto module =
      hlo::ParseText(absl::StrCat("HloModule m\nENTRY e {\n x = f32[", kBlock, "] parameter(0)\n ROOT r = f32[", kBlock,
                                  "] ", function.opcode, "(x)\n}\n"));
  ASSERT_TRUE(module.ok()) << module.status();
  auto emitter = *ObjectEmitter::Create(Target());
  KernelRequest request;
  request.root = (*module)->entry()->root();
  request.symbol = "f";
  ASSERT_TRUE(emitter->EmitKernel(request).ok());
  Executable executable;
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  executable.set_object_code(*emitter->Finish());
  const auto device = runtime::MakeCpuDevice();
  const auto loaded = *device->Load(executable);
  const auto stream = *device->MakeStream();
  const auto launcher = *loaded->MakeLauncher(0, stream.get());
  const int kernel = *loaded->FindKernel("f");
  const auto in = *device->Allocate(4 * kBlock), out = *device->Allocate(4 * kBlock);
  auto* x = static_cast<float*>(in->address());
  const auto* y = static_cast<const float*>(out->address());
  void* const buffers[] = {in->address(), out->address()};
  // Every 4093rd f32 (a prime, so that all low bits occur), of both signs and with all special values.
  double worst = 0;
  float at = 0;
  uint32_t bits = 0;
  for (bool done = false; !done;) {
    int64_t n = 0;
    for (; n < kBlock && !done; ++n) {
      std::memcpy(&x[n], &bits, sizeof(bits));
      done = bits > 0xffffffffu - 4093u;
      bits += 4093;
    }
    const float specials[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, -1.0f, 1e-45f, -1e-45f, 3.4028235e38f};
    for (const float special : specials) {
      if (n < kBlock) x[n++] = special;
    }
    ASSERT_TRUE(launcher->RunKernel(kernel, buffers, nullptr, 1).ok());
    for (int64_t i = 0; i < n; ++i) {
      const double error = UlpError(y[i], function.exact(static_cast<double>(x[i])));
      if (error > worst) {
        worst = error;
        at = x[i];
      }
    }
  }
  EXPECT_LE(worst, function.most_ulp) << function.opcode << " at " << at;
  RecordProperty("worst_ulp", absl::StrCat(worst));
  std::printf("%s: at most %.3f ulp, at %g\n", function.opcode, worst, static_cast<double>(at));
}

INSTANTIATE_TEST_SUITE_P(Functions, Math, testing::ValuesIn(kFunctions), [](const auto& info) {
  std::string name = info.param.opcode;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
});

}  // namespace
}  // namespace xlad::compiler
