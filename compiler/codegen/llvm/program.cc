#include "compiler/codegen/llvm/program.h"

#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstddef>

#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "compiler/codegen/llvm/cpu_emitter.h"

namespace xlad::compiler {
namespace {

using Steps = google::protobuf::RepeatedPtrField<Step>;

// If a program has more kernel calls than this, they are not inlined, because the time that LLVM needs grows faster
// than the size of a function.
constexpr int64_t kMaxInlined = 64;

int64_t CountKernels(const Steps& steps);

int64_t CountKernels(const Step& step) {
  int64_t count = step.has_kernel() ? 1 : 0;
  count += CountKernels(step.while_().condition()) + CountKernels(step.while_().body());
  for (const IfStep::Branch& branch : step.if_().branches()) count += CountKernels(branch.steps());
  return count;
}

int64_t CountKernels(const Steps& steps) {
  int64_t count = 0;
  for (const Step& step : steps) count += CountKernels(step);
  return count;
}

class ProgramEmitter {
 public:
  ProgramEmitter(Ir* ir, const NativeProgramRequest& request, const EmittedFunctions& known)
      : ir_(*ir),
        b_(ir->b),
        request_(request),
        known_(known),
        arena_(RoundUp(request.arena_bytes, XLAD_BUFFER_ALIGNMENT)),
        inline_kernels_(InlinesKernels(request)) {}

  template <typename List>
  absl::Status EmitSteps(const List& steps) {
    for (const Step& step : steps) XLAD_RETURN_IF_ERROR(EmitStep(step));
    return absl::OkStatus();
  }

  int64_t scratch_bytes() const { return arena_ + callee_scratch_; }

 private:
  absl::Status EmitStep(const Step& step) {
    switch (step.step_case()) {
      case Step::kKernel:
        return EmitKernel(step);
      case Step::kLibrary:
        return EmitLibrary(step);
      case Step::kCopy:
        return EmitCopy(step.copy());
      case Step::kWhile:
        return EmitWhile(step.while_());
      case Step::kIf:
        return EmitIf(step.if_());
      default:
        return absl::InvalidArgumentError("program " + request_.symbol + ": step '" + step.name() +
                                          "' is a collective or empty, expected a kernel, library, copy, while or if");
    }
  }

