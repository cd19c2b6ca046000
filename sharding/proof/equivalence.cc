#include "sharding/proof/equivalence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "hlo/analysis/leaves.h"
#include "hlo/eval/evaluate.h"
#include "tensor/small_float.h"
#include "tensor/sub_byte.h"

namespace xlad::sharding {
namespace {

using hlo::Literal;
using tensor::ElementType;

// Applies `leaf` to every array of a literal in order; the result has the same structure.
Literal MapLeaves(const Literal& literal, const std::function<tensor::Array(const tensor::Array&)>& leaf) {
  if (!literal.is_tuple) return Literal(leaf(literal.array));
  std::vector<Literal> elements;
  for (const Literal& element : literal.tuple) elements.push_back(MapLeaves(element, leaf));
  return Literal::Tuple(std::move(elements));
}

}  // namespace

std::vector<std::vector<Literal>> ShardInputs(const PartitionedProgram& program, const std::vector<Literal>& inputs) {
  std::vector<std::vector<Literal>> result;
  for (int64_t device = 0; device < program.mesh.devices(); ++device) {
    size_t leaf = 0;
    std::vector<Literal> local;
    for (const Literal& input : inputs) {
      local.push_back(MapLeaves(input, [&](const tensor::Array& array) {
        const TensorSharding& sharding = program.parameters[leaf++];
        const Dims& dims = array.shape().dims;
        return tensor::ExtractBox(array, BoxOf(dims, program.mesh, sharding, device), LocalDims(dims, sharding));
      }));
    }
    result.push_back(std::move(local));
  }
  return result;
}

absl::StatusOr<Literal> JoinResults(const PartitionedProgram& program, const std::vector<Literal>& results) {
  absl::Status status;
  size_t leaf = 0;
  std::vector<std::vector<const tensor::Array*>> leaves;
  for (const Literal& result : results) leaves.push_back(ArrayLeaves(result));
  Literal joined = MapLeaves(results[0], [&](const tensor::Array&) {
    const size_t at = leaf++;
    const tensor::Shape& shape = program.result_shapes[at];
    tensor::Array whole(shape);
    std::vector<tensor::Box> boxes;
    for (int64_t device = 0; device < std::ssize(results); ++device) {
      boxes.push_back(BoxOf(shape.dims, program.mesh, program.results[at], device));
      tensor::InsertBox(*leaves[device][at], boxes.back(), &whole);
    }
    for (size_t device = 0; device < results.size(); ++device) {
      const Dims sizes = boxes[device].sizes();
      const tensor::Array own = tensor::ExtractBox(
          *leaves[device][at], tensor::Box{Dims(sizes.size(), 0), sizes}, sizes);
      if (!(own == tensor::ExtractBox(whole, boxes[device], sizes)) && status.ok()) {
        status = absl::InvalidArgumentError(
            absl::StrCat("result ", at, ": device ", device, " differs from another device that also holds ",
                         boxes[device].ToString(), " of ", shape.ToString()));
      }
    }
    return whole;
  });
  if (!status.ok()) return status;
  return joined;
}

absl::StatusOr<Literal> EvaluatePartitioned(const PartitionedProgram& program, const std::vector<Literal>& inputs) {
  std::vector<const hlo::Module*> modules(program.mesh.devices());
  for (const Variant& variant : program.variants) {
    for (int64_t device : variant.devices) modules[device] = variant.module.get();
  }
  XLAD_ASSIGN_OR_RETURN(std::vector<Literal> results, hlo::Evaluate(modules, ShardInputs(program, inputs)));
  return JoinResults(program, results);
}

int FloatParts(const tensor::Array& array, size_t i, double parts[2]) {
  switch (array.shape().type) {
    case ElementType::kF32: parts[0] = array.values<float>()[i]; return 1;
    case ElementType::kF64: parts[0] = array.values<double>()[i]; return 1;
    case ElementType::kC64:
      for (int p = 0; p < 2; ++p) parts[p] = reinterpret_cast<const float*>(array.bytes().data())[2 * i + p];
      return 2;
    case ElementType::kC128:
      for (int p = 0; p < 2; ++p) parts[p] = reinterpret_cast<const double*>(array.bytes().data())[2 * i + p];
      return 2;
    case ElementType::kBF16:
    case ElementType::kF16:
      parts[0] = tensor::DecodeSmallFloat(array.shape().type, array.values<uint16_t>()[i]);
      return 1;
    default: return 0;
  }
}

std::string ElementText(const tensor::Array& array, size_t i, int digits) {
  double parts[2];
  const int count = FloatParts(array, i, parts);
  if (count == 1) return absl::StrFormat("%.*g", digits, parts[0]);
  if (count == 2) return absl::StrFormat("(%.*g, %.*g)", digits, parts[0], digits, parts[1]);
  uint64_t bits = 0;
  const size_t width = tensor::ByteWidth(array.shape().type);
  std::memcpy(&bits, array.bytes().data() + i * width, std::min(width, sizeof(bits)));
  if (!tensor::IsSigned(array.shape().type)) return absl::StrCat(bits);
  return absl::StrCat(tensor::SignExtend(bits, 8 * std::min(width, sizeof(bits))));
}

namespace {

bool Close(double a, double b, double tolerance, Exactness exactness) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == 0 && b == 0) return exactness == Exactness::kSums || std::signbit(a) == std::signbit(b);
  if (a == b) return true;
  if (std::isinf(a) || std::isinf(b)) return false;
  return std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
}

