#include "hlo/eval/conformance.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "hlo/analysis/leaves.h"
#include "hlo/eval/evaluate.h"
#include "hlo/eval/numeric.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"
#include "tensor/safetensors.h"

namespace xlad::hlo {
namespace {

using nlohmann::json;
using tensor::Array;

// The difference between XLA's own result and the expected one, if XLA's result is outside the tolerance.
struct XlaDifference {
  int64_t non_finite = 0;
  double max_absolute = 0;
};

struct Case {
  std::string name;
  std::vector<std::string> params, results;  // Shapes.
  std::vector<Tolerance> tolerances;
  int64_t replicas = 1, partitions = 1;
  std::vector<XlaDifference> xla;  // One per result; empty if XLA agrees.
};

absl::StatusOr<Tolerance> ReadTolerance(const json& object) {
  Tolerance tolerance;
  const auto kind = object.at("kind").get<std::string>();
  const std::map<std::string, Tolerance::Kind> kinds = {{"eq", Tolerance::Kind::kEqual},
                                                        {"ulp", Tolerance::Kind::kUlp},
                                                        {"abs", Tolerance::Kind::kAbsolute},
                                                        {"close", Tolerance::Kind::kClose}};
  if (!kinds.contains(kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found compare kind \"", kind, "\", expected eq, ulp, abs or close"));
  }
  tolerance.kind = kinds.at(kind);
  tolerance.max_ulp = object.value<uint64_t>("max_ulp", 0);
  tolerance.absolute = object.value("atol", 0.0);
  tolerance.relative = object.value("rtol", 0.0);
  tolerance.signed_zero = object.value("signed_zero", false);
  tolerance.flush_denormals = object.value("flush_denormals", false);
  return tolerance;
}

absl::StatusOr<Case> ReadCase(absl::string_view line) {
  try {
    const json object = json::parse(line.begin(), line.end());
    Case c;
    c.name = object.at("name").get<std::string>();
    c.params = object.at("params").get<std::vector<std::string>>();
    c.results = object.at("results").get<std::vector<std::string>>();
    for (const json& compare : object.at("compare")) {
      XLAD_ASSIGN_OR_RETURN(c.tolerances.emplace_back(), ReadTolerance(compare));
    }
    c.replicas = object.value<int64_t>("replicas", 1);
    c.partitions = object.value<int64_t>("partitions", 1);
    const bool differs = object.contains("xla_agrees") && object["xla_agrees"] == false && object.contains("xla_diff");
    for (const json& diff : differs ? object.at("xla_diff") : json::array()) {
      c.xla.push_back({diff.value<int64_t>("nonfinite_mismatches", 0), diff.value("max_abs", 0.0)});
    }
    constexpr int64_t kMaxProcesses = 4096;
    const bool in_range = c.replicas >= 1 && c.partitions >= 1 && c.replicas <= kMaxProcesses;
    if (!in_range || c.partitions > kMaxProcesses / c.replicas) {
      return absl::InvalidArgumentError(absl::StrCat(c.name, ": found ", c.replicas, " replicas and ", c.partitions,
                                                     " partitions, expected 1 or more each, and at most ",
                                                     kMaxProcesses, " processes"));
    }
    if (c.tolerances.size() != c.results.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(c.name, ": found ", c.tolerances.size(), " entries in compare, expected ", c.results.size()));
    }
    return c;
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

// Tensor `name` as an array of shape `shape`. The stored tensor may have another type, because the file format lacks
// some element types.
absl::StatusOr<Array> TensorOf(const tensor::NamedArrays& arrays, const std::string& name, const std::string& shape) {
  const auto found = arrays.find(name);
  if (found == arrays.end()) {
    return absl::InvalidArgumentError(absl::StrCat("found no tensor ", name, ", expected one of this name"));
  }
  XLAD_ASSIGN_OR_RETURN(const tensor::Shape parsed, tensor::ParseShape(shape));
  const auto array = tensor::FromStored(found->second, parsed);
  if (!array.ok()) return Annotate(array.status(), absl::StrCat("tensor ", name));
  return array;
}

absl::StatusOr<std::unique_ptr<Module>> ReadProgram(FileSystem& files, const std::string& path, bool through_proto) {
  XLAD_ASSIGN_OR_RETURN(const std::string text, files.Read(path));
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, ParseText(text));
  if (!through_proto) return module;
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, SerializeProto(*module));
  return ParseProto(bytes);
}

