// HLO text: the short spelling of asynchronous operations. "slice-start(x), slice={[0:2]}" is an async-start that calls
// a computation with one slice. "slice-update" and "slice-done" are the async-update and async-done of this operation.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/infer/infer.h"
#include "hlo/text/parse.h"

namespace xlad::hlo {
namespace {

struct AsyncSuffix {
  absl::string_view text;
  Opcode opcode;
};
constexpr AsyncSuffix kSuffixes[] = {
    {"-start", Opcode::kAsyncStart}, {"-update", Opcode::kAsyncUpdate}, {"-done", Opcode::kAsyncDone}};

// Parameters, constants and the async opcodes themselves have no short spelling.
bool MayBeWrapped(Opcode opcode) {
  return opcode != Opcode::kParameter && opcode != Opcode::kConstant && opcode != Opcode::kAsyncStart &&
         opcode != Opcode::kAsyncUpdate && opcode != Opcode::kAsyncDone;
}

}  // namespace

bool SplitAsyncName(absl::string_view name, Opcode* opcode, Opcode* wrapped) {
  for (const AsyncSuffix& suffix : kSuffixes) {
    if (!absl::EndsWith(name, suffix.text)) continue;
    const std::optional<Opcode> known = ParseOpcode(name.substr(0, name.size() - suffix.text.size()));
    if (!known.has_value() || !MayBeWrapped(*known)) return false;
    *opcode = suffix.opcode;
    *wrapped = *known;
    return true;
  }
  return false;
}

bool IsAsyncAttribute(absl::string_view name) {
  return name == "async_execution_thread" || name == "control-predecessors" || name == "sharding" ||
         name == "metadata" || name == "frontend_attributes" || name == "backend_config";
}

bool Parser::AddWrapped(Draft* draft) {
  Instruction& start = *draft->instruction;
  const Shape& shape = start.shape();
  const bool fits = shape.is_tuple() && shape.tuple().size() >= 2 && shape.tuple()[0].is_tuple();
  if (draft->infer_shape || !fits) {
    return lexer_.Fail(draft->at, absl::StrCat("found ", draft->infer_shape ? "no shape" : shape.ToString(false),
                                               " before ", ToString(draft->wrapped->opcode()),
                                               "-start, expected ((operands ...), result, ...)"));
  }
  Scope scope;
  scope.computation = module_->Add(std::make_unique<Computation>("async_wrapped"));
  const std::string& thread = start.attributes().async_execution_thread;
  if (thread != "main") scope.computation->set_execution_thread(thread);
  nested_ = true;
  Draft inner;
  inner.at = draft->at;
  inner.line = draft->line;
  inner.column = draft->column;
  inner.name = ToString(draft->wrapped->opcode());
  for (const Shape& operand : shape.tuple()[0].tuple()) {
    inner.operands.push_back(InventParameter(&scope, "", operand, draft->at));
  }
  inner.instruction = std::move(draft->wrapped);
  inner.instruction->mutable_shape() = shape.tuple()[1];
  inner.instruction->set_metadata(start.shared_metadata());
  inner.instruction->mutable_frontend_attributes() = start.frontend_attributes();
  if (!start.attributes().backend_config.empty()) {
    inner.instruction->mutable_attributes().backend_config = start.attributes().backend_config;
    inner.instruction->mutable_attributes().backend_config_is_json = start.attributes().backend_config_is_json;
  }
  Canonicalize(inner.instruction.get(), inner.operands);
  Instruction* const root = AddDraft(&scope, &inner);
  if (root == nullptr) return false;
  scope.computation->set_root(root);
  start.mutable_called() = {scope.computation};
  wrappers_.insert(scope.computation);
  return true;
}

// A "slice-start()" may get its operands from a later "slice-update(state, x)" and its result shape from "slice-done".
// Adds the operands and the result shape to the computation that was made for "slice-start".
void Parser::BindWrapped(const Draft& draft) {
  const Instruction* const start = draft.operands.empty() ? nullptr : AsyncStartOf(*draft.operands[0]);
  if (start == nullptr || start->called().size() != 1 || !wrappers_.contains(start->called()[0])) return;
  Scope scope;
  scope.computation = start->called()[0];
  Instruction* const root = scope.computation->root();
  Shape result = draft.instruction->shape();
  if (draft.instruction->opcode() == Opcode::kAsyncUpdate) {
    if (!result.is_tuple() || result.tuple().size() < 2 || !result.tuple()[0].is_tuple()) return;
    const std::vector<Shape> operands = result.tuple()[0].tuple();
    for (size_t k = scope.computation->parameters().size(); k < operands.size(); ++k) {
      root->AppendOperand(InventParameter(&scope, "", operands[k], draft.at));
    }
    result = Shape(result.tuple()[1]);
    scope.computation->SortTopologically();
  }
  const bool open = root->shape().is_tuple() && root->shape().tuple().empty();
  if (open) root->mutable_shape() = std::move(result);
}

}  // namespace xlad::hlo
