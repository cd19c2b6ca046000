// Checks that a job's spec, program, state and data agree, before anything is compiled.
#pragma once

#include "base/status.h"
#include "hlo/module.h"
#include "proto/job.pb.h"
#include "proto/xlad_v1.h"
#include "tensor/safetensors.h"

namespace xlad::service {

// If the four do not agree, returns InvalidArgument with the parameter, result or tensor, what was found and what was
// expected.
absl::Status CheckSpec(const JobSpec& spec, const hlo::Module& module, const tensor::SafetensorsIndex& state,
                       const tensor::SafetensorsIndex& data);

// Completes the spec of a session's program: sets the parameters and results to those of the program. If `spec` already
// has results, each keeps its `feeds`. InvalidArgument if their number differs from the number of the program's
// results, or if a parameter or result of the program is not an array.
absl::Status CompleteSessionSpec(const hlo::Module& module, JobSpec* spec);

}  // namespace xlad::service
