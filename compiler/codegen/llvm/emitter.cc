// The object emitter: collects kernels and programs in one LLVM module and generates one object file from it.
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/Support/raw_ostream.h>

#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/kernel_abi.h"
#include "compiler/codegen/llvm/code_generator.h"
#include "compiler/codegen/llvm/cpu_emitter.h"
#include "compiler/codegen/llvm/emitted_module.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/program.h"
#include "compiler/codegen/llvm/scalar_ops.h"
#include "compiler/kernel/cpu_lowering.h"
#include "compiler/kernel/object_emitter.h"
#include "compiler/passes/fusion_limits.h"

namespace xlad::compiler {

// Idle code generators for one target. An emitter takes one and returns it at its end.
class CodeGenerators {
 public:
  explicit CodeGenerators(std::unique_ptr<CodeGenerator> first) : target_(first->target()) { Return(std::move(first)); }

  const Target& target() const { return target_; }

  absl::StatusOr<std::unique_ptr<CodeGenerator>> Take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<CodeGenerator> generator = std::move(idle_.back());
        idle_.pop_back();
        return generator;
      }
    }
    return CodeGenerator::Create(target_);
  }

  void Return(std::unique_ptr<CodeGenerator> generator) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(generator));
  }

 private:
  const Target target_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<CodeGenerator>> idle_;
};

namespace {

using hlo::Instruction;
using hlo::Opcode;

class LlvmEmitter final : public CpuEmitter {
 public:
  LlvmEmitter(std::shared_ptr<CodeGenerators> generators, std::unique_ptr<CodeGenerator> generator)
      : generators_(std::move(generators)), generator_(std::move(generator)) {
    generator_->Prepare(*module_);
  }
  ~LlvmEmitter() override { generators_->Return(std::move(generator_)); }

  const Target& target() const override { return generator_->target(); }

  absl::StatusOr<EmittedKernel> EmitKernel(const KernelRequest& request) override {
    XLAD_RETURN_IF_ERROR(module_.CheckNewSymbol(request.symbol));
    return Finished(request.symbol, EmitKernelFunction(module_.get(), request, generator_->vector_bytes()));
  }

  absl::StatusOr<EmittedKernel> EmitProgram(const NativeProgramRequest& request) override {
    XLAD_RETURN_IF_ERROR(module_.CheckNewSymbol(request.symbol));
    return Finished(request.symbol, EmitProgramFunction(module_.get(), request, functions_));
  }

  absl::Status DeclareKernel(const std::string& symbol, int64_t arguments, const EmittedKernel& facts) override {
    XLAD_RETURN_IF_ERROR(module_.CheckNewSymbol(symbol));
    functions_[symbol] = EmittedFunction{nullptr, arguments, facts, MakeEntry(symbol)};
    return absl::OkStatus();
  }

  std::string Fingerprint() const override {
    llvm::SmallString<0> bitcode;
    llvm::raw_svector_ostream stream(bitcode);
    llvm::WriteBitcodeToFile(*module_, stream);
    const Target& target = generator_->target();
    std::string text;
    for (const std::string& part : {target.triple(), target.cpu(), target.features()}) {
      absl::StrAppend(&text, part.size(), ":", part);
    }
    return Sha256Hex(absl::StrCat(text, absl::string_view(bitcode.data(), bitcode.size())));
  }

  void Export(const std::string& symbol, const std::string& name) override {
    for (const auto& [other, function] : functions_) {
      if (other == symbol) {
        function.entry->setName(name);
        continue;
      }
      const bool is_declared = function.body == nullptr;
      if (!is_declared) function.entry->setLinkage(llvm::GlobalValue::InternalLinkage);
      if (function.entry->use_empty()) function.entry->eraseFromParent();
    }
    functions_.clear();
  }

  absl::StatusOr<std::string> Finish() override {
    XLAD_RETURN_IF_ERROR(module_.Finish());
    XLAD_RETURN_IF_ERROR(generator_->Optimize(*module_));
    return module_.UnlessErrors(generator_->Object(*module_));
  }

  absl::StatusOr<std::string> FinishQuickly() override {
    XLAD_RETURN_IF_ERROR(module_.Finish());
    XLAD_RETURN_IF_ERROR(generator_->Simplify(*module_));
    return module_.UnlessErrors(generator_->Object(*module_));
  }

  std::string IrText() const override { return module_.IrText(); }

  absl::StatusOr<std::string> AssemblyText() override {
    XLAD_RETURN_IF_ERROR(module_.CheckFinished());
    return generator_->Assembly(*module_);
  }

 private:
  absl::StatusOr<EmittedKernel> Finished(const std::string& symbol, absl::StatusOr<EmittedFunction> function) {
    if (!function.ok()) return function.status();
    generator_->Prepare(*function->body);
    function->entry = EmitEntry(symbol, *function);
    functions_[symbol] = *function;
    return function->facts;
  }

