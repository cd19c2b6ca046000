#include "compiler/codegen/nvptx/device_math.h"

#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/Module.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Support/SourceMgr.h>

#include <memory>
#include <string>

#include "compiler/codegen/nvptx/thread_kernel.h"

// The LLVM IR of device_math.c, a file that the build generates (see CMakeLists.txt).
__asm__(
    ".section .rodata\n"
    ".globl xlad_device_math_begin\n"
    "xlad_device_math_begin:\n"
    ".incbin \"" XLAD_DEVICE_MATH "\"\n"
    ".globl xlad_device_math_end\n"
    "xlad_device_math_end:\n"
    ".byte 0\n"
    ".text\n");
extern "C" const char xlad_device_math_begin[], xlad_device_math_end[];

namespace xlad::compiler {

absl::Status DefineMathFunctions(llvm::Module& module) {
  bool needs_any = false;
  for (const llvm::Function& function : module) {
    needs_any = needs_any || (function.isDeclaration() && !function.isIntrinsic());
  }
  if (!needs_any) return absl::OkStatus();
  const auto size = static_cast<size_t>(xlad_device_math_end - xlad_device_math_begin);
  const llvm::StringRef text(xlad_device_math_begin, size);
  llvm::SMDiagnostic problem;
  std::unique_ptr<llvm::Module> math =
      llvm::parseAssembly(llvm::MemoryBufferRef(text, "device_math"), problem, module.getContext());
  if (math == nullptr) return absl::InternalError("device_math: " + problem.getMessage().str());
  math->setTargetTriple(module.getTargetTriple());
  math->setDataLayout(module.getDataLayout());
  for (llvm::Function& function : *math) {
    // The attributes from the C compiler name another CPU. LLVM does not inline functions that are for another CPU.
    function.removeFnAttr("target-cpu");
    function.removeFnAttr("target-features");
  }
  if (llvm::Linker::linkModules(module, std::move(math), llvm::Linker::LinkOnlyNeeded)) {
    return absl::InternalError("device_math: the definitions do not fit the module");
  }
  for (llvm::Function& function : module) {
    if (function.isIntrinsic()) continue;
    if (function.isDeclaration()) {
      return absl::UnimplementedError("GPU code: there is no definition of the math function " +
                                      function.getName().str() + " for GPUs");
    }
    if (!function.hasFnAttribute(kThreadsAttribute)) function.setLinkage(llvm::GlobalValue::InternalLinkage);
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