// The tolerance, or the one that the rounding of a 16-bit type requires, whichever is larger.
double ToleranceOf(ElementType type, double tolerance) {
  if (type == ElementType::kBF16) return std::max(tolerance, 4e-2);
  if (type == ElementType::kF16) return std::max(tolerance, 5e-3);
  return tolerance;
}

// The bytes of an element in hexadecimal digits, the most significant byte first.
std::string BitsText(const tensor::Array& array, size_t i) {
  const int64_t width = tensor::ByteWidth(array.shape().type);
  std::string text = "0x";
  for (int64_t byte = width - 1; byte >= 0; --byte) {
    absl::StrAppend(&text, absl::Hex(static_cast<uint8_t>(array.bytes()[i * width + byte]), absl::kZeroPad2));
  }
  return text;
}

absl::Status CompareLeaf(const tensor::Array& partitioned, const tensor::Array& whole, size_t leaf, double tolerance,
                         Exactness exactness) {
  if (!(partitioned.shape() == whole.shape())) {
    return absl::InvalidArgumentError(absl::StrCat("result ", leaf, ": partitioned ", partitioned.shape().ToString(),
                                                   ", source ", whole.shape().ToString()));
  }
  const size_t width = tensor::ByteWidth(whole.shape().type);
  const double allowed = ToleranceOf(whole.shape().type, tolerance);
  Dims index(whole.shape().dims.size(), 0);
  for (size_t i = 0; i < whole.elements(); ++i) {
    double a[2], b[2];
    const int parts = FloatParts(partitioned, i, a);
    FloatParts(whole, i, b);
    bool same = (parts > 0 && exactness != Exactness::kBits) ||
                std::memcmp(partitioned.bytes().data() + i * width, whole.bytes().data() + i * width, width) == 0;
    for (int p = 0; p < parts && exactness != Exactness::kBits; ++p) same &= Close(a[p], b[p], allowed, exactness);
    if (!same) {
      const auto text = [&](const tensor::Array& array) {
        return exactness == Exactness::kBits ? BitsText(array, i) : ElementText(array, i, 9);
      };
      return absl::InvalidArgumentError(absl::StrCat("result ", leaf, ", element [", absl::StrJoin(index, ","),
                                                     "]: partitioned ", text(partitioned), ", source ", text(whole)));
    }
    tensor::NextIndex(whole.shape().dims, absl::MakeSpan(index));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CompareValues(const Literal& partitioned, const Literal& whole, double tolerance,
                           Exactness exactness) {
  const std::vector<const tensor::Array*> a = ArrayLeaves(partitioned), b = ArrayLeaves(whole);
  if (a.size() != b.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", a.size(), " results of the partitioned program, expected the source's ", b.size()));
  }
  for (size_t leaf = 0; leaf < a.size(); ++leaf) {
    XLAD_RETURN_IF_ERROR(CompareLeaf(*a[leaf], *b[leaf], leaf, tolerance, exactness));
  }
  return absl::OkStatus();
}

namespace {

template <typename T>
void NudgeAll(tensor::Array* array, Random& random) {
  const T unit = 2 * std::numeric_limits<T>::epsilon();
  for (T& value : array->values<T>()) value *= random.Below(2) == 0 ? 1 + unit : 1 - unit;
}

Literal NudgedValue(const Literal& value, Random& random) {
  if (value.is_tuple) {
    std::vector<Literal> elements;
    for (const Literal& element : value.tuple) elements.push_back(NudgedValue(element, random));
    return Literal::Tuple(std::move(elements));
  }
  tensor::Array array = value.array;
  const ElementType type = array.shape().type;
  if (type == ElementType::kF32 || type == ElementType::kC64) NudgeAll<float>(&array, random);
  if (type == ElementType::kF64 || type == ElementType::kC128) NudgeAll<double>(&array, random);
  return Literal(std::move(array));
}

}  // namespace

std::vector<Literal> Nudged(const std::vector<Literal>& values) {
  const std::unique_ptr<Random> random = SeededRandom(1);
  std::vector<Literal> nudged;
  for (const Literal& value : values) nudged.push_back(NudgedValue(value, *random));
  return nudged;
}

double LargestDifference(const tensor::Array& a, const tensor::Array& b) {
  double largest = 0, x[2] = {}, y[2] = {};
  for (size_t i = 0; i < a.elements(); ++i) {
    FloatParts(b, i, y);
    for (int p = FloatParts(a, i, x); p-- > 0;) {
      if (x[p] == y[p] || (std::isnan(x[p]) && std::isnan(y[p]))) continue;
      const double difference = std::abs(x[p] - y[p]);
      largest = std::max(largest, std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference);
    }
  }
  return largest;
}

namespace {

template <typename T>
void Fill(tensor::Array* array, const std::function<T()>& next) {
  for (T& value : array->values<T>()) value = next();
}

tensor::Array SampleArray(const tensor::Shape& shape, Random& random) {
  tensor::Array array(shape);
  const bool is_signed = tensor::IsSigned(shape.type);
  const auto integer = [&]() -> int64_t { return random.Below(7) - (is_signed ? 3 : 0); };
  const auto real = [&] { return (random.Unit() - 0.4) * 2; };
  switch (shape.type) {
    case ElementType::kF32:
    case ElementType::kC64:
      Fill<float>(&array, [&] { return static_cast<float>(real()); });
      return array;
    case ElementType::kF64:
    case ElementType::kC128: Fill<double>(&array, real); return array;
    // The bit patterns of values between 0.5 and 1.25.
    case ElementType::kBF16:
      Fill<uint16_t>(&array, [&] { return 0x3f00 + random.Below(160); });
      return array;
    case ElementType::kF16:
      Fill<uint16_t>(&array, [&] { return 0x3800 + random.Below(1280); });
      return array;
    case ElementType::kPred:
      Fill<uint8_t>(&array, [&] { return random.Below(2); });
      return array;
    default: break;
  }
  switch (tensor::ByteWidth(shape.type)) {
    case 1:
      Fill<int8_t>(&array, [&] { return random.Below(2); });
      break;
    case 2:
      Fill<int16_t>(&array, integer);
      break;
    case 4:
      Fill<int32_t>(&array, integer);
      break;
    default:
      Fill<int64_t>(&array, integer);
      break;
  }
  return array;
}

Literal Sample(const hlo::Shape& shape, Random& random) {
  if (shape.is_array()) return Literal(SampleArray(shape.array(), random));
  std::vector<Literal> elements;
  for (const hlo::Shape& element : shape.tuple()) elements.push_back(Sample(element, random));
  return Literal::Tuple(std::move(elements));
}

}  // namespace

Literal SampleInput(const hlo::Shape& shape, uint64_t seed) {
  const std::unique_ptr<Random> random = SeededRandom(seed);
  return Sample(shape, *random);
}

std::vector<Literal> SampleInputs(const hlo::Module& module, uint64_t seed) {
  std::vector<Literal> inputs;
  for (const hlo::Instruction* parameter : module.entry()->parameters()) {
    inputs.push_back(SampleInput(parameter->shape(), seed + parameter->number()));
  }
  return inputs;
}

namespace {

template <typename T>
void MakeSpecial(tensor::Array* array, const std::vector<T>& patterns, Random& random) {
  for (T& bits : array->values<T>()) {
    if (random.Below(2) == 0) bits = patterns[random.Below(patterns.size())];
  }
}

// Bit patterns: -0, +0, both infinities, two NaNs with payloads, the smallest denormal of either sign.
void MakeSpecial(Literal* value, Random& random) {
  for (Literal& element : value->tuple) MakeSpecial(&element, random);
  if (value->is_tuple) return;
  tensor::Array& array = value->array;
  switch (array.shape().type) {
    case ElementType::kF16:
      MakeSpecial<uint16_t>(&array, {0x8000, 0, 0x7c00, 0xfc00, 0x7e05, 0xfe0b, 1, 0x8001}, random);
      break;
    case ElementType::kBF16:
      MakeSpecial<uint16_t>(&array, {0x8000, 0, 0x7f80, 0xff80, 0x7fc5, 0xffcb, 1, 0x8001}, random);
      break;
    case ElementType::kF32:
    case ElementType::kC64:
      MakeSpecial<uint32_t>(
          &array, {0x80000000u, 0, 0x7f800000u, 0xff800000u, 0x7fc00005u, 0xffc0000bu, 1, 0x80000001u}, random);
      break;
    case ElementType::kF64:
    case ElementType::kC128: {
      const uint64_t sign = uint64_t{1} << 63, infinity = uint64_t{0x7ff} << 52, quiet = infinity | uint64_t{1} << 51;
      MakeSpecial<uint64_t>(&array, {sign, 0, infinity, infinity | sign, quiet | 5, quiet | sign | 11, 1, sign | 1},
                            random);
      break;
    }
    default: break;
  }
}

}  // namespace

std::vector<Literal> WithSpecialValues(std::vector<Literal> values) {
  const std::unique_ptr<Random> random = SeededRandom(3);
  for (Literal& value : values) MakeSpecial(&value, *random);
  return values;
}

}  // namespace xlad::sharding
