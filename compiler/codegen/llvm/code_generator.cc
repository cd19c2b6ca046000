// This is the only source file that includes PassBuilder and TargetMachine, because compiling these headers takes 14
// seconds.
#include "compiler/codegen/llvm/code_generator.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/IPO/AlwaysInliner.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {
namespace {

void InitializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

std::vector<llvm::Function*> InlinedLate(llvm::Module& module) {
  std::vector<llvm::Function*> functions;
  for (llvm::Function& function : module) {
    if (function.hasFnAttribute(kInlineLate)) functions.push_back(&function);
  }
  return functions;
}

// Whether the values that the module computes depend on how it is optimized.
bool DependsOnOptimization(const llvm::Module& module) {
  for (const llvm::Function& function : module) {
    const bool is_external = function.isDeclaration() && !function.isIntrinsic();
    if (is_external && function.getReturnType()->isFPOrFPVectorTy()) return true;
    for (const llvm::Instruction& instruction : llvm::instructions(function)) {
      if (llvm::isa<llvm::FPMathOperator>(instruction) && instruction.hasAllowReassoc()) return true;
    }
  }
  return false;
}

class LlvmCodeGenerator final : public CodeGenerator {
 public:
  LlvmCodeGenerator(Target target, std::unique_ptr<llvm::TargetMachine> machine)
      : target_(std::move(target)), machine_(std::move(machine)) {}

  const Target& target() const override { return target_; }

  void Prepare(llvm::Module& module) const override {
    module.setTargetTriple(target_.triple());
    module.setDataLayout(machine_->createDataLayout());
  }

  void Prepare(llvm::Function& function) const override {
    function.addFnAttr("target-cpu", target_.cpu());
    if (!target_.features().empty()) function.addFnAttr("target-features", target_.features());
    function.addFnAttr("frame-pointer", "all");
    // On some AVX-512 CPUs, LLVM uses half of the vector width so that the clock rate does not drop. Loops over tensors
    // are faster at full width.
    if (absl::StrContains(target_.features(), "+avx512f")) function.addFnAttr("prefer-vector-width", "512");
  }

  absl::Status Optimize(llvm::Module& module) override { return RunPasses(module, /*quick=*/false); }

  absl::Status Simplify(llvm::Module& module) override {
    XLAD_RETURN_IF_ERROR(RunPasses(module, !DependsOnOptimization(module)));
    machine_->setOptLevel(llvm::CodeGenOptLevel::None);
    machine_->setO0WantsFastISel(true);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Object(llvm::Module& module) override {
    return Emit(module, llvm::CodeGenFileType::ObjectFile);
  }

  absl::StatusOr<std::string> Assembly(llvm::Module& module) override {
    return Emit(module, llvm::CodeGenFileType::AssemblyFile);
  }

 private:
  absl::Status RunPasses(llvm::Module& module, bool quick) {
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    if (llvm::verifyModule(module, &stream)) {
      return absl::InternalError("code generation made a malformed LLVM module: " + stream.str());
    }
    llvm::PipelineTuningOptions options;
    options.LoopVectorization = true;
    // The SLP vectorizer of LLVM 19 is not used. It replaces lanes that are still needed with poison if the operands of
    // unrolled products are in two arrays (tests/compiled/kernel_test.cc, Kernel.OuterProductsOfSmallBatches).
    options.SLPVectorization = false;
    options.LoopInterleaving = true;
    // If a loop over a small innermost dimension is unrolled before vectorization, LLVM vectorizes the loop around it
    // instead, with gathers. Loops that must be unrolled are marked (Ir::Loop).
    options.LoopUnrolling = false;
    llvm::PassBuilder builder(machine_.get(), options);
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager components;
    llvm::ModuleAnalysisManager modules;
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(components);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, components, modules);
    const std::vector<llvm::Function*> late = InlinedLate(module);
    for (llvm::Function* function : late) Prepare(*function);
    Pipeline(&builder, quick).run(module, modules);
    if (late.empty()) return absl::OkStatus();
    llvm::removeFromUsedLists(module, [&](llvm::Constant* global) {
      return std::find(late.begin(), late.end(), global->stripPointerCasts()) != late.end();
    });
    for (llvm::Function* function : late) {
      function->removeFnAttr(llvm::Attribute::NoInline);
      function->addFnAttr(llvm::Attribute::AlwaysInline);
    }
    modules.clear();
    llvm::FunctionPassManager cleanup;
    cleanup.addPass(llvm::EarlyCSEPass());
    cleanup.addPass(llvm::SimplifyCFGPass());
    llvm::ModulePassManager inlining;
    inlining.addPass(llvm::AlwaysInlinerPass(/*InsertLifetime=*/false));
    inlining.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(cleanup)));
    inlining.addPass(llvm::GlobalDCEPass());
    inlining.run(module, modules);
    return absl::OkStatus();
  }

  // The quick passes only keep variables in registers and remove computations that the code generator has repeated.
  static llvm::ModulePassManager Pipeline(llvm::PassBuilder* builder, bool quick) {
    if (!quick) return builder->buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2);
    llvm::FunctionPassManager functions;
    functions.addPass(llvm::SROAPass(llvm::SROAOptions::PreserveCFG));
    functions.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
    llvm::ModulePassManager passes;
    passes.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(functions)));
    return passes;
  }

  // Code generation changes the module, so it is done on a copy.
  absl::StatusOr<std::string> Emit(llvm::Module& module, llvm::CodeGenFileType type) {
    const std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    llvm::legacy::PassManager passes;
    if (machine_->addPassesToEmitFile(passes, stream, nullptr, type)) {
      return absl::UnimplementedError("LLVM cannot write object code for " + target_.triple());
    }
    passes.run(*copy);
    return std::string(bytes.begin(), bytes.end());
  }

  Target target_;
  std::unique_ptr<llvm::TargetMachine> machine_;
};

