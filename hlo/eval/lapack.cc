#include "hlo/eval/lapack.h"

#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "hlo/eval/reducer.h"

namespace xlad::hlo::eval {
namespace {

// The element type of LAPACK's prefixes s, d, c and z.
std::optional<ElementType> TypeOfLetter(char letter) {
  switch (letter) {
    case 's':
      return ElementType::kF32;
    case 'd':
      return ElementType::kF64;
    case 'c':
      return ElementType::kC64;
    case 'z':
      return ElementType::kC128;
    default:
      return std::nullopt;
  }
}

// "lapack_sgetrf_ffi" to ('s', "getrf").
std::pair<char, absl::string_view> SplitTarget(absl::string_view target) {
  if (!absl::ConsumePrefix(&target, "lapack_") || !absl::ConsumeSuffix(&target, "_ffi") || target.size() < 2) {
    return {' ', ""};
  }
  return {target[0], target.substr(1)};
}

// The type of the real and imaginary parts; for a real type, the type itself.
ElementType PartType(ElementType type) {
  return type == ElementType::kC64 ? ElementType::kF32 : type == ElementType::kC128 ? ElementType::kF64 : type;
}

// The type to which arrays of type `type` are converted before they are passed to a routine.
ElementType ComputeType(ElementType type) {
  return tensor::IsInteger(type) ? ElementType::kS32 : DoublePrecisionOf(type);
}

// Checks operands and results against a routine's signature.
class SignatureCheck {
 public:
  SignatureCheck(ElementType type, Dims batch) : type_(type), batch_(std::move(batch)) {}

  absl::Status Check(absl::string_view word, const tensor::Shape& shape, const std::string& place) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits(':', 1));
    ElementType expected = type_;
    if (parts.second == "i") expected = ElementType::kS32;
    if (parts.second == "r") expected = PartType(type_);
    const absl::string_view letters = parts.first == "-" ? "" : parts.first;
    bool fits = shape.type == expected && shape.dims.size() == batch_.size() + letters.size() &&
                std::equal(batch_.begin(), batch_.end(), shape.dims.begin());
    for (int64_t i = 0; fits && i < std::ssize(letters); ++i) fits = Bind(letters[i], shape.dims[batch_.size() + i]);
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(place, ": found ", shape.ToString(), ", expected ",
                                                   tensor::ToString(expected), "[", absl::StrJoin(batch_, ","),
                                                   letters.empty() ? "" : absl::StrCat(";", letters), "]"));
  }

 private:
  // Sets the size of the dimension `letter` if it is not set yet. Returns whether its size is `size`.
  bool Bind(char letter, int64_t size) {
    if (letter == 'k' && sizes_.count('m') > 0 && sizes_.count('n') > 0) {
      return size == std::min(sizes_['m'], sizes_['n']);
    }
    return sizes_.emplace(letter, size).first->second == size;
  }

  ElementType type_;
  Dims batch_;
  std::map<char, int64_t> sizes_;
};

std::vector<tensor::Shape> ResultShapes(const Shape& shape) {
  std::vector<tensor::Shape> shapes;
  if (shape.is_array()) return {shape.array()};
  for (const Shape& element : shape.tuple()) shapes.push_back(element.is_array() ? element.array() : tensor::Shape());
  return shapes;
}

// Checks all shapes against the signature, and returns the dimensions of the batch.
absl::StatusOr<Dims> CheckShapes(const Operation& operation, const LapackRoutine& routine, ElementType type) {
  const std::vector<absl::string_view> halves = absl::StrSplit(routine.signature, " > ");
  const std::vector<absl::string_view> ins = absl::StrSplit(halves[0], ' '), outs = absl::StrSplit(halves[1], ' ');
  const std::vector<tensor::Shape> results = ResultShapes(operation.shape());
  if (operation.operands.size() != ins.size() || results.size() != outs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("found ", operation.operands.size(), " operands and ",
                                                   results.size(), " results, expected ", ins.size(), " and ",
                                                   outs.size()));
  }
  for (const Value& operand : operation.operands) {
    if (operand.is_tuple()) return absl::InvalidArgumentError("found a tuple as operand, expected arrays");
  }
  const Dims& dims = operation.operand(0).dims();
  const int64_t matrix_dims = std::min(ins[0].size(), dims.size());
  const Dims batch(dims.begin(), dims.end() - matrix_dims);
  SignatureCheck check(type, batch);
  for (const int64_t i : tensor::Indices(ins)) {
    XLAD_RETURN_IF_ERROR(check.Check(ins[i], operation.operands[i].shape(), absl::StrCat("operand ", i)));
  }
  for (const int64_t i : tensor::Indices(outs)) {
    XLAD_RETURN_IF_ERROR(check.Check(outs[i], results[i], absl::StrCat("result ", i)));
  }
  return batch;
}

