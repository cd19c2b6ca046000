// Checks that a job's spec, program, state and data agree, before anything is compiled.
#pragma once

#include "base/status.h"
#include "hlo/module.h"
#include "proto/job.pb.h"
#include "proto/xlad_v1.h"
#include "tensor/safetensors.h"

namespace xlad::service {

// Returns InvalidArgument with the parameter, result or tensor, what was found and what was expected.
absl::Status CheckSpec(const JobSpec& spec, const hlo::Module& module, const tensor::SafetensorsIndex& state,
                       const tensor::SafetensorsIndex& data);

// Completes the spec of a session's program: takes parameters and results from the program and keeps only the `feeds`
// of the results that `spec` has. InvalidArgument if these do not match the program.
absl::Status CompleteSessionSpec(const hlo::Module& module, JobSpec* spec);

}  // namespace xlad::service
