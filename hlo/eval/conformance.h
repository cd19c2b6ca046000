// Runs a folder of conformance cases (programs with inputs and expected outputs) through the evaluator.
//
// The folder has a manifest.jsonl, one JSON object a line with the fields name, params, results, compare, and
// optionally replicas, partitions, xla_agrees, xla_diff (an entry of compare may have the fields signed_zero and
// flush_denormals of Tolerance); and for each case <name>.hlo and <name>.safetensors with
// tensors in.N and out.N (p<k>.in.N and p<k>.out.N for process k of several).
#pragma once

#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/status.h"
#include "hlo/literal.h"

namespace xlad::hlo {

// How one result is compared with what is expected.
struct Tolerance {
  enum class Kind { kEqual, kUlp, kAbsolute, kClose };
  Kind kind = Kind::kEqual;
  int64_t max_ulp = 0;
  double absolute = 0, relative = 0;
  bool signed_zero = false;      // Zeros must have the same sign.
  bool flush_denormals = false;  // A denormal counts as the zero of its sign, for what was made under such a rule.
};

// Elements outside the tolerance. Complex numbers are compared by their parts, each on its own.
struct Difference {
  int64_t mismatches = 0;
  int64_t first = -1;            // The first mismatch's element.
  std::string actual, expected;  // Its values.
  double max_absolute = 0;       // Over the mismatches that are finite on both sides.
  int64_t non_finite = 0;        // Mismatches where one side or both are not finite.
};

// Kinds: kEqual: equal, or both NaN. kUlp: bit patterns at most max_ulp apart; two NaNs pass, other non-finite values
// only against the same bits. kAbsolute: both finite and |a - e| <= absolute (or equal, or both NaN).
// kClose: likewise with absolute + relative * |e|. Shapes must be equal (XLAD_CHECK).
Difference Compare(const tensor::Array& actual, const tensor::Array& expected, const Tolerance& tolerance);

struct ConformanceOptions {
  std::string name_prefix;     // Only cases whose name begins so.
  int64_t stride = 1;          // Every stride-th of those, from the first.
  bool through_proto = false;  // Serialise the program as a proto and read it back before it runs.
  // Lines "NAME  # reason" of cases that are expected to fail; one of them passing is a failure.
  std::string expected_failures;
};

struct ConformanceResult {
  std::string name;
  bool passed = false;
  std::string message;  // Why it failed, or "expected: ..." where a listed case failed as it should.
};

// Errors only where the folder or the list cannot be read; a case that fails is a result.
absl::StatusOr<std::vector<ConformanceResult>> RunConformance(FileSystem& files, const std::string& folder,
                                                              const ConformanceOptions& options = {});

}  // namespace xlad::hlo
