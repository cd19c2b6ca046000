// PTX, parsed into instructions that can be executed.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace xlad::cuda_double {

// Addresses of shared and local memory. The memory of the GPU and of the host are elsewhere.
inline constexpr uint64_t kSharedBase = uint64_t{1} << 60, kLocalBase = uint64_t{1} << 61;
// What the driver reports for a kernel that fails.
inline constexpr int kIllegalAddress = 700, kMisalignedAddress = 716;

struct Function;
struct Instruction;
struct Thread;

// Executes an instruction and returns the next one, or null if the thread stops (Thread::state says why).
using Step = const Instruction* (*)(const Instruction* instruction, Thread& thread);

// What few instructions have.
struct Details {
  std::vector<const Instruction*> targets;  // The places to which a branch by index goes.
  std::string callee_name;
  const Function* callee = nullptr;
  std::vector<uint32_t> arguments, results;  // The registers of the caller, for a call.
};

struct Instruction {
  Step step = nullptr;
  uint32_t r[6] = {};                   // Registers: results, then operands. Constants are registers, too.
  int64_t offset = 0;                   // Added to an address.
  int count = 1;                        // The elements of a vector.
  int mode = 0;                         // The rounding of a conversion, or the first letter of the mode of a shuffle.
  const Instruction* target = nullptr;  // The place to which a branch goes.
  Details* details = nullptr;
};

// A parameter of a kernel is memory, one of another function a register.
struct Parameter {
  int64_t offset = 0, bytes = 0;
  uint32_t r = 0;
};

// The first registers of every function.
enum SpecialRegister : uint32_t { kTid, kNtid, kCtaid, kNctaid, kLane, kSpecialRegisters };

struct Function {
  std::string name;
  bool is_kernel = false;
  std::vector<Parameter> parameters, results;
  int64_t parameter_bytes = 0, local_bytes = 0, shared_bytes = 0;
  int required_threads = 0;         // .reqntid, or 0.
  std::vector<Instruction> code;    // Ends with a return.
  std::vector<uint64_t> registers;  // Their initial contents: constants, and 0.
  std::vector<std::unique_ptr<Details>> details;
};

struct Program {
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::vector<uint64_t> variables;  // The addresses of those in global memory.
};

class GlobalMemory {
 public:
  virtual ~GlobalMemory() = default;
  // Allocates memory for a variable of a program. Returns its address, or 0 if there is no memory.
  virtual uint64_t Place(const std::vector<std::byte>& contents) = 0;
  // The memory of the host behind an address of the GPU, or null if it is not allocated. Thread-safe.
  virtual std::byte* Find(uint64_t address, uint64_t bytes) const = 0;
};

enum class ThreadState { kReady, kBarrier, kShuffle, kDone, kFailed };

struct Frame {
  std::vector<uint64_t> registers;
  const Instruction* call = nullptr;
  const Function* function = nullptr;
  int64_t local_base = 0;
};

// One thread of a block.
struct Thread {
  uint64_t* registers = nullptr;
  const Instruction* next = nullptr;
  ThreadState state = ThreadState::kReady;
  int error = 0;
  bool carry = false;
  const GlobalMemory* memory = nullptr;
  const std::byte* parameters = nullptr;
  std::byte* shared = nullptr;
  int64_t shared_bytes = 0;
  std::vector<std::byte> local;
  int64_t local_base = 0;  // Where the local memory of the function that runs begins.
  std::vector<uint64_t> own_registers;
  std::vector<Frame> frames;  // The callers, outermost first.
  const Function* function = nullptr;

  template <typename T>
  T Get(uint32_t r) const {
    T value;
    std::memcpy(&value, &registers[r], sizeof(T));
    return value;
  }
  template <typename T>
  void Set(uint32_t r, T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    registers[r] = bits;
  }
  const Instruction* Fail(int code) {
    state = ThreadState::kFailed;
    error = code;
    return nullptr;
  }
};

// Returns null and sets `error`, with the line, if the text has another form than what LLVM writes.
std::unique_ptr<Program> ParsePtx(const std::string& text, GlobalMemory* memory, std::string* error);

// Runs all threads of a block, each until it waits or ends. Returns 0, or the error of a thread.
// `position`: unused, the threads of the block, the number of the block, the number of blocks.
int RunBlock(const Function& kernel, const GlobalMemory& memory, const std::byte* parameters,
             const uint32_t (&position)[4]);

// Steps by the name of the instruction with all its suffixes, as in "add.rn.f32". The operands of each are listed after
// its results. Null if it is unknown.
Step FindArithmetic(const std::string& name);
Step FindConversion(const std::string& name, int* mode);
Step FindMemory(const std::string& name, int* count);
// Steps of control.
Step FindControl(const std::string& name);

}  // namespace xlad::cuda_double