  // The declaration of an entry point of base/kernel_abi.h.
  llvm::Function* MakeEntry(const std::string& symbol) {
    llvm::IRBuilder<> b(module_.context());
    llvm::FunctionType* type = llvm::FunctionType::get(
        b.getInt32Ty(), {b.getPtrTy(), b.getPtrTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty()}, false);
    llvm::Function* entry = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, symbol, module_.get());
    entry->addFnAttr(llvm::Attribute::NoUnwind);
    return entry;
  }

  // The entry point of base/kernel_abi.h: loads the addresses from the buffer table and calls the body for each tile.
  llvm::Function* EmitEntry(const std::string& symbol, const EmittedFunction& function) {
    llvm::IRBuilder<> b(module_.context());
    llvm::Function* entry = MakeEntry(symbol);
    generator_->Prepare(*entry);
    llvm::BasicBlock* start = llvm::BasicBlock::Create(module_.context(), "entry", entry);
    b.SetInsertPoint(start);
    std::vector<llvm::Value*> arguments;
    for (int64_t i = 0; i < function.arguments; ++i) {
      llvm::Value* slot = b.CreateConstInBoundsGEP1_64(b.getPtrTy(), entry->getArg(0), i);
      arguments.push_back(b.CreateLoad(b.getPtrTy(), slot));
    }
    arguments.push_back(entry->getArg(1));
    arguments.push_back(entry->getArg(2));
    arguments.push_back(b.getInt64(0));
    if (function.facts.tiles == 1) {
      b.CreateRet(b.CreateCall(function.body, arguments));
      return entry;
    }
    llvm::BasicBlock* loop = llvm::BasicBlock::Create(module_.context(), "tile", entry);
    llvm::BasicBlock* done = llvm::BasicBlock::Create(module_.context(), "done", entry);
    b.CreateBr(loop);
    b.SetInsertPoint(loop);
    llvm::PHINode* tile = b.CreatePHI(b.getInt64Ty(), 2);
    tile->addIncoming(entry->getArg(3), start);
    arguments.back() = tile;
    llvm::Value* code = b.CreateCall(function.body, arguments);
    llvm::Value* next = b.CreateAdd(tile, b.getInt64(1), "", true, true);
    tile->addIncoming(next, loop);
    llvm::Value* more = b.CreateICmpSLT(next, entry->getArg(4));
    b.CreateCondBr(b.CreateAnd(more, b.CreateICmpEQ(code, b.getInt32(XLAD_KERNEL_OK))), loop, done);
    b.SetInsertPoint(done);
    b.CreateRet(code);
    return entry;
  }

  std::shared_ptr<CodeGenerators> generators_;
  std::unique_ptr<CodeGenerator> generator_;
  EmittedModule module_;
  EmittedFunctions functions_;
};

bool IsSupportedType(ElementType type) {
  return type == ElementType::kPred || tensor::IsInteger(type) || tensor::IsFloating(type) || tensor::IsComplex(type);
}

bool IsSupportedShape(const hlo::Shape& shape) {
  if (shape.is_array()) return IsSupportedType(shape.type());
  if (!shape.is_tuple()) return false;
  for (const hlo::Shape& element : shape.tuple()) {
    if (!IsSupportedShape(element)) return false;
  }
  return true;
}

bool HasSupportedShapes(const Instruction& instruction) {
  if (!IsSupportedShape(instruction.shape())) return false;
  for (const Instruction* operand : instruction.operands()) {
    if (!IsSupportedShape(operand->shape())) return false;
  }
  return true;
}

constexpr char kNotArrays[] = "found an operand or result that is a token, opaque or a buffer, expected arrays";

bool Refuse(const Instruction& instruction, const char* what, std::string* why_not) {
  if (why_not != nullptr) {
    *why_not = "no CPU code for " + instruction.name() + " (" + instruction.shape().ToString(false) + " " +
               std::string(hlo::ToString(instruction.opcode())) + "): " + what;
  }
  return false;
}

// Why no kernel can contain this instruction, for an opcode that has no code in kernels.
std::string WhyNoCode(const Instruction& instruction) {
  if (instruction.opcode() == Opcode::kCustomCall) {
    return absl::StrCat("found custom-call target \"", instruction.attributes().custom_call_target,
                        "\", expected an annotation of shardings, or a LAPACK routine as JAX calls it; compute the ",
                        "same by ordinary ops");
  }
  if (instruction.opcode() == Opcode::kWhile) {
    return absl::StrCat("found a loop in a computation that is applied to each element, expected no loop, or one with ",
                        "a constant trip count whose unrolled computation has at most ", kMaxWithUnrolledLoops,
                        " instructions; unroll it or move it out");
  }
  const absl::string_view reason = WhyNoCpuLowering(instruction.opcode());
  return reason.empty() ? "found an opcode that cannot be compiled, expected another one; compute the same by other ops"
                        : std::string(reason);
}

bool CanEmitElement(const Instruction& instruction, std::string* why_not);

