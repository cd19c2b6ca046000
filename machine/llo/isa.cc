#include "machine/llo/isa.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace xlad::machine {

const LloOpInfo& InfoOf(LloOp op) {
  static constexpr LloOpInfo kInfos[] = {
#define XLAD_LLO(Id, name, slot, dst, sources, has_imm, latency) \
  {name, LloSlot::k##slot, dst, sources, has_imm, latency},
#include "machine/llo/isa.def"
#undef XLAD_LLO
  };
  return kInfos[static_cast<int>(op)];
}

bool operator==(const LloLoop& a, const LloLoop& b) {
  return a.counter == b.counter && a.trips == b.trips && a.items == b.items;
}

absl::string_view ToString(LloType type) {
  static constexpr absl::string_view kNames[] = {"f32", "bf16", "s32", "u32", "pred", "f16", "s16",
                                                 "u16", "s8", "u8", "f8e4m3fn", "f8e5m2", "other"};
  return kNames[static_cast<int>(type)];
}

int64_t BytesOf(LloType type) {
  static constexpr int64_t kBytes[] = {4, 2, 4, 4, 1, 2, 2, 2, 1, 1, 1, 1, 0};
  return kBytes[static_cast<int>(type)];
}

int PackingOf(LloType type) {
  if (type == LloType::kPred || type == LloType::kOther) return 1;
  return static_cast<int>(4 / BytesOf(type));
}

int SlotsOf(LloSlot slot, int vector_alus) {
  switch (slot) {
    case LloSlot::kScalar:
      return 2;
    case LloSlot::kVector:
      return vector_alus;
    case LloSlot::kPush:
    case LloSlot::kPop:
      return 2;
    default:
      return 1;
  }
}

namespace {

class Verifier {
 public:
  Verifier(const LloProgram& program, int vector_alus) : program_(program), vector_alus_(vector_alus) {}

  absl::Status Items(const std::vector<LloItem>& items) const {
    for (const LloItem& item : items) {
      if (const auto* loop = std::get_if<LloLoop>(&item)) {
        if (loop->counter < 0 || loop->counter >= kScalarRegisters || loop->trips < 0) {
          return absl::InvalidArgumentError(absl::StrCat("found loop s", loop->counter, " of ", loop->trips,
                                                         " trips, expected a scalar register and 0 or more trips"));
        }
        XLAD_RETURN_IF_ERROR(Items(loop->items));
      } else {
        XLAD_RETURN_IF_ERROR(Bundle(std::get<LloBundle>(item)));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Bundle(const LloBundle& bundle) const {
    std::map<LloSlot, int> used;
    std::map<std::pair<char, int>, int> written;
    for (const LloInstruction& instruction : bundle) {
      const LloOpInfo& info = InfoOf(instruction.op);
      XLAD_RETURN_IF_ERROR(One(instruction, info));
      const int most = SlotsOf(info.slot, vector_alus_);
      if (++used[info.slot] > most) {
        return absl::InvalidArgumentError(absl::StrCat("found more than ", most, " instructions for the slot of ",
                                                       info.name, " in a bundle, expected at most ", most));
      }
      if (info.dst != '-' && ++written[{info.dst, instruction.dst}] > 1) {
        return absl::InvalidArgumentError(absl::StrCat("found two instructions in a bundle that write ",
                                                       std::string(1, info.dst), instruction.dst, ", expected one"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status One(const LloInstruction& instruction, const LloOpInfo& info) const {
    const auto exists = [](char kind, int number) {
      return number >= 0 && number < (kind == 's' ? kScalarRegisters : kVectorRegisters);
    };
    bool fits = info.dst == '-' || exists(info.dst, instruction.dst);
    for (size_t i = 0; i < info.sources.size(); ++i) fits = fits && exists(info.sources[i], instruction.sources[i]);
    if (!fits) {
      return absl::InvalidArgumentError(
          absl::StrCat(info.name, ": found a register that does not exist, expected s0 to s", kScalarRegisters - 1,
                       " and v0 to v", kVectorRegisters - 1));
    }
    if (UsesMatrixUnit(instruction.op) && (instruction.imm < 0 || instruction.imm >= kMatrixUnits)) {
      return absl::InvalidArgumentError(
          absl::StrCat(info.name, ": found matrix unit ", instruction.imm, ", expected 0 to ", kMatrixUnits - 1));
    }
    const bool is_dma = IsDma(instruction.op);
    const bool has_semaphore = is_dma || instruction.op == LloOp::kDmaWait;
    if (has_semaphore && (instruction.semaphore < 0 || instruction.semaphore >= kSemaphores)) {
      return absl::InvalidArgumentError(
          absl::StrCat(info.name, ": found semaphore ", instruction.semaphore, ", expected 0 to ", kSemaphores - 1));
    }
    if (!is_dma) return absl::OkStatus();
    const bool has_buffer = instruction.buffer >= 0 && instruction.buffer < std::ssize(program_.buffers);
    if (has_buffer && program_.buffers[instruction.buffer].type != LloType::kOther && instruction.tiles > 0) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(info.name, ": found buffer ", instruction.buffer, " and ", instruction.tiles,
                     " tiles, expected a buffer of the program with a type other than \"other\", and 1 tile or more"));
  }

  const LloProgram& program_;
  const int vector_alus_;
};

absl::Status VerifyBuffers(const LloProgram& program, const LloKernel& kernel) {
  for (const std::vector<int>* list : {&kernel.inputs, &kernel.outputs}) {
    for (const int buffer : *list) {
      if (buffer >= 0 && buffer < std::ssize(program.buffers)) continue;
      return absl::InvalidArgumentError(absl::StrCat("found ", list == &kernel.inputs ? "input" : "output", " buffer ",
                                                     buffer, ", expected one of the program's ",
                                                     program.buffers.size(), " buffers"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyLlo(const LloProgram& program, int vector_alus, int64_t vmem_tiles) {
  for (const LloBuffer& buffer : program.buffers) {
    if (buffer.elements >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", buffer.name, ": found ", buffer.elements, " elements, expected 0 or more"));
  }
  for (const LloKernel& kernel : program.kernels) {
    if (kernel.vmem_tiles < 0 || kernel.vmem_tiles > vmem_tiles) {
      return absl::InvalidArgumentError(absl::StrCat("kernel ", kernel.name, ": found ", kernel.vmem_tiles,
                                                     " tiles of VMEM, expected 0 to ", vmem_tiles,
                                                     ", the tiles of the core"));
    }
    absl::Status status = VerifyBuffers(program, kernel);
    if (status.ok()) status = Verifier(program, vector_alus).Items(kernel.items);
    if (!status.ok()) return Annotate(status, absl::StrCat("kernel ", kernel.name));
  }
  return absl::OkStatus();
}

}  // namespace xlad::machine
