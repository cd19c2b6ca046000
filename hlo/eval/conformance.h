// Conformance cases: programs with inputs and expected outputs, run by the evaluator.
//
// A directory of cases has a manifest.jsonl with one JSON object per line and case. Its fields are
//   name                      The program is NAME.hlo; inputs and expected outputs are in NAME.safetensors.
//   params, results           The shapes, such as ["f32[2,3]"].
//   compare                   One object per result: kind ("eq", "ulp", "abs", "close"), max_ulp, atol, rtol,
//                             signed_zero, flush_denormals (see Tolerance).
//   replicas, partitions      Optional; both 1 by default.
//   xla_agrees, xla_diff      Optional: how far XLA's own result is outside of the tolerance.
// The tensors are called in.N and out.N, or pK.in.N and pK.out.N for process K if there are several.
#pragma once

#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/status.h"
#include "hlo/literal.h"

namespace xlad::hlo {

// How a result is compared with the expected one. Two NaN are always equal.
struct Tolerance {
  enum class Kind {
    kEqual,     // Equal values.
    kUlp,       // Encodings at most max_ulp apart. Infinities equal only themselves.
    kAbsolute,  // |actual - expected| <= absolute, both finite; or equal.
    kClose,     // |actual - expected| <= absolute + relative * |expected|, both finite; or equal.
  };
  Kind kind = Kind::kEqual;
  uint64_t max_ulp = 0;
  double absolute = 0, relative = 0;
  bool signed_zero = false;      // Zeros must have the same sign.
  bool flush_denormals = false;  // A denormal counts as the zero of its sign.
};

// The elements outside the tolerance. The real and imaginary parts of complex numbers are compared separately.
struct Difference {
  int64_t mismatches = 0;
  int64_t first = -1;  // The linear index of the first mismatch, and its values.
  std::string actual, expected;
  double max_absolute = 0;  // The largest difference of mismatches that are finite on both sides.
  int64_t non_finite = 0;   // The number of other mismatches.
};

// The shapes must be equal (checked).
Difference Compare(const tensor::Array& actual, const tensor::Array& expected, const Tolerance& tolerance);

struct ConformanceOptions {
  std::string name_prefix;     // Run only the cases whose name has this prefix.
  int64_t stride = 1;          // Run only every stride-th of these, from the first.
  bool through_proto = false;  // Serialize each program as a proto and parse that before running it.
  // A file with lines "NAME  # reason" of cases that are expected to fail, or "". It is a failure if one of them
  // passes.
  std::string expected_failures;
};

struct ConformanceResult {
  std::string name;
  bool passed = false;
  std::string message;  // Why it failed, or "expected: REASON" if it was expected to fail and did.
};

// Runs the cases of a directory. A case that fails is a result; the only errors are files that cannot be read.
absl::StatusOr<std::vector<ConformanceResult>> RunConformance(FileSystem& files, const std::string& directory,
                                                              const ConformanceOptions& options = {});

}  // namespace xlad::hlo
