#include "machine/llo/encoding.h"

#include <bit>

#include "absl/strings/str_cat.h"

namespace xlad::machine {
namespace {

constexpr absl::string_view kMagic = "LLO1";
constexpr int kMaxDepth = 64;

class Writer {
 public:
  std::string Program(const LloProgram& program) {
    out_ = std::string(kMagic);
    Text(program.name);
    Number(program.buffers.size());
    for (const LloBuffer& buffer : program.buffers) {
      Text(buffer.name);
      Number(static_cast<uint64_t>(buffer.type));
      Number(static_cast<uint64_t>(buffer.elements));
    }
    Number(program.kernels.size());
    for (const LloKernel& kernel : program.kernels) Kernel(kernel);
    return std::move(out_);
  }

 private:
  void Kernel(const LloKernel& kernel) {
    Text(kernel.name);
    Number(static_cast<uint64_t>(kernel.vmem_tiles));
    Items(kernel.items);
    Number(kernel.macro.size());
    for (const LloMacro& macro : kernel.macro) {
      Text(macro.op);
      Number(std::bit_cast<uint64_t>(macro.vector_ops));
      Number(std::bit_cast<uint64_t>(macro.hbm_bytes));
    }
    for (const std::vector<int>* list : {&kernel.inputs, &kernel.outputs}) {
      Number(list->size());
      for (const int buffer : *list) Number(static_cast<uint64_t>(buffer));
    }
  }

  void Items(const std::vector<LloItem>& items) {
    Number(items.size());
    for (const LloItem& item : items) {
      if (const auto* loop = std::get_if<LloLoop>(&item)) {
        Number(0);
        Byte(loop->counter);
        Number(static_cast<uint64_t>(loop->trips));
        Items(loop->items);
        continue;
      }
      const auto& bundle = std::get<LloBundle>(item);
      Number(bundle.size() + 1);
      for (const LloInstruction& instruction : bundle) Instruction(instruction);
    }
  }

  void Instruction(const LloInstruction& i) {
    const LloOpInfo& info = InfoOf(i.op);
    Byte(static_cast<int>(i.op));
    if (info.dst != '-') Byte(i.dst);
    for (size_t s = 0; s < info.sources.size(); ++s) Byte(i.sources[s]);
    if (info.has_imm) Signed(i.imm);
    if (IsDma(i.op)) {
      Number(static_cast<uint64_t>(i.buffer));
      Signed(i.stride);
      Number(static_cast<uint64_t>(i.tiles));
    }
    if (info.slot == LloSlot::kMisc) Byte(i.semaphore);
  }

  void Byte(int value) { out_.push_back(static_cast<char>(value)); }
  void Number(uint64_t value) {
    for (; value >= 128; value >>= 7) Byte(static_cast<int>(value & 127) | 128);
    Byte(static_cast<int>(value));
  }
  void Signed(int64_t value) { Number((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63)); }
  void Text(absl::string_view text) {
    Number(text.size());
    absl::StrAppend(&out_, text);
  }

  std::string out_;
};

class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<LloProgram> Program() {
    if (bytes_.substr(0, kMagic.size()) != kMagic) return Bad("other bytes", "the bytes \"LLO1\"");
    at_ = kMagic.size();
    LloProgram program;
    XLAD_RETURN_IF_ERROR(Text(&program.name));
    XLAD_ASSIGN_OR_RETURN(uint64_t count, Count());
    for (; count > 0; --count) {
      LloBuffer& buffer = program.buffers.emplace_back();
      XLAD_RETURN_IF_ERROR(Text(&buffer.name));
      XLAD_ASSIGN_OR_RETURN(const uint64_t type, Number());
      if (type > static_cast<uint64_t>(LloType::kOther)) {
        return Bad(absl::StrCat("type ", type), absl::StrCat("0 to ", static_cast<int>(LloType::kOther)));
      }
      buffer.type = static_cast<LloType>(type);
      XLAD_RETURN_IF_ERROR(Number(&buffer.elements));
    }
    buffers_ = program.buffers.size();
    XLAD_ASSIGN_OR_RETURN(count, Count());
    for (; count > 0; --count) XLAD_RETURN_IF_ERROR(Kernel(&program.kernels.emplace_back()));
    if (at_ != bytes_.size()) return Bad("more bytes", "the end");
    return program;
  }

 private:
  absl::Status Bad(absl::string_view found, absl::string_view expected) const {
    return absl::InvalidArgumentError(absl::StrCat("byte ", at_, ": found ", found, ", expected ", expected));
  }

  absl::Status Kernel(LloKernel* kernel) {
    XLAD_RETURN_IF_ERROR(Text(&kernel->name));
    XLAD_RETURN_IF_ERROR(Number(&kernel->vmem_tiles));
    XLAD_RETURN_IF_ERROR(Items(0, &kernel->items));
    XLAD_ASSIGN_OR_RETURN(uint64_t macros, Count());
    if (macros > 1) return Bad(absl::StrCat(macros, " macro-operations"), "at most one");
    for (; macros > 0; --macros) {
      LloMacro& macro = kernel->macro.emplace_back();
      XLAD_RETURN_IF_ERROR(Text(&macro.op));
      XLAD_ASSIGN_OR_RETURN(const uint64_t ops, Number());
      XLAD_ASSIGN_OR_RETURN(const uint64_t hbm, Number());
      macro.vector_ops = std::bit_cast<double>(ops);
      macro.hbm_bytes = std::bit_cast<double>(hbm);
      for (const double count : {macro.vector_ops, macro.hbm_bytes}) {
        if (!IsLloCount(count)) return Bad(absl::StrCat(count), "a number of at least 0 and less than 2^63");
      }
    }
    for (std::vector<int>* list : {&kernel->inputs, &kernel->outputs}) {
      XLAD_ASSIGN_OR_RETURN(uint64_t count, Count());
      for (; count > 0; --count) XLAD_RETURN_IF_ERROR(Buffer(&list->emplace_back()));
    }
    return absl::OkStatus();
  }

