// One LLVM function under construction: index arithmetic, structured loops and branches.
//
// Control flow is structured: a value made in a scope (a loop body, a branch) may be used until that scope is closed.
// InScope(id) returns whether a value made in scope `id` may still be used. Code that memoizes values calls it before
// it reuses a value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "compiler/codegen/llvm/llvm_builder.h"

namespace xlad::compiler {

// The class has more than 25 methods, because every form of index arithmetic and of control flow has its own.
class Ir {
 public:
  // Emits code into `function`, which must not have a body yet. `api` is its XladKernelApi argument.
  Ir(llvm::Module* module, llvm::Function* function, llvm::Value* api);
  Ir(const Ir&) = delete;
  Ir& operator=(const Ir&) = delete;

  IrBuilder b;
  llvm::Module& module() const { return *module_; }
  llvm::LLVMContext& context() const { return b.getContext(); }
  llvm::Function* function() const { return function_; }
  llvm::Value* api() const { return api_; }

  // Index arithmetic on i64, folded if operands are constant. Operands must not be negative and results must not
  // overflow, except in AddSigned, Clamp and InRange.
  llvm::Value* I64(int64_t value) { return b.getInt64(value); }
  llvm::Value* Add(llvm::Value* x, llvm::Value* y);
  llvm::Value* Mul(llvm::Value* x, int64_t factor);
  llvm::Value* Div(llvm::Value* x, int64_t divisor);
  llvm::Value* Rem(llvm::Value* x, int64_t divisor);
  llvm::Value* AddSigned(llvm::Value* x, int64_t offset);
  llvm::Value* Clamp(llvm::Value* x, int64_t lo, int64_t hi);       // A signed comparison.
  llvm::Value* InRange(llvm::Value* x, int64_t lo, int64_t limit);  // Whether lo <= x < limit, signed, as an i1.

  // Emits a loop that runs `body` for i = 0 .. count-1. If count is 0, nothing is emitted; if it is 1, only the body
  // is. Short loops with little code and few other loops inside are unrolled.
  void Loop(int64_t count, const std::function<void(llvm::Value*)>& body);
  // Emits a loop that runs `body` for i = begin .. end-1. The range must not be empty.
  void RangeLoop(llvm::Value* begin, llvm::Value* end, const std::function<void(llvm::Value*)>& body);
  // Like Loop, but the bound is computed at run time and may be 0.
  void DynamicLoop(llvm::Value* count, const std::function<void(llvm::Value*)>& body);
  // Records that the code emitted at this point is as long as `copies` ordinary loop bodies. Enclosing loops use this
  // number when they decide whether to unroll.
  void CountCopies(int64_t copies) { copies_ = std::max(copies_, copies); }
  // Emits `body` for all indices of `dims`, in row-major order.
  void LoopNest(const std::vector<int64_t>& dims, const std::function<void(const std::vector<llvm::Value*>&)>& body);
  void If(llvm::Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise = {});
  // Emits a loop that runs `body` while `condition` returns true.
  void While(const std::function<llvm::Value*()>& condition, const std::function<void()>& body);

  // A stack variable of `count` elements of `type`, 64-byte aligned if `count` > 1. mem2reg promotes single elements.
  llvm::Value* Slot(llvm::Type* type, int64_t count = 1);
  llvm::Value* Address(llvm::Type* type, llvm::Value* base, llvm::Value* index) {
    return b.CreateInBoundsGEP(type, base, index);
  }

  int scope() const { return scopes_.back(); }
  bool InScope(int id) const;

  // Calls a function of the C math library that has no side effects and that the loader provides.
  llvm::Value* CallLibm(const char* name, llvm::ArrayRef<llvm::Value*> arguments);

 private:
  class Scope;
  llvm::BasicBlock* NewBlock(const char* name);
  // Emits a loop from begin to end-1 and returns its backward branch.
  llvm::BranchInst* EmitLoop(llvm::Value* begin, llvm::Value* end, const std::function<void(llvm::Value*)>& body);
  // The value of an arithmetic operation on indices, emitted once per scope (value numbering).
  llvm::Value* Once(int operation, llvm::Value* x, llvm::Value* y, const std::function<llvm::Value*()>& make);

  llvm::Module* module_;
  llvm::Function* function_;
  llvm::Value* api_;
  std::vector<int> scopes_ = {0};
  int next_scope_ = 1;
  int64_t copies_ = 1;  // The number of copies of a loop body that unrolling produces at this depth.
  int64_t loops_ = 0;   // The number of loops so far in the body of the current loop, at any depth, that stay loops.
  struct Made {
    llvm::Value* value;
    int scope;
  };
  std::map<std::tuple<int, llvm::Value*, llvm::Value*>, Made> made_;
};

}  // namespace xlad::compiler
