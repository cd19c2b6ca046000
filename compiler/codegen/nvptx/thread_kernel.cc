#include "compiler/codegen/nvptx/thread_kernel.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/kernel_abi.h"
#include "compiler/codegen/llvm/block_reductions.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/nest.h"
#include "compiler/codegen/nvptx/thread_transpose.h"
#include "compiler/kernel/gpu_target.h"
#include "compiler/passes/fusion_limits.h"
#include "compiler/passes/kernel_limits.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;

static_assert(kMaxKernelOperands + kMaxFusionResults <= kMaxArguments);

class ThreadKernelBuilder {
 public:
  ThreadKernelBuilder(llvm::Module* module, const KernelRequest& request) : module_(*module), request_(request) {}

  // Opens the next part, calls `emit` to emit its code, and closes it.
  absl::Status Part(const std::function<void(KernelFunction& part, SharedMemory& shared)>& emit) {
    llvm::LLVMContext& context = module_.getContext();
    const std::string name = absl::StrCat(request_.symbol, kPartSuffix, parts_.size());
    XLAD_ASSIGN_OR_RETURN(KernelFunction part,
                          OpenKernelFunction(&module_, request_, name, {llvm::PointerType::get(context, 0)}));
    if (part.arguments > kMaxArguments) {
      return absl::UnimplementedError(absl::StrCat("kernel ", request_.symbol, ": found ", part.arguments,
                                                   " operands and results, expected at most ", kMaxArguments));
    }
    IrBuilder& b = part.ir->b;
    llvm::Value* thread = b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {});
    thread_ = b.CreateZExt(thread, b.getInt64Ty(), "thread");
    SharedMemory shared{part.Additional(0), 0};
    emit(part, shared);
    b.CreateRet(b.getInt32(XLAD_KERNEL_OK));
    part.function->addFnAttr(llvm::Attribute::AlwaysInline);
    arguments_ = part.arguments;
    shared_bytes_ = std::max(shared_bytes_, shared.bytes);
    threads_ = part.context->threads();
    facts_ = {part.context->scratch_bytes(), part.context->tiles()};
    parts_.push_back(part.function);
    return absl::OkStatus();
  }
  // In the part that is open, the number of the thread in its block.
  llvm::Value* thread() const { return thread_; }

  EmittedKernel Finish() {
    IrBuilder b(module_.getContext());
    const std::vector<llvm::Type*> types(static_cast<size_t>(arguments_) + 2, b.getPtrTy());
    llvm::Function* kernel = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), types, false),
                                                    llvm::GlobalValue::ExternalLinkage, request_.symbol, module_);
    kernel->setCallingConv(llvm::CallingConv::PTX_Kernel);
    kernel->addFnAttr(llvm::Attribute::NoUnwind);
    kernel->addFnAttr(kThreadsAttribute, std::to_string(threads_));
    kernel->addFnAttr(kResultsAttribute, std::to_string(hlo::CountArrayLeaves(request_.root->shape())));
    kernel->addFnAttr(kScratchAttribute, std::to_string(facts_.scratch_bytes));
    b.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", kernel));
    llvm::Value* block = b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {}, {});
    std::vector<llvm::Value*> arguments;
    for (llvm::Argument& argument : kernel->args()) {
      argument.addAttr(llvm::Attribute::getWithAlignment(module_.getContext(), llvm::Align(XLAD_BUFFER_ALIGNMENT)));
      arguments.push_back(&argument);
    }
    arguments.push_back(b.CreateZExt(block, b.getInt64Ty(), "tile"));
    arguments.push_back(SharedBase());
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (p > 0) b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {});
      b.CreateCall(parts_[p], arguments);
    }
    b.CreateRetVoid();
    Annotate(kernel);
    return facts_;
  }

 private:
  llvm::Constant* SharedBase() {
    llvm::PointerType* pointer = llvm::PointerType::get(module_.getContext(), 0);
    if (shared_bytes_ == 0) return llvm::ConstantPointerNull::get(pointer);
    constexpr unsigned kShared = 3;  // The address space of shared memory in NVVM.
    llvm::Type* bytes = llvm::ArrayType::get(llvm::Type::getInt8Ty(module_.getContext()), shared_bytes_);
    auto* const memory = new llvm::GlobalVariable(module_, bytes, false, llvm::GlobalValue::InternalLinkage,
                                                  llvm::UndefValue::get(bytes), request_.symbol + ".shared", nullptr,
                                                  llvm::GlobalValue::NotThreadLocal, kShared);
    memory->setAlignment(llvm::Align(XLAD_BUFFER_ALIGNMENT));
    return llvm::ConstantExpr::getAddrSpaceCast(memory, pointer);
  }

  // Tells the NVPTX backend that the function is a kernel for blocks of this size.
  void Annotate(llvm::Function* kernel) {
    llvm::LLVMContext& context = module_.getContext();
    llvm::NamedMDNode* annotations = module_.getOrInsertNamedMetadata("nvvm.annotations");
    const auto add = [&](const char* name, int64_t value) {
      llvm::Constant* number = llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), value);
      annotations->addOperand(
          llvm::MDNode::get(context, {llvm::ValueAsMetadata::get(kernel), llvm::MDString::get(context, name),
                                      llvm::ValueAsMetadata::get(number)}));
    };
    add("kernel", 1);
    add("reqntidx", threads_);
    add("reqntidy", 1);
    add("reqntidz", 1);
  }

  llvm::Module& module_;
  const KernelRequest& request_;
  std::vector<llvm::Function*> parts_;
  llvm::Value* thread_ = nullptr;
  int64_t arguments_ = 0, shared_bytes_ = 0, threads_ = 1;
  EmittedKernel facts_;
};

