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

// How a result is compared with the expected one. Two NaNs are always equal.
struct Tolerance {
  enum class Kind {
    kEqual,     // The values are equal.
    kUlp,       // The encodings are at most max_ulp apart. Infinities equal only themselves.
    kAbsolute,  // Equal, or both finite and |actual - expected| <= absolute.
    kClose,     // Equal, or both finite and |actual - expected| <= absolute + relative * |expected|.
  };
  Kind kind = Kind::kEqual;
  uint64_t max_ulp = 0;
  double absolute = 0, relative = 0;
  bool signed_zero = false;      // Zeros must have the same sign.
  bool flush_denormals = false;  // A denormal of at least 16 bits counts as a zero of the same sign.
};

// The elements outside the tolerance. The real and imaginary parts of complex numbers are compared separately.
struct Difference {
  int64_t mismatches = 0;
  int64_t first = -1;            // The linear index of the first mismatch, or -1.
  std::string actual, expected;  // The values at the first mismatch.
  double max_absolute = 0;       // The largest difference of mismatches that are finite on both sides.
  int64_t non_finite = 0;        // The number of other mismatches.
};

// Compares two arrays, which must have equal shapes (XLAD_CHECK).
Difference Compare(const tensor::Array& actual, const tensor::Array& expected, const Tolerance& tolerance);

struct ConformanceOptions {
  std::string name_prefix;     // Run only the cases whose name has this prefix.
  int64_t stride = 1;          // Run only every stride-th of these cases, beginning with the first.
  bool through_proto = false;  // Serialize each program as a proto, and run the program parsed from it.
  // The path of a file with lines "NAME  # reason" of cases that are expected to fail, or "" if there is no file. A
  // listed case that passes is a failure.
  std::string expected_failures;
};

struct ConformanceResult {
  std::string name;
  bool passed = false;
  std::string message;  // Why the case failed, or "expected: REASON" if the case failed as expected.
};

// Runs the cases of a directory. A failed case is not an error, even if a file of the case cannot be read; it is
// reported in the results. An error is returned only if manifest.jsonl or the list of expected failures cannot be read,
// or if a line of the manifest is malformed.
absl::StatusOr<std::vector<ConformanceResult>> RunConformance(FileSystem& files, const std::string& directory,
                                                              const ConformanceOptions& options = {});

}  // namespace xlad::hlo