  absl::Status Items(int depth, std::vector<LloItem>* items) {
    if (depth > kMaxDepth) return Bad("deeper loops", "at most 64 nested loops");
    XLAD_ASSIGN_OR_RETURN(uint64_t count, Count());
    for (; count > 0; --count) {
      XLAD_ASSIGN_OR_RETURN(uint64_t instructions, Count());
      if (instructions == 0) {
        LloLoop loop;
        XLAD_RETURN_IF_ERROR(Byte(kScalarRegisters, &loop.counter));
        XLAD_RETURN_IF_ERROR(Number(&loop.trips));
        XLAD_RETURN_IF_ERROR(Items(depth + 1, &loop.items));
        items->emplace_back(std::move(loop));
        continue;
      }
      LloBundle bundle;
      for (; instructions > 1; --instructions) XLAD_RETURN_IF_ERROR(Instruction(&bundle.emplace_back()));
      items->emplace_back(std::move(bundle));
    }
    return absl::OkStatus();
  }

  absl::Status Instruction(LloInstruction* i) {
    int op = 0;
    XLAD_RETURN_IF_ERROR(Byte(kLloOpCount, &op));
    i->op = static_cast<LloOp>(op);
    const LloOpInfo& info = InfoOf(i->op);
    const auto registers = [](char kind) { return kind == 's' ? kScalarRegisters : kVectorRegisters; };
    if (info.dst != '-') XLAD_RETURN_IF_ERROR(Byte(registers(info.dst), &i->dst));
    for (size_t s = 0; s < info.sources.size(); ++s) {
      XLAD_RETURN_IF_ERROR(Byte(registers(info.sources[s]), &i->sources[s]));
    }
    if (info.has_imm) XLAD_RETURN_IF_ERROR(Signed(&i->imm));
    if (IsDma(i->op)) {
      XLAD_RETURN_IF_ERROR(Buffer(&i->buffer));
      XLAD_RETURN_IF_ERROR(Signed(&i->stride));
      XLAD_RETURN_IF_ERROR(Number(&i->tiles));
    }
    if (info.slot == LloSlot::kMisc) XLAD_RETURN_IF_ERROR(Byte(kSemaphores, &i->semaphore));
    return absl::OkStatus();
  }

  // Reads a byte, whose value must be less than `limit`.
  absl::Status Byte(int limit, int* value) {
    if (at_ >= bytes_.size()) return Bad("the end", "another byte");
    *value = static_cast<unsigned char>(bytes_[at_]);
    if (*value >= limit) return Bad(absl::StrCat(*value), absl::StrCat("0 to ", limit - 1));
    ++at_;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      int byte = 0;
      XLAD_RETURN_IF_ERROR(Byte(256, &byte));
      if (shift == 63 && (byte & 127) > 1) return Bad("a larger number", "at most 64 bits");
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    return Bad("a longer number", "at most 10 bytes");
  }
  // Reads the length of a list. Each element takes at least one byte, so a count above the number of bytes is an error.
  absl::StatusOr<uint64_t> Count() {
    XLAD_ASSIGN_OR_RETURN(const uint64_t count, Number());
    if (count <= bytes_.size()) return count;
    return Bad(absl::StrCat("a list of ", count), "at most one for each byte");
  }
  absl::Status Number(int64_t* value) {
    XLAD_ASSIGN_OR_RETURN(const uint64_t number, Number());
    *value = static_cast<int64_t>(number);
    return *value < 0 ? Bad("a larger number", "at most 63 bits") : absl::OkStatus();
  }
  absl::Status Signed(int64_t* value) {
    XLAD_ASSIGN_OR_RETURN(const uint64_t number, Number());
    *value = static_cast<int64_t>((number >> 1) ^ (~(number & 1) + 1));
    return absl::OkStatus();
  }
  absl::Status Buffer(int* buffer) {
    XLAD_ASSIGN_OR_RETURN(const uint64_t number, Number());
    if (number >= buffers_) return Bad(absl::StrCat("buffer ", number), absl::StrCat("less than ", buffers_));
    *buffer = static_cast<int>(number);
    return absl::OkStatus();
  }
  absl::Status Text(std::string* text) {
    XLAD_ASSIGN_OR_RETURN(const uint64_t size, Count());
    if (size > bytes_.size() - at_) return Bad("the end", absl::StrCat(size, " bytes of text"));
    *text = std::string(bytes_.substr(at_, size));
    at_ += size;
    return absl::OkStatus();
  }

  const absl::string_view bytes_;
  size_t at_ = 0;
  size_t buffers_ = 0;
};

}  // namespace

std::string EncodeLlo(const LloProgram& program) { return Writer().Program(program); }

absl::StatusOr<LloProgram> DecodeLlo(absl::string_view bytes) { return Reader(bytes).Program(); }

}  // namespace xlad::machine
