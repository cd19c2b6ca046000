// Predicts the cost of a step of a program on a slice of chips. The program is partitioned and compiled as for a real
// run, except for checks and passes that matter only if the program runs. A model then computes its time.
//
//   program -> PrepareProgram: propagate, partition, passes, buffers (once for each mesh)
//           -> Predict: placement on the torus, times of collectives and kernels (once for each slice)
//
// docs/reference/simulate.md describes the model, and docs/decisions its assumptions. All functions are pure and
// thread-safe.
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
  std::vector<ProgramCollective> collectives;  // These refer to instructions of `compiled`.
  double flops = 0;                            // Operations of the dots and convolutions of the unpartitioned program.
  int64_t peak_bytes = 0;  // The bytes of parameters, results, constants and temporaries of a device.
};

// Returns the errors of the sharding pipeline, of the compiler, and of CollectivesOf.
absl::StatusOr<PreparedProgram> PrepareProgram(std::unique_ptr<hlo::Module> module,
                                               const sharding::ImportOptions& import);

struct Prediction {
  StepTime step;
  std::string placement;  // For example, "tp=x4,dp=x4yz".
  double mfu = 0;         // flops / (chips * peak bf16 rate * step time).
};

// `assign` is the text of ParsePlacements, and FastestStep chooses one of its placements. Returns the errors of both.
absl::StatusOr<Prediction> Predict(const PreparedProgram& program, const Slice& slice, absl::string_view assign);

// The meshes of `devices` devices that have the axes of `mesh` with any sizes, ordered by the sizes of their axes. If
// there are more than `most`, only the first `most` of them.
std::vector<sharding::Mesh> MeshesLike(const sharding::Mesh& mesh, int64_t devices, size_t most);

// The timeline as JSON in the Trace Event format, which chrome://tracing and Perfetto show.
std::string TraceJson(const StepTime& step);

}  // namespace xlad::simulate