  absl::StatusOr<llvm::Value*> Address(const BufferSlice& slice) {
    llvm::Value* base;
    if (slice.allocation() == NativeProgramRequest::kScratch) {
      base = Scratch();
    } else if (slice.allocation() >= 0 && slice.allocation() < request_.arguments) {
      base = ir_.function()->getArg(static_cast<unsigned>(slice.allocation()));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", request_.symbol, ": found allocation ", slice.allocation(),
                       " in a step, expected -1 (scratch) or an argument below ", request_.arguments));
    }
    if (slice.offset() == 0) return base;
    return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), base, slice.offset());
  }

  llvm::Value* Scratch() { return ir_.function()->getArg(static_cast<unsigned>(request_.arguments)); }

  // Emits a return of `code` if `code` is not 0.
  void ReturnOnError(llvm::Value* code) {
    llvm::BasicBlock* fail = llvm::BasicBlock::Create(b_.getContext(), "fail", ir_.function());
    llvm::BasicBlock* next = llvm::BasicBlock::Create(b_.getContext(), "next", ir_.function());
    b_.CreateCondBr(b_.CreateICmpEQ(code, b_.getInt32(XLAD_KERNEL_OK)), next, fail);
    b_.SetInsertPoint(fail);
    b_.CreateRet(code);
    b_.SetInsertPoint(next);
  }

  absl::Status EmitKernel(const Step& step) {
    const auto found = known_.find(step.kernel().symbol());
    if (found == known_.end() || found->second.arguments != step.kernel().buffers_size()) {
      return absl::InvalidArgumentError("program " + request_.symbol + ": step '" + step.name() + "' calls '" +
                                        step.kernel().symbol() +
                                        "' with " + std::to_string(step.kernel().buffers_size()) +
                                        " buffers, expected an emitted function with this number of buffers");
    }
    std::vector<llvm::Value*> arguments;
    for (const BufferSlice& slice : step.kernel().buffers()) {
      XLAD_ASSIGN_OR_RETURN(llvm::Value * address, Address(slice));
      arguments.push_back(address);
    }
    llvm::Value* scratch = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), Scratch(), arena_);
    callee_scratch_ = std::max(callee_scratch_, found->second.facts.scratch_bytes);
    if (found->second.facts.tiles > 1) {
      RunTiles(found->second, arguments, scratch);
      return absl::OkStatus();
    }
    if (found->second.body == nullptr) {
      ReturnOnError(b_.CreateCall(found->second.entry,
                                  {Table(arguments), scratch, ir_.api(), b_.getInt64(0), b_.getInt64(1)}));
      return absl::OkStatus();
    }
    arguments.insert(arguments.end(), {scratch, ir_.api(), b_.getInt64(0)});
    llvm::CallInst* call = b_.CreateCall(found->second.body, arguments);
    if (!inline_kernels_) call->setIsNoInline();
    ReturnOnError(call);
    return absl::OkStatus();
  }

  // A table of addresses on the stack.
  llvm::Value* Table(const std::vector<llvm::Value*>& addresses) {
    llvm::Value* table = ir_.Slot(b_.getPtrTy(), std::max<int64_t>(std::ssize(addresses), 2));
    for (size_t i = 0; i < addresses.size(); ++i) {
      b_.CreateStore(addresses[i], b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), table, i));
    }
    return table;
  }

  // Calls the runtime to compute the tiles of a kernel: api->run_tiles(api, kernel, buffers, scratch, tiles).
  void RunTiles(const EmittedFunction& kernel, const std::vector<llvm::Value*>& addresses, llvm::Value* scratch) {
    llvm::Type* pointer = b_.getPtrTy();
    llvm::Value* function = b_.CreateLoad(
        pointer, b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), ir_.api(), offsetof(XladKernelApi, run_tiles)));
    llvm::FunctionType* type =
        llvm::FunctionType::get(b_.getInt32Ty(), {pointer, pointer, pointer, pointer, b_.getInt64Ty()}, false);
    ReturnOnError(b_.CreateCall(
        type, function, {ir_.api(), kernel.entry, Table(addresses), scratch, ir_.I64(kernel.facts.tiles)}));
  }

  absl::Status EmitLibrary(const Step& step) {
    std::vector<llvm::Value*> addresses;
    for (const BufferSlice& slice : step.library().buffers()) {
      XLAD_ASSIGN_OR_RETURN(addresses.emplace_back(), Address(slice));
    }
    // run_library_op is the first member of XladKernelApi.
    llvm::Value* function = b_.CreateLoad(b_.getPtrTy(), ir_.api());
    llvm::FunctionType* type =
        llvm::FunctionType::get(b_.getInt32Ty(), {b_.getPtrTy(), b_.getInt32Ty(), b_.getPtrTy()}, false);
    llvm::Value* op = b_.getInt32(static_cast<uint32_t>(step.library().op()));
    ReturnOnError(b_.CreateCall(type, function, {ir_.api(), op, Table(addresses)}));
    return absl::OkStatus();
  }

  absl::Status EmitCopy(const CopyStep& copy) {
    XLAD_ASSIGN_OR_RETURN(llvm::Value * from, Address(copy.from()));
    XLAD_ASSIGN_OR_RETURN(llvm::Value * to, Address(copy.to()));
    if (copy.from().bytes() != copy.to().bytes()) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", request_.symbol, ": found a copy between slices of different sizes, ",
                       copy.from().bytes(), " and ", copy.to().bytes(), " bytes, expected equal sizes"));
    }
    if (from != to && copy.from().bytes() > 0) {
      b_.CreateMemMove(to, llvm::Align(1), from, llvm::Align(1), copy.from().bytes());
    }
    return absl::OkStatus();
  }

  absl::Status EmitWhile(const WhileStep& loop) {
    absl::Status status;
    // If the trip count is known, the condition, which has no side effects, is not computed.
    if (loop.trip_count() >= 0) {
      ir_.Loop(loop.trip_count(), [&](llvm::Value*) { status.Update(EmitSteps(loop.body())); });
      return status;
    }
    ir_.While(
        [&]() -> llvm::Value* {
          status.Update(EmitSteps(loop.condition()));
          const absl::StatusOr<llvm::Value*> address = Address(loop.predicate());
          status.Update(address.status());
          if (!address.ok()) return b_.getFalse();
          return b_.CreateICmpNE(b_.CreateLoad(b_.getInt8Ty(), *address), b_.getInt8(0));
        },
        [&] { status.Update(EmitSteps(loop.body())); });
    return status;
  }

  absl::Status EmitIf(const IfStep& branches) {
    XLAD_ASSIGN_OR_RETURN(llvm::Value * address, Address(branches.selector()));
    absl::Status status;
    llvm::Value* index = nullptr;
    if (branches.selector_is_predicate()) {
      llvm::Value* is_false = b_.CreateICmpEQ(b_.CreateLoad(b_.getInt8Ty(), address), b_.getInt8(0));
      index = b_.CreateZExt(is_false, b_.getInt32Ty());
    } else {
      index = b_.CreateLoad(b_.getInt32Ty(), address);
    }
    EmitBranches(branches, 0, index, &status);
    return status;
  }

  // If the index is out of range, the last branch is taken.
  void EmitBranches(const IfStep& branches, int i, llvm::Value* index, absl::Status* status) {
    if (i >= branches.branches_size()) return;
    if (i + 1 == branches.branches_size()) {
      status->Update(EmitSteps(branches.branches(i).steps()));
      return;
    }
    ir_.If(
        b_.CreateICmpEQ(index, b_.getInt32(static_cast<uint32_t>(i))),
        [&] { status->Update(EmitSteps(branches.branches(i).steps())); },
        [&] { EmitBranches(branches, i + 1, index, status); });
  }

  Ir& ir_;
  IrBuilder& b_;
  const NativeProgramRequest& request_;
  const EmittedFunctions& known_;
  const int64_t arena_;
  const bool inline_kernels_;
  int64_t callee_scratch_ = 0;
};

}  // namespace

