// Assembler text: PrintLlo and ParseLlo.
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "machine/llo/isa.h"

namespace xlad::machine {
namespace {

std::string RegisterName(char kind, int number) { return absl::StrCat(std::string(1, kind), number); }

std::string InstructionText(const LloInstruction& instruction, const LloProgram& program) {
  const LloOpInfo& info = InfoOf(instruction.op);
  std::vector<std::string> words;
  if (info.dst != '-') words.push_back(RegisterName(info.dst, instruction.dst));
  for (size_t i = 0; i < info.sources.size(); ++i) {
    words.push_back(RegisterName(info.sources[i], instruction.sources[i]));
  }
  if (info.has_imm) words.push_back(absl::StrCat("#", instruction.imm));
  if (IsDma(instruction.op)) {
    words.push_back(absl::StrCat("buffer=", program.buffers[instruction.buffer].name));
    words.push_back(absl::StrCat("stride=", instruction.stride));
    words.push_back(absl::StrCat("tiles=", instruction.tiles));
  }
  if (IsDma(instruction.op) || instruction.op == LloOp::kDmaWait) {
    words.push_back(absl::StrCat("sem=", instruction.semaphore));
  }
  return words.empty() ? std::string(info.name) : absl::StrCat(info.name, " ", absl::StrJoin(words, ", "));
}

void AppendItems(const std::vector<LloItem>& items, const LloProgram& program, int depth, std::string* text) {
  const std::string indent(2 * static_cast<size_t>(depth), ' ');
  for (const LloItem& item : items) {
    if (const auto* loop = std::get_if<LloLoop>(&item)) {
      absl::StrAppend(text, indent, "loop s", loop->counter, " ", loop->trips, " {\n");
      AppendItems(loop->items, program, depth + 1, text);
      absl::StrAppend(text, indent, "}\n");
      continue;
    }
    const auto& bundle = std::get<LloBundle>(item);
    const auto append = [&](std::string* out, const LloInstruction& i) { out->append(InstructionText(i, program)); };
    absl::StrAppend(text, indent, "{ ", absl::StrJoin(bundle, " ; ", append), bundle.empty() ? "}\n" : " }\n");
  }
}

class Parser {
 public:
  explicit Parser(absl::string_view text) : lines_(absl::StrSplit(text, '\n')) {}

  absl::StatusOr<LloProgram> Parse() {
    for (; at_ < lines_.size(); ++at_) {
      const std::vector<std::string> words = WordsOf(lines_[at_]);
      if (words.empty()) continue;
      absl::Status status;
      if (words[0] == "program" && words.size() == 2) {
        program_.name = words[1];
      } else if (words[0] == "buffer" && words.size() == 4) {
        status = Buffer(words);
      } else if (words[0] == "kernel" && words.size() >= 4) {
        status = Kernel(words);
      } else if (words[0] == "macro" && words.size() >= 3) {
        status = Macro(words);
      } else {
        status = Unexpected(lines_[at_], "program NAME, buffer, kernel or macro");
      }
      XLAD_RETURN_IF_ERROR(status);
    }
    return std::move(program_);
  }

 private:
  // The words of a line. No word has white space, which would be lost at the end of a line that PrintLlo writes.
  static std::vector<std::string> WordsOf(absl::string_view line) {
    return absl::StrSplit(line, absl::ByAnyChar(" \t\v\f\r"), absl::SkipEmpty());
  }

  absl::Status Unexpected(absl::string_view found, absl::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", at_ + 1, ": found \"", absl::StripAsciiWhitespace(found), "\", expected ", expected));
  }

  absl::Status Number(absl::string_view text, int64_t* value) const {
    return absl::SimpleAtoi(text, value) ? absl::OkStatus() : Unexpected(text, "a number");
  }
  // A number of operations or bytes, which PrintLlo writes as an integer.
  absl::Status Count(absl::string_view text, double* value) const {
    const bool is_count = absl::SimpleAtod(text, value) && IsLloCount(*value);
    return is_count ? absl::OkStatus() : Unexpected(text, "a number of at least 0 and less than 2^63");
  }

  // Whether the word begins a list of a kernel's buffers.
  static bool IsKeyword(absl::string_view word) { return word == "inputs" || word == "outputs"; }

  absl::Status Buffer(const std::vector<std::string>& words) {
    LloBuffer buffer{words[1]};
    if (IsKeyword(buffer.name)) return Unexpected(buffer.name, "a buffer name other than inputs and outputs");
    bool is_known = false;
    for (int type = 0; type <= static_cast<int>(LloType::kOther); ++type) {
      if (ToString(static_cast<LloType>(type)) != words[2]) continue;
      buffer.type = static_cast<LloType>(type);
      is_known = true;
    }
    if (!is_known)
      return Unexpected(words[2], "f32, bf16, f16, s32, u32, s16, u16, s8, u8, f8e4m3fn, f8e5m2, pred or other");
    XLAD_RETURN_IF_ERROR(Number(words[3], &buffer.elements));
    if (!buffers_.emplace(buffer.name, static_cast<int>(program_.buffers.size())).second) {
      return Unexpected(words[1], "a buffer name that is not taken");
    }
    program_.buffers.push_back(std::move(buffer));
    return absl::OkStatus();
  }

