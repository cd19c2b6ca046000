// Parses PTX in the form that LLVM writes. Other text is an error that names the line.
#include <cctype>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

#include "tests/cuda_driver_double/ptx_program.h"

namespace xlad::cuda_double {
namespace {

struct Token {
  std::string text;
  int line = 0;
};

[[noreturn]] void Fail(int line, const std::string& what) {
  throw std::runtime_error("line " + std::to_string(line) + ": " + what);
}

bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' || c == '.' || c == '-';
}

std::vector<Token> Tokenize(const std::string& text) {
  std::vector<Token> tokens;
  int line = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    size_t end = at + 1;
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      at = end;
      continue;
    }
    if (text.compare(at, 2, "//") == 0) {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '"') {
      end = text.find('"', end);
      if (end == std::string::npos) Fail(line, "a string has no closing quote");
      ++end;
    }
    if (IsWord(c)) {
      while (end < text.size() && IsWord(text[end])) ++end;
    } else if (std::string("{}()[],;:+<>=@!\"").find(c) == std::string::npos) {
      Fail(line, std::string("found '") + c + "', expected a token of PTX");
    }
    tokens.push_back({text.substr(at, end - at), line});
    at = end;
  }
  return tokens;
}

bool StartsWith(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

// Returns the bits of a number: 12, -1, 0x1f, 0f3f800000 (a float), 0d3ff0000000000000 (a double).
std::optional<uint64_t> NumberBits(const std::string& text) {
  const bool is_number = std::isdigit(static_cast<unsigned char>(text[0])) != 0 || (text[0] == '-' && text.size() > 1);
  if (!is_number) return std::nullopt;
  const bool is_float =
      StartsWith(text, "0f") || StartsWith(text, "0d") || StartsWith(text, "0F") || StartsWith(text, "0D");
  char* end = nullptr;
  const std::string digits = is_float ? text.substr(2) : text;
  const uint64_t bits = text[0] == '-' ? static_cast<uint64_t>(std::strtoll(digits.c_str(), &end, 0))
                                       : std::strtoull(digits.c_str(), &end, is_float ? 16 : 0);
  if (end == nullptr || (*end != '\0' && *end != 'U')) return std::nullopt;
  return bits;
}

// Returns the number of bytes of an element of a type such as ".b8".
int64_t ElementBytes(const std::string& type, int line) {
  if (type == ".pred") return 1;
  const int bits = type.size() > 2 ? std::atoi(type.c_str() + 2) : 0;
  if (bits % 8 != 0 || bits < 8 || bits > 64) Fail(line, "found type '" + type + "', expected .pred or 8 to 64 bits");
  return bits / 8;
}

struct Variable {
  enum class Space { kGlobal, kShared } space;
  uint64_t address = 0;  // Set if the space is kGlobal.
  int64_t bytes = 0, alignment = 1;
};

// Reads tokens one after the other.
class Reader {
 public:
  explicit Reader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  bool IsAtEnd() const { return at_ == tokens_.size(); }
  const std::string& Peek(size_t ahead = 0) const {
    if (at_ + ahead >= tokens_.size()) Fail(Line(), "the text ends in the middle of a statement");
    return tokens_[at_ + ahead].text;
  }
  int Line() const { return tokens_.empty() ? 0 : tokens_[std::min(at_, tokens_.size() - 1)].line; }
  std::string Next() {
    std::string text = Peek();
    ++at_;
    return text;
  }
  bool Skip(const std::string& text) {
    if (at_ >= tokens_.size() || tokens_[at_].text != text) return false;
    ++at_;
    return true;
  }
  void Expect(const std::string& text) {
    if (!Skip(text)) Fail(Line(), "found '" + Peek() + "', expected '" + text + "'");
  }
  int64_t Number() {
    const std::string text = Next();
    const auto bits = NumberBits(text);
    if (!bits.has_value()) Fail(Line(), "found '" + text + "', expected a number");
    return static_cast<int64_t>(*bits);
  }

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

class Parser : private Reader {
 public:
  Parser(std::vector<Token> tokens, GlobalMemory* memory) : Reader(std::move(tokens)), memory_(memory) {}

  std::unique_ptr<Program> Parse() {
    while (!IsAtEnd()) ParseTopLevel();
    for (auto& [name, function] : program_->functions) Link(*function);
    return std::move(program_);
  }

 private:
  // Declarations outside of functions.
  void ParseTopLevel() {
    const std::string word = Next();
    if (word == ".version" || word == ".target" || word == ".address_size") {
      Next();
      while (Skip(",")) Next();
    } else if (word == ".entry" || word == ".func") {
      ParseFunction(word == ".entry");
    } else if (word == ".global" || word == ".const" || word == ".shared") {
      ParseVariable(word == ".shared");
    } else if (word != ".visible" && word != ".weak" && word != ".extern") {
      Fail(Line(), "found '" + word + "', expected a directive of a module");
    }
  }

  // .align 8 .b8 name[168] = {0, 0, 41}
  void ParseVariable(bool is_shared) {
    Variable variable{is_shared ? Variable::Space::kShared : Variable::Space::kGlobal};
    if (Skip(".align")) variable.alignment = Number();
    const int64_t each = ElementBytes(Next(), Line());
    const std::string name = Next();
    int64_t count = 1;
    if (Skip("[")) count = Number(), Expect("]");
    variable.bytes = each * count;
    std::vector<std::byte> contents(static_cast<size_t>(variable.bytes));
    if (Skip("=")) {
      const bool is_list = Skip("{");
      for (int64_t i = 0; i < count; ++i) {
        if (i > 0 && !Skip(",")) break;
        const int64_t value = Number();
        std::memcpy(contents.data() + i * each, &value, static_cast<size_t>(each));
      }
      if (is_list) Expect("}");
    }
    Expect(";");
    if (!is_shared) {
      variable.address = memory_->Place(contents);
      if (variable.address == 0) Fail(Line(), "no memory for '" + name + "'");
      program_->variables.push_back(variable.address);
    }
    variables_[name] = variable;
  }

  // The parameters in parentheses.
  void ParseParameters(std::vector<Parameter>* parameters) {
    Expect("(");
    while (!Skip(")")) {
      Expect(".param");
      int64_t alignment = 0;
      while (StartsWith(Peek(), ".ptr") || StartsWith(Peek(), ".align")) {
        Next();
        alignment = Number();
      }
      Parameter parameter;
      parameter.bytes = ElementBytes(Next(), Line());
      const std::string name = Next();
      if (alignment == 0) alignment = parameter.bytes;
      if (Skip("[")) parameter.bytes *= Number(), Expect("]");
      if (function_->is_kernel) {
        parameter.offset = (function_->parameter_bytes + alignment - 1) / alignment * alignment;
        function_->parameter_bytes = parameter.offset + parameter.bytes;
        parameter_offsets_[name] = parameter.offset;
      } else {
        parameter.r = RegisterOf(name);
      }
      parameters->push_back(parameter);
      Skip(",");
    }
  }

  void ParseFunction(bool is_kernel) {
    auto function = std::make_unique<Function>();
    function_ = function.get();
    function_->is_kernel = is_kernel;
    function_->registers.assign(kSpecialRegisters, 0);
    registers_ = {
        {"%tid.x", kTid}, {"%ntid.x", kNtid}, {"%ctaid.x", kCtaid}, {"%nctaid.x", kNctaid}, {"%laneid", kLane}};
    labels_.clear(), branches_.clear(), tables_.clear(), parameter_offsets_.clear();
    local_names_.clear(), shared_offsets_.clear();
    if (Peek() == "(") ParseParameters(&function_->results);
    function_->name = Next();
    if (Peek() == "(") ParseParameters(&function_->parameters);
    // The limit of PTX before version 8.1.
    if (is_kernel && function_->parameter_bytes > 4096) {
      Fail(Line(),
           "found " + std::to_string(function_->parameter_bytes) + " bytes of parameters, expected at most 4096");
    }
    while (Peek() != "{" && Peek() != ";") {
      const std::string directive = Next();
      if (!StartsWith(directive, ".")) continue;
      if (directive == ".reqntid") function_->required_threads = static_cast<int>(Number());
    }
    if (Skip(";")) return;  // A declaration.
    ParseBody();
    program_->functions[function->name] = std::move(function);
  }

  void ParseBody() {
    Expect("{");
    for (int depth = 1; depth > 0;) {
      if (Skip("{")) {
        ++depth;
      } else if (Skip("}")) {
        --depth;
      } else if (Peek()[0] != '.' && Peek(1) == ":") {
        const std::string label = Next();
        Next();
        labels_[label] = function_->code.size();
        if (Skip(".branchtargets")) tables_[label] = NamesUntilSemicolon();
      } else if (Peek()[0] == '.') {
        ParseDirective();
      } else {
        ParseInstruction();
      }
    }
    Emit("ret");
    for (const auto& [index, label] : branches_) function_->code[index].target = Target(label);
    for (const auto& [details, table] : indexed_branches_) {
      for (const std::string& label : tables_[table]) details->targets.push_back(Target(label));
    }
    indexed_branches_.clear();
  }

  const Instruction* Target(const std::string& label) const {
    const auto found = labels_.find(label);
    if (found == labels_.end()) Fail(Line(), "found no label '" + label + "', expected one in the function");
    return &function_->code[found->second];
  }

  std::vector<std::string> NamesUntilSemicolon() {
    std::vector<std::string> names;
    while (!Skip(";")) {
      names.push_back(Next());
      Skip(",");
    }
    return names;
  }

  void ParseDirective() {
    const std::string directive = Next();
    if (directive == ".shared") return ParseVariable(/*is_shared=*/true);
    if (directive == ".local") {
      int64_t alignment = 1;
      if (Skip(".align")) alignment = Number();
      const int64_t each = ElementBytes(Next(), Line());
      const std::string name = Next();
      Expect("[");
      function_->local_bytes = (function_->local_bytes + alignment - 1) / alignment * alignment;
      local_names_[name] = function_->local_bytes;
      function_->local_bytes += each * Number();
      Expect("]");
    } else if (directive == ".param") {
      ElementBytes(Next(), Line());
      RegisterOf(Next());
    } else if (directive == ".reg") {
      Next();
      while (Peek() != ";") {  // %r<5> declares registers, but registers are added at their first use.
        const std::string name = Next();
        if (Skip("<")) Number(), Expect(">");
        if (Peek(0) == ";" || Peek(0) == ",") RegisterOf(name);
        Skip(",");
      }
    } else if (directive != ".pragma" && directive != ".loc") {
      Fail(Line(), "the test double does not know '" + directive + "'");
    }
    while (!Skip(";")) Next();
  }

  uint32_t RegisterOf(const std::string& name) {
    const auto [found, is_new] = registers_.emplace(name, function_->registers.size());
    if (is_new) function_->registers.push_back(0);
    return static_cast<uint32_t>(found->second);
  }
  uint32_t Constant(uint64_t bits) {
    const uint32_t r = RegisterOf("=" + std::to_string(bits));
    function_->registers[r] = bits;
    return r;
  }

  Instruction& Emit(const std::string& name) {
    Instruction instruction;
    if ((instruction.step = FindControl(name, &instruction.mode)) == nullptr &&
        (instruction.step = FindArithmetic(name)) == nullptr &&
        (instruction.step = FindMemory(name, &instruction.count)) == nullptr &&
        (instruction.step = FindConversion(name, &instruction.mode)) == nullptr) {
      Fail(line_, "the test double does not know '" + name + "'");
    }
    function_->code.push_back(instruction);
    return function_->code.back();
  }

  struct Operands {
    std::vector<uint32_t> r;
    int64_t offset = 0;
    std::string symbol;  // A name that is neither a register nor a variable of the module.
    bool has_address = false;
    int vector_at = -1;  // The position of the last vector among the operands, or -1 if there is none.
  };

  // Returns the register of a register name, a number or the address of a variable. Any other name is stored in
  // `symbol`.
  uint32_t Value(const std::string& word, std::string* symbol) {
    if (const auto bits = NumberBits(word)) return Constant(*bits);
    if (const auto found = registers_.find(word); found != registers_.end()) return found->second;
    if (word == "%tid.y" || word == "%tid.z" || word == "%ctaid.y" || word == "%ctaid.z") return Constant(0);
    if (word[0] == '%') return RegisterOf(word);
    if (const auto found = variables_.find(word); found != variables_.end()) return Constant(AddressOf(word));
    *symbol = word;
    return 0;
  }

  uint64_t AddressOf(const std::string& name) {
    const Variable& variable = variables_[name];
    if (variable.space == Variable::Space::kGlobal) return variable.address;
    const auto found = shared_offsets_.find(name);
    if (found != shared_offsets_.end()) return kSharedBase + static_cast<uint64_t>(found->second);
    int64_t& bytes = function_->shared_bytes;
    bytes = (bytes + variable.alignment - 1) / variable.alignment * variable.alignment;
    const int64_t offset = shared_offsets_[name] = bytes;
    bytes += variable.bytes;
    return kSharedBase + static_cast<uint64_t>(offset);
  }

  Operands ParseOperands() {
    Operands operands;
    while (!Skip(";")) {
      if (Skip("{")) {
        operands.vector_at = static_cast<int>(operands.r.size());
        while (!Skip("}")) operands.r.push_back(Value(Next(), &operands.symbol)), Skip(",");
      } else if (Skip("[")) {
        operands.has_address = true;
        operands.r.push_back(Value(Next(), &operands.symbol));
        if (Skip("+")) operands.offset = Number();
        Expect("]");
      } else {
        const std::string word = Next();
        operands.r.push_back(Value(word, &operands.symbol));
      }
      Skip(",");
    }
    return operands;
  }

  void ParseInstruction() {
    line_ = Line();
    if (Skip("@")) {
      const bool is_negated = Skip("!");
      const uint32_t predicate = RegisterOf(Next());
      Emit(is_negated ? "skip.if" : "skip.unless").r[0] = predicate;
    }
    const std::string name = Next();
    if (name == "bra" || name == "bra.uni") {
      branches_.emplace_back(function_->code.size(), Next());
      Emit(name);
      return Expect(";");
    }
    if (StartsWith(name, "call")) return ParseCall(name);
    if (name == "brx.idx") return ParseBranchByIndex();
    const Operands operands = ParseOperands();
    const bool is_parameter = StartsWith(name, "ld.param") || StartsWith(name, "st.param");
    if (is_parameter) return EmitParameterAccess(name, operands);
    if (name == "mov.u64" && local_names_.contains(operands.symbol)) {
      Instruction& address = Emit("local.address");
      address.r[0] = operands.r[0];
      address.offset = local_names_[operands.symbol];
      return;
    }
    if (!operands.symbol.empty()) {
      Fail(Line(), "found '" + operands.symbol + "', expected a register, a number or a variable");
    }
    std::string full = name;
    if (StartsWith(name, "mov.") && operands.vector_at >= 0) {
      full = (operands.vector_at == 0 ? "split" : "join") + name.substr(3);
    }
    Instruction& instruction = Emit(full);
    instruction.offset = operands.offset;
    if (StartsWith(name, "mma.")) {
      if (operands.r.size() != 14)
        Fail(Line(), "found " + std::to_string(operands.r.size()) + " operands of '" + name +
                         "', expected 4, 4, 2 and 4 registers");
      NewDetails(&instruction)->operands = operands.r;
      return;
    }
    if (operands.r.size() > 6) {
      Fail(Line(), "found " + std::to_string(operands.r.size()) + " operands of '" + name + "', expected at most 6");
    }
    for (size_t o = 0; o < operands.r.size(); ++o) instruction.r[o] = operands.r[o];
  }

  void EmitParameterAccess(const std::string& name, const Operands& operands) {
    const auto parameter = parameter_offsets_.find(operands.symbol);
    if (parameter != parameter_offsets_.end()) {
      Instruction& load = Emit(name);
      if (load.count != 1) Fail(Line(), "found a vector of parameter '" + operands.symbol + "', expected a scalar");
      load.r[0] = operands.r[0];
      load.offset = parameter->second + operands.offset;
      return;
    }
    if (!operands.symbol.empty()) {
      Fail(Line(), "found no parameter '" + operands.symbol + "', expected one of the function");
    }
    if (operands.offset != 0 || operands.r.size() != 2) {
      Fail(Line(), "found an access to a part of a parameter, expected one to all of it");
    }
    Instruction& copy = Emit("copy");
    copy.r[0] = operands.r[0];
    copy.r[1] = operands.r[1];
  }

  Details* NewDetails(Instruction* instruction) {
    function_->details.push_back(std::make_unique<Details>());
    return instruction->details = function_->details.back().get();
  }

  std::vector<uint32_t> RegistersInParentheses() {
    std::vector<uint32_t> registers;
    while (!Skip(")")) registers.push_back(RegisterOf(Next())), Skip(",");
    return registers;
  }

  // call.uni (results), name, (arguments);
  void ParseCall(const std::string& name) {
    Instruction& call = Emit(name);
    Details* const details = NewDetails(&call);
    if (Skip("(")) {
      details->results = RegistersInParentheses();
      Expect(",");
    }
    details->callee_name = Next();
    details->line = line_;
    if (Skip(",")) {
      Expect("(");
      details->arguments = RegistersInParentheses();
    }
    Expect(";");
  }

  // brx.idx %r1, table;
  void ParseBranchByIndex() {
    const uint32_t index = RegisterOf(Next());
    Expect(",");
    Instruction& branch = Emit("brx.idx");
    branch.r[0] = index;
    indexed_branches_.emplace_back(NewDetails(&branch), Next());
    Expect(";");
  }

  // Resolves the callees, which may be defined later in the text.
  void Link(const Function& function) {
    for (const std::unique_ptr<Details>& details : function.details) {
      if (details->callee_name.empty()) continue;
      const auto found = program_->functions.find(details->callee_name);
      if (found == program_->functions.end()) {
        Fail(details->line, "found no function '" + details->callee_name + "', expected one in the module");
      }
      details->callee = found->second.get();
      if (details->callee->parameters.size() != details->arguments.size() ||
          details->callee->results.size() != details->results.size()) {
        Fail(details->line,
             "a call of '" + details->callee_name + "' and its definition have different numbers of values");
      }
    }
  }

  GlobalMemory* const memory_;
  std::unique_ptr<Program> program_ = std::make_unique<Program>();
  std::map<std::string, Variable> variables_;
  int line_ = 0;  // The line of the current instruction.
  // The state of the current function.
  Function* function_ = nullptr;
  std::map<std::string, size_t> registers_, labels_;
  std::map<std::string, int64_t> parameter_offsets_, local_names_, shared_offsets_;
  std::vector<std::pair<size_t, std::string>> branches_;
  std::map<std::string, std::vector<std::string>> tables_;
  std::vector<std::pair<Details*, std::string>> indexed_branches_;
};

}  // namespace

std::unique_ptr<Program> ParsePtx(const std::string& text, GlobalMemory* memory, std::string* error) {
  try {
    if (text.find(".version") == std::string::npos) Fail(1, "found no .version, expected PTX");
    return Parser(Tokenize(text), memory).Parse();
  } catch (const std::runtime_error& failure) {
    *error = failure.what();
    return nullptr;
  }
}

}  // namespace xlad::cuda_double
