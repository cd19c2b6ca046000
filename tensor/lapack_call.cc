#include "tensor/lapack_call.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tensor/indices.h"

namespace xlad::tensor {
namespace {

// A routine and the signature of its calls. `signature` has one word per operand, then ">", then one word per result. A
// word has a letter for each dimension that is not a batch dimension, or is "-" if the array has only batch dimensions.
//   letters: equal letters mean equal sizes. After a word with m and n, "k" is min(m, n). After a word with n, "p" is
//            max(n - 1, 0).
//   suffix:  ":r" means the real type of a complex call, ":c" the complex type of a real call, and ":i" s32.
// Example: for m = 3, n = 4 and the batch dimension B, "mn > mn k:i -:i" has the operand f32[B,3,4] and the results
// f32[B,3,4], s32[B,3] and s32[B].
struct LapackRoutine {
  absl::string_view name;  // The name without the letter of the type: "getrf".
  absl::string_view signature;
  absl::string_view complex_signature;  // The signature for complex matrices if it differs, otherwise empty.
};

constexpr LapackRoutine kRoutines[] = {
    {"potrf", "nn > nn -:i", ""},
    {"getrf", "mn > mn k:i -:i", ""},
    {"geqrf", "mn > mn k", ""},
    {"geqp3", "mn n:i > mn n:i k", ""},
    {"orgqr", "mn t > mn", ""},
    {"ungqr", "mn t > mn", ""},
    {"ormqr", "ab t mn > mn", ""},
    {"unmqr", "ab t mn > mn", ""},
    {"trsm", "aa mn > mn", ""},
    {"gtsv", "n n n nr > n n n nr -:i", ""},
    {"syevd", "nn > nn n:r -:i", ""},
    {"heevd", "nn > nn n:r -:i", ""},
    {"gesdd", "mn > mn k:r mu vn -:i", ""},
    {"gesvd", "mn > mn k:r mu vn -:i", ""},
    {"geev", "nn > n n nn:c nn:c -:i", "nn > n nn nn -:i"},
    {"gees", "nn > nn nn n n -:i -:i", "nn > nn nn n -:i -:i"},
    {"gehrd", "nn > nn p -:i", ""},
    {"sytrd", "nn > nn n:r p:r p -:i", ""},
    {"hetrd", "nn > nn n:r p:r p -:i", ""},
};

const LapackRoutine* FindRoutine(absl::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kRoutines), std::end(kRoutines), [&](const LapackRoutine& r) { return r.name == name; });
  return found == std::end(kRoutines) ? nullptr : found;
}

// The element type for LAPACK's type letter s, d, c or z.
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

bool IsDouble(ElementType type) { return type == ElementType::kF64 || type == ElementType::kC128; }

class SignatureCheck {
 public:
  SignatureCheck(ElementType type, Dims batch) : type_(type), batch_(std::move(batch)) {}

  absl::Status Check(absl::string_view word, const Shape& shape, const std::string& place) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits(':', 1));
    ElementType expected = type_;
    if (parts.second == "i") expected = ElementType::kS32;
    if (parts.second == "r") expected = IsDouble(type_) ? ElementType::kF64 : ElementType::kF32;
    if (parts.second == "c") expected = IsDouble(type_) ? ElementType::kC128 : ElementType::kC64;
    const absl::string_view letters = parts.first == "-" ? "" : parts.first;
    bool fits = shape.type == expected && shape.dims.size() == batch_.size() + letters.size() &&
                std::equal(batch_.begin(), batch_.end(), shape.dims.begin());
    for (int64_t i = 0; fits && i < std::ssize(letters); ++i) fits = Bind(letters[i], shape.dims[batch_.size() + i]);
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(place, ": found ", shape.ToString(), ", expected ",
                                                   ToString(expected), "[", absl::StrJoin(batch_, ","),
                                                   letters.empty() ? "" : absl::StrCat(";", letters), "]"));
  }

 private:
  // Sets the size of the dimension `letter` if it is not set yet. Returns whether its size is `size`.
  bool Bind(char letter, int64_t size) {
    if (letter == 'k' && sizes_.count('m') > 0 && sizes_.count('n') > 0) {
      return size == std::min(sizes_['m'], sizes_['n']);
    }
    if (letter == 'p' && sizes_.count('n') > 0) return size == std::max<int64_t>(0, sizes_['n'] - 1);
    return sizes_.emplace(letter, size).first->second == size;
  }

  ElementType type_;
  Dims batch_;
  std::map<char, int64_t> sizes_;
};

}  // namespace

std::optional<LapackCall> ParseLapackTarget(absl::string_view target) {
  if (!absl::ConsumePrefix(&target, "lapack_") || !absl::ConsumeSuffix(&target, "_ffi") || target.size() < 2) {
    return std::nullopt;
  }
  const std::optional<ElementType> type = TypeOfLetter(target[0]);
  if (!type.has_value() || FindRoutine(target.substr(1)) == nullptr) return std::nullopt;
  return LapackCall{std::string(target.substr(1)), *type, {}};
}

absl::Status CheckLapackShapes(absl::Span<const Shape> operands, absl::Span<const Shape> results, LapackCall* call) {
  const LapackRoutine* routine = FindRoutine(call->routine);
  if (routine == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("found LAPACK routine ", call->routine, ", expected a known one"));
  }
  const bool own = IsComplex(call->type) && !routine->complex_signature.empty();
  const absl::string_view signature = own ? routine->complex_signature : routine->signature;
  const std::vector<absl::string_view> halves = absl::StrSplit(signature, " > ");
  const std::vector<absl::string_view> ins = absl::StrSplit(halves[0], ' '), outs = absl::StrSplit(halves[1], ' ');
  if (operands.size() != ins.size() || results.size() != outs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("operands and results: found ", operands.size(), " and ",
                                                   results.size(), ", expected ", ins.size(), " and ", outs.size()));
  }
  const Dims& dims = operands[0].dims;
  call->batch = Dims(dims.begin(), dims.end() - std::min(ins[0].size(), dims.size()));
  SignatureCheck check(call->type, call->batch);
  for (const int64_t i : Indices(ins)) {
    XLAD_RETURN_IF_ERROR(check.Check(ins[i], operands[i], absl::StrCat("operand ", i)));
  }
  for (const int64_t i : Indices(outs)) {
    XLAD_RETURN_IF_ERROR(check.Check(outs[i], results[i], absl::StrCat("result ", i)));
  }
  return absl::OkStatus();
}

int LapackOption(absl::string_view config, absl::string_view name, int otherwise) {
  for (absl::string_view entry : absl::StrSplit(config, absl::ByAnyChar(",{}"))) {
    const std::vector<absl::string_view> words = absl::StrSplit(entry, absl::ByAnyChar(" =:"), absl::SkipEmpty());
    if (words.size() < 2 || words[0] != name) continue;
    int number = 0;
    if (absl::SimpleAtoi(words[1], &number)) return number;
    if (words[1] == "true" || words[1] == "false") return words[1] == "true" ? 1 : 0;
  }
  return otherwise;
}

}  // namespace xlad::tensor
