// The ObjectEmitter of CPU targets. Its objects can call each other's kernels, and a fingerprint identifies the code in
// each object.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {

class CpuEmitter : public ObjectEmitter {
 public:
  // Lets programs of this object call a kernel of another object, which is loaded together with this one. `arguments`
  // is the number of its buffers. The calls are not inlined.
  virtual absl::Status DeclareKernel(const std::string& symbol, int64_t arguments, const EmittedKernel& facts) = 0;
  // Returns a hash (SHA-256, hexadecimal) of the target and of all code that has been emitted, before optimization. If
  // it is equal in two emitters of the same version of the compiler, Finish returns equal objects.
  virtual std::string Fingerprint() const = 0;
  // Like Finish, but faster, and the code that it generates is slower. It computes the same bits, except for the signs
  // and payloads of NaNs (CodeGenerator::Simplify).
  virtual absl::StatusOr<std::string> FinishQuickly() = 0;
  // Renames the kernel or program `symbol` to `name`. It is then the only one that other objects can call. The entry
  // points of the others are removed, because LLVM would otherwise compile each kernel that a program inlines twice.
  // Called once, after all kernels and programs have been emitted.
  virtual void Export(const std::string& symbol, const std::string& name) = 0;
};

class CodeGenerators;

// Makes emitters for one target. LLVM takes about a millisecond to make its description of a CPU. Therefore emitters
// reuse the descriptions of emitters that have been destroyed. Thread-safe.
class CpuEmitters {
 public:
  // Errors are those of ObjectEmitter::Create.
  static absl::StatusOr<CpuEmitters> Create(const Target& target);
  // The target, with all fields set.
  const Target& target() const;
  absl::StatusOr<std::unique_ptr<CpuEmitter>> Make() const;

 private:
  explicit CpuEmitters(std::shared_ptr<CodeGenerators> generators) : generators_(std::move(generators)) {}
  std::shared_ptr<CodeGenerators> generators_;
};

// Whether LLVM may inline kernels of one tile into this program, if they are in the same object. In programs with more
// than 64 calls to kernels, no call is inlined.
bool InlinesKernels(const NativeProgramRequest& request);

}  // namespace xlad::compiler
