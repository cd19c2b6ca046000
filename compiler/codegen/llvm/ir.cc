#include "compiler/codegen/llvm/ir.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <utility>

#include "base/containers.h"
#include "base/powers_of_two.h"

namespace xlad::compiler {
namespace {

bool IsConstant(llvm::Value* x, int64_t value) {
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(x);
  return constant != nullptr && constant->getSExtValue() == value;
}

// Loops of at most kMaxUnrolled iterations are unrolled if a nest of them has at most kMaxCopies copies of its body and
// at most kMaxInnerLoops copies of loops that stay loops. LLVM analyzes and vectorizes each of these copies by itself.
constexpr int64_t kMaxUnrolled = 4;
constexpr int64_t kMaxCopies = 64;
constexpr int64_t kMaxInnerLoops = 16;

void UnrollFully(llvm::BranchInst* back) {
  llvm::LLVMContext& context = back->getContext();
  llvm::MDNode* full = llvm::MDNode::get(context, llvm::MDString::get(context, "llvm.loop.unroll.full"));
  llvm::MDNode* loop = llvm::MDNode::getDistinct(context, {nullptr, full});
  loop->replaceOperandWith(0, loop);  // The metadata of a loop refers to itself.
  back->setMetadata(llvm::LLVMContext::MD_loop, loop);
}

}  // namespace

class Ir::Scope {
 public:
  explicit Scope(Ir* ir) : ir_(ir) { ir_->scopes_.push_back(ir_->next_scope_++); }
  ~Scope() { ir_->scopes_.pop_back(); }

 private:
  Ir* ir_;
};

Ir::Ir(llvm::Module* module, llvm::Function* function, llvm::Value* api)
    : b(module->getContext()), module_(module), function_(function), api_(api) {
  // Stack slots are placed in the entry block. Code begins in the next block.
  llvm::BasicBlock* entry = NewBlock("entry");
  llvm::BasicBlock* start = NewBlock("start");
  b.SetInsertPoint(entry);
  b.CreateBr(start);
  b.SetInsertPoint(start);
}

llvm::BasicBlock* Ir::NewBlock(const char* name) {
  return llvm::BasicBlock::Create(module_->getContext(), name, function_);
}

llvm::Value* Ir::Once(int operation, llvm::Value* x, llvm::Value* y, const std::function<llvm::Value*()>& make) {
  Made& made = made_[{operation, x, y}];
  if (made.value == nullptr || !InScope(made.scope)) made = {make(), scope()};
  return made.value;
}

llvm::Value* Ir::Add(llvm::Value* x, llvm::Value* y) {
  if (IsConstant(x, 0)) return y;
  if (IsConstant(y, 0)) return x;
  return Once(0, x, y, [&] { return b.CreateAdd(x, y, "", true, true); });
}

llvm::Value* Ir::Mul(llvm::Value* x, int64_t factor) {
  if (factor == 1) return x;
  if (factor == 0) return I64(0);
  return Once(1, x, I64(factor), [&] { return b.CreateMul(x, I64(factor), "", true, true); });
}

llvm::Value* Ir::Div(llvm::Value* x, int64_t divisor) {
  if (divisor == 1) return x;
  return Once(2, x, I64(divisor), [&] { return b.CreateUDiv(x, I64(divisor)); });
}

llvm::Value* Ir::Rem(llvm::Value* x, int64_t divisor) {
  if (divisor == 1) return I64(0);
  return Once(3, x, I64(divisor),
              [&] { return IsPowerOfTwo(divisor) ? b.CreateAnd(x, I64(divisor - 1)) : b.CreateURem(x, I64(divisor)); });
}

llvm::Value* Ir::AddSigned(llvm::Value* x, int64_t offset) {
  if (offset == 0) return x;
  return Once(4, x, I64(offset), [&] { return b.CreateAdd(x, I64(offset), "", false, true); });
}

llvm::Value* Ir::Clamp(llvm::Value* x, int64_t lo, int64_t hi) {
  if (lo >= hi) return I64(lo);
  llvm::Value* raised = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, I64(lo));
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, raised, I64(hi));
}

llvm::Value* Ir::InRange(llvm::Value* x, int64_t lo, int64_t limit) {
  if (lo >= limit) return b.getFalse();
  // One unsigned comparison is enough, because x - lo wraps to a large number if x < lo.
  return b.CreateICmpULT(lo == 0 ? x : b.CreateSub(x, I64(lo)), I64(limit - lo));
}

void Ir::Loop(int64_t count, const std::function<void(llvm::Value*)>& body) {
  if (count <= 0) return;
  if (count == 1) {
    body(I64(0));
    return;
  }
  const int64_t copies_before = std::exchange(copies_, 1), loops_before = std::exchange(loops_, 0);
  llvm::BranchInst* back = EmitLoop(I64(0), I64(count), body);
  if (count <= kMaxUnrolled && copies_ * count <= kMaxCopies && loops_ * count <= kMaxInnerLoops) {
    UnrollFully(back);
    copies_ *= count;
    loops_ *= count;
  } else {
    ++loops_;
  }
  copies_ = std::max(copies_, copies_before);
  loops_ += loops_before;
}