Dims WithoutBatch(const Dims& dims, const Dims& batch) { return Dims(dims.begin() + batch.size(), dims.end()); }

}  // namespace

char LapackProblem::Flag(absl::string_view name, char otherwise) const {
  for (absl::string_view entry : absl::StrSplit(*config, absl::ByAnyChar(",{}"))) {
    const std::vector<absl::string_view> words = absl::StrSplit(entry, absl::ByAnyChar(" =:"), absl::SkipEmpty());
    int code = 0;
    if (words.size() >= 2 && words[0] == name && absl::SimpleAtoi(words[1], &code)) return code;
  }
  return otherwise;
}

const LapackRoutine* FindLapackRoutine(absl::string_view target) {
  const auto [letter, name] = SplitTarget(target);
  if (!TypeOfLetter(letter).has_value()) return nullptr;
  for (const auto& table : {LapackFactorRoutines(), LapackSpectralRoutines()}) {
    for (const LapackRoutine& routine : table) {
      if (routine.name == name) return &routine;
    }
  }
  return nullptr;
}

std::string LapackTargets() {
  std::vector<std::string> names;
  for (const auto& table : {LapackFactorRoutines(), LapackSpectralRoutines()}) {
    for (const LapackRoutine& routine : table) names.push_back(absl::StrCat("lapack_*", routine.name, "_ffi"));
  }
  return absl::StrJoin(names, ", ");
}

absl::StatusOr<Value> EvalLapack(const Operation& operation, const LapackRoutine& routine) {
  const std::string& target = operation.attributes().custom_call_target;
  const ElementType type = *TypeOfLetter(SplitTarget(target).first);
  const auto batch = CheckShapes(operation, routine, type);
  if (!batch.ok()) return Annotate(batch.status(), target);
  LapackProblem problem;
  problem.config = &operation.attributes().backend_config;
  std::vector<Value> ins;
  std::vector<Array> outs;
  for (const Value& operand : operation.operands) ins.push_back(ConvertTo(operand, ComputeType(operand.type())));
  for (const tensor::Shape& shape : ResultShapes(operation.shape())) {
    outs.emplace_back(tensor::Shape{ComputeType(shape.type), shape.dims});
  }
  for (const Value& in : ins) problem.in_dims.push_back(WithoutBatch(in.dims(), *batch));
  for (const Array& out : outs) problem.out_dims.push_back(WithoutBatch(out.shape().dims, *batch));
  const int64_t problems = tensor::Product(*batch);
  for (int64_t b = 0; b < problems; ++b) {
    problem.in.clear();
    problem.out.clear();
    for (const Value& in : ins) problem.in.push_back(in.bytes().data() + b * (in.shape().bytes() / problems));
    for (Array& out : outs) problem.out.push_back(out.bytes().data() + b * (out.shape().bytes() / problems));
    const absl::Status status = (tensor::IsComplex(type) ? routine.complex : routine.real)(problem);
    if (!status.ok()) return Annotate(status, target);
  }
  std::vector<Value> values;
  const std::vector<tensor::Shape> results = ResultShapes(operation.shape());
  for (const int64_t i : tensor::Indices(outs)) values.push_back(ConvertTo(Value(std::move(outs[i])), results[i].type));
  return PackResults(std::move(values), operation.shape().is_tuple());
}

}  // namespace xlad::hlo::eval
