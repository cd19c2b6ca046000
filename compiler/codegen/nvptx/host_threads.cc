#include "compiler/codegen/nvptx/host_threads.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/kernel_abi.h"
#include "compiler/codegen/llvm/llvm_builder.h"
#include "compiler/codegen/nvptx/thread_kernel.h"

namespace xlad::compiler {
namespace {

using Values = std::vector<llvm::Value*>;

// Kinds of accesses, as in runtime/devices/gpu_sim/access_checker.cc.
constexpr uint32_t kStore = 1, kShared = 2;
// These bytes follow shared memory, so that a damaged kernel does not write beyond it.
constexpr uint64_t kGuardBytes = 64;

llvm::Intrinsic::ID IntrinsicOf(const llvm::Instruction& instruction) {
  const auto* const call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
  return call == nullptr ? llvm::Intrinsic::not_intrinsic : call->getIntrinsicID();
}

absl::Status Unexpected(const llvm::Function& kernel, const std::string& what) {
  return absl::InternalError(absl::StrCat("GPU kernel ", kernel.getName().str(), ": found ", what,
                                          ", expected calls of its parts and barriers between them"));
}

// The number of the argument `shared` of a part. The arguments are buffers, scratch, api, tile, shared and, in code for
// a CPU, the thread.
unsigned SharedArgument(const llvm::Function& part) {
  const unsigned last = static_cast<unsigned>(part.arg_size()) - 1;
  return part.getArg(last)->getType()->isPointerTy() ? last : last - 1;
}

// The memory of global and shared memory that an instruction accesses, or null: constants and memory of a thread do
// not count, nor does what the runtime passes beside buffers.
llvm::Value* AccessedBy(llvm::Instruction& instruction) {
  llvm::Value* address = llvm::getLoadStorePointerOperand(&instruction);
  if (address == nullptr) return nullptr;
  const auto* const base = llvm::dyn_cast<llvm::Argument>(llvm::getUnderlyingObject(address, /*MaxLookup=*/0));
  if (base == nullptr || !base->getParent()->getName().contains(kPartSuffix)) return nullptr;
  const bool is_api = base->getArgNo() + 2 == SharedArgument(*base->getParent());
  return is_api ? nullptr : address;
}

// Moves stores and reports accesses of a part whose last argument is the thread.
class PartEditor {
 public:
  PartEditor(llvm::Function* part, const HostOptions& options, Damageable* seen)
      : part_(*part),
        options_(options),
        seen_(*seen),
        thread_(part->getArg(static_cast<unsigned>(part->arg_size()) - 1)) {}

  void Run() {
    std::vector<llvm::Instruction*> accesses;
    for (llvm::BasicBlock& block : part_) {
      for (llvm::Instruction& i : block) {
        if (AccessedBy(i) != nullptr) accesses.push_back(&i);
      }
    }
    for (llvm::Instruction* access : accesses) {
      if (auto* const store = llvm::dyn_cast<llvm::StoreInst>(access)) {
        if (seen_.stores++ == options_.store_to_move) Move(store);
      }
      if (options_.check) Report(*access);
    }
  }

 private:
  void Move(llvm::StoreInst* store) {
    IrBuilder b(store);
    llvm::Type* type = store->getValueOperand()->getType();
    store->setOperand(1, b.CreateConstGEP1_64(type, store->getPointerOperand(), 1));
  }

  void Report(llvm::Instruction& access) {
    IrBuilder b(&access);
    const llvm::DataLayout& layout = part_.getParent()->getDataLayout();
    const uint64_t bytes = layout.getTypeStoreSize(llvm::getLoadStoreType(&access)).getFixedValue();
    llvm::Value* address = AccessedBy(access);
    const auto* const base = llvm::cast<llvm::Argument>(llvm::getUnderlyingObject(address, /*MaxLookup=*/0));
    const uint32_t kind = (llvm::isa<llvm::StoreInst>(access) ? kStore : 0) |
                          (base->getArgNo() == SharedArgument(part_) ? kShared : 0);
    llvm::FunctionCallee report = part_.getParent()->getOrInsertFunction(
        "xlad_gpu_access", b.getVoidTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt32Ty(), b.getInt64Ty());
    b.CreateCall(report, {address, b.getInt64(bytes), b.getInt32(kind), thread_});
  }

