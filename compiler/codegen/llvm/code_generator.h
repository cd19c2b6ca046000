// Generates optimized object code for a target from an LLVM module.
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

// The attribute of functions that Optimize inlines after vectorization. The vectorizer replaces calls to such a
// function with calls to its vector forms. Until it is inlined, the function must be listed in llvm.compiler.used.
inline constexpr char kInlineLate[] = "xlad-inline-late";

class CodeGenerator {
 public:
  // InvalidArgument if LLVM does not know the triple, the CPU or a feature.
  static absl::StatusOr<std::unique_ptr<CodeGenerator>> Create(const Target& target);
  virtual ~CodeGenerator() = default;

  virtual const Target& target() const = 0;
  // The size of the vector registers of the CPU that the code uses. 0 for GPUs.
  virtual int64_t vector_bytes() const = 0;
  // Sets the triple and the data layout. Must be called before any code is added to the module.
  virtual void Prepare(llvm::Module& module) const = 0;
  // Sets the attributes that specify the CPU, the features and the vector width of a function.
  virtual void Prepare(llvm::Function& function) const = 0;
  // Optimizes with the loop vectorizer, then inlines functions that are marked kInlineLate. For GPUs, the passes are
  // those of O2; for CPUs, some of these. Internal if the module is malformed.
  virtual absl::Status Optimize(llvm::Module& module) = 0;
  // The quick alternative to Optimize. Afterwards, Object generates code without optimizing it. The code computes the
  // same bits, except for the signs and payloads of NaNs. Modules whose bits depend on the passes of Optimize get these
  // passes here as well. Such modules contain sums that may be reordered, or calls to the C library, because LLVM
  // replaces some of these calls with arithmetic.
  virtual absl::Status Simplify(llvm::Module& module) = 0;
  // Returns a relocatable ELF object.
  virtual absl::StatusOr<std::string> Object(llvm::Module& module) = 0;
  virtual absl::StatusOr<std::string> Assembly(llvm::Module& module) = 0;
};

}  // namespace xlad::compiler