absl::Status CheckResult(const Array& actual, const Array& expected, const Case& c, int64_t i) {
  if (!(actual.shape() == expected.shape())) {
    return absl::FailedPreconditionError(absl::StrCat("result ", i, ": found ", actual.shape().ToString(),
                                                      ", expected ", expected.shape().ToString()));
  }
  const Difference difference = Compare(actual, expected, c.tolerances[i]);
  if (difference.mismatches == 0) return absl::OkStatus();
  // If XLA's own result is outside the tolerance too, this result may differ from the expected one by as much.
  if (i < std::ssize(c.xla) && difference.max_absolute <= c.xla[i].max_absolute &&
      difference.non_finite <= c.xla[i].non_finite) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("result ", i, ": ", difference.mismatches, " of ",
                                                    expected.elements(), " elements differ; element ", difference.first,
                                                    ": found ", difference.actual, ", expected ", difference.expected));
}

absl::Status RunCase(FileSystem& files, const std::string& directory, const Case& c, bool through_proto) {
  const std::string base = JoinPath(directory, c.name);
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<Module> module, ReadProgram(files, base + ".hlo", through_proto));
  XLAD_ASSIGN_OR_RETURN(const tensor::NamedArrays arrays, tensor::ReadSafetensors(files, base + ".safetensors"));
  const int64_t processes = c.replicas * c.partitions;
  module->replica_count = c.replicas;
  module->num_partitions = c.partitions;
  const auto name = [&](int64_t process, absl::string_view kind, int64_t i) {
    return absl::StrCat(processes > 1 ? absl::StrCat("p", process, ".") : "", kind, ".", i);
  };
  std::vector<std::vector<Literal>> inputs(processes);
  for (int64_t p = 0; p < processes; ++p) {
    for (const int64_t i : tensor::Indices(c.params)) {
      XLAD_ASSIGN_OR_RETURN(Array array, TensorOf(arrays, name(p, "in", i), c.params[i]));
      inputs[p].emplace_back(std::move(array));
    }
  }
  const std::vector<const Module*> modules(processes, module.get());
  XLAD_ASSIGN_OR_RETURN(const std::vector<Literal> roots, Evaluate(modules, inputs));
  for (int64_t p = 0; p < processes; ++p) {
    const std::vector<const Array*> leaves = ArrayLeaves(roots[p]);
    if (leaves.size() != c.results.size()) {
      return absl::FailedPreconditionError(
          absl::StrCat("found ", leaves.size(), " results, expected ", c.results.size()));
    }
    for (const int64_t i : tensor::Indices(leaves)) {
      XLAD_ASSIGN_OR_RETURN(const Array expected, TensorOf(arrays, name(p, "out", i), c.results[i]));
      XLAD_RETURN_IF_ERROR(CheckResult(*leaves[i], expected, c, i));
    }
  }
  return absl::OkStatus();
}

// The name and reason of each case in a list of expected failures.
std::map<std::string, std::string> ReadExpectedFailures(absl::string_view text) {
  std::map<std::string, std::string> expected;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits('#', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(parts.first);
    if (!name.empty()) expected[std::string(name)] = std::string(absl::StripAsciiWhitespace(parts.second));
  }
  return expected;
}

}  // namespace

absl::StatusOr<std::vector<ConformanceResult>> RunConformance(FileSystem& files, const std::string& directory,
                                                              const ConformanceOptions& options) {
  if (options.stride < 1) {
    return absl::InvalidArgumentError(absl::StrCat("found stride ", options.stride, ", expected 1 or more"));
  }
  XLAD_ASSIGN_OR_RETURN(const std::string manifest, files.Read(JoinPath(directory, "manifest.jsonl")));
  std::map<std::string, std::string> expected;
  if (!options.expected_failures.empty()) {
    XLAD_ASSIGN_OR_RETURN(const std::string list, files.Read(options.expected_failures));
    expected = ReadExpectedFailures(list);
  }
  std::vector<ConformanceResult> results;
  int64_t matching = 0;
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(manifest, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const auto read = ReadCase(line);
    if (!read.ok()) return Annotate(read.status(), absl::StrCat("manifest.jsonl, line ", number));
    const Case& c = *read;
    if (!absl::StartsWith(c.name, options.name_prefix)) continue;
    if (matching++ % options.stride != 0) continue;
    const absl::Status status = RunCase(files, directory, c, options.through_proto);
    ConformanceResult result{c.name, status.ok(), std::string(status.message())};
    const auto listed = expected.find(c.name);
    if (listed != expected.end()) {
      result.passed = !status.ok();
      result.message = status.ok() ? "passes but is listed as an expected failure; remove it from the list"
                                   : absl::StrCat("expected: ", listed->second);
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace xlad::hlo
