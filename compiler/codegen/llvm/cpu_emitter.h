// The ObjectEmitter of CPU targets.
#pragma once

#include <memory>

#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {

// Errors are those of ObjectEmitter::Create.
absl::StatusOr<std::unique_ptr<ObjectEmitter>> MakeCpuEmitter(const Target& target);

}  // namespace xlad::compiler