// Returns the kernel with tiles of one row if it can be scheduled in this way, otherwise the kernel itself.
// kOneRowTiles is larger than the number of rows.
std::shared_ptr<const ScheduledKernel> WithRowTiles(const std::shared_ptr<const ScheduledKernel>& kernel) {
  if (kernel->schedule.tile == 1) return kernel;
  auto scheduled = ApplySchedule(kernel->kernel, DefaultSchedule(kernel->kernel, kOneRowTiles));
  return scheduled.ok() ? std::make_shared<ScheduledKernel>(*std::move(scheduled)) : kernel;
}

absl::Status EmitRows(ThreadKernelBuilder& builder, const KernelRequest& request) {
  const std::shared_ptr<const ScheduledKernel> rows = WithRowTiles(request.kernel);
  const std::optional<BlockForm> form = BlockFormOf(*rows);
  if (!form.has_value()) {
    return builder.Part([&](KernelFunction& part, SharedMemory&) {
      part.context->SetThread(builder.thread());
      EmitNest(*part.context, *rows, part.operands);
    });
  }
  for (const BlockPart& block_part : form->parts) {
    XLAD_RETURN_IF_ERROR(builder.Part([&](KernelFunction& part, SharedMemory& shared) {
      part.context->SetThread(builder.thread());
      EmitBlockPart(*part.context, *rows, part.operands, block_part, &shared);
    }));
  }
  return absl::OkStatus();
}

// Whether the rule of an opcode divides its work among threads. With other rules, one thread computes a tile.
bool HasThreads(KernelContext& kernel, const Instruction& root) {
  switch (root.opcode()) {
    case Opcode::kConvolution:
    case Opcode::kDot:
    case Opcode::kRaggedDot:
    case Opcode::kRngBitGenerator:
    case Opcode::kScan:
    case Opcode::kScatter:
    case Opcode::kSelectAndScatter:
    case Opcode::kTranspose:
      return true;
    case Opcode::kDynamicUpdateSlice:
      // If the update may read other elements of the operand, all elements of the update must be computed before the
      // first is written.
      return !kernel.outputs()[0].in_place || root.operand(0)->users().size() <= 1;
    default:
      return false;
  }
}

// The reductions of a kernel without a rule, if blocks of threads compute them. A temporary function is opened to
// inspect the kernel.
absl::StatusOr<std::optional<BlockReduction>> FindBlockReduction(llvm::Module* module, const KernelRequest& request) {
  XLAD_ASSIGN_OR_RETURN(KernelFunction draft, OpenKernelFunction(module, request, request.symbol + ".draft", {}));
  std::optional<BlockReduction> result;
  if (FindKernelRule(InnerRoot(draft, request)->opcode()) == nullptr) result = BlockReductionOf(*draft.context);
  draft.function->eraseFromParent();
  return result;
}

absl::Status EmitBlockReductions(ThreadKernelBuilder& builder, const BlockReduction& reduction) {
  for (int p = 0; p < reduction.parts(); ++p) {
    XLAD_RETURN_IF_ERROR(builder.Part([&](KernelFunction& part, SharedMemory& shared) {
      part.context->SetThread(builder.thread());
      EmitBlockReduction(*part.context, reduction, p, &shared);
    }));
  }
  return absl::OkStatus();
}

absl::Status EmitByOpcode(ThreadKernelBuilder& builder, const KernelRequest& request) {
  const Instruction& root = *request.root;
  const Instruction& only = root.opcode() == Opcode::kFusion ? *root.called()[0]->root() : root;
  if (const BlockRule* rule = FindBlockRule(only.opcode())) {
    for (int p = 0; p < rule->parts(only); ++p) {
      XLAD_RETURN_IF_ERROR(builder.Part([&](KernelFunction& part, SharedMemory& shared) {
        part.context->SetThread(builder.thread());
        rule->emit(*part.context, only, p, &shared);
      }));
    }
    return absl::OkStatus();
  }
  return builder.Part([&](KernelFunction& part, SharedMemory&) {
    KernelContext& kernel = *part.context;
    const Instruction* inner = InnerRoot(part, request);
    const KernelRule rule = FindKernelRule(inner->opcode());
    if (rule == nullptr || HasThreads(kernel, *inner)) kernel.SetThread(builder.thread());
    if (rule != nullptr) {
      rule(kernel, *inner);
    } else {
      EmitLoops(kernel);
    }
  });
}

}  // namespace

absl::StatusOr<EmittedKernel> EmitThreadKernel(llvm::Module* module, const KernelRequest& given) {
  KernelRequest request = given;
  request.wanted_tiles = kOneRowTiles;
  ThreadKernelBuilder builder(module, request);
  if (request.kernel != nullptr && !request.kernel->blocks.has_value()) {
    XLAD_RETURN_IF_ERROR(EmitRows(builder, request));
  } else if (const std::optional<TileTranspose> tiles = TileTransposeOf(request)) {
    for (const bool is_store : {false, true}) {
      XLAD_RETURN_IF_ERROR(builder.Part([&](KernelFunction& part, SharedMemory& shared) {
        part.context->SetThread(builder.thread());
        EmitTilePart(*part.context, *tiles, part.operands[0], is_store, &shared);
      }));
    }
  } else {
    XLAD_ASSIGN_OR_RETURN(const std::optional<BlockReduction> blocks, FindBlockReduction(module, request));
    XLAD_RETURN_IF_ERROR(blocks.has_value() ? EmitBlockReductions(builder, *blocks) : EmitByOpcode(builder, request));
  }
  return builder.Finish();
}

}  // namespace xlad::compiler
