// A PTX program, parsed into instructions that can be executed.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_driver_double/race_checker.h"

namespace xlad::cuda_double {

// The first addresses of shared and local memory. Addresses of global memory and of the host are lower.
inline constexpr uint64_t kSharedBase = uint64_t{1} << 60, kLocalBase = uint64_t{1} << 61;
// The driver's error codes for a kernel that fails.
inline constexpr int kIllegalAddress = 700, kMisalignedAddress = 716, kLaunchFailed = 719;
inline constexpr int kWarp = 32;  // The number of threads of a warp.

struct Function;
struct Instruction;
struct Thread;

// Executes an instruction and returns the next one, or null if the thread stops (Thread::state says why).
using Step = const Instruction* (*)(const Instruction* instruction, Thread& thread);

// Fields that only a few kinds of instructions have.
struct Details {
  std::vector<const Instruction*> targets;  // The targets of a branch by index.
  std::string callee_name;
  int line = 0;  // The line of a call.
  const Function* callee = nullptr;
  std::vector<uint32_t> arguments, results;  // For a call: registers of the caller.
  std::vector<uint32_t> operands;            // The registers of an instruction that has more than Instruction::r holds.
};

struct Instruction {
  Step step = nullptr;
  uint32_t r[6] = {};                   // Register numbers: results, then operands. Constants are in registers, too.
  int64_t offset = 0;                   // Added to an address.
  int count = 1;                        // The number of elements of a vector.
  int mode = 0;                         // The rounding of a conversion, or a WarpMode.
  const Instruction* target = nullptr;  // The target of a branch.
  Details* details = nullptr;
};

// A parameter of a kernel is in memory. A parameter of another function is in a register.
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
  int required_threads = 0;         // The value of .reqntid, or 0 if there is none.
  std::vector<Instruction> code;    // The last instruction is a return.
  std::vector<uint64_t> registers;  // The initial contents of all registers: constants, or 0.
  std::vector<std::unique_ptr<Details>> details;
};

struct Program {
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::vector<uint64_t> variables;  // The addresses of variables in global memory.
};

class GlobalMemory {
 public:
  virtual ~GlobalMemory() = default;
  // Allocates memory for a variable of a program. Returns its address, or 0 if there is no memory.
  virtual uint64_t Place(const std::vector<std::byte>& contents) = 0;
  // Returns the host memory that backs a range of GPU memory, or null if the range is not allocated. Thread-safe.
  virtual std::byte* Find(uint64_t address, uint64_t bytes) const = 0;
};

// kWarp: the next instruction needs all threads of the warp.
enum class ThreadState { kReady, kBarrier, kWarp, kDone, kFailed };

// The operation of an instruction of a warp. Shuffles have the first letter of their mode: up, down, bfly, idx.
enum WarpMode : int { kShuffleUp = 'u', kShuffleDown = 'd', kShuffleXor = 'b', kShuffleIndex = 'i', kMmaF16, kMmaBf16 };

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
  RaceChecker* races = nullptr;  // Null if accesses are not checked.
  const std::byte* parameters = nullptr;
  std::byte* shared = nullptr;
  int64_t shared_bytes = 0;
  std::vector<std::byte> local;
  int64_t local_base = 0;  // The offset in `local` of the local memory of the current function.
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

// Parses PTX and places its variables in `memory`. If the text is not in the form that LLVM writes or there is not
// enough memory, returns null and sets `error`, which names the line.
std::unique_ptr<Program> ParsePtx(const std::string& text, GlobalMemory* memory, std::string* error);

// Runs all threads of a block to their end. Returns 0, or the error of a thread or warp. `position` has the number of
// threads per block in [1], the index of the block in [2] and the number of blocks in [3]; [0] is unused. If `races` is
// not null, it records the accesses of the block; a race is the error kLaunchFailed.
int RunBlock(const Function& kernel, const GlobalMemory& memory, const std::byte* parameters,
             const uint32_t (&position)[4], RaceChecker* races);

struct Grid {
  uint32_t blocks = 1, threads = 1;  // The number of blocks, and of threads per block.
  bool checks_races = false;         // Whether races are errors. Messages about them are written to stderr.
};
// Runs all blocks of a grid. Returns 0, or the error of a block, after which no other block runs.
int RunGrid(const Function& kernel, const GlobalMemory& memory, const std::byte* parameters, const Grid& grid);

// Returns the step of an instruction by its name with all suffixes, such as "add.rn.f32", or null if it is unknown.
// Instruction::r has the results, then the operands.
Step FindArithmetic(const std::string& name);
// Like FindArithmetic, for conversions. Sets `mode` if the name has a rounding.
Step FindConversion(const std::string& name, int* mode);
// Like FindArithmetic, for loads and stores. Sets `count` to the number of elements.
Step FindMemory(const std::string& name, int* count);
// Like FindArithmetic, for branches, skips, calls, returns, traps, barriers, copies, addresses of local memory and
// instructions of a warp. Sets `mode` for an instruction of a warp.
Step FindControl(const std::string& name, int* mode);

// Executes the instructions at which all threads of a warp wait, and makes the threads ready. Returns 0, or
// kLaunchFailed if one of them is a product of matrices and not all of 32 threads wait at it.
int RunWarpInstruction(Thread* warp, int lanes);
// The number of matrix products (mma.sync) that warps of this process have computed.
int64_t MmaCount();

}  // namespace xlad::cuda_double
