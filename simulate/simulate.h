// What a step of a program costs on a slice of chips: partitioned and compiled as for a real run, then timed by a
// model.
//
//   program -> PrepareProgram: propagate, partition, passes, buffers (once for each mesh)
//           -> Predict: placement on the torus, times of collectives and kernels (once for each slice)
//
// docs/reference/simulate.md has the model and docs/decisions its assumptions. All functions are pure and thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "sharding/pipeline.h"
#include "simulate/slice.h"
#include "simulate/step.h"

namespace xlad::simulate {

// A program as each device of its mesh runs it.
struct PreparedProgram {
  sharding::PartitionedProgram partitioned;
  std::unique_ptr<hlo::Module> compiled;       // After the compiler's passes.
  std::vector<ProgramCollective> collectives;  // They refer to `compiled`.
  double flops = 0;                            // Operations of the dots and convolutions of the unpartitioned program.
  int64_t peak_bytes = 0;                      // Parameters, results, constants and temporaries of a device.
};

// Errors: those of the sharding pipeline and of the compiler.
absl::StatusOr<PreparedProgram> PrepareProgram(std::unique_ptr<hlo::Module> module,
                                               const sharding::ImportOptions& import);

struct Prediction {
  StepTime step;
  std::string placement;  // "tp=x4,dp=x4yz"
  double mfu = 0;         // flops / (chips * peak bf16 rate * step time).
};

// `assign` is the text of ParsePlacements; the cheapest of the placements that fit it is taken. Errors of
// ParsePlacements and TimeStep.
absl::StatusOr<Prediction> Predict(const PreparedProgram& program, const Slice& slice, absl::string_view assign);

// All meshes with the same axes and as many devices, in order of the sizes of their axes; at most `most` of them.
std::vector<sharding::Mesh> MeshesLike(const sharding::Mesh& mesh, int64_t devices, size_t most);

// The timeline as JSON in the Trace Event format, which chrome://tracing and Perfetto show.
std::string TraceJson(const StepTime& step);

}  // namespace xlad::simulate
