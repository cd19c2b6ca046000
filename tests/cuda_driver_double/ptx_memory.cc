// Loads, stores and control.
#include <string>

#include "tests/cuda_driver_double/ptx_program.h"

namespace xlad::cuda_double {
namespace {

// Returns the host memory of an address in any state space. If there is none or the address is not aligned to `bytes`,
// calls Thread::Fail and returns null.
std::byte* Find(Thread& t, uint64_t address, uint64_t bytes) {
  if (address % bytes != 0) {
    t.Fail(kMisalignedAddress);
    return nullptr;
  }
  if (address - kSharedBase < kLocalBase - kSharedBase) {
    const uint64_t offset = address - kSharedBase;
    if (offset + bytes <= static_cast<uint64_t>(t.shared_bytes)) return t.shared + offset;
  } else if (address >= kLocalBase && address - kLocalBase < t.local.size()) {
    const uint64_t offset = address - kLocalBase;
    if (offset + bytes <= t.local.size()) return t.local.data() + offset;
  } else if (std::byte* const found = t.memory->Find(address, bytes)) {
    return found;
  }
  t.Fail(kIllegalAddress);
  return nullptr;
}

// Returns false, after Thread::Fail, if the access is a race.
bool IsOrdered(Thread& t, const RaceChecker::Access& access) {
  if (t.races == nullptr || access.address >= kLocalBase) return true;
  if (t.races->Check(access, t.Get<uint32_t>(kTid))) return true;
  t.Fail(kLaunchFailed);
  return false;
}

// Instruction::r has the results, then the register of the address.
template <typename T>
const Instruction* Load(const Instruction* i, Thread& t) {
  const uint64_t address = t.Get<uint64_t>(i->r[i->count]) + static_cast<uint64_t>(i->offset);
  for (int e = 0; e < i->count; ++e) {
    const std::byte* const from = Find(t, address + e * sizeof(T), sizeof(T));
    if (from == nullptr || !IsOrdered(t, {address + e * sizeof(T), sizeof(T)})) return nullptr;
    T value;
    std::memcpy(&value, from, sizeof(T));
    // A register may be wider than the loaded value.
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    t.Set<Wide>(i->r[e], value);
  }
  return i + 1;
}

// Instruction::r has the register of the address, then the values.
template <typename T>
const Instruction* Store(const Instruction* i, Thread& t) {
  const uint64_t address = t.Get<uint64_t>(i->r[0]) + static_cast<uint64_t>(i->offset);
  for (int e = 0; e < i->count; ++e) {
    std::byte* const to = Find(t, address + e * sizeof(T), sizeof(T));
    if (to == nullptr) return nullptr;
    const T value = t.Get<T>(i->r[1 + e]);
    const bool keeps_value = std::memcmp(to, &value, sizeof(T)) == 0;
    if (!IsOrdered(t, {address + e * sizeof(T), sizeof(T), true, keeps_value})) return nullptr;
    std::memcpy(to, &value, sizeof(T));
  }
  return i + 1;
}

template <typename T>
const Instruction* LoadParameter(const Instruction* i, Thread& t) {
  T value;
  std::memcpy(&value, t.parameters + i->offset, sizeof(T));
  t.Set<T>(i->r[0], value);
  return i + 1;
}

const Instruction* Copy(const Instruction* i, Thread& t) {
  t.registers[i->r[0]] = t.registers[i->r[1]];
  return i + 1;
}

// The address of a variable on the stack of this call.
const Instruction* LocalAddress(const Instruction* i, Thread& t) {
  t.Set<uint64_t>(i->r[0], kLocalBase + static_cast<uint64_t>(t.local_base + i->offset));
  return i + 1;
}

const Instruction* Branch(const Instruction* i, Thread&) { return i->target; }
const Instruction* BranchByIndex(const Instruction* i, Thread& t) {
  const uint32_t index = t.Get<uint32_t>(i->r[0]);
  return index < i->details->targets.size() ? i->details->targets[index] : t.Fail(kIllegalAddress);
}
// Skips the next instruction if the predicate is false (SkipUnless) or true (SkipIf).
const Instruction* SkipUnless(const Instruction* i, Thread& t) { return t.Get<uint8_t>(i->r[0]) != 0 ? i + 1 : i + 2; }
const Instruction* SkipIf(const Instruction* i, Thread& t) { return t.Get<uint8_t>(i->r[0]) != 0 ? i + 2 : i + 1; }

const Instruction* Call(const Instruction* i, Thread& t) {
  const Function& callee = *i->details->callee;
  Frame frame;
  frame.registers = std::move(t.own_registers);
  frame.call = i;
  frame.function = t.function;
  frame.local_base = t.local_base;
  t.local_base += (t.function->local_bytes + 15) / 16 * 16;
  t.function = &callee;
  t.own_registers = callee.registers;
  t.registers = t.own_registers.data();
  for (uint32_t s = 0; s < kSpecialRegisters; ++s) t.registers[s] = frame.registers[s];
  for (size_t a = 0; a < callee.parameters.size(); ++a) {
    t.registers[callee.parameters[a].r] = frame.registers[i->details->arguments[a]];
  }
  const size_t needed = static_cast<size_t>(t.local_base + callee.local_bytes);
  if (t.local.size() < needed) t.local.resize(needed);
  t.frames.push_back(std::move(frame));
  return callee.code.data();
}

const Instruction* Return(const Instruction*, Thread& t) {
  if (t.frames.empty()) {
    t.state = ThreadState::kDone;
    return nullptr;
  }
  Frame frame = std::move(t.frames.back());
  t.frames.pop_back();
  for (size_t a = 0; a < t.function->results.size(); ++a) {
    frame.registers[frame.call->details->results[a]] = t.registers[t.function->results[a].r];
  }
  t.own_registers = std::move(frame.registers);
  t.registers = t.own_registers.data();
  t.local_base = frame.local_base;
  t.function = frame.function;
  return frame.call + 1;
}

const Instruction* Barrier(const Instruction* i, Thread& t) {
  t.state = ThreadState::kBarrier;
  t.next = i + 1;
  return nullptr;
}
// RunWarp executes the instruction when all threads of the warp have reached it.
const Instruction* WaitForWarp(const Instruction* i, Thread& t) {
  t.state = ThreadState::kWarp;
  t.next = i;
  return nullptr;
}
const Instruction* Trap(const Instruction*, Thread& t) { return t.Fail(kLaunchFailed); }

template <template <typename> typename Steps>
Step OfType(const std::string& type) {
  const std::string bits = type.substr(1);
  const bool is_signed = type[0] == 's';
  if (bits == "8") return is_signed ? Steps<int8_t>::kStep : Steps<uint8_t>::kStep;
  if (bits == "16") return is_signed ? Steps<int16_t>::kStep : Steps<uint16_t>::kStep;
  if (bits == "32") return is_signed ? Steps<int32_t>::kStep : Steps<uint32_t>::kStep;
  if (bits == "64") return Steps<uint64_t>::kStep;
  return nullptr;
}
template <typename T>
struct Loads {
  static constexpr Step kStep = Load<T>;
};
template <typename T>
struct Stores {
  static constexpr Step kStep = Store<T>;
};
template <typename T>
struct ParameterLoads {
  static constexpr Step kStep = LoadParameter<T>;
};

}  // namespace

Step FindMemory(const std::string& name, int* count) {
  const size_t last = name.rfind('.');
  const bool is_load = name.rfind("ld.", 0) == 0, is_store = name.rfind("st.", 0) == 0;
  if ((!is_load && !is_store) || last == std::string::npos || last + 1 == name.size()) return nullptr;
  const std::string type = name.substr(last + 1), rest = name.substr(0, last) + ".";
  *count = rest.find(".v2.") != std::string::npos ? 2 : rest.find(".v4.") != std::string::npos ? 4 : 1;
  if (name.rfind("ld.param.", 0) == 0) return OfType<ParameterLoads>(type);
  return is_load ? OfType<Loads>(type) : OfType<Stores>(type);
}

Step FindControl(const std::string& name, int* mode) {
  const std::string shuffle = "shfl.sync.", mma = "mma.sync.aligned.m16n8k16.row.col.f32.";
  if (name == "bra" || name == "bra.uni") return Branch;
  if (name == "brx.idx") return BranchByIndex;
  if (name == "ret" || name == "exit" || name == "ret.uni") return Return;
  if (name == "call" || name == "call.uni") return Call;
  if (name == "bar.sync" || name == "barrier.sync") return Barrier;
  if (name.rfind(shuffle, 0) == 0 && name.size() > shuffle.size()) {
    *mode = name[shuffle.size()];
    return WaitForWarp;
  }
  if (name == mma + "f16.f16.f32" || name == mma + "bf16.bf16.f32") {
    *mode = name == mma + "f16.f16.f32" ? kMmaF16 : kMmaBf16;
    return WaitForWarp;
  }
  if (name == "trap") return Trap;
  if (name == "skip.unless") return SkipUnless;
  if (name == "skip.if") return SkipIf;
  if (name == "copy" || name.rfind("cvta.", 0) == 0) return Copy;
  if (name == "local.address") return LocalAddress;
  return nullptr;
}

}  // namespace xlad::cuda_double
