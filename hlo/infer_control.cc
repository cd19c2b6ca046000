// Inference for tuples, calls, control flow, tokens and asynchronous pairs.
#include "absl/strings/str_cat.h"
#include "hlo/infer_rules.h"

namespace xlad::hlo {
namespace {

Shape Plain(const Shape& shape) {
  Shape plain = shape;
  plain.clear_layout();
  return plain;
}

absl::Status ExpectToken(const Instruction& i, int64_t operand) {
  if (i.operand(operand)->shape().kind() == Shape::Kind::kToken) return absl::OkStatus();
  return Violation("token", absl::StrCat("operand ", operand, " of shape ", Brief(i.operand(operand)->shape())),
                   "token[]");
}

absl::Status ExpectTupleOf(absl::string_view label, const Shape& shape, size_t count) {
  if (shape.is_tuple() && shape.tuple().size() == count) return absl::OkStatus();
  return Violation(label, Brief(shape), absl::StrCat("a tuple of ", count));
}

const Shape& Token() {
  static const Shape* const token = new Shape(Shape::Marker(Shape::Kind::kToken));
  return *token;
}

}  // namespace

Inferred InferParameter(const Instruction& i) { return i.shape(); }

Inferred InferTuple(const Instruction& i) {
  const std::vector<const Shape*> elements = OperandShapes(i);
  XLAD_RETURN_IF_ERROR(ExpectFewParts(elements));
  std::vector<Shape> plain;
  plain.reserve(elements.size());
  for (const Shape* const element : elements) plain.push_back(Plain(*element));
  return Shape::Tuple(std::move(plain));
}

Inferred InferGetTupleElement(const Instruction& i) {
  const Shape& tuple = i.operand(0)->shape();
  if (!tuple.is_tuple()) return Violation("tuple-operand", Brief(tuple), "a tuple");
  if (i.number() < 0 || static_cast<size_t>(i.number()) >= tuple.tuple().size()) {
    return Violation(
        "tuple-index", absl::StrCat("index=", i.number()),
        absl::StrCat("0 to ", static_cast<int64_t>(tuple.tuple().size()) - 1, ", an element of ", Brief(tuple)));
  }
  return Plain(tuple.tuple()[static_cast<size_t>(i.number())]);
}

Inferred InferSameAsOperand(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  return Plain(i.operand(0)->shape());
}

Inferred InferCall(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 1));
  XLAD_ASSIGN_OR_RETURN(Signature callee, SignatureOf(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectTakes("call-arguments", callee, OperandShapes(i)));
  return std::move(callee.result);
}

Inferred InferConditional(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  const Shape& selector = i.operand(0)->shape();
  const auto branches = static_cast<int64_t>(i.called().size());
  const bool two = selector.is_scalar() && selector.type() == ElementType::kPred;
  if (!two && !(selector.is_scalar() && selector.type() == ElementType::kS32)) {
    return Violation("conditional-selector", Brief(selector), "pred[] or s32[]");
  }
  if (branches < 1 || (two && branches != 2)) {
    return Violation("conditional-branches", absl::StrCat(branches, branches == 1 ? " branch" : " branches"),
                     two ? "2" : "1 or more");
  }
  if (i.operand_count() != branches + 1) {
    return Violation("operand-count", Counted(i.operand_count(), "operand"),
                     absl::StrCat("a selector and an argument for each of ", branches, " branches"));
  }
  Shape result;
  for (int64_t b = 0; b < branches; ++b) {
    XLAD_ASSIGN_OR_RETURN(Signature branch, SignatureOf(i, static_cast<size_t>(b)));
    XLAD_RETURN_IF_ERROR(ExpectTakes("conditional-arguments", branch, {&i.operand(b + 1)->shape()}));
    if (b == 0) result = branch.result;
    if (!branch.result.SameIgnoringLayout(result)) {
      return Violation("conditional-results",
                       absl::StrCat("branch results ", Brief(result), " and ", Brief(branch.result)),
                       "the same shape from every branch");
    }
  }
  return result;
}

