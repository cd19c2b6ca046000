#include "compiler/codegen/llvm/emitted_module.h"

#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/Support/raw_ostream.h>

#include "absl/strings/str_cat.h"

namespace xlad::compiler {

EmittedModule::EmittedModule() : module_(std::make_unique<llvm::Module>("xlad", context_)) {
  // Keeps only errors, because LLVM also reports loops that it did not vectorize or unroll.
  context_.setDiagnosticHandlerCallBack(
      [](const llvm::DiagnosticInfo* info, void* errors) {
        if (info->getSeverity() != llvm::DS_Error) return;
        llvm::raw_string_ostream stream(*static_cast<std::string*>(errors));
        llvm::DiagnosticPrinterRawOStream printer(stream);
        info->print(printer);
      },
      &errors_);
}

absl::Status EmittedModule::CheckNewSymbol(const std::string& symbol) const {
  if (finished_) {
    return absl::FailedPreconditionError("ObjectEmitter: found a request to emit '" + symbol +
                                         "' after Finish, expected all requests before Finish");
  }
  if (symbol.empty() || module_->getFunction(symbol) != nullptr) {
    return absl::InvalidArgumentError("ObjectEmitter: found symbol '" + symbol +
                                      "', expected a nonempty name that the object does not have yet");
  }
  return absl::OkStatus();
}

absl::Status EmittedModule::Finish() {
  if (finished_) return absl::FailedPreconditionError("ObjectEmitter: found a second call to Finish, expected one");
  finished_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::string> EmittedModule::UnlessErrors(absl::StatusOr<std::string> code) const {
  if (!errors_.empty()) return absl::InternalError(absl::StrCat("code generation: ", errors_));
  return code;
}

absl::Status EmittedModule::CheckFinished() const {
  if (!finished_) {
    return absl::FailedPreconditionError(
        "ObjectEmitter: found a call to AssemblyText before Finish, expected it after");
  }
  return absl::OkStatus();
}

std::string EmittedModule::IrText() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module_->print(stream, nullptr);
  return stream.str();
}

}  // namespace xlad::compiler
