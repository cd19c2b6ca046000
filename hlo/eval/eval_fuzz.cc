// libFuzzer: any bytes as HLO text; what passes the verifier is evaluated on inputs made from the bytes, within limits.
#include <cstddef>
#include <cstdint>
#include <random>

#include "hlo/eval/evaluate.h"
#include "hlo/eval/reducer.h"
#include "hlo/testing/fuzz_time.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::hlo {
namespace {

constexpr int64_t kMostInputBytes = 1 << 20;
constexpr int64_t kMostDevices = 4;

// Values that are small most of the time, as indices and sizes are; the others are whatever the bits say.
Literal MakeInput(const Shape& shape, std::mt19937_64* random) {
  tensor::Array array(shape.array());
  if ((*random)() % 4 == 0 && tensor::BitWidth(shape.type()) >= 8 && shape.type() != tensor::ElementType::kPred) {
    for (std::byte& byte : array.bytes()) byte = static_cast<std::byte>((*random)());
    return Literal(std::move(array));
  }
  tensor::Array small(tensor::Shape{tensor::ElementType::kS8, shape.dims()});
  for (int8_t& value : small.values<int8_t>()) value = static_cast<int8_t>((*random)() % 9) - 4;
  eval::Value value = eval::ConvertTo(eval::Value(std::move(small)), shape.type());
  return Literal(value.Take());
}

void EvaluateOne(const Module& module, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Literal> inputs;
  int64_t bytes = 0;
  for (const Instruction* parameter : module.entry()->parameters()) {
    if (!parameter->shape().is_array()) return;
    bytes += parameter->shape().bytes();
    if (bytes > kMostInputBytes) return;
    inputs.push_back(MakeInput(parameter->shape(), &random));
  }
  EvaluateLimits limits;
  limits.instructions = 10'000;
  limits.live_bytes = int64_t{1} << 24;
  limits.element_steps = 1e6;
  const int64_t devices = module.replica_count > kMostDevices || module.num_partitions > kMostDevices
                              ? 1
                              : std::min(kMostDevices, module.replica_count * module.num_partitions);
  (void)Evaluate(std::vector<const Module*>(static_cast<size_t>(devices), &module),
                 std::vector<std::vector<Literal>>(static_cast<size_t>(devices), inputs), limits);
}

}  // namespace
}  // namespace xlad::hlo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const xlad::hlo::FuzzTime time;
  const auto module = xlad::hlo::ParseText({reinterpret_cast<const char*>(data), size});
  if (!module.ok() || !xlad::hlo::Verify(**module).ok()) return 0;
  xlad::hlo::EvaluateOne(**module, size);
  return 0;
}