bool InlinesKernels(const NativeProgramRequest& request) {
  int64_t kernels = 0;
  for (const Step& step : request.steps) kernels += CountKernels(step);
  return kernels <= kMaxInlined;
}

absl::StatusOr<EmittedFunction> EmitProgramFunction(llvm::Module* module, const NativeProgramRequest& request,
                                                    const EmittedFunctions& known) {
  llvm::LLVMContext& context = module->getContext();
  std::vector<llvm::Type*> types(static_cast<size_t>(request.arguments) + 2, llvm::PointerType::get(context, 0));
  types.push_back(llvm::Type::getInt64Ty(context));
  llvm::FunctionType* type = llvm::FunctionType::get(llvm::Type::getInt32Ty(context), types, false);
  llvm::Function* function =
      llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, request.symbol + ".body", module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  for (llvm::Argument& argument : function->args()) {
    if (!argument.getType()->isPointerTy()) continue;
    argument.addAttr(llvm::Attribute::getWithAlignment(context, llvm::Align(XLAD_BUFFER_ALIGNMENT)));
  }
  function->getArg(static_cast<unsigned>(request.arguments))->addAttr(llvm::Attribute::NoAlias);
  Ir ir(module, function, function->getArg(static_cast<unsigned>(request.arguments) + 1));
  ProgramEmitter emitter(&ir, request, known);
  XLAD_RETURN_IF_ERROR(emitter.EmitSteps(request.steps));
  ir.b.CreateRet(ir.b.getInt32(XLAD_KERNEL_OK));
  return EmittedFunction{function, request.arguments, {emitter.scratch_bytes(), 1}, nullptr};
}

}  // namespace xlad::compiler