void Ir::RangeLoop(llvm::Value* begin, llvm::Value* end, const std::function<void(llvm::Value*)>& body) {
  const int64_t copies_before = std::exchange(copies_, 1);
  EmitLoop(begin, end, body);
  copies_ = std::max(copies_, copies_before);
  ++loops_;
}

llvm::BranchInst* Ir::EmitLoop(llvm::Value* begin, llvm::Value* end, const std::function<void(llvm::Value*)>& body) {
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* loop = NewBlock("loop");
  llvm::BasicBlock* after = NewBlock("after");
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2);
  i->addIncoming(begin, before);
  {
    Scope scope(this);
    body(i);
  }
  llvm::Value* next = b.CreateAdd(i, I64(1), "", true, true);
  i->addIncoming(next, b.GetInsertBlock());
  llvm::BranchInst* back = b.CreateCondBr(b.CreateICmpEQ(next, end), after, loop);
  after->moveAfter(b.GetInsertBlock());
  b.SetInsertPoint(after);
  return back;
}

void Ir::DynamicLoop(llvm::Value* count, const std::function<void(llvm::Value*)>& body) {
  llvm::Value* slot = Slot(b.getInt64Ty());
  b.CreateStore(I64(0), slot);
  While([&] { return b.CreateICmpSLT(b.CreateLoad(b.getInt64Ty(), slot), count); },
        [&] {
          llvm::Value* i = b.CreateLoad(b.getInt64Ty(), slot);
          body(i);
          b.CreateStore(b.CreateAdd(i, I64(1), "", true, true), slot);
        });
}

void Ir::LoopNest(const std::vector<int64_t>& dims, const std::function<void(const std::vector<llvm::Value*>&)>& body) {
  if (Contains(dims, 0)) return;
  std::vector<llvm::Value*> index;
  const std::function<void()> nest = [&] {
    if (index.size() == dims.size()) {
      // The body may keep references to its index, so it receives a copy that later iterations do not change.
      const std::vector<llvm::Value*> here = index;
      body(here);
      return;
    }
    Loop(dims[index.size()], [&](llvm::Value* i) {
      index.push_back(i);
      nest();
      index.pop_back();
    });
  };
  nest();
}

void Ir::If(llvm::Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise) {
  llvm::BasicBlock* yes = NewBlock("then");
  llvm::BasicBlock* no = otherwise ? NewBlock("else") : nullptr;
  llvm::BasicBlock* after = NewBlock("after");
  b.CreateCondBr(condition, yes, no != nullptr ? no : after);
  b.SetInsertPoint(yes);
  {
    Scope scope(this);
    then();
  }
  b.CreateBr(after);
  if (no != nullptr) {
    b.SetInsertPoint(no);
    Scope scope(this);
    otherwise();
    b.CreateBr(after);
  }
  after->moveAfter(b.GetInsertBlock());
  b.SetInsertPoint(after);
}

void Ir::While(const std::function<llvm::Value*()>& condition, const std::function<void()>& body) {
  llvm::BasicBlock* head = NewBlock("while");
  llvm::BasicBlock* inside = NewBlock("body");
  llvm::BasicBlock* after = NewBlock("after");
  b.CreateBr(head);
  b.SetInsertPoint(head);
  {
    Scope scope(this);
    b.CreateCondBr(condition(), inside, after);
    b.SetInsertPoint(inside);
    body();
  }
  b.CreateBr(head);
  after->moveAfter(b.GetInsertBlock());
  b.SetInsertPoint(after);
  ++loops_;
}

llvm::Value* Ir::Slot(llvm::Type* type, int64_t count) {
  llvm::BasicBlock& entry = function_->getEntryBlock();
  IrBuilder at(entry.getTerminator());
  llvm::AllocaInst* slot = count == 1 ? at.CreateAlloca(type) : at.CreateAlloca(llvm::ArrayType::get(type, count));
  if (count > 1) slot->setAlignment(llvm::Align(64));
  return slot;
}

bool Ir::InScope(int id) const { return Contains(scopes_, id); }

llvm::Value* Ir::CallLibm(const char* name, llvm::ArrayRef<llvm::Value*> arguments) {
  std::vector<llvm::Type*> types;
  for (llvm::Value* argument : arguments) types.push_back(argument->getType());
  llvm::FunctionType* type = llvm::FunctionType::get(types[0], types, false);
  llvm::FunctionCallee callee = module_->getOrInsertFunction(name, type);
  llvm::CallInst* call = b.CreateCall(callee, arguments);
  call->setDoesNotAccessMemory();
  call->setDoesNotThrow();
  call->addFnAttr(llvm::Attribute::WillReturn);
  return call;
}

}  // namespace xlad::compiler
