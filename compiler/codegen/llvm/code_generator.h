// From an LLVM module to optimized object code for a target.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace llvm {
class Function;
class Module;
}  // namespace llvm

namespace xlad::compiler {

class CodeGenerator {
 public:
  // InvalidArgument for a triple, CPU or feature that LLVM does not know.
  static absl::StatusOr<std::unique_ptr<CodeGenerator>> Create(const Target& target);
  virtual ~CodeGenerator() = default;

  virtual const Target& target() const = 0;
  // Sets triple and data layout. Must be called before anything is built into the module.
  virtual void Prepare(llvm::Module& module) const = 0;
  // Sets the attributes of a function that say CPU, features and vector width.
  virtual void Prepare(llvm::Function& function) const = 0;
  // Runs the O2 pipeline with the loop and SLP vectorizers. Internal error if the module is malformed.
  virtual absl::Status Optimize(llvm::Module& module) = 0;
  virtual absl::StatusOr<std::string> Object(llvm::Module& module) = 0;  // ELF, relocatable.
  virtual absl::StatusOr<std::string> Assembly(llvm::Module& module) = 0;
};

}  // namespace xlad::compiler
