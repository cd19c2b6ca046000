// Whether a job's spec, program, state and data agree, before anything is compiled.
#pragma once

#include "base/status.h"
#include "hlo/module.h"
#include "proto/job.pb.h"
#include "tensor/safetensors.h"

namespace xlad::service {

// InvalidArgument that names the parameter, result or tensor, what was found and what was expected.
absl::Status CheckSpec(const JobSpec& spec, const hlo::Module& module, const tensor::SafetensorsIndex& state,
                       const tensor::SafetensorsIndex& data);

// The spec of a session's program: parameters and results are those of the program; of `spec` only the results' `feeds`
// are looked at. InvalidArgument where they do not fit the program.
absl::Status CompleteSessionSpec(const hlo::Module& module, JobSpec* spec);

}  // namespace xlad::service