std::string HostFeatures() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  std::set<std::string> sorted;
  for (const auto& feature : features) sorted.insert((feature.second ? "+" : "-") + feature.first().str());
  return absl::StrJoin(sorted, ",");
}

// LLVM only warns about unknown names of CPUs and features. Here, they are errors.
absl::Status CheckNames(const llvm::Target& backend, const Target& target) {
  const std::unique_ptr<llvm::MCSubtargetInfo> info(backend.createMCSubtargetInfo(target.triple(), "", ""));
  if (info == nullptr) return absl::OkStatus();
  if (!info->isCPUStringValid(target.cpu())) {
    return absl::InvalidArgumentError("target: LLVM knows no CPU '" + target.cpu() + "' for " + target.triple());
  }
  std::set<std::string> known;
  for (const llvm::SubtargetFeatureKV& feature : info->getAllProcessorFeatures()) known.insert(feature.Key);
  const std::vector<std::string> features = absl::StrSplit(target.features(), ',', absl::SkipEmpty());
  for (const std::string& feature : features) {
    if ((feature[0] != '+' && feature[0] != '-') || !known.contains(feature.substr(1))) {
      return absl::InvalidArgumentError("target: unknown feature '" + feature + "' for " + target.triple() +
                                        ", expected names like +avx2 or -avx512f");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Target CompleteTarget(const Target& target) {
  Target complete = target;
  const std::string host = llvm::sys::getProcessTriple();
  const bool is_host = target.triple().empty() || target.triple() == host;
  if (complete.triple().empty()) complete.set_triple(host);
  if (complete.cpu().empty()) {
    complete.set_cpu(is_host ? llvm::sys::getHostCPUName().str() : "generic");
    if (is_host && complete.features().empty()) complete.set_features(HostFeatures());
    if (absl::StartsWith(complete.triple(), "x86_64") && complete.cpu() == "generic") complete.set_cpu("x86-64");
  }
  return complete;
}

absl::StatusOr<std::unique_ptr<CodeGenerator>> CodeGenerator::Create(const Target& requested) {
  InitializeTargets();
  const Target target = CompleteTarget(requested);
  std::string problem;
  const llvm::Target* backend = llvm::TargetRegistry::lookupTarget(target.triple(), problem);
  if (backend == nullptr) return absl::InvalidArgumentError("target: " + problem);
  XLAD_RETURN_IF_ERROR(CheckNames(*backend, target));
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(
      backend->createTargetMachine(target.triple(), target.cpu(), target.features(), options, llvm::Reloc::PIC_,
                                   llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
  if (machine == nullptr)
    return absl::InvalidArgumentError("target: LLVM has no code generator for " + target.triple());
  return std::make_unique<LlvmCodeGenerator>(target, std::move(machine));
}

}  // namespace xlad::compiler
