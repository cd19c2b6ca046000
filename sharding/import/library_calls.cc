#include "sharding/import/library_calls.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "hlo/build/builder.h"
#include "sharding/import/matrix_loops.h"

namespace xlad::sharding {
namespace {

using hlo::Builder;
using hlo::Dims;
using hlo::Instruction;
using hlo::Opcode;
using hlo::Shape;

// The character that a configuration like "{uplo = 76 : ui8, ...}" has for `name`, or `otherwise` if it has none.
char Flag(const Instruction& call, absl::string_view name, char otherwise) {
  for (absl::string_view entry : absl::StrSplit(call.attributes().backend_config, absl::ByAnyChar(",{}"))) {
    const std::vector<absl::string_view> words = absl::StrSplit(entry, absl::ByAnyChar(" =:"), absl::SkipEmpty());
    int code = 0;
    if (words.size() >= 2 && words[0] == name && absl::SimpleAtoi(words[1], &code)) return static_cast<char>(code);
  }
  return otherwise;
}

// Adds an op with the call's operands, place and metadata, and with its shape (or the first element of its shape).
Instruction* AddReplacement(Instruction* call, Opcode opcode, hlo::Attributes attributes) {
  const Shape& shape = call->shape().is_tuple() ? call->shape().tuple()[0] : call->shape();
  auto made = std::make_unique<Instruction>(opcode, Shape(shape.type(), shape.dims()));
  made->mutable_attributes() = std::move(attributes);
  made->mutable_metadata() = call->metadata();
  made->set_place(call->line(), call->column());
  return call->parent()->Add(std::move(made), call->operands());
}

// LAPACK's info: the number, counted from 1, of the first column whose pivot is not positive, or 0 if all are. The
// columns after it are NaN.
Instruction* FirstBadColumn(Builder* builder, hlo::Module* module, Instruction* factor, Instruction* on_diagonal) {
  const Dims& dims = factor->shape().dims();
  const hlo::ElementType type = factor->shape().type();
  Instruction* real = tensor::IsComplex(type) ? builder->Unary(Opcode::kReal, factor) : factor;
  const Dims columns(dims.begin(), dims.end() - 1), batch(dims.begin(), dims.end() - 2);
  const int64_t last = std::ssize(columns);
  Instruction* pivots =
      builder->Reduce(builder->Select(on_diagonal, real, builder->Zero(real->shape())),
                      builder->Scalar(real->shape().type(), 0), {last},
                      hlo::ScalarReducer(module, Opcode::kAdd, real->shape().type()));
  Instruction* good = builder->Compare(hlo::Comparison::kGt, pivots, builder->Zero(pivots->shape()));
  const Shape numbers(hlo::ElementType::kS32, columns), found(hlo::ElementType::kS32, batch);
  Instruction* none = builder->Scalar(hlo::ElementType::kS32, static_cast<double>(dims.back()) + 1);
  Instruction* number = builder->Binary(Opcode::kAdd, builder->Iota(numbers, last - 1),
                                        builder->Full(numbers, builder->Scalar(hlo::ElementType::kS32, 1)));
  Instruction* first =
      builder->Reduce(builder->Select(good, builder->Full(numbers, none), number), none, {last - 1},
                      hlo::ScalarReducer(module, Opcode::kMinimum, hlo::ElementType::kS32));
  return builder->Select(builder->Compare(hlo::Comparison::kEq, first, builder->Full(found, none)),
                         builder->Zero(found), first);
}

// potrf: (A) -> (the factor in one triangle and A in the other, info).
Instruction* Potrf(Instruction* call, hlo::Module* module) {
  Builder builder(call->parent());
  builder.set_template(call);
  hlo::Attributes attributes;
  attributes.lower = Flag(*call, "uplo", 'L') == 'L';
  const bool lower = attributes.lower;
  Instruction* factor = AddReplacement(call, Opcode::kCholesky, std::move(attributes));
  const Shape places(hlo::ElementType::kS32, factor->shape().dims());
  const int64_t n = places.ndim();
  Instruction* row = builder.Iota(places, n - 2);
  Instruction* column = builder.Iota(places, n - 1);
  Instruction* inside = builder.Compare(lower ? hlo::Comparison::kGe : hlo::Comparison::kLe, row, column);
  Instruction* on_diagonal = builder.Compare(hlo::Comparison::kEq, row, column);
  return builder.Tuple({builder.Select(inside, factor, call->operand(0)),
                        FirstBadColumn(&builder, module, factor, on_diagonal)});
}

// trsm: (triangular A, B) -> X.
Instruction* Trsm(Instruction* call) {
  hlo::Attributes attributes;
  attributes.left_side = Flag(*call, "side", 'L') == 'L';
  attributes.lower = Flag(*call, "uplo", 'L') == 'L';
  attributes.unit_diagonal = Flag(*call, "diag", 'N') == 'U';
  const char transpose = Flag(*call, "trans_x", 'N');
  attributes.transpose_a = transpose == 'N' ? "NO_TRANSPOSE" : transpose == 'C' ? "ADJOINT" : "TRANSPOSE";
  return AddReplacement(call, Opcode::kTriangularSolve, std::move(attributes));
}

// Whether `shape` is a batch of `batch` matrices of `rows` and `columns`.
bool IsMatrices(const Shape& shape, int64_t batch, int64_t rows, int64_t columns) {
  return shape.is_array() && shape.ndim() == batch + 2 && shape.dims()[batch] == rows &&
         shape.dims().back() == columns;
}

bool IsPotrf(const Instruction& call) {
  const Shape& shape = call.shape();
  if (!shape.is_tuple() || shape.tuple().size() != 2 || call.operand_count() != 1) return false;
  const Shape& a = call.operand(0)->shape();
  if (!a.is_array() || a.ndim() < 2) return false;
  const Shape info(hlo::ElementType::kS32, Dims(a.dims().begin(), a.dims().end() - 2));
  return IsMatrices(a, a.ndim() - 2, a.dims().back(), a.dims().back()) && shape.tuple()[0].SameIgnoringLayout(a) &&
         shape.tuple()[1].SameIgnoringLayout(info);
}

bool IsTrsm(const Instruction& call) {
  if (call.operand_count() != 2 || !call.shape().SameIgnoringLayout(call.operand(1)->shape())) return false;
  const Shape& a = call.operand(0)->shape();
  if (!a.is_array() || a.ndim() < 2 || a.ndim() != call.shape().ndim()) return false;
  const int64_t n = call.shape().dims()[a.ndim() - (Flag(call, "side", 'L') == 'L' ? 2 : 1)];
  return IsMatrices(a, a.ndim() - 2, n, n);
}

Instruction* Replacement(Instruction* call, hlo::Module* module) {
  const absl::string_view target = call->attributes().custom_call_target;
  for (const char letter : {'s', 'd', 'c', 'z'}) {
    if (target == absl::StrCat("lapack_", std::string(1, letter), "potrf_ffi") && IsPotrf(*call)) {
      return Potrf(call, module);
    }
    if (target == absl::StrCat("lapack_", std::string(1, letter), "trsm_ffi") && IsTrsm(*call)) return Trsm(call);
  }
  return AddMatrixLoop(call, module);
}

}  // namespace

void ReplaceLibraryCalls(hlo::Module* module) {
  std::vector<Instruction*> calls;
  for (const auto& computation : module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->opcode() != Opcode::kCustomCall) continue;
      if (absl::StartsWith(instruction->attributes().custom_call_target, "lapack_")) {
        calls.push_back(instruction.get());
      }
    }
  }
  for (Instruction* call : calls) {
    Instruction* with = Replacement(call, module);
    if (with == nullptr) continue;
    call->ReplaceAllUsesWith(with);
    hlo::Computation* computation = with->parent();
    computation->SortTopologically();
    computation->RemoveDead();
  }
  if (!calls.empty()) module->SortComputations();  // Reducers were added at the end.
}

}  // namespace xlad::sharding