Inferred InferWhile(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 2));
  const Shape state = Plain(i.operand(0)->shape());
  XLAD_ASSIGN_OR_RETURN(const Signature condition, SignatureOf(i, 0));
  XLAD_ASSIGN_OR_RETURN(const Signature body, SignatureOf(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectTakes("while-condition", condition, {&state}));
  if (!condition.result.SameIgnoringLayout(Shape(ElementType::kPred, {}))) {
    return Violation("while-condition", absl::StrCat("result ", Brief(condition.result), " of %", condition.name),
                     "pred[]");
  }
  XLAD_RETURN_IF_ERROR(ExpectTakes("while-body", body, {&state}));
  if (!body.result.SameIgnoringLayout(state)) {
    return Violation("while-body", absl::StrCat("result ", Brief(body.result), " of %", body.name),
                     absl::StrCat("what it takes, ", Brief(state)));
  }
  return state;
}

Inferred InferCustomCall(const Instruction& i) { return i.shape(); }

Inferred InferAfterAll(const Instruction& i) {
  for (int64_t k = 0; k < i.operand_count(); ++k) XLAD_RETURN_IF_ERROR(ExpectToken(i, k));
  return Token();
}

Inferred InferAddDependency(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectToken(i, 1));
  return Plain(i.operand(0)->shape());
}

Inferred InferInfeed(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectToken(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectTupleOf("infeed-result", i.shape(), 2));
  if (i.shape().tuple()[1].kind() != Shape::Kind::kToken) {
    return Violation("infeed-result", Brief(i.shape()), "(data, token[])");
  }
  return i.shape();
}

Inferred InferOutfeed(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectToken(i, 1));
  const Shape& announced = i.attributes().outfeed_shape;
  const Shape empty;
  if (!announced.SameIgnoringLayout(empty) && !announced.SameIgnoringLayout(i.operand(0)->shape())) {
    return Violation("outfeed-shape", absl::StrCat("outfeed_shape=", Brief(announced)), Brief(i.operand(0)->shape()));
  }
  return Token();
}

Inferred InferSend(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectToken(i, 1));
  return Shape::Tuple({Plain(i.operand(0)->shape()), Shape(ElementType::kU32, {}), Token()});
}

Inferred InferSendDone(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectTupleOf("send-done-operand", i.operand(0)->shape(), 3));
  return Plain(i.operand(0)->shape().tuple()[2]);
}

Inferred InferRecv(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectToken(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectTupleOf("recv-result", i.shape(), 3));
  return Shape::Tuple({Plain(i.shape().tuple()[0]), Shape(ElementType::kU32, {}), Token()});
}

Inferred InferRecvDone(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectTupleOf("recv-done-operand", i.operand(0)->shape(), 3));
  const std::vector<Shape>& parts = i.operand(0)->shape().tuple();
  return Shape::Tuple({Plain(parts[0]), Plain(parts[2])});
}

Inferred InferCopyStart(const Instruction& i) {
  const Shape x = Plain(i.operand(0)->shape());
  return Shape::Tuple({x, x, Shape(ElementType::kU32, {})});
}

Inferred InferCopyDone(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectTupleOf("copy-done-operand", i.operand(0)->shape(), 3));
  return Plain(i.operand(0)->shape().tuple()[0]);
}

// ((operands ...), result, contexts ...); how many contexts follow is the backend's affair.
Inferred InferAsyncStart(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 1));
  XLAD_ASSIGN_OR_RETURN(const Signature wrapped, SignatureOf(i, 0));
  const std::vector<const Shape*> arguments = OperandShapes(i);
  XLAD_RETURN_IF_ERROR(ExpectTakes("async-arguments", wrapped, arguments));
  const Shape& shape = i.shape();
  XLAD_ASSIGN_OR_RETURN(const Shape in, InferTuple(i));
  if (!shape.is_tuple() || shape.tuple().size() < 2 || !shape.tuple()[0].SameIgnoringLayout(in) ||
      !shape.tuple()[1].SameIgnoringLayout(wrapped.result)) {
    return Violation("async-start-result", Brief(shape),
                     absl::StrCat("(", Brief(in), ", ", Brief(wrapped.result), ", ...)"));
  }
  return shape;
}

Inferred InferAsyncDone(const Instruction& i) {
  const Shape& x = i.operand(0)->shape();
  if (!x.is_tuple() || x.tuple().size() < 2) {
    return Violation("async-done-operand", Brief(x), "what async-start or async-update gives");
  }
  return Plain(x.tuple()[1]);
}

}  // namespace xlad::hlo
