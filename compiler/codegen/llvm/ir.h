// One LLVM function under construction: index arithmetic, structured loops and branches.
//
// Control flow is structured, so a value made in a scope (loop body, branch) is usable until that scope closes;
// InScope tells memo tables whether a value made in scope `id` may still be used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "compiler/codegen/llvm/llvm_builder.h"

namespace xlad::compiler {

class Ir {
 public:
  // Builds into `function`, which has no body yet. `api` is its XladKernelApi argument.
  Ir(llvm::Module* module, llvm::Function* function, llvm::Value* api);
  Ir(const Ir&) = delete;
  Ir& operator=(const Ir&) = delete;

  IrBuilder b;
  llvm::Module& module() const { return *module_; }
  llvm::LLVMContext& context() const { return b.getContext(); }
  llvm::Function* function() const { return function_; }
  llvm::Value* api() const { return api_; }

  // Index arithmetic on i64, folded; operands are never negative and nothing overflows, except in AddSigned/Clamp.
  llvm::Value* I64(int64_t value) { return b.getInt64(static_cast<uint64_t>(value)); }
  llvm::Value* Add(llvm::Value* x, llvm::Value* y);
  llvm::Value* Mul(llvm::Value* x, int64_t factor);
  llvm::Value* Div(llvm::Value* x, int64_t divisor);
  llvm::Value* Rem(llvm::Value* x, int64_t divisor);
  llvm::Value* AddSigned(llvm::Value* x, int64_t offset);
  llvm::Value* Clamp(llvm::Value* x, int64_t lo, int64_t hi);       // Signed.
  llvm::Value* InRange(llvm::Value* x, int64_t lo, int64_t limit);  // lo <= x < limit, signed; i1.

  // Runs `body` for i = 0 .. count-1; nothing for 0, no loop for 1. Short loops of little code become straight code.
  void Loop(int64_t count, const std::function<void(llvm::Value*)>& body);
  // The same with a bound that is computed; may be 0.
  void DynamicLoop(llvm::Value* count, const std::function<void(llvm::Value*)>& body);
  // The code made here is as long as so many copies of a usual loop's body: loops around it count with them.
  void CountCopies(int64_t copies) { copies_ = std::max(copies_, copies); }
  // All indices of `dims`, row-major.
  void LoopNest(const std::vector<int64_t>& dims, const std::function<void(const std::vector<llvm::Value*>&)>& body);
  void If(llvm::Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise = {});
  // Runs `body` for as long as `condition` gives true.
  void While(const std::function<llvm::Value*()>& condition, const std::function<void()>& body);

  // A variable on the stack; mem2reg makes registers of them. `count` elements of `type`, 64-byte aligned if many.
  llvm::Value* Slot(llvm::Type* type, int64_t count = 1);
  llvm::Value* Address(llvm::Type* type, llvm::Value* base, llvm::Value* index) {
    return b.CreateInBoundsGEP(type, base, index);
  }

  int scope() const { return scopes_.back(); }
  bool InScope(int id) const;

  // A function of the math library that the loader provides, side-effect free.
  llvm::Value* CallLibm(const char* name, llvm::ArrayRef<llvm::Value*> arguments);

 private:
  class Scope;
  llvm::BasicBlock* NewBlock(const char* name);
  // The value of an arithmetic operation on indices, made once per scope.
  llvm::Value* Once(int operation, llvm::Value* x, llvm::Value* y, const std::function<llvm::Value*()>& make);

  llvm::Module* module_;
  llvm::Function* function_;
  llvm::Value* api_;
  std::vector<int> scopes_ = {0};
  int next_scope_ = 1;
  int64_t copies_ = 1;  // Of the code inside, that the loops made so far at this depth will be unrolled to.
  struct Made {
    llvm::Value* value;
    int scope;
  };
  std::map<std::tuple<int, llvm::Value*, llvm::Value*>, Made> made_;
};

}  // namespace xlad::compiler