bool CanEmitElements(const hlo::Computation& computation, const Instruction* except, std::string* why_not) {
  for (const auto& instruction : computation.instructions()) {
    if (instruction.get() != except && !CanEmitElement(*instruction, why_not)) return false;
  }
  return true;
}

bool CanEmitCalled(const Instruction& instruction, std::string* why_not) {
  for (const hlo::Computation* called : instruction.called()) {
    if (!CanEmitElements(*called, nullptr, why_not)) return false;
  }
  return true;
}

bool HasKnownGroups(const Instruction& instruction, std::string* why_not) {
  if (instruction.opcode() != Opcode::kRaggedDot) return true;
  if (instruction.attributes().ragged_dims.size() == 1 && instruction.operand(2)->shape().ndim() == 1) return true;
  return Refuse(instruction,
                "found more or less than one ragged dimension, or group sizes that are not one-dimensional, expected "
                "one ragged dimension and one dimension of group sizes",
                why_not);
}

// Whether an instruction whose opcode has a kernel rule can be emitted. The instruction is a kernel by itself or the
// root of a fusion.
bool CanEmitRule(const Instruction& instruction, std::string* why_not) {
  if (!HasSupportedShapes(instruction)) return Refuse(instruction, kNotArrays, why_not);
  if (!HasKnownGroups(instruction, why_not)) return false;
  if (instruction.opcode() == Opcode::kRngBitGenerator) {
    const std::string& algorithm = instruction.attributes().rng_algorithm;
    const ElementType type = instruction.shape().tuple()[1].type();
    const int64_t words = instruction.operand(0)->shape().array().bytes() / 8;
    const bool known = algorithm == "rng_three_fry" || algorithm == "rng_philox" || algorithm == "rng_default";
    if (!known || words < 2 || words > 3 || tensor::BitWidth(type) < 8 || tensor::IsComplex(type)) {
      const std::string found = absl::StrCat("found algorithm ", algorithm, ", a state of ", words,
                                             " u64 and bits of type ", tensor::ToString(type),
                                             ", expected rng_three_fry, rng_philox or rng_default, a state of 2 or 3 ",
                                             "u64 and a real type of 8 to 64 bits");
      return Refuse(instruction, found.c_str(), why_not);
    }
  }
  if (instruction.opcode() == Opcode::kTopk && tensor::IsComplex(instruction.operand(0)->shape().type())) {
    return Refuse(instruction, "found complex operands, expected real ones, because complex numbers have no order",
                  why_not);
  }
  return CanEmitCalled(instruction, why_not);
}

bool CanEmitElement(const Instruction& instruction, std::string* why_not) {
  if (!HasSupportedShapes(instruction)) return Refuse(instruction, kNotArrays, why_not);
  switch (instruction.opcode()) {
    case Opcode::kParameter:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
    case Opcode::kOptBarrier:
      return true;
    default:
      break;
  }
  if (!HasKnownGroups(instruction, why_not)) return false;
  if (!HasScalarOp(instruction) && FindElementRule(instruction.opcode()) == nullptr &&
      instruction.opcode() != Opcode::kCall && instruction.opcode() != Opcode::kFusion) {
    if (!HasCode(instruction.opcode())) {
      return Refuse(instruction, WhyNoCode(instruction).c_str(), why_not);
    }
    return Refuse(instruction,
                  "found an element type that the opcode has no code for; convert its operands to another type",
                  why_not);
  }
  return CanEmitCalled(instruction, why_not);
}

}  // namespace

absl::StatusOr<CpuEmitters> CpuEmitters::Create(const Target& target) {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<CodeGenerator> generator, CodeGenerator::Create(target));
  return CpuEmitters(std::make_shared<CodeGenerators>(std::move(generator)));
}

const Target& CpuEmitters::target() const { return generators_->target(); }

absl::StatusOr<std::unique_ptr<CpuEmitter>> CpuEmitters::Make() const {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<CodeGenerator> generator, generators_->Take());
  return std::make_unique<LlvmEmitter>(generators_, std::move(generator));
}

bool CanEmit(const Instruction& instruction, std::string* why_not) {
  if (instruction.opcode() == Opcode::kFusion) {
    if (!HasSupportedShapes(instruction)) return Refuse(instruction, kNotArrays, why_not);
    const hlo::Computation& body = *instruction.called()[0];
    const bool has_rule = FindKernelRule(body.root()->opcode()) != nullptr;
    if (has_rule && !CanEmitRule(*body.root(), why_not)) return false;
    return CanEmitElements(body, has_rule ? body.root() : nullptr, why_not);
  }
  const bool has_rule = FindKernelRule(instruction.opcode()) != nullptr;
  return has_rule ? CanEmitRule(instruction, why_not) : CanEmitElement(instruction, why_not);
}

bool HasCode(Opcode opcode) {
  return FindKernelRule(opcode) != nullptr || FindElementRule(opcode) != nullptr || HasScalarOp(opcode);
}

}  // namespace xlad::compiler
