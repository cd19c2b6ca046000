// The LLVM module into which an object emitter collects its kernels and programs, and the errors that LLVM reports.
#pragma once

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <memory>
#include <string>

#include "base/status.h"

namespace xlad::compiler {

class EmittedModule {
 public:
  EmittedModule();
  EmittedModule(const EmittedModule&) = delete;
  EmittedModule& operator=(const EmittedModule&) = delete;

  llvm::LLVMContext& context() { return context_; }
  llvm::Module& operator*() const { return *module_; }
  llvm::Module* get() const { return module_.get(); }

  // InvalidArgument if `symbol` is empty or the module already has a function of this name. FailedPrecondition after
  // Finish.
  absl::Status CheckNewSymbol(const std::string& symbol) const;
  // Must be called once, before the module is optimized. FailedPrecondition on a second call.
  absl::Status Finish();
  // Returns `code`, or Internal with the errors that LLVM has reported while it was generated.
  absl::StatusOr<std::string> UnlessErrors(absl::StatusOr<std::string> code) const;
  // FailedPrecondition before Finish, because assembly is that of the optimized module.
  absl::Status CheckFinished() const;
  std::string IrText() const;

 private:
  llvm::LLVMContext context_;
  std::string errors_;  // LLVM's error messages.
  std::unique_ptr<llvm::Module> module_;
  bool finished_ = false;
};

}  // namespace xlad::compiler
