// Inference for tuples, calls, control flow, tokens and asynchronous pairs.
#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"

namespace xlad::hlo {
namespace {

absl::Status ExpectToken(const Instruction& i, int64_t operand) {
  if (i.operand(operand)->shape().kind() == Shape::Kind::kToken) return absl::OkStatus();
  return Violation("token", absl::StrCat("operand ", operand, " of shape ", Brief(i.operand(operand)->shape())),
                   "token[]");
}

absl::Status ExpectTupleOf(absl::string_view label, const Shape& shape, size_t count) {
  if (shape.is_tuple() && shape.tuple().size() == count) return absl::OkStatus();
  return Violation(label, Brief(shape), absl::StrCat("a tuple of ", count));
}

bool IsAsyncState(const Shape& shape) {
  return shape.is_tuple() && shape.tuple().size() >= 2 && shape.tuple()[0].is_tuple();
}

// Returns true if `part` equals `whole` or is an incomplete form of it. In an incomplete form, tuples may have fewer
// elements, and "()" is a shape that is not known yet.
bool IsPrefix(const Shape& part, const Shape& whole) {
  if (part.is_tuple() && part.tuple().empty()) return true;
  if (!part.is_tuple() || !whole.is_tuple()) return part.SameIgnoringLayout(whole);
  if (part.tuple().size() > whole.tuple().size()) return false;
  for (size_t e = 0; e < part.tuple().size(); ++e) {
    if (!IsPrefix(part.tuple()[e], whole.tuple()[e])) return false;
  }
  return true;
}

const Shape& Token() {
  static const Shape* const token = new Shape(Shape::Marker(Shape::Kind::kToken));
  return *token;
}

}  // namespace

const Instruction* AsyncStartOf(const Instruction& instruction) {
  const Instruction* i = &instruction;
  while ((i->opcode() == Opcode::kAsyncUpdate || i->opcode() == Opcode::kAsyncDone) && i->operand_count() > 0) {
    i = i->operand(0);
  }
  return i->opcode() == Opcode::kAsyncStart ? i : nullptr;
}

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
  if (i.number() < 0 || i.number() >= std::ssize(tuple.tuple())) {
    const std::string numbers = tuple.tuple().empty() ? "none" : absl::StrCat("0 to ", std::ssize(tuple.tuple()) - 1);
    return Violation("tuple-index", absl::StrCat("index=", i.number()),
                     absl::StrCat(numbers, ", an element of ", Brief(tuple)));
  }
  return Plain(tuple.tuple()[i.number()]);
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
  const auto branches = std::ssize(i.called());
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
    XLAD_ASSIGN_OR_RETURN(Signature branch, SignatureOf(i, b));
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
                     absl::StrCat("the shape of its parameter, ", Brief(state)));
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

// The result is ((operands ...), result, contexts ...); the backend determines the contexts. The last arguments of the
// computation may come from async-update, and the result may be unknown, "()", until async-done.
Inferred InferAsyncStart(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 1));
  XLAD_ASSIGN_OR_RETURN(const Signature wrapped, SignatureOf(i, 0));
  const std::vector<const Shape*> arguments = OperandShapes(i);
  Signature bound = wrapped;
  if (arguments.size() < bound.parameters.size()) bound.parameters.resize(arguments.size());
  XLAD_RETURN_IF_ERROR(ExpectTakes("async-arguments", bound, arguments));
  const Shape& shape = i.shape();
  XLAD_ASSIGN_OR_RETURN(const Shape in, InferTuple(i));
  if (!IsAsyncState(shape) || !shape.tuple()[0].SameIgnoringLayout(in) ||
      !IsPrefix(shape.tuple()[1], wrapped.result)) {
    return Violation("async-start-result", Brief(shape),
                     absl::StrCat("(", Brief(in), ", ", Brief(wrapped.result), ", ...)"));
  }
  return shape;
}

// The result is the state of operand 0, extended by the other operands, which are the next arguments of the
// computation.
Inferred InferAsyncUpdate(const Instruction& i) {
  if (i.operand_count() < 1) return Violation("operand-count", "0 operands", "the state and arguments");
  const Shape& before = i.operand(0)->shape();
  if (!IsAsyncState(before)) return Violation("async-update-operand", Brief(before), "the result of async-start");
  Shape after = Plain(before);
  std::vector<Shape> parts = after.tuple(), arguments = parts[0].tuple();
  for (int64_t k = 1; k < i.operand_count(); ++k) arguments.push_back(Plain(i.operand(k)->shape()));
  const Instruction* const start = AsyncStartOf(i);
  const bool known = start != nullptr && start->called().size() == 1;
  if (known) {
    XLAD_ASSIGN_OR_RETURN(Signature wrapped, SignatureOf(*start, 0));
    if (arguments.size() < wrapped.parameters.size()) wrapped.parameters.resize(arguments.size());
    std::vector<const Shape*> bound;
    for (const Shape& argument : arguments) bound.push_back(&argument);
    XLAD_RETURN_IF_ERROR(ExpectTakes("async-arguments", wrapped, bound));
    if (IsAsyncState(i.shape()) && !IsPrefix(i.shape().tuple()[1], wrapped.result)) parts[1] = wrapped.result;
  }
  parts[0] = Shape::Tuple(std::move(arguments));
  if (IsAsyncState(i.shape())) {  // The shape of `i` may add the result; the backend determines the contexts.
    const std::vector<Shape>& given = i.shape().tuple();
    if (IsPrefix(parts[1], given[1])) parts[1] = given[1];
    parts.resize(2);
    parts.insert(parts.end(), given.begin() + 2, given.end());
  }
  return Shape::Tuple(std::move(parts));
}

Inferred InferAsyncDone(const Instruction& i) {
  const Shape& x = i.operand(0)->shape();
  if (!x.is_tuple() || x.tuple().size() < 2) {
    return Violation("async-done-operand", Brief(x), "the result of async-start or async-update");
  }
  const Instruction* const start = AsyncStartOf(i);
  if (start == nullptr || start->called().size() != 1) {
    return IsPrefix(x.tuple()[1], i.shape()) ? i.shape() : Plain(x.tuple()[1]);
  }
  XLAD_ASSIGN_OR_RETURN(Signature wrapped, SignatureOf(*start, 0));
  std::vector<const Shape*> bound;
  for (const Shape& argument : x.tuple()[0].tuple()) bound.push_back(&argument);
  XLAD_RETURN_IF_ERROR(ExpectTakes("async-arguments", wrapped, bound));
  return std::move(wrapped.result);
}

}  // namespace xlad::hlo
