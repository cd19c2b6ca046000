#include "compiler/codegen/nvptx/host_threads.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/kernel_abi.h"
#include "compiler/codegen/llvm/llvm_builder.h"
#include "compiler/codegen/nvptx/thread_kernel.h"

namespace xlad::compiler {
namespace {

using Values = std::vector<llvm::Value*>;

// The roles of buffers, as in runtime/devices/gpu_sim/access_checker.h.
enum Role : uint32_t { kOperand, kResult, kScratch, kShared };

llvm::Intrinsic::ID IntrinsicOf(const llvm::Instruction& instruction) {
  const auto* const call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
  return call == nullptr ? llvm::Intrinsic::not_intrinsic : call->getIntrinsicID();
}

absl::Status Unexpected(const llvm::Function& kernel, const std::string& what) {
  return absl::InternalError(absl::StrCat("GPU kernel ", kernel.getName().str(), ": found ", what,
                                          ", expected calls to its parts and barriers between them"));
}

// The number of the argument `shared` of a part. The arguments are buffers, scratch, api, tile, shared and, in code for
// a CPU, the thread.
unsigned SharedArgument(const llvm::Function& part) {
  const unsigned last = static_cast<unsigned>(part.arg_size()) - 1;
  return part.getArg(last)->getType()->isPointerTy() ? last : last - 1;
}

// An access to global or shared memory by an instruction. Accesses to constants, to a thread's own memory and to the
// api argument are not counted.
struct Access {
  llvm::Instruction* instruction;
  unsigned operand;    // The operand that is the address.
  llvm::Value* bytes;  // An i64.
  bool is_store;
  // The number of the argument into which the address points, or -1 if the address was loaded from memory.
  int64_t buffer;

  llvm::Value* address() const { return instruction->getOperand(operand); }
};

// The number of the argument into which an address points, or -1 if it is not known. Nullopt if accesses to this
// address are not counted.
std::optional<int64_t> BufferOf(llvm::Value* address, const llvm::Function& part) {
  const llvm::Value* base = llvm::getUnderlyingObject(address, /*MaxLookup=*/0);
  if (llvm::isa<llvm::AllocaInst>(base) || llvm::isa<llvm::GlobalValue>(base)) return std::nullopt;
  const auto* const argument = llvm::dyn_cast<llvm::Argument>(base);
  if (argument == nullptr) return -1;
  const bool is_api = argument->getArgNo() + 2 == SharedArgument(part);
  return is_api ? std::nullopt : std::optional<int64_t>(argument->getArgNo());
}

// Appends the accesses of an instruction.
void AppendAccesses(llvm::Instruction& i, std::vector<Access>* accesses) {
  const llvm::Function& part = *i.getFunction();
  llvm::Type* i64 = llvm::Type::getInt64Ty(i.getContext());
  const auto add = [&](unsigned operand, llvm::Value* bytes, bool is_store) {
    const std::optional<int64_t> buffer = BufferOf(i.getOperand(operand), part);
    if (buffer.has_value()) accesses->push_back({&i, operand, bytes, is_store, *buffer});
  };
  if (llvm::isa<llvm::LoadInst>(i) || llvm::isa<llvm::StoreInst>(i)) {
    const bool is_store = llvm::isa<llvm::StoreInst>(i);
    const llvm::DataLayout& layout = part.getParent()->getDataLayout();
    const uint64_t size = layout.getTypeStoreSize(llvm::getLoadStoreType(&i)).getFixedValue();
    add(is_store ? llvm::StoreInst::getPointerOperandIndex() : llvm::LoadInst::getPointerOperandIndex(),
        llvm::ConstantInt::get(i64, size), is_store);
  } else if (auto* const memory = llvm::dyn_cast<llvm::MemIntrinsic>(&i)) {
    add(0, memory->getLength(), true);
    if (llvm::isa<llvm::MemTransferInst>(i)) add(1, memory->getLength(), false);
  }
}

// Applies the options to a part: damages the access that `mutation` selects and, if `check` is true, makes the part
// report its accesses. The last argument of the part must be the thread.
class PartEditor {
 public:
  PartEditor(llvm::Function* part, const HostOptions& options, Places* seen)
      : part_(*part),
        options_(options),
        seen_(*seen),
        thread_(part->getArg(static_cast<unsigned>(part->arg_size()) - 1)) {}

