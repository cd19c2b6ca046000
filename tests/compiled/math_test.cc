// The error of the f32 functions, in units in the last place, over a regular sample of all f32 values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/kernel_abi.h"
#include "base/status.h"
#include "compiler/kernel/object_emitter.h"
#include "hlo/text/text.h"
#include "runtime/devices/cpu/cpu_device.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kBlock = 1 << 20;

struct Function {
  const char* opcode;
  double (*exact)(double);
  double max_ulp;
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

// A function compiled for arrays of n numbers. x is the memory of its argument, y that of its result.
class Compiled {
 public:
  Compiled(const std::string& opcode, int64_t n)
      : in_(*device_->Allocate(4 * n)), out_(*device_->Allocate(4 * n)), buffers_{in_->address(), out_->address()} {
    const auto module = hlo::ParseText(absl::StrCat("HloModule m\nENTRY e {\n x = f32[", n,
                                                    "] parameter(0)\n ROOT r = f32[", n, "] ", opcode, "(x)\n}\n"));
    XLAD_CHECK(module.ok()) << module.status();
    auto emitter = *ObjectEmitter::Create(Target());
    KernelRequest request;
    request.root = (*module)->entry()->root();
    request.symbol = "f";
    XLAD_CHECK(emitter->EmitKernel(request).ok());
    Executable executable;
    executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
    executable.set_object_code(*emitter->Finish());
    loaded_ = *device_->Load(executable);
    launcher_ = *loaded_->MakeLauncher(0, stream_.get());
    kernel_ = *loaded_->FindKernel("f");
  }

  float* x() { return static_cast<float*>(in_->address()); }
  const float* y() const { return static_cast<const float*>(out_->address()); }
  void Run() { XLAD_CHECK(launcher_->RunKernel(kernel_, buffers_, nullptr, 1).ok()); }

 private:
  const std::unique_ptr<runtime::Device> device_ = runtime::MakeCpuDevice();
  const std::unique_ptr<runtime::Stream> stream_ = *device_->MakeStream();
  const std::unique_ptr<runtime::DeviceMemory> in_, out_;
  const std::vector<void*> buffers_;
  std::unique_ptr<runtime::LoadedExecutable> loaded_;
  std::unique_ptr<runtime::Launcher> launcher_;
  int kernel_ = 0;
};

class Math : public testing::TestWithParam<Function> {};

TEST_P(Math, StaysWithinItsBound) {
  const Function& function = GetParam();
  Compiled compiled(function.opcode, kBlock);
  float* const x = compiled.x();
  // Every 4093rd f32 of both signs, and special values. 4093 is prime, so all patterns of low bits occur.
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
    compiled.Run();
    for (int64_t i = 0; i < n; ++i) {
      const double error = UlpError(compiled.y()[i], function.exact(static_cast<double>(x[i])));
      if (error > worst) {
        worst = error;
        at = x[i];
      }
    }
  }
  EXPECT_LE(worst, function.max_ulp) << function.opcode << " at " << at;
  RecordProperty("worst_ulp", absl::StrCat(worst));
  std::printf("%s: at most %.3f ulp, at %g\n", function.opcode, worst, static_cast<double>(at));
}

uint32_t BitsOf(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// The bits of a result that is not NaN are the same whether its argument is in a vector, at the end of an array or
// alone. Neighboring arguments have different exponents.
TEST_P(Math, DoesNotDependOnNeighboringElements) {
  Compiled one(GetParam().opcode, 1);
  for (const int64_t n : {16, 1021}) {
    Compiled many(GetParam().opcode, n);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t bits = static_cast<uint32_t>(i) * 0x9e3779b9u;
      std::memcpy(&many.x()[i], &bits, sizeof(bits));
    }
    many.Run();
    for (int64_t i = 0; i < n; ++i) {
      one.x()[0] = many.x()[i];
      one.Run();
      if (std::isnan(one.y()[0]) && std::isnan(many.y()[i])) continue;
      ASSERT_EQ(BitsOf(many.y()[i]), BitsOf(one.y()[0])) << "at " << many.x()[i];
    }
  }
}

// Tests the f32 arguments nearest to multiples of pi/2, at which sine or cosine is smallest. These are the first 10,000
// multiples, multiples around the limit of the fast reduction, and the multiple that is nearest to any f32 (16367173 *
// 2^72).
TEST(Trigonometry, IsAccurateNearMultiplesOfHalfPi) {
  constexpr int64_t kCount = 20000;
  for (const Function& function : kFunctions) {
    const std::string opcode = function.opcode;
    if (opcode != "sine" && opcode != "cosine") continue;
    Compiled compiled(opcode, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      const double multiple = i < 10000 ? static_cast<double>(i) : 42722830.0 + static_cast<double>(i - 15000);
      compiled.x()[i] = static_cast<float>(multiple * 1.5707963267948966);
    }
    compiled.x()[kCount - 1] = 16367173.0f * 0x1p72f;
    compiled.x()[kCount - 2] = 0x1p26f;
    compiled.x()[kCount - 3] = std::nextafter(0x1p26f, 0.0f);
    compiled.Run();
    double worst = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      worst = std::max(worst, UlpError(compiled.y()[i], function.exact(static_cast<double>(compiled.x()[i]))));
    }
    EXPECT_LE(worst, function.max_ulp) << opcode;
  }
}

// Tests arguments whose result is zero, such as the masked scores of attention. An underflow means that an operation
// had a denormal result. On some CPUs, such operations take many times as long as others.
TEST(Exponential, DoesNotUnderflowIfTheResultIsZero) {
  Compiled compiled("exponential", 64);
  const float arguments[] = {-104.5f, -110, -200, -1e4f, -1e9f, -1e30f, -3.4028235e38f, -INFINITY};
  for (int64_t i = 0; i < 64; ++i) compiled.x()[i] = arguments[i % 8];
  std::feclearexcept(FE_UNDERFLOW);
  compiled.Run();
  EXPECT_EQ(std::fetestexcept(FE_UNDERFLOW), 0);
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(compiled.y()[i], 0) << compiled.x()[i];
}

INSTANTIATE_TEST_SUITE_P(Functions, Math, testing::ValuesIn(kFunctions), [](const auto& info) {
  std::string name = info.param.opcode;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
});

}  // namespace
}  // namespace xlad::compiler