  llvm::Function& part_;
  const HostOptions& options_;
  Damageable& seen_;
  llvm::Argument* thread_;
};

// Returns the part with one more argument, the thread, which is read instead of the register. `part` is emptied.
llvm::Function* WithThreadArgument(llvm::Function* part) {
  std::vector<llvm::Type*> types = part->getFunctionType()->params().vec();
  llvm::LLVMContext& context = part->getContext();
  types.push_back(llvm::Type::getInt64Ty(context));
  auto* const type = llvm::FunctionType::get(part->getReturnType(), types, false);
  llvm::Function* result = llvm::Function::Create(type, part->getLinkage(), "", part->getParent());
  result->takeName(part);
  result->setAttributes(part->getAttributes());
  result->splice(result->begin(), part);
  for (unsigned i = 0; i < part->arg_size(); ++i) part->getArg(i)->replaceAllUsesWith(result->getArg(i));
  llvm::Argument* thread = result->getArg(static_cast<unsigned>(types.size()) - 1);
  Values registers;
  for (llvm::BasicBlock& block : *result) {
    for (llvm::Instruction& i : block) {
      if (IntrinsicOf(i) == llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x) registers.push_back(&i);
    }
  }
  for (llvm::Value* value : registers) {
    auto* const read = llvm::cast<llvm::Instruction>(value);
    IrBuilder b(read);
    read->replaceAllUsesWith(b.CreateTrunc(thread, read->getType()));
    read->eraseFromParent();
  }
  return result;
}

// Emits a loop from 0 to count-1 at the builder's place.
void EmitLoop(IrBuilder& b, int64_t count, const std::function<void(llvm::Value*)>& body) {
  llvm::Function* function = b.GetInsertBlock()->getParent();
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(b.getContext(), "thread", function);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b.getContext(), "barrier", function);
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2);
  i->addIncoming(b.getInt64(0), before);
  body(i);
  llvm::Value* next = b.CreateAdd(i, b.getInt64(1), "", true, true);
  i->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpEQ(next, b.getInt64(static_cast<uint64_t>(count))), after, loop);
  b.SetInsertPoint(after);
}

class HostKernel {
 public:
  HostKernel(llvm::Function* kernel, const HostOptions& options, Damageable* seen)
      : kernel_(*kernel), options_(options), seen_(*seen), b_(kernel->getContext()) {
    kernel->getFnAttribute(kThreadsAttribute).getValueAsString().getAsInteger(10, threads_);
  }

