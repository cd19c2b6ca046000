// HLO text: parses one instruction with its shape, opcode, operands and attributes.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/containers.h"
#include "hlo/infer/infer.h"
#include "hlo/text/attribute_table.h"
#include "hlo/text/parse.h"

namespace xlad::hlo {
namespace {

constexpr int64_t kMaxInferredParts = 1 << 20;

const AttributeRow* FindRow(Opcode opcode, absl::string_view name) {
  for (const AttributeRow* const row : AttributeRows(opcode)) {
    if (row->name == name) return row;
  }
  return nullptr;
}

// The error for an attribute that `opcode` does not have: it belongs to other opcodes, or it does not exist.
std::string UnknownAttribute(Opcode opcode, absl::string_view name) {
  const std::vector<absl::string_view> names = AttributeNames();
  if (!Contains(names, name)) {
    return absl::StrCat("found unknown attribute \"", name, "\", expected an attribute of HLO",
                        Suggestion(name, names));
  }
  std::vector<absl::string_view> own;
  for (const AttributeRow* const row : AttributeRows(opcode)) own.push_back(row->name);
  return absl::StrCat("found attribute \"", name, "\" on ", ToString(opcode), ", expected one of ",
                      absl::StrJoin(own, ", "));
}

}  // namespace

bool Parser::ParseInstruction(Scope* scope) {
  Draft draft = NewDraft(lexer_.Here());
  draft.is_root = lexer_.AcceptWord("ROOT");
  const char* const name_at = lexer_.Here();
  lexer_.Accept('%');
  if (!lexer_.ExpectWord("an instruction, as in %name = f32[] add(%x, %y)", &draft.name)) return false;
  if (!lexer_.Expect('=')) return false;
  const auto found = scope->names.find(draft.name);
  if (found != scope->names.end()) {
    return lexer_.Fail(name_at, absl::StrCat("found %", draft.name, " again, expected a name that is not in use (line ",
                                             found->second->line(), " defines it)"));
  }
  if (draft.is_root && scope->computation->root() != nullptr) {
    return lexer_.Fail(draft.at, absl::StrCat("found a second ROOT, expected one (line ",
                                              scope->computation->root()->line(), " has it)"));
  }
  if (!ParseRightSide(scope, &draft, /*with_attributes=*/true)) return false;
  Instruction* const added = AddDraft(scope, &draft);
  if (added == nullptr) return false;
  scope->names.emplace(draft.name, added);
  if (draft.is_root) scope->computation->set_root(added);
  return true;
}

Parser::Draft Parser::NewDraft(const char* at) {
  Draft draft;
  draft.at = at;
  lexer_.Place(at, &draft.line, &draft.column);
  return draft;
}

bool Parser::ParseRightSide(Scope* scope, Draft* draft, bool with_attributes) {
  Shape shape;
  draft->infer_shape = !AtShape(lexer_);
  if (!draft->infer_shape && !ParseShape(lexer_, &shape)) return false;
  Opcode opcode;
  std::optional<Opcode> wrapped;
  if (!ParseOpcodeName(&opcode, &wrapped)) return false;
  draft->instruction = module_->NewInstruction(opcode, std::move(shape));
  // is_stable is true by default; the text may set it to false.
  if (opcode == Opcode::kTopk) draft->instruction->mutable_attributes().is_stable = true;
  if (wrapped.has_value()) draft->wrapped = std::make_unique<Instruction>(*wrapped, Shape());
  if (!ParseOperands(scope, draft)) return false;
  if (with_attributes && !ParseAttributes(draft)) return false;
  if (draft->wrapped != nullptr && opcode == Opcode::kAsyncStart && !AddWrapped(draft)) return false;
  if (opcode == Opcode::kAsyncUpdate || opcode == Opcode::kAsyncDone) BindWrapped(*draft);
  Canonicalize(draft->instruction.get(), draft->operands);
  return true;
}

bool Parser::ParseOpcodeName(Opcode* opcode, std::optional<Opcode>* wrapped) {
  const char* const at = lexer_.Here();
  const absl::string_view name = lexer_.Word();
  if (name.empty()) return lexer_.FailAt(at, "an opcode");
  const std::optional<Opcode> known = ParseOpcode(name);
  if (!known.has_value()) {
    if (SplitAsyncName(name, opcode, &wrapped->emplace())) return true;
    return lexer_.Fail(at, absl::StrCat("found unknown opcode \"", name, "\", expected an opcode of HLO",
                                        Suggestion(name, OpcodeNames())));
  }
  *opcode = *known;
  return true;
}

bool Parser::ParseOperands(Scope* scope, Draft* draft) {
  const Opcode opcode = draft->instruction->opcode();
  const bool has_value = opcode == Opcode::kParameter || opcode == Opcode::kConstant;
  if (has_value && draft->infer_shape) {
    return lexer_.Fail(draft->at, absl::StrCat("found no shape before ", ToString(opcode), ", expected one"));
  }
  if (!lexer_.Expect('(')) return false;
  if (opcode == Opcode::kParameter) return ParseParameterNumber(draft) && lexer_.Expect(')');
  if (opcode == Opcode::kConstant) return ParseConstant(draft) && lexer_.Expect(')');
  if (lexer_.Accept(')')) return true;
  do {
    if (!ParseOperand(scope, draft)) return false;
  } while (lexer_.Accept(','));
  return lexer_.Expect(')');
}

bool Parser::ParseParameterNumber(Draft* draft) {
  const char* const at = lexer_.Here();
  int64_t number = 0;
  if (!lexer_.Integer(&number)) return false;
  draft->instruction->set_number(number);
  return number >= 0 || lexer_.FailAt(at, "a parameter number of 0 or more");
}

bool Parser::ParseConstant(Draft* draft) {
  auto literal = std::make_shared<Literal>();
  if (!ParseLiteral(lexer_, draft->instruction->shape(), &elided_bytes_, literal.get())) return false;
  draft->instruction->set_literal(std::move(literal));
  return true;
}

bool Parser::ParseOperand(Scope* scope, Draft* draft) {
  const char* const at = lexer_.Here();
  Shape shape;
  const bool has_shape = lexer_.PeekRaw() != '%' && AtShape(lexer_);
  if (has_shape && !ParseShape(lexer_, &shape)) return false;
  const char* const name_at = lexer_.Here();
  const bool percent = lexer_.Accept('%');
  const absl::string_view name = lexer_.Word();
  if (!percent && !name.empty() && lexer_.PeekRaw() == '(') {  // The operand is a nested instruction.
    Lexer::Depth depth(lexer_);
    Draft inner = NewDraft(at);
    lexer_.Rewind(at);
    if (!depth.Check() || !ParseRightSide(scope, &inner, /*with_attributes=*/false)) return false;
    Instruction* const added = AddDraft(scope, &inner);
    draft->operands.push_back(added);
    return added != nullptr;
  }
  const auto found = name.empty() ? scope->names.end() : scope->names.find(name);
  if (found == scope->names.end()) {
    if (scope->invent_parameters && has_shape) {
      draft->operands.push_back(InventParameter(scope, name, shape, at));
      return true;
    }
    if (name.empty()) return lexer_.FailAt(name_at, "an operand");
    return lexer_.Fail(name_at, absl::StrCat("found operand %", name,
                                             ", expected an instruction that is defined above in %",
                                             scope->computation->name()));
  }
  Instruction* operand = found->second;
  if (lexer_.PeekRaw() == '#' && !ParseOperandPart(scope, name, &operand)) return false;
  if (has_shape && !shape.SameIgnoringLayout(operand->shape())) {
    return lexer_.Fail(at, absl::StrCat("found shape ", shape.ToString(false), " for operand %", name, ", expected ",
                                        operand->shape().ToString(false)));
  }
  draft->operands.push_back(operand);
  return true;
}

bool Parser::ParseOperandPart(Scope* scope, absl::string_view name, Instruction** operand) {
  while (lexer_.PeekRaw() == '#') {
    const char* const at = lexer_.Here();
    lexer_.Accept('#');
    Draft part = NewDraft(at);
    int64_t index = 0;
    if (!lexer_.Integer(&index)) return false;
    const absl::string_view text(name.data(), lexer_.Here() - name.data());
    const auto known = scope->names.find(text);
    if (known != scope->names.end()) {
      *operand = known->second;
      continue;
    }
    const std::string part_name = absl::StrCat((*operand)->name(), "_", index);
    part.name = part_name;
    part.infer_shape = true;
    part.operands = {*operand};
    part.instruction = module_->NewInstruction(Opcode::kGetTupleElement, Shape());
    part.instruction->set_number(index);
    *operand = AddDraft(scope, &part);
    if (*operand == nullptr) return false;
    scope->names.emplace(text, *operand);
    scope->names.emplace((*operand)->name(), *operand);  // XLA allows the program to use the generated name.
  }
  return true;
}

bool Parser::ParseAttributes(Draft* draft) {
  std::vector<const void*> seen;
  while (lexer_.Accept(',')) {
    if (!ParseAttribute(draft, &seen)) return false;
  }
  return true;
}

bool Parser::ParseAttribute(Draft* draft, std::vector<const void*>* seen) {
  const char* const at = lexer_.Here();
  absl::string_view name;
  if (!lexer_.ExpectWord("an attribute, as in dimensions={0}", &name) || !lexer_.Expect('=')) return false;
  Instruction* instruction = draft->instruction.get();
  if (draft->wrapped != nullptr && !IsAsyncAttribute(name)) {
    const bool first = instruction->opcode() != Opcode::kAsyncStart || draft->wrapped->opcode() == Opcode::kCall;
    const bool own = FindRow(instruction->opcode(), name) != nullptr;
    const bool inner = FindRow(draft->wrapped->opcode(), name) != nullptr;
    if (!own || (inner && !first)) instruction = draft->wrapped.get();
  }
  const AttributeRow* const row = FindRow(instruction->opcode(), name);
  if (row != nullptr) {
    if (Contains(*seen, row)) {
      return lexer_.Fail(at, absl::StrCat("found attribute \"", name, "\" again, expected it once"));
    }
    seen->push_back(row);
    return row->parse(*this, instruction);
  }
  if (!IsCarriedAttribute(name)) return lexer_.Fail(at, UnknownAttribute(instruction->opcode(), name));
  absl::string_view value;
  if (!lexer_.Raw(&value)) return false;
  std::string& other = instruction->mutable_attributes().other;
  absl::StrAppend(&other, other.empty() ? "" : ", ", name, "=", value);
  return true;
}

Instruction* Parser::AddDraft(Scope* scope, Draft* draft) {
  Instruction& instruction = *draft->instruction;
  for (const Computation* const called : instruction.called()) {
    if (called == nullptr) {
      lexer_.Fail(draft->at, absl::StrCat("found ", ToString(instruction.opcode()),
                                          " with one of its two computations, expected both"));
      return nullptr;
    }
  }
  instruction.set_place(draft->line, draft->column);
  instruction.set_name(std::string(draft->name));
  const bool is_fusion = instruction.opcode() == Opcode::kFusion;
  if (is_fusion && instruction.called().size() == 1) instruction.called()[0]->set_is_fusion(true);
  Instruction* const added = scope->computation->Add(std::move(draft->instruction), draft->operands);
  if (draft->infer_shape) {
    const Opcode opcode = added->opcode();
    const bool typed = opcode == Opcode::kDot || opcode == Opcode::kConvolution;
    if (typed && added->operand_count() > 0 && added->operand(0)->shape().is_array()) {
      // If the result shape is omitted, its element type is that of the operands.
      added->mutable_shape() = Shape(added->operand(0)->shape().type(), {});
    }
    absl::StatusOr<Shape> shape = InferShape(*added);
    if (!shape.ok()) {
      lexer_.Fail(draft->at, absl::StrCat("found no shape before ", ToString(added->opcode()),
                                          ", expected one, because it does not follow from the operands (",
                                          shape.status().message(), ")"));
      return nullptr;
    }
    // The size of inferred shapes may double from line to line.
    inferred_parts_ += shape->part_count();
    if (inferred_parts_ > kMaxInferredParts) {
      lexer_.Fail(draft->at, absl::StrCat("found more than ", kMaxInferredParts,
                                          " parts in shapes that the text omits, expected fewer or written shapes"));
      return nullptr;
    }
    added->mutable_shape() = *std::move(shape);
  }
  return added;
}

Instruction* Parser::InventParameter(Scope* scope, absl::string_view name, const Shape& shape, const char* at) {
  auto parameter = std::make_unique<Instruction>(Opcode::kParameter, shape);
  parameter->set_number(std::ssize(scope->computation->parameters()));
  parameter->set_name(name.empty() ? "parameter" : std::string(name));
  int line = 0, column = 0;
  lexer_.Place(at, &line, &column);
  parameter->set_place(line, column);
  Instruction* const added = scope->computation->Add(std::move(parameter));
  if (!name.empty()) scope->names.emplace(name, added);
  return added;
}

bool Parser::ParseSharedMetadata(std::shared_ptr<const Metadata>* metadata) {
  const char* const start = lexer_.Here();
  const absl::string_view rest = lexer_.rest();
  const absl::string_view upto = rest.substr(0, rest.find('}') + 1);  // Usually the complete metadata.
  const auto found = metadata_.find(upto);
  if (found != metadata_.end()) {
    lexer_.Rewind(start + upto.size());
    *metadata = found->second;
    return true;
  }
  auto read = std::make_shared<Metadata>();
  if (!ParseMetadata(lexer_, read.get())) return false;
  *metadata = std::move(read);
  if (lexer_.Since(start) == upto) metadata_.emplace(upto, *metadata);
  return true;
}

bool Parser::ParseInstructionReference(Instruction** instruction) {
  const char* const at = lexer_.Here();
  lexer_.Accept('%');
  absl::string_view name;
  if (!lexer_.ExpectWord("the name of an instruction", &name)) return false;
  const auto found = scope_->names.find(name);
  if (found == scope_->names.end()) {
    return lexer_.Fail(at, absl::StrCat("found %", name, ", expected an instruction that is defined above in %",
                                        scope_->computation->name()));
  }
  *instruction = found->second;
  return true;
}

}  // namespace xlad::hlo
