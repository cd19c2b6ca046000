// Loads objects with LLVM's JIT linker.
#include "runtime/devices/cpu/object_loader.h"

#include <llvm/BinaryFormat/Magic.h>
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Object/Archive.h>
#include <llvm/Support/MemoryBuffer.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

namespace xlad::runtime {
namespace {

using llvm::orc::ExecutionSession;
using llvm::orc::ExecutorAddr;

#define XLAD_UNARY(name)                                                         \
  {#name, reinterpret_cast<void*>(static_cast<double (*)(double)>(::name))}, {   \
    #name "f", reinterpret_cast<void*>(static_cast<float (*)(float)>(::name##f)) \
  }
#define XLAD_BINARY(name)                                                               \
  {#name, reinterpret_cast<void*>(static_cast<double (*)(double, double)>(::name))}, {  \
    #name "f", reinterpret_cast<void*>(static_cast<float (*)(float, float)>(::name##f)) \
  }

// The functions of this process that all compiled code may call. The list has most pure functions of the C math
// library, so that a new opcode rarely needs a new row here.
const ProvidedFunction kProvided[] = {
    XLAD_UNARY(exp),
    XLAD_UNARY(exp2),
    XLAD_UNARY(expm1),
    XLAD_UNARY(log),
    XLAD_UNARY(log2),
    XLAD_UNARY(log1p),
    XLAD_UNARY(log10),
    XLAD_UNARY(tanh),
    XLAD_UNARY(erf),
    XLAD_UNARY(erfc),
    XLAD_UNARY(tgamma),
    XLAD_UNARY(sin),
    XLAD_UNARY(cos),
    XLAD_UNARY(tan),
    XLAD_UNARY(sinh),
    XLAD_UNARY(cosh),
    XLAD_UNARY(asin),
    XLAD_UNARY(acos),
    XLAD_UNARY(atan),
    XLAD_UNARY(asinh),
    XLAD_UNARY(acosh),
    XLAD_UNARY(atanh),
    XLAD_UNARY(cbrt),
    XLAD_UNARY(sqrt),
    XLAD_UNARY(floor),
    XLAD_UNARY(ceil),
    XLAD_UNARY(round),
    XLAD_UNARY(roundeven),
    XLAD_UNARY(trunc),
    XLAD_UNARY(rint),
    XLAD_UNARY(nearbyint),
    XLAD_UNARY(fabs),
    XLAD_BINARY(pow),
    XLAD_BINARY(atan2),
    XLAD_BINARY(fmod),
    XLAD_BINARY(hypot),
    XLAD_BINARY(fmax),
    XLAD_BINARY(fmin),
    XLAD_BINARY(copysign),
    {"fma", reinterpret_cast<void*>(static_cast<double (*)(double, double, double)>(::fma))},
    {"fmaf", reinterpret_cast<void*>(static_cast<float (*)(float, float, float)>(::fmaf))},
    {"ldexp", reinterpret_cast<void*>(static_cast<double (*)(double, int)>(::ldexp))},
    {"ldexpf", reinterpret_cast<void*>(static_cast<float (*)(float, int)>(::ldexpf))},
    {"sincos", reinterpret_cast<void*>(::sincos)},
    {"sincosf", reinterpret_cast<void*>(::sincosf)},
    {"memcpy", reinterpret_cast<void*>(::memcpy)},
    {"memmove", reinterpret_cast<void*>(::memmove)},
    {"memset", reinterpret_cast<void*>(::memset)},
};

#undef XLAD_UNARY
#undef XLAD_BINARY

absl::Status FromLlvm(llvm::Error error, const char* what) {
  return absl::InvalidArgumentError(std::string("object code: ") + what + ": " + llvm::toString(std::move(error)));
}

class JitObject final : public LoadedObject {
 public:
  explicit JitObject(std::unique_ptr<llvm::orc::ExecutorProcessControl> process)
      : session_(std::move(process)),
        layer_(session_, std::make_unique<llvm::jitlink::InProcessMemoryManager>(
                             session_.getExecutorProcessControl().getPageSize())),
        library_(session_.createBareJITDylib("kernels")) {
    // A failed lookup returns an error. The session may report further details here, and Find adds them to its message.
    session_.setErrorReporter([this](llvm::Error error) { report_ += llvm::toString(std::move(error)) + " "; });
  }

  ~JitObject() override { llvm::consumeError(session_.endSession()); }

  absl::Status Add(absl::string_view object, absl::Span<const ProvidedFunction> more) {
    llvm::orc::SymbolMap provided;
    for (const absl::Span<const ProvidedFunction> functions : {absl::MakeConstSpan(kProvided), more}) {
      for (const ProvidedFunction& function : functions) {
        provided[session_.intern(function.name)] = {ExecutorAddr::fromPtr(function.address),
                                                    llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
      }
    }
    if (auto error = library_.define(llvm::orc::absoluteSymbols(std::move(provided)))) {
      return FromLlvm(std::move(error), "library symbols");
    }
    const llvm::StringRef bytes(object.data(), object.size());
    if (llvm::identify_magic(bytes) != llvm::file_magic::archive) return AddElf(bytes);
    auto archive = llvm::object::Archive::create(llvm::MemoryBufferRef(bytes, "kernels"));
    if (!archive) return FromLlvm(archive.takeError(), "not readable");
    auto error = llvm::Error::success();
    for (const llvm::object::Archive::Child& member : (*archive)->children(error)) {
      auto elf = member.getBuffer();
      if (!elf) return FromLlvm(elf.takeError(), "not readable");
      XLAD_RETURN_IF_ERROR(AddElf(*elf));
    }
    if (error) return FromLlvm(std::move(error), "not readable");
    return absl::OkStatus();
  }

  absl::StatusOr<XladKernel> Find(absl::string_view symbol) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = session_.lookup({&library_}, std::string(symbol));
    if (!found) {
      std::string message = llvm::toString(found.takeError());
      return absl::NotFoundError("object code: symbol '" + std::string(symbol) + "': " + message +
                                 (report_.empty() ? "" : " (" + report_ + ")"));
    }
    return found->getAddress().toPtr<XladKernel>();
  }

 private:
  absl::Status AddElf(llvm::StringRef object) {
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object, "kernels");
    if (auto error = layer_.add(library_, std::move(buffer))) return FromLlvm(std::move(error), "not loadable");
    return absl::OkStatus();
  }

  mutable std::mutex mutex_;
  std::string report_;
  mutable ExecutionSession session_;
  llvm::orc::ObjectLinkingLayer layer_;
  llvm::orc::JITDylib& library_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedObject>> LoadedObject::Load(absl::string_view object,
                                                                 absl::Span<const ProvidedFunction> more) {
  auto process = llvm::orc::SelfExecutorProcessControl::Create();
  if (!process) return FromLlvm(process.takeError(), "this process");
  auto loaded = std::make_unique<JitObject>(std::move(*process));
  XLAD_RETURN_IF_ERROR(loaded->Add(object, more));
  return loaded;
}

}  // namespace xlad::runtime