  void Run() {
    std::vector<Access> accesses;
    for (llvm::BasicBlock& block : part_) {
      for (llvm::Instruction& i : block) AppendAccesses(i, &accesses);
    }
    for (const Access& access : accesses) {
      Damage(access);
      if (options_.check) Report(access);
    }
    for (llvm::Argument& argument : part_.args()) {
      // The reporting functions return the addresses that they receive, so the arguments are captured.
      if (options_.check) argument.removeAttr(llvm::Attribute::NoCapture);
      if (options_.check) argument.removeAttr(llvm::Attribute::NoAlias);
    }
  }

 private:
  void Damage(const Access& access) {
    const Mutation& mutation = options_.mutation;
    IrBuilder b(access.instruction);
    if (seen_.accesses++ == mutation.number && mutation.kind == Mutation::Kind::kNextElement) {
      const bool moves_bytes = llvm::isa<llvm::MemIntrinsic>(access.instruction);
      llvm::Type* type = moves_bytes ? b.getInt8Ty() : llvm::getLoadStoreType(access.instruction);
      access.instruction->setOperand(access.operand, b.CreateConstGEP1_64(type, access.address(), 1));
    }
    if (!DependsOnThread(access.address())) return;
    if (seen_.lane_accesses++ == mutation.number && mutation.kind == Mutation::Kind::kNextLane) {
      access.instruction->setOperand(access.operand, InNextLane(b, access.address()));
    }
  }

  // Whether a value depends on the thread through arithmetic, without loads or branches.
  bool DependsOnThread(llvm::Value* value) {
    if (value == thread_) return true;
    const auto known = depends_.find(value);
    if (known != depends_.end()) return known->second;
    const auto* const i = llvm::dyn_cast<llvm::Instruction>(value);
    bool depends = false;
    if (i != nullptr && !llvm::isa<llvm::PHINode>(i) && !llvm::isa<llvm::AllocaInst>(i) && !i->mayReadFromMemory()) {
      for (const llvm::Use& operand : i->operands()) depends = depends || DependsOnThread(operand.get());
    }
    return depends_[value] = depends;
  }
  // Emits the value that `value` has in the next thread.
  llvm::Value* InNextLane(IrBuilder& b, llvm::Value* value) {
    if (value == thread_) return b.CreateAdd(thread_, b.getInt64(1));
    if (!DependsOnThread(value)) return value;
    llvm::Instruction* const copy = llvm::cast<llvm::Instruction>(value)->clone();
    for (llvm::Use& operand : copy->operands()) operand.set(InNextLane(b, operand.get()));
    return b.Insert(copy);
  }

  void Report(const Access& access) {
    IrBuilder b(access.instruction);
    llvm::FunctionCallee report = part_.getParent()->getOrInsertFunction(
        "xlad_gpu_access", b.getPtrTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt32Ty(), b.getInt32Ty(), b.getInt64Ty());
    access.instruction->setOperand(
        access.operand, b.CreateCall(report, {access.address(), access.bytes, b.getInt32(access.is_store ? 1 : 0),
                                              b.getInt32(static_cast<uint32_t>(access.buffer)), thread_}));
  }