  absl::Status FindBuffer(const std::string& name, int* number) const {
    const auto found = buffers_.find(name);
    if (found == buffers_.end()) return Unexpected(name, "the name of a buffer that is declared above");
    *number = found->second;
    return absl::OkStatus();
  }

  // "inputs a b outputs c", with an optional "{" at the end.
  absl::Status Buffers(const std::vector<std::string>& words, size_t begin, LloKernel* kernel) const {
    std::vector<int>* list = nullptr;
    for (size_t i = begin; i < words.size() && words[i] != "{"; ++i) {
      if (IsKeyword(words[i])) {
        list = words[i] == "inputs" ? &kernel->inputs : &kernel->outputs;
        continue;
      }
      if (list == nullptr) return Unexpected(words[i], "inputs or outputs");
      XLAD_RETURN_IF_ERROR(FindBuffer(words[i], &list->emplace_back()));
    }
    return absl::OkStatus();
  }

  absl::Status Kernel(const std::vector<std::string>& words) {
    LloKernel kernel;
    kernel.name = words[1];
    if (words[2] != "vmem" || words.back() != "{") return Unexpected(lines_[at_], "kernel NAME vmem TILES ... {");
    XLAD_RETURN_IF_ERROR(Number(words[3], &kernel.vmem_tiles));
    XLAD_RETURN_IF_ERROR(Buffers(words, 4, &kernel));
    XLAD_RETURN_IF_ERROR(Items(0, &kernel.items));
    program_.kernels.push_back(std::move(kernel));
    return absl::OkStatus();
  }

  // macro NAME OP ops N bytes N inputs ... outputs ...
  absl::Status Macro(const std::vector<std::string>& words) {
    LloKernel kernel;
    kernel.name = words[1];
    LloMacro macro{words[2]};
    if (words.size() < 7 || words[3] != "ops" || words[5] != "bytes") {
      return Unexpected(lines_[at_], "macro NAME OPCODE ops N bytes N ...");
    }
    XLAD_RETURN_IF_ERROR(Count(words[4], &macro.vector_ops));
    XLAD_RETURN_IF_ERROR(Count(words[6], &macro.hbm_bytes));
    XLAD_RETURN_IF_ERROR(Buffers(words, 7, &kernel));
    kernel.macro.push_back(std::move(macro));
    program_.kernels.push_back(std::move(kernel));
    return absl::OkStatus();
  }

  // Reads the items of a kernel or loop, whose first line is the current one, up to its closing "}".
  absl::Status Items(int depth, std::vector<LloItem>* items) {
    constexpr int kMaxDepth = 64;
    if (depth > kMaxDepth) return Unexpected("loop", "at most 64 nested loops");
    for (++at_; at_ < lines_.size(); ++at_) {
      const absl::string_view line = absl::StripAsciiWhitespace(lines_[at_]);
      if (line.empty()) continue;
      if (line == "}") return absl::OkStatus();
      const std::vector<std::string> words = WordsOf(line);
      if (words[0] == "loop" && words.size() == 4 && words[3] == "{") {
        LloLoop loop;
        XLAD_RETURN_IF_ERROR(Register(words[1], 's', &loop.counter));
        XLAD_RETURN_IF_ERROR(Number(words[2], &loop.trips));
        XLAD_RETURN_IF_ERROR(Items(depth + 1, &loop.items));
        items->emplace_back(std::move(loop));
        continue;
      }
      if (line.front() != '{' || line.back() != '}') return Unexpected(line, "a bundle { ... }, a loop or }");
      LloBundle bundle;
      const absl::string_view inside = absl::StripAsciiWhitespace(line.substr(1, line.size() - 2));
      for (const absl::string_view text : absl::StrSplit(inside, ';', absl::SkipWhitespace())) {
        XLAD_RETURN_IF_ERROR(Instruction(absl::StripAsciiWhitespace(text), &bundle.emplace_back()));
      }
      items->emplace_back(std::move(bundle));
    }
    return absl::InvalidArgumentError(absl::StrCat("line ", at_ + 1, ": found the end of the text, expected }"));
  }

  absl::Status Register(absl::string_view text, char kind, int* number) const {
    int64_t value = -1;
    const int count = kind == 's' ? kScalarRegisters : kVectorRegisters;
    const bool fits =
        text.size() > 1 && text[0] == kind && absl::SimpleAtoi(text.substr(1), &value) && value >= 0 && value < count;
    if (!fits)
      return Unexpected(
          text, absl::StrCat("a register from ", std::string(1, kind), "0 to ", std::string(1, kind), count - 1));
    *number = static_cast<int>(value);
    return absl::OkStatus();
  }