  absl::Status Emit() {
    const std::string name = kernel_.getName().str();
    kernel_.setName(name + ".device");
    llvm::Type* pointer = b_.getPtrTy();
    llvm::FunctionType* type =
        llvm::FunctionType::get(b_.getInt32Ty(), {pointer, pointer, pointer, b_.getInt64Ty(), b_.getInt64Ty()}, false);
    entry_ = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, name, kernel_.getParent());
    entry_->addFnAttr(llvm::Attribute::NoUnwind);
    llvm::BasicBlock* start = llvm::BasicBlock::Create(b_.getContext(), "entry", entry_);
    llvm::BasicBlock* loop = llvm::BasicBlock::Create(b_.getContext(), "block", entry_);
    b_.SetInsertPoint(start);
    LoadArguments();
    b_.CreateBr(loop);
    b_.SetInsertPoint(loop);
    llvm::PHINode* tile = b_.CreatePHI(b_.getInt64Ty(), 2, "tile");
    tile->addIncoming(entry_->getArg(3), start);
    XLAD_RETURN_IF_ERROR(EmitBlock(tile));
    llvm::Value* next = b_.CreateAdd(tile, b_.getInt64(1), "", true, true);
    tile->addIncoming(next, b_.GetInsertBlock());
    llvm::BasicBlock* done = llvm::BasicBlock::Create(b_.getContext(), "done", entry_);
    b_.CreateCondBr(b_.CreateICmpSLT(next, entry_->getArg(4)), loop, done);
    b_.SetInsertPoint(done);
    b_.CreateRet(b_.getInt32(XLAD_KERNEL_OK));
    kernel_.eraseFromParent();
    for (llvm::Function* part : emptied_) part->eraseFromParent();
    return absl::OkStatus();
  }

 private:
  void LoadArguments() {
    const unsigned pointers = static_cast<unsigned>(kernel_.arg_size()) - 2;  // The last are scratch and api.
    for (unsigned i = 0; i < pointers; ++i) {
      values_[kernel_.getArg(i)] =
          b_.CreateLoad(b_.getPtrTy(), b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), entry_->getArg(0), i));
    }
    values_[kernel_.getArg(pointers)] = entry_->getArg(1);
    values_[kernel_.getArg(pointers + 1)] = entry_->getArg(2);
  }

  absl::Status EmitBlock(llvm::Value* tile) {
    for (llvm::Instruction& i : kernel_.getEntryBlock()) {
      switch (IntrinsicOf(i)) {
        case llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x:
          values_[&i] = b_.CreateTrunc(tile, i.getType());
          continue;
        case llvm::Intrinsic::nvvm_barrier0:
          if (seen_.barriers++ != options_.barrier_to_remove) ++part_;
          continue;
        case llvm::Intrinsic::not_intrinsic:
          break;
        default:
          return Unexpected(kernel_, "another intrinsic");
      }
      if (llvm::isa<llvm::ReturnInst>(i)) return absl::OkStatus();
      if (auto* const call = llvm::dyn_cast<llvm::CallInst>(&i)) {
        XLAD_RETURN_IF_ERROR(EmitPart(call, tile));
      } else {
        llvm::Instruction* copy = b_.Insert(i.clone());
        for (llvm::Use& operand : copy->operands()) operand.set(ValueOf(operand.get()));
        values_[&i] = copy;
      }
    }
    return Unexpected(kernel_, "control flow");
  }

  absl::Status EmitPart(llvm::CallInst* call, llvm::Value* tile) {
    llvm::Function* called = call->getCalledFunction();
    if (called == nullptr || called->isDeclaration()) return Unexpected(kernel_, "a call of another function");
    Values arguments;
    for (llvm::Value* argument : call->args()) arguments.push_back(ValueOf(argument));
    llvm::Function* part = WithThreadArgument(called);
    emptied_.push_back(called);
    PartEditor(part, options_, &seen_).Run();
    if (options_.check) {
      llvm::FunctionCallee report = kernel_.getParent()->getOrInsertFunction(
          "xlad_gpu_part", b_.getVoidTy(), b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty());
      b_.CreateCall(report, {b_.CreateGlobalString(entry_->getName()), tile, b_.getInt64(part_)});
    }
    EmitLoop(b_, threads_, [&](llvm::Value* thread) {
      Values all = arguments;
      all.push_back(thread);
      b_.CreateCall(part, all);
    });
    return absl::OkStatus();
  }

  llvm::Value* ValueOf(llvm::Value* value) {
    const auto found = values_.find(value);
    if (found != values_.end()) return found->second;
    const auto* const cast = llvm::dyn_cast<llvm::ConstantExpr>(value);
    if (cast == nullptr || cast->getOpcode() != llvm::Instruction::AddrSpaceCast) return value;
    auto* const memory = llvm::cast<llvm::GlobalVariable>(cast->getOperand(0));
    IrBuilder start(entry_->getEntryBlock().getTerminator());
    const uint64_t bytes = memory->getValueType()->getArrayNumElements();
    llvm::AllocaInst* on_stack = start.CreateAlloca(llvm::ArrayType::get(start.getInt8Ty(), bytes + kGuardBytes));
    on_stack->setAlignment(llvm::Align(XLAD_BUFFER_ALIGNMENT));
    return values_[value] = on_stack;
  }

  llvm::Function& kernel_;
  const HostOptions& options_;
  Damageable& seen_;
  uint64_t part_ = 0;  // The number of barriers before the place that is emitted.
  std::vector<llvm::Function*> emptied_;
  IrBuilder b_;
  llvm::Function* entry_ = nullptr;
  int64_t threads_ = 1;
  std::map<llvm::Value*, llvm::Value*> values_;  // What kernel values are in `entry_`.
};

}  // namespace

absl::Status ReplaceThreadsByLoops(llvm::Module& module, const HostOptions& options) {
  std::vector<llvm::Function*> kernels;
  for (llvm::Function& function : module) {
    if (function.hasFnAttribute(kThreadsAttribute)) kernels.push_back(&function);
  }
  Damageable seen;
  if (llvm::NamedMDNode* annotations = module.getNamedMetadata("nvvm.annotations")) annotations->eraseFromParent();
  for (llvm::Function* kernel : kernels) XLAD_RETURN_IF_ERROR(HostKernel(kernel, options, &seen).Emit());
  if (options.count != nullptr) *options.count = seen;
  for (llvm::GlobalVariable& memory : llvm::make_early_inc_range(module.globals())) {
    if (memory.getAddressSpace() == 0) continue;
    memory.removeDeadConstantUsers();
    if (!memory.use_empty()) return absl::InternalError("GPU module: shared memory is used outside of a kernel");
    memory.eraseFromParent();
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