  llvm::Function& part_;
  const HostOptions& options_;
  Places& seen_;
  llvm::Argument* thread_;
  std::map<llvm::Value*, bool> depends_;
};

// Moves the code of a part to a new function, which has the thread as an additional argument and reads it instead of
// the register. Returns the new function. `part` has no code afterwards.
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

// Emits a loop from 0 to count-1 at the builder's insertion point.
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
  b.CreateCondBr(b.CreateICmpEQ(next, b.getInt64(count)), after, loop);
  b.SetInsertPoint(after);
}

class HostKernel {
 public:
  HostKernel(llvm::Function* kernel, const HostOptions& options, Places* seen)
      : kernel_(*kernel), options_(options), seen_(*seen), b_(kernel->getContext()) {
    threads_ = NumberOf(kThreadsAttribute);
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
    // The last two arguments are scratch and api.
    const unsigned pointers = static_cast<unsigned>(kernel_.arg_size()) - 2;
    for (unsigned i = 0; i < pointers; ++i) {
      values_[kernel_.getArg(i)] =
          b_.CreateLoad(b_.getPtrTy(), b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), entry_->getArg(0), i));
    }
    values_[kernel_.getArg(pointers)] = entry_->getArg(1);
    values_[kernel_.getArg(pointers + 1)] = entry_->getArg(2);
    if (!options_.check) return;
    const auto results = static_cast<unsigned>(NumberOf(kResultsAttribute));
    const llvm::Function* part = FirstPart();
    for (unsigned i = 0; i < pointers && part != nullptr; ++i) {
      const auto bytes = static_cast<int64_t>(part->getParamDereferenceableBytes(i));
      ReportBuffer(b_, {i, values_[kernel_.getArg(i)], bytes, i + results < pointers ? kOperand : kResult});
    }
    ReportBuffer(b_, {pointers, entry_->getArg(1), NumberOf(kScratchAttribute), kScratch});
  }

  int64_t NumberOf(const char* attribute) const {
    int64_t number = 0;
    kernel_.getFnAttribute(attribute).getValueAsString().getAsInteger(10, number);
    return number;
  }

  const llvm::Function* FirstPart() const {
    for (const llvm::Instruction& i : kernel_.getEntryBlock()) {
      const auto* const call = llvm::dyn_cast<llvm::CallInst>(&i);
      if (call != nullptr && !llvm::isa<llvm::IntrinsicInst>(i)) return call->getCalledFunction();
    }
    return nullptr;
  }

  struct Buffer {
    unsigned argument;  // The number of the part's argument that points to the buffer.
    llvm::Value* address;
    int64_t bytes;
    Role role;
  };
  void ReportBuffer(IrBuilder& b, const Buffer& buffer) {
    llvm::FunctionCallee report = kernel_.getParent()->getOrInsertFunction(
        "xlad_gpu_buffer", b.getVoidTy(), b.getInt32Ty(), b.getPtrTy(), b.getInt64Ty(), b.getInt32Ty());
    b.CreateCall(report,
                 {b.getInt32(buffer.argument), buffer.address, b.getInt64(buffer.bytes), b.getInt32(buffer.role)});
  }

  absl::Status EmitBlock(llvm::Value* tile) {
    for (llvm::Instruction& i : kernel_.getEntryBlock()) {
      switch (IntrinsicOf(i)) {
        case llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x:
          values_[&i] = b_.CreateTrunc(tile, i.getType());
          continue;
        case llvm::Intrinsic::nvvm_barrier0: {
          const bool is_chosen = options_.mutation.number == seen_.barriers++;
          if (is_chosen && options_.mutation.kind == Mutation::Kind::kNoBarrier) continue;
          EmitGroup(tile);
          ++part_;
          continue;
        }
        case llvm::Intrinsic::not_intrinsic:
          break;
        default:
          return Unexpected(kernel_, "an intrinsic that is neither the block index nor a barrier");
      }
      if (llvm::isa<llvm::ReturnInst>(i)) {
        EmitGroup(tile);
        return absl::OkStatus();
      }
      if (auto* const call = llvm::dyn_cast<llvm::CallInst>(&i)) {
        XLAD_RETURN_IF_ERROR(AddPart(call));
      } else {
        llvm::Instruction* copy = b_.Insert(i.clone());
        for (llvm::Use& operand : copy->operands()) operand.set(ValueOf(operand.get()));
        values_[&i] = copy;
      }
    }
    return Unexpected(kernel_, "control flow");
  }

  absl::Status AddPart(llvm::CallInst* call) {
    llvm::Function* called = call->getCalledFunction();
    if (called == nullptr || called->isDeclaration()) return Unexpected(kernel_, "a call to another function");
    Values arguments;
    for (llvm::Value* argument : call->args()) arguments.push_back(ValueOf(argument));
    llvm::Function* part = WithThreadArgument(called);
    emptied_.push_back(called);
    PartEditor(part, options_, &seen_).Run();
    group_.push_back({part, std::move(arguments)});
    return absl::OkStatus();
  }

  void EmitGroup(llvm::Value* tile) {
    if (options_.check) {
      llvm::FunctionCallee report = kernel_.getParent()->getOrInsertFunction(
          "xlad_gpu_part", b_.getVoidTy(), b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty());
      b_.CreateCall(report, {b_.CreateGlobalString(entry_->getName()), tile, b_.getInt64(part_)});
    }
    EmitLoop(b_, threads_, [&](llvm::Value* i) {
      llvm::Value* last = b_.getInt64(threads_ - 1);
      llvm::Value* thread = options_.descending ? b_.CreateSub(last, i) : i;
      for (const PartCall& call : group_) {
        Values all = call.arguments;
        all.push_back(thread);
        b_.CreateCall(call.part, all);
      }
    });
    group_.clear();
  }

  llvm::Value* ValueOf(llvm::Value* value) {
    const auto found = values_.find(value);
    if (found != values_.end()) return found->second;
    const auto* const cast = llvm::dyn_cast<llvm::ConstantExpr>(value);
    if (cast == nullptr || cast->getOpcode() != llvm::Instruction::AddrSpaceCast) return value;
    auto* const memory = llvm::cast<llvm::GlobalVariable>(cast->getOperand(0));
    IrBuilder start(entry_->getEntryBlock().getTerminator());
    llvm::AllocaInst* on_stack = start.CreateAlloca(memory->getValueType());
    on_stack->setAlignment(llvm::Align(XLAD_BUFFER_ALIGNMENT));
    const unsigned argument = static_cast<unsigned>(kernel_.arg_size()) + 1;  // The argument of a part after the tile.
    const auto bytes = static_cast<int64_t>(memory->getValueType()->getArrayNumElements());
    if (options_.check) ReportBuffer(start, {argument, on_stack, bytes, kShared});
    return values_[value] = on_stack;
  }

  llvm::Function& kernel_;
  const HostOptions& options_;
  Places& seen_;
  uint64_t part_ = 0;  // The number of barriers before the code that is being emitted.
  struct PartCall {
    llvm::Function* part;
    Values arguments;
  };
  std::vector<PartCall> group_;  // The calls that threads make before the next barrier.
  std::vector<llvm::Function*> emptied_;
  IrBuilder b_;
  llvm::Function* entry_ = nullptr;
  int64_t threads_ = 1;
  std::map<llvm::Value*, llvm::Value*> values_;  // Maps values of the kernel to values in `entry_`.
};

}  // namespace

absl::Status ReplaceThreadsByLoops(llvm::Module& module, const HostOptions& options) {
  std::vector<llvm::Function*> kernels;
  for (llvm::Function& function : module) {
    if (function.hasFnAttribute(kThreadsAttribute)) kernels.push_back(&function);
  }
  Places seen;
  if (llvm::NamedMDNode* annotations = module.getNamedMetadata("nvvm.annotations")) annotations->eraseFromParent();
  for (llvm::Function* kernel : kernels) XLAD_RETURN_IF_ERROR(HostKernel(kernel, options, &seen).Emit());
  if (options.places != nullptr) *options.places = seen;
  for (llvm::GlobalVariable& memory : llvm::make_early_inc_range(module.globals())) {
    if (memory.getAddressSpace() == 0) continue;
    memory.removeDeadConstantUsers();
    if (!memory.use_empty()) {
      return absl::InternalError(absl::StrCat("GPU module: found a use of the shared memory @", memory.getName().str(),
                                              " outside of a kernel, expected uses only in kernels"));
    }
    memory.eraseFromParent();
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
