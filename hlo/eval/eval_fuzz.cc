// libFuzzer target: parses bytes as HLO text, and evaluates what passes the verifier on random inputs, within limits.
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

constexpr int64_t kMaxInputBytes = 1 << 20;
constexpr int64_t kMaxDevices = 4;

// In about three of four calls the elements are small integers, which are often valid indices and sizes. In the other
// calls they are random bits.
Literal MakeInput(const Shape& shape, std::mt19937_64* random) {
  tensor::Array array(shape.array());
  if ((*random)() % 4 == 0 && tensor::BitWidth(shape.type()) >= 8 && shape.type() != tensor::ElementType::kPred) {
    for (std::byte& byte : array.bytes()) byte = std::byte((*random)());
    return Literal(std::move(array));
  }
  tensor::Array small(tensor::Shape{tensor::ElementType::kS8, shape.dims()});
  for (int8_t& value : small.values<int8_t>()) value = static_cast<int>((*random)() % 9) - 4;
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
    if (bytes > kMaxInputBytes) return;
    inputs.push_back(MakeInput(parameter->shape(), &random));
  }
  EvaluateLimits limits;
  limits.instructions = 10'000;
  limits.live_bytes = 1 << 24;
  limits.element_steps = 1e6;
  const int64_t devices = module.replica_count > kMaxDevices || module.num_partitions > kMaxDevices
                              ? 1
                              : std::min(kMaxDevices, module.replica_count * module.num_partitions);
  (void)Evaluate(std::vector<const Module*>(devices, &module), std::vector<std::vector<Literal>>(devices, inputs),
                 limits);
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
