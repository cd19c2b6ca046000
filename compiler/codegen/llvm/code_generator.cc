// This is the only source file that includes PassBuilder and TargetMachine, because compiling these headers takes 14
// seconds.
#include "compiler/codegen/llvm/code_generator.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/OptBisect.h>
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
#include <llvm/Transforms/Scalar/LoopUnrollPass.h>
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
#include "base/containers.h"
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

// The passes of O2 that change the code of the examples' kernels. Without the others, all but 5 of 519 kernels have the
// same object. `unroll-marked` and `unroll-marked-late` unroll only the loops that Ir::Loop has marked. If a loop over
// a small innermost dimension were unrolled before vectorization, LLVM would vectorize the loop around it instead, with
// gathers. There is no SLP vectorizer, because that of LLVM 19 replaces lanes that are still needed with poison if the
// operands of unrolled products are in two arrays (tests/compiled/kernel_test.cc, Kernel.OuterProductsOfSmallBatches).
constexpr char kCpuPasses[] =
    "function<eager-inv>(simplifycfg,sroa,early-cse),ipsccp,function<eager-inv>(instcombine<no-verify-fixpoint>),"
    "cgscc(devirt<4>(inline,function<eager-inv;no-rerun>("
    "early-cse<memssa>,correlated-propagation,instcombine<no-verify-fixpoint>,simplifycfg<switch-range-to-icmp>,"
    "reassociate,loop-mssa(licm<no-allowspeculation>,licm),instcombine<no-verify-fixpoint>,"
    "loop(loop-idiom,indvars,unroll-marked),gvn,instcombine<no-verify-fixpoint>,loop-mssa(licm),"
    "simplifycfg<switch-range-to-icmp;hoist-common-insts;sink-common-insts>,instcombine<no-verify-fixpoint>))),"
    "deadargelim,function<eager-inv>("
    "loop-vectorize,instcombine<no-verify-fixpoint>,"
    "simplifycfg<forward-switch-cond;switch-range-to-icmp;switch-to-lookup;no-keep-loops;hoist-common-insts;"
    "sink-common-insts>,unroll-marked-late,sroa<preserve-cfg>,infer-alignment,instcombine<no-verify-fixpoint>,"
    "loop-mssa(licm),tailcallelim)";

void RegisterUnrolling(llvm::PassBuilder& builder) {
  using Elements = llvm::ArrayRef<llvm::PassBuilder::PipelineElement>;
  builder.registerPipelineParsingCallback([](llvm::StringRef name, llvm::LoopPassManager& passes, Elements) {
    if (name != "unroll-marked") return false;
    passes.addPass(llvm::LoopFullUnrollPass(/*OptLevel=*/2, /*OnlyWhenForced=*/true));
    return true;
  });
  builder.registerPipelineParsingCallback([](llvm::StringRef name, llvm::FunctionPassManager& passes, Elements) {
    if (name != "unroll-marked-late") return false;
    passes.addPass(llvm::LoopUnrollPass(llvm::LoopUnrollOptions(/*OptLevel=*/2, /*OnlyWhenForced=*/true)));
    return true;
  });
}

// Skips two passes of code generation that take 28 % of its time and do not make the examples faster. Loop strength
// reduction changes only the arithmetic of addresses, which x86 does as part of a load or store. The second scheduler
// reorders instructions that CPUs reorder themselves.
class PassGate final : public llvm::OptPassGate {
 public:
  bool isEnabled() const override { return true; }
  bool shouldRunPass(llvm::StringRef pass, llvm::StringRef) override {
    return pass != "Loop Strength Reduction" && pass != "Post RA top-down list latency scheduler";
  }
};

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
      : target_(std::move(target)), machine_(std::move(machine)), is_gpu_(machine_->getTargetTriple().isNVPTX()) {}

  const Target& target() const override { return target_; }

  int64_t vector_bytes() const override {
    if (is_gpu_) return 0;
    if (absl::StrContains(target_.features(), "+avx512f")) return 64;
    return absl::StrContains(target_.features(), "+avx") ? 32 : 16;
  }

  void Prepare(llvm::Module& module) const override {
    module.setTargetTriple(target_.triple());
    module.setDataLayout(machine_->createDataLayout());
    static PassGate gate;  // It has no state, so threads can share it.
    if (!is_gpu_) module.getContext().setOptPassGate(gate);
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
    machine_->setOptLevel(llvm::CodeGenOptLevel::Default);  // An earlier module may have been simplified.
    machine_->setFastISel(false);
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    if (llvm::verifyModule(module, &stream)) {
      return absl::InternalError("code generation made a malformed LLVM module: " + stream.str());
    }
    llvm::PipelineTuningOptions options;
    options.SLPVectorization = false;
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
    Pipeline(builder, quick).run(module, modules);
    if (late.empty()) return absl::OkStatus();
    llvm::removeFromUsedLists(module,
                              [&](llvm::Constant* global) { return Contains(late, global->stripPointerCasts()); });
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

  llvm::ModulePassManager Pipeline(llvm::PassBuilder& builder, bool quick) const {
    llvm::ModulePassManager passes;
    if (quick) {
      // These passes only keep variables in registers and remove computations that the code generator has repeated.
      llvm::FunctionPassManager functions;
      functions.addPass(llvm::SROAPass(llvm::SROAOptions::PreserveCFG));
      functions.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
      passes.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(functions)));
    } else if (is_gpu_) {
      passes = builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2);
    } else {
      RegisterUnrolling(builder);
      llvm::cantFail(builder.parsePassPipeline(passes, kCpuPasses));
    }
    return passes;
  }

  // Code generation changes the module, so it is done on a copy.
  absl::StatusOr<std::string> Emit(llvm::Module& module, llvm::CodeGenFileType type) {
    const std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    llvm::legacy::PassManager passes;
    if (machine_->addPassesToEmitFile(passes, stream, nullptr, type, /*DisableVerify=*/true)) {
      return absl::UnimplementedError("LLVM cannot write object code for " + target_.triple());
    }
    passes.run(*copy);
    return std::string(bytes.begin(), bytes.end());
  }

  Target target_;
  std::unique_ptr<llvm::TargetMachine> machine_;
  const bool is_gpu_;
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
