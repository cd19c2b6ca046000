// A libFuzzer target that parses arbitrary bytes as a safetensors file. If they parse, the tensors must parse again
// after they are written, and their number must be the same.
#include <cstddef>
#include <cstdint>

#include "tensor/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto arrays = xlad::tensor::ParseSafetensors(bytes);
  if (!arrays.ok()) return 0;
  const std::string written = xlad::tensor::SerializeSafetensors(*arrays);
  const auto again = xlad::tensor::ParseSafetensors(written);
  XLAD_CHECK(again.ok()) << again.status();
  XLAD_CHECK(again->size() == arrays->size()) << "tensors were lost";
  return 0;
}