  absl::Status KeyValue(absl::string_view text, absl::string_view key, LloInstruction* instruction) const {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.first != key) return Unexpected(text, absl::StrCat(key, "="));
    if (key == "buffer") return FindBuffer(parts.second, &instruction->buffer);
    if (key == "stride") return Number(parts.second, &instruction->stride);
    if (key == "tiles") return Number(parts.second, &instruction->tiles);
    return absl::SimpleAtoi(parts.second, &instruction->semaphore) ? absl::OkStatus()
                                                                   : Unexpected(text, "a number of 32 bits");
  }

  absl::Status Instruction(absl::string_view text, LloInstruction* instruction) const {
    static const auto* const ops = [] {
      auto* const table = new std::map<std::string, LloOp, std::less<>>;
#define XLAD_LLO(Id, name, slot, dst, sources, has_imm, latency) table->emplace(name, LloOp::k##Id);
#include "machine/llo/isa.def"
#undef XLAD_LLO
      return table;
    }();
    const size_t space = text.find(' ');
    const auto found = ops->find(std::string(text.substr(0, space)));
    if (found == ops->end()) return Unexpected(text, "an instruction");
    instruction->op = found->second;
    const LloOpInfo& info = InfoOf(found->second);
    const absl::string_view rest = space == absl::string_view::npos ? "" : text.substr(space);
    std::vector<std::string> operands;
    for (const absl::string_view operand : absl::StrSplit(rest, ',', absl::SkipWhitespace())) {
      operands.emplace_back(absl::StripAsciiWhitespace(operand));
    }
    std::vector<absl::string_view> keys;
    if (IsDma(found->second)) keys = {"buffer", "stride", "tiles"};
    if (IsDma(found->second) || found->second == LloOp::kDmaWait) keys.push_back("sem");
    const size_t count = (info.dst != '-' ? 1 : 0) + info.sources.size() + (info.has_imm ? 1 : 0) + keys.size();
    if (operands.size() != count) return Unexpected(text, absl::StrCat(count, " operands of ", info.name));
    size_t next = 0;
    if (info.dst != '-') XLAD_RETURN_IF_ERROR(Register(operands[next++], info.dst, &instruction->dst));
    for (size_t i = 0; i < info.sources.size(); ++i) {
      XLAD_RETURN_IF_ERROR(Register(operands[next++], info.sources[i], &instruction->sources[i]));
    }
    if (info.has_imm) {
      const std::string& imm = operands[next++];
      if (imm.empty() || imm[0] != '#') return Unexpected(imm, "an immediate number such as #4");
      XLAD_RETURN_IF_ERROR(Number(imm.substr(1), &instruction->imm));
    }
    for (const absl::string_view key : keys) XLAD_RETURN_IF_ERROR(KeyValue(operands[next++], key, instruction));
    return absl::OkStatus();
  }

  const std::vector<std::string> lines_;
  size_t at_ = 0;
  LloProgram program_;
  std::map<std::string, int> buffers_;
};

std::string BuffersText(const LloKernel& kernel, const LloProgram& program) {
  const auto append = [&](std::string* out, int buffer) { absl::StrAppend(out, " ", program.buffers[buffer].name); };
  return absl::StrCat(" inputs", absl::StrJoin(kernel.inputs, "", append), " outputs",
                      absl::StrJoin(kernel.outputs, "", append));
}

}  // namespace

std::string PrintLlo(const LloProgram& program) {
  std::string text = absl::StrCat("program ", program.name, "\n");
  for (const LloBuffer& buffer : program.buffers) {
    absl::StrAppend(&text, "buffer ", buffer.name, " ", ToString(buffer.type), " ", buffer.elements, "\n");
  }
  for (const LloKernel& kernel : program.kernels) {
    const std::string buffers = BuffersText(kernel, program);
    if (!kernel.macro.empty()) {
      const LloMacro& macro = kernel.macro[0];
      absl::StrAppend(&text, "macro ", kernel.name, " ", macro.op, " ops ", static_cast<int64_t>(macro.vector_ops),
                      " bytes ", static_cast<int64_t>(macro.hbm_bytes), buffers, "\n");
      continue;
    }
    absl::StrAppend(&text, "kernel ", kernel.name, " vmem ", kernel.vmem_tiles, buffers, " {\n");
    AppendItems(kernel.items, program, 1, &text);
    absl::StrAppend(&text, "}\n");
  }
  return text;
}

absl::StatusOr<LloProgram> ParseLlo(absl::string_view text) { return Parser(text).Parse(); }

}  // namespace xlad::machine
