#include "sharding/import/matrix_loops.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "hlo/attribute_keys.h"
#include "hlo/build/builder.h"
#include "hlo/text/text.h"
#include "sharding/import/matrix_programs.h"

namespace xlad::sharding {
namespace {

using hlo::Builder;
using hlo::Dims;
using hlo::Instruction;
using hlo::Shape;

// The product of all but the last `inner` dimensions.
int64_t BatchOf(const Dims& dims, int64_t inner) {
  return tensor::Product(absl::MakeConstSpan(dims).subspan(0, std::ssize(dims) - inner));
}

MatrixProgramSizes SizesOf(const Instruction& call) {
  const Dims& dims = call.operand(0)->shape().dims();
  MatrixProgramSizes sizes;
  sizes.batch = BatchOf(dims, 2);
  sizes.rows = dims[dims.size() - 2];
  sizes.columns = dims.back();
  sizes.reflectors =
      call.operand_count() == 2 ? call.operand(1)->shape().dims().back() : std::min(sizes.rows, sizes.columns);
  // JAX writes the letter as a number; 'U' is 85.
  sizes.upper = absl::StrContains(call.attributes().backend_config, "uplo = 85");
  return sizes;
}

// Whether the call's results have the types and the dimensions of the program's results, except that the program joins
// the dimensions of the batch.
bool ResultsFit(const Instruction& call, const Shape& made) {
  const Dims& dims = call.operand(0)->shape().dims();
  const Dims batch(dims.begin(), dims.end() - 2);
  const auto fits = [&](const Shape& found, const Shape& joined) {
    if (!found.is_array() || found.type() != joined.type()) return false;
    Dims expected = batch;
    expected.insert(expected.end(), joined.dims().begin() + 1, joined.dims().end());
    return found.dims() == expected;
  };
  if (made.is_array()) return fits(call.shape(), made);
  return call.shape().is_tuple() && std::equal(call.shape().tuple().begin(), call.shape().tuple().end(),
                                               made.tuple().begin(), made.tuple().end(), fits);
}

// Whether the operands are matrices and, if there are two, vectors, all without empty dimensions.
bool OperandsFit(const Instruction& call) {
  if (call.operand_count() < 1 || call.operand_count() > 2) return false;
  for (const Instruction* operand : call.operands()) {
    const Shape& shape = operand->shape();
    if (!shape.is_array() || shape.array().elements() == 0 || shape.ndim() < 1) return false;
  }
  const Shape& a = call.operand(0)->shape();
  if (a.ndim() < 2) return false;
  return call.operand_count() == 1 || call.operand(1)->shape().ndim() == a.ndim() - 1;
}

Instruction* WithShape(Builder& builder, Instruction* x, const Dims& dims) {
  return x->shape().dims() == dims ? x : builder.Reshape(x, dims);
}

// `x` with all but its last `inner` dimensions joined.
Instruction* JoinBatch(Builder& builder, Instruction* x, int64_t inner) {
  const Dims& dims = x->shape().dims();
  Dims joined(dims.end() - inner, dims.end());
  joined.insert(joined.begin(), BatchOf(dims, inner));
  return WithShape(builder, x, joined);
}

// A copy of `x` that may be split along the batch only.
Instruction* KeepMatricesWhole(Instruction* x) {
  Instruction* copy = Builder(x->parent()).Unary(hlo::Opcode::kCopy, x);
  copy->mutable_metadata() = x->metadata();
  copy->mutable_frontend_attributes()[hlo::kUnsplitMatricesKey] = "";
  return copy;
}

// The loop as a module with one call-free entry computation, or null if the call is not one of these routines.
std::unique_ptr<hlo::Module> LoopFor(const Instruction& call) {
  absl::string_view target = call.attributes().custom_call_target;
  if (!absl::ConsumePrefix(&target, "lapack_") || !absl::ConsumeSuffix(&target, "_ffi") || target.empty()) {
    return nullptr;
  }
  const absl::string_view routine = target.substr(1);
  const bool real = target[0] == 's' || target[0] == 'd';
  const hlo::ElementType type = target[0] == 's' ? hlo::ElementType::kF32 : hlo::ElementType::kF64;
  if (!real || !OperandsFit(call) || call.operand(0)->shape().type() != type ||
      (call.operand_count() == 2) != (routine == "orgqr")) {
    return nullptr;
  }
  const std::string text = MatrixProgram(routine, type, SizesOf(call));
  if (text.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(text);
  XLAD_CHECK(module.ok()) << module.status();
  return ResultsFit(call, (*module)->entry()->root()->shape()) ? *std::move(module) : nullptr;
}

}  // namespace

Instruction* AddMatrixLoop(Instruction* call, hlo::Module* module) {
  const std::unique_ptr<hlo::Module> loop = LoopFor(*call);
  if (loop == nullptr) return nullptr;
  const size_t before = module->computations().size();
  hlo::Computation* callee = module->CloneComputation(*loop->entry(), loop->entry()->name());
  for (size_t c = before; c < module->computations().size(); ++c) {
    for (const auto& instruction : module->computations()[c]->instructions()) {
      instruction->mutable_metadata() = call->metadata();
    }
  }
  Builder builder(call->parent());
  builder.set_template(call);
  std::vector<Instruction*> operands = {KeepMatricesWhole(JoinBatch(builder, call->operand(0), 2))};
  if (call->operand_count() == 2) operands.push_back(KeepMatricesWhole(JoinBatch(builder, call->operand(1), 1)));
  Instruction* result = builder.Call(callee, operands);
  if (call->shape().is_array()) return WithShape(builder, KeepMatricesWhole(result), call->shape().dims());
  std::vector<Instruction*> elements;
  for (size_t i = 0; i < call->shape().tuple().size(); ++i) {
    Instruction* element = KeepMatricesWhole(builder.GetTupleElement(result, i));
    elements.push_back(WithShape(builder, element, call->shape().tuple()[i].dims()));
  }
  return builder.Tuple(elements);
}

}  // namespace xlad::sharding
