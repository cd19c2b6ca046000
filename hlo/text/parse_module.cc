// HLO text: the module's header and tables, and computations.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "hlo/text/attribute_table.h"
#include "hlo/text/parse.h"
#include "hlo/text/text.h"

namespace xlad::hlo {
namespace {

template <auto Member>
bool ParseHeaderBool(Lexer& lexer, Module* module) { return lexer.Bool(&(module->*Member)); }
template <auto Member>
bool ParseHeaderBools(Lexer& lexer, Module* module) { return ParseBools(lexer, &(module->*Member)); }
template <auto Member>
bool ParseHeaderCount(Lexer& lexer, Module* module) {
  const char* const at = lexer.Here();
  return lexer.Integer(&(module->*Member)) && (module->*Member >= 1 || lexer.FailAt(at, "1 or more"));
}

bool ParseAliases(Lexer& lexer, Module* module) {
  return ParseBraced(lexer, [&] {
    InputOutputAlias& alias = module->input_output_alias.emplace_back();
    if (!ParseInts(lexer, &alias.output_index) || !lexer.Expect(':') || !lexer.Expect('(') ||
        !lexer.Integer(&alias.parameter) || !lexer.Expect(',') || !ParseInts(lexer, &alias.parameter_index)) {
      return false;
    }
    if (lexer.Accept(',')) {
      alias.must_alias = lexer.AcceptWord("must-alias");
      if (!alias.must_alias && !lexer.AcceptWord("may-alias")) return lexer.FailExpected("may-alias or must-alias");
    }
    return lexer.Expect(')');
  });
}

bool ParseDonors(Lexer& lexer, Module* module) {
  return ParseBraced(lexer, [&] {
    BufferDonor& donor = module->buffer_donors.emplace_back();
    return lexer.Expect('(') && lexer.Integer(&donor.parameter) && lexer.Expect(',') &&
           ParseInts(lexer, &donor.parameter_index) && lexer.Expect(')');
  });
}

// Parses {(f32[2]{0}, s32[])->f32[2]{0}}.
bool ParseEntryComputationLayout(Lexer& lexer, Module* module) {
  module->has_entry_layout = true;
  if (!lexer.Expect('{') || !lexer.Expect('(')) return false;
  if (!lexer.Accept(')')) {
    do {
      if (!ParseShape(lexer, &module->entry_parameter_layouts.emplace_back())) return false;
    } while (lexer.Accept(','));
    if (!lexer.Expect(')')) return false;
  }
  if (!lexer.Accept("->")) return lexer.FailExpected("->");
  return ParseShape(lexer, &module->entry_result_layout) && lexer.Expect('}');
}

bool ParseHeaderFrontend(Lexer& lexer, Module* module) { return ParseStringMap(lexer, &module->frontend_attributes); }

struct HeaderRow {
  absl::string_view name;
  bool (*parse)(Lexer&, Module*);
};
constexpr HeaderRow kHeaderRows[] = {
    {"is_scheduled", ParseHeaderBool<&Module::is_scheduled>},
    {"replica_count", ParseHeaderCount<&Module::replica_count>},
    {"num_partitions", ParseHeaderCount<&Module::num_partitions>},
    {"input_output_alias", ParseAliases},
    {"buffer_donor", ParseDonors},
    {"alias_passthrough_params", ParseHeaderBool<&Module::alias_passthrough_params>},
    {"entry_computation_layout", ParseEntryComputationLayout},
    {"allow_spmd_sharding_propagation_to_parameters", ParseHeaderBools<&Module::propagate_to_parameters>},
    {"allow_spmd_sharding_propagation_to_output", ParseHeaderBools<&Module::propagate_to_output>},
    {"frontend_attributes", ParseHeaderFrontend},
};
// Parses {key=1 other_key=2} into the members of a row with these names.
template <typename T>
struct FieldOf {
  absl::string_view name;
  int64_t T::* member;
};
constexpr FieldOf<StackFrames::Location> kLocationFields[] = {
    {"file_name_id", &StackFrames::Location::file_name_id},
    {"function_name_id", &StackFrames::Location::function_name_id},
    {"line", &StackFrames::Location::line},
    {"end_line", &StackFrames::Location::end_line},
    {"column", &StackFrames::Location::column},
    {"end_column", &StackFrames::Location::end_column},
};
constexpr FieldOf<StackFrames::Frame> kFrameFields[] = {
    {"file_location_id", &StackFrames::Frame::file_location_id},
    {"parent_frame_id", &StackFrames::Frame::parent_frame_id},
};

template <typename T>
bool ParseFields(Lexer& lexer, absl::Span<const FieldOf<T>> fields, T* row) {
  if (!lexer.Expect('{')) return false;
  while (!lexer.Accept('}')) {
    const char* const at = lexer.Here();
    const absl::string_view name = lexer.Word();
    const FieldOf<T>* field = nullptr;
    for (const FieldOf<T>& candidate : fields) {
      if (candidate.name == name) field = &candidate;
    }
    if (field == nullptr) return lexer.FailAt(at, absl::StrCat("fields as in ", fields[0].name, "=1"));
    if (!lexer.Expect('=') || !lexer.Integer32(&(row->*field->member))) return false;
  }
  return true;
}

bool ParseLocation(Lexer& lexer, StackFrames* frames) {
  return ParseFields<StackFrames::Location>(lexer, kLocationFields, &frames->locations.emplace_back());
}
bool ParseFrame(Lexer& lexer, StackFrames* frames) {
  StackFrames::Frame& frame = frames->frames.emplace_back();
  if (!ParseFields<StackFrames::Frame>(lexer, kFrameFields, &frame)) return false;
  // The text has the id of the parent plus one; 1 means no parent.
  frame.parent_frame_id = std::max<int64_t>(0, frame.parent_frame_id - 1);
  return true;
}
bool ParseFileName(Lexer& lexer, StackFrames* frames) { return lexer.String(&frames->file_names.emplace_back()); }
bool ParseFunctionName(Lexer& lexer, StackFrames* frames) {
  return lexer.String(&frames->function_names.emplace_back());
}

struct FrameTable {
  absl::string_view name;
  bool (*parse)(Lexer&, StackFrames*);
};
constexpr FrameTable kFrameTables[] = {{"FileNames", ParseFileName},
                                       {"FunctionNames", ParseFunctionName},
                                       {"FileLocations", ParseLocation},
                                       {"StackFrames", ParseFrame}};

}  // namespace

absl::StatusOr<std::unique_ptr<Module>> ParseText(absl::string_view text) { return Parser(text).Run(); }

absl::StatusOr<std::unique_ptr<Module>> Parser::Run() {
  module_ = std::make_unique<Module>("module");
  constexpr size_t kLikelyInstructionBytes = 192, kMaxReserved = 1 << 16;
  module_->ReserveNames(std::min(lexer_.rest().size() / kLikelyInstructionBytes, kMaxReserved));
  if (!ParseText()) lexer_.FailExpected("HLO");
  if (lexer_.failed()) return lexer_.status();
  return std::move(module_);
}

bool Parser::ParseText() {
  if (lexer_.AcceptWord("HloModule")) return ParseHeader() && ParseStackFrames() && ParseComputations() && Finish();
  if (lexer_.AtEnd()) return lexer_.FailExpected("HloModule, a computation or an instruction");
  const char* const start = lexer_.Here();
  const bool entry = lexer_.AcceptWord("ENTRY");
  lexer_.Accept('%');
  const absl::string_view word = lexer_.Word();
  const char next = lexer_.Peek();
  lexer_.Rewind(start);
  const bool shape = AtShape(lexer_);
  if (entry || (!shape && !word.empty() && word != "ROOT" && (next == '{' || next == '('))) {
    if (!ParseComputations() || !Finish()) return false;
    module_->set_name(absl::StrCat("module_", module_->entry()->name()));  // XLA uses this name too.
    return true;
  }
  if (!shape && next != '=' && word != "ROOT") {
    return lexer_.FailAt(start, "HloModule, a computation or an instruction");
  }
  return ParseLoneInstruction() && Finish();
}

bool Parser::ParseHeader() {
  absl::string_view name;
  if (!lexer_.ExpectWord("the module's name", &name)) return false;
  module_->set_name(std::string(name));
  lexer_.Accept(':');
  std::vector<absl::string_view> seen;
  while (lexer_.Accept(',')) {
    const char* const at = lexer_.Here();
    if (!lexer_.ExpectWord("a header attribute, as in num_partitions=8", &name) || !lexer_.Expect('=')) return false;
    if (Contains(seen, name)) {
      return lexer_.Fail(at, absl::StrCat("found header attribute \"", name, "\" again, expected it once"));
    }
    seen.push_back(name);
    if (!ParseHeaderAttribute(name, at)) return false;
  }
  return true;
}

bool Parser::ParseHeaderAttribute(absl::string_view name, const char* at) {
  std::vector<absl::string_view> names;
  for (const HeaderRow& row : kHeaderRows) {
    if (row.name == name) return row.parse(lexer_, module_.get());
    names.push_back(row.name);
  }
  if (!IsCarriedHeader(name)) {
    return lexer_.Fail(at, absl::StrCat("found unknown header attribute \"", name,
                                        "\", expected a header attribute of HLO", Suggestion(name, names)));
  }
  absl::string_view value;
  if (!lexer_.Raw(&value)) return false;
  absl::StrAppend(&module_->other, module_->other.empty() ? "" : ", ", name, "=", value);
  return true;
}

bool Parser::ParseStackFrames() {
  while (true) {
    const absl::string_view word = lexer_.PeekWord();
    const auto* const table = std::find_if(std::begin(kFrameTables), std::end(kFrameTables),
                                           [&](const FrameTable& row) { return row.name == word; });
    if (table == std::end(kFrameTables)) return true;
    lexer_.Word();
    for (int64_t id = 1; lexer_.Peek() >= '0' && lexer_.Peek() <= '9'; ++id) {
      const char* const at = lexer_.Here();
      int64_t number = 0;
      if (!lexer_.Integer(&number)) return false;
      if (number != id) return lexer_.FailAt(at, absl::StrCat("row ", id, " of ", table->name));
      if (!table->parse(lexer_, &module_->stack_frames)) return false;
    }
  }
}

bool Parser::ParseComputations() {
  do {
    if (!ParseComputation()) return false;
  } while (!lexer_.AtEnd());
  return !lexer_.failed();
}

bool Parser::ParseComputation() {
  const char* const at = lexer_.Here();
  const bool is_entry = lexer_.AcceptWord("ENTRY");
  if (is_entry && module_->entry() != nullptr) return lexer_.Fail(at, "found a second ENTRY, expected one");
  const char* const name_at = lexer_.Here();
  lexer_.Accept('%');
  absl::string_view name;
  if (!lexer_.ExpectWord("a computation, as in %name (x: f32[]) -> f32[] { ... }", &name)) return false;
  if (computations_.contains(name)) {
    return lexer_.Fail(name_at, absl::StrCat("found computation %", name,
                                             " again, expected a name that is not in use"));
  }
  Signature signature;
  if (lexer_.Peek() == '(' && !ParseSignature(&signature)) return false;
  Scope scope;
  scope.computation = module_->Add(std::make_unique<Computation>(std::string(name)));
  if (is_entry) module_->set_entry(scope.computation);
  if (!ParseBody(name_at, &scope) || !CheckSignature(signature, *scope.computation)) return false;
  if (lexer_.Accept(',')) {
    std::string thread;
    if (!lexer_.AcceptWord("execution_thread")) return lexer_.FailExpected("execution_thread=\"...\"");
    if (!lexer_.Expect('=') || !lexer_.String(&thread)) return false;
    scope.computation->set_execution_thread(thread == "main" ? "" : std::move(thread));
  }
  // The name is entered only after the body, because a computation cannot call itself.
  computations_.emplace(name, scope.computation);
  last_ = scope.computation;
  return true;
}

bool Parser::ParseSignature(Signature* signature) {
  signature->at = lexer_.Here();
  if (!lexer_.Expect('(')) return false;
  if (!lexer_.Accept(')')) {
    do {
      absl::string_view name;
      lexer_.Accept('%');
      if (!lexer_.ExpectWord("a parameter, as in x: f32[]", &name)) return false;
      lexer_.Accept(':');
      // The body determines the signature. In handwritten programs this text may differ, and XLA ignores it too.
      Shape ignored;
      if (!ParseShape(lexer_, &ignored)) return false;
    } while (lexer_.Accept(','));
    if (!lexer_.Expect(')')) return false;
  }
  if (!lexer_.Accept("->")) return lexer_.FailExpected("->");
  return ParseShape(lexer_, &signature->result);
}

bool Parser::CheckSignature(const Signature& signature, const Computation& computation) {
  if (signature.at == nullptr) return true;
  const Shape& result = computation.root()->shape();
  return signature.result.SameIgnoringLayout(result) ||
         lexer_.Fail(signature.at, absl::StrCat("found result ", signature.result.ToString(false),
                                                " in the signature of %", computation.name(), ", expected ",
                                                result.ToString(false), " as in its body"));
}

bool Parser::ParseBody(const char* at, Scope* scope) {
  Lexer::Depth depth(lexer_);
  if (!depth.Check() || !lexer_.Expect('{')) return false;
  Scope* const outer = scope_;
  scope_ = scope;
  while (!lexer_.Accept('}')) {
    if (!ParseInstruction(scope)) return false;
  }
  scope_ = outer;
  Computation* const computation = scope->computation;
  if (computation->instructions().empty()) {
    return lexer_.Fail(at, absl::StrCat("found computation %", computation->name(),
                                        " without instructions, expected some"));
  }
  if (computation->root() == nullptr) computation->set_root(computation->instructions().back().get());
  return CheckParameters(at, *computation);
}

bool Parser::CheckParameters(const char* at, const Computation& computation) {
  int64_t count = 0;
  for (const auto& instruction : computation.instructions()) {
    if (instruction->opcode() == Opcode::kParameter) ++count;
  }
  const std::vector<Instruction*>& parameters = computation.parameters();
  const bool whole = std::ssize(parameters) == count && !Contains(parameters, nullptr);
  if (whole) return true;
  if (count == 1) {
    return lexer_.Fail(at, absl::StrCat("found 1 parameter in %", computation.name(), ", expected number 0"));
  }
  return lexer_.Fail(at, absl::StrCat("found ", count, " parameters in %", computation.name(),
                                      ", expected numbers 0 to ", count - 1, ", each once"));
}

bool Parser::ParseComputationReference(Computation** computation) {
  const char* const at = lexer_.Here();
  if (lexer_.PeekRaw() == '{') {
    Scope scope;
    scope.computation = *computation = module_->Add(std::make_unique<Computation>("inner"));
    nested_ = true;
    return ParseBody(at, &scope);
  }
  lexer_.Accept('%');
  absl::string_view name;
  if (!lexer_.ExpectWord("the name of a computation", &name)) return false;
  const auto found = computations_.find(name);
  if (found == computations_.end()) {
    return lexer_.Fail(at, absl::StrCat("found computation %", name, ", expected one that is defined above"));
  }
  *computation = found->second;
  return true;
}

bool Parser::ParseLoneInstruction() {
  Scope scope;
  scope.invent_parameters = true;
  scope.computation = module_->Add(std::make_unique<Computation>("main"));
  module_->set_entry(scope.computation);
  scope_ = &scope;
  Draft draft = NewDraft(lexer_.Here());
  lexer_.AcceptWord("ROOT");
  const char* const start = lexer_.Here();
  lexer_.Accept('%');
  draft.name = lexer_.Word();
  if (draft.name.empty() || !lexer_.Accept('=')) {
    lexer_.Rewind(start);
    draft.name = {};
  }
  if (!ParseRightSide(&scope, &draft, /*with_attributes=*/true)) return false;
  Instruction* const root = AddDraft(&scope, &draft);
  if (root == nullptr) return false;
  scope.computation->set_root(root);
  scope_ = nullptr;
  if (!CheckParameters(draft.at, *scope.computation)) return false;
  return lexer_.AtEnd() || lexer_.FailExpected("the end of the text after a single instruction");
}

bool Parser::Finish() {
  if (module_->entry() == nullptr) module_->set_entry(last_);
  if (nested_ || module_->computations().back().get() != module_->entry()) module_->SortComputations();
  const Computation& entry = *module_->entry();
  const char* const start = lexer_.begin();
  const auto fail = [&](absl::string_view message) { return lexer_.Fail(start, message); };
  const auto count = std::ssize(entry.parameters());
  const std::string numbers = count == 0 ? "none" : absl::StrCat("0 to ", count - 1);
  for (const InputOutputAlias& alias : module_->input_output_alias) {
    if (alias.parameter < 0 || alias.parameter >= count) {
      return fail(absl::StrCat("found input_output_alias with parameter ", alias.parameter, ", expected ", numbers));
    }
  }
  for (const BufferDonor& donor : module_->buffer_donors) {
    if (donor.parameter < 0 || donor.parameter >= count) {
      return fail(absl::StrCat("found buffer_donor with parameter ", donor.parameter, ", expected ", numbers));
    }
  }
  if (!module_->has_entry_layout) return true;
  bool same = std::ssize(module_->entry_parameter_layouts) == count &&
              module_->entry_result_layout.SameIgnoringLayout(entry.root()->shape());
  for (int64_t i = 0; same && i < count; ++i) {
    same = module_->entry_parameter_layouts[i].SameIgnoringLayout(entry.parameter(i)->shape());
  }
  return same ||
         fail("found another entry_computation_layout, expected the shapes of the entry's parameters and result");
}

}  // namespace xlad::hlo
