#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "base/json_text.h"
#include "base/random.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "cli/program.h"
#include "cli/values.h"
#include "hlo/analysis/leaves.h"
#include "hlo/eval/conformance.h"
#include "hlo/eval/evaluate.h"
#include "hlo/read/read.h"
#include "tensor/safetensors.h"

namespace xlad::cli {
namespace {

using hlo::Literal;
using tensor::Array;
using tensor::ElementType;

struct EvalOptions {
  std::string program, inputs, expected, output, corpus, expected_failures, form = "text", format = "table";
  uint64_t seed = 0;
  int64_t devices = 1;
  double atol = 1e-6, rtol = 1e-5;
};

// Small values that every type can hold, so that sums and exponentials stay finite.
Array RandomArray(const tensor::Shape& shape, Random* random) {
  Array values(tensor::Shape{ElementType::kF64, shape.dims});
  const bool fractional = tensor::IsFloating(shape.type) || tensor::IsComplex(shape.type);
  for (double& value : values.values<double>()) {
    value = fractional ? 2 * random->Unit() - 1
                       : static_cast<double>(random->Below(shape.type == ElementType::kPred ? 2 : 5));
  }
  return ConvertArray(values, shape.type);
}

// Returns the tensor for a parameter. Its name is "p0.in.1" (for device 0), "in.1", or that of the parameter.
absl::StatusOr<Array> FindInput(const EvalOptions& options, const tensor::NamedArrays& given,
                                const hlo::Instruction& parameter, int64_t device) {
  const std::string number = absl::StrCat("in.", parameter.number());
  for (const std::string& name : {absl::StrCat("p", device, ".", number), number, parameter.name()}) {
    const auto found = given.find(name);
    if (found == given.end()) continue;
    const auto array = tensor::FromStored(found->second, parameter.shape().array());
    if (!array.ok()) return Annotate(array.status(), absl::StrCat(options.inputs, ": tensor ", name));
    return array;
  }
  return absl::InvalidArgumentError(absl::StrCat(options.inputs, " has neither ", number, " nor ", parameter.name(),
                                                 " for parameter ", parameter.number(), " of shape ",
                                                 parameter.shape().ToString(false)));
}

absl::StatusOr<std::vector<std::vector<Literal>>> MakeInputs(const EvalOptions& options, const hlo::Module& module) {
  tensor::NamedArrays given;
  if (!options.inputs.empty()) {
    XLAD_ASSIGN_OR_RETURN(given, tensor::ReadSafetensors(RealFileSystem(), options.inputs));
  }
  const auto random = SeededRandom(options.seed);
  std::vector<std::vector<Literal>> inputs(options.devices);
  for (int64_t d = 0; d < options.devices; ++d) {
    for (const hlo::Instruction* parameter : module.entry()->parameters()) {
      if (!parameter->shape().is_array()) {
        return absl::UnimplementedError(absl::StrCat("parameter ", parameter->number(), " (", parameter->name(),
                                                     "): found shape ", parameter->shape().ToString(),
                                                     ", expected an array; make each element a parameter"));
      }
      Array array;
      if (options.inputs.empty()) {
        array = RandomArray(parameter->shape().array(), random.get());
      } else {
        XLAD_ASSIGN_OR_RETURN(array, FindInput(options, given, *parameter, d));
      }
      inputs[d].emplace_back(std::move(array));
    }
  }
  return inputs;
}

// Names the results "out.0", "out.1", ..., or, if there are several devices, "p0.out.0", ...
tensor::NamedArrays NameResults(const std::vector<Literal>& results) {
  tensor::NamedArrays named;
  for (size_t d = 0; d < results.size(); ++d) {
    const std::vector<const Array*> leaves = hlo::ArrayLeaves(results[d]);
    const std::string prefix = results.size() > 1 ? absl::StrCat("p", d, ".out.") : "out.";
    for (size_t r = 0; r < leaves.size(); ++r) named[absl::StrCat(prefix, r)] = *leaves[r];
  }
  return named;
}

absl::Status CompareOne(const EvalOptions& options, const std::string& name, const Array& found, const Array& stored) {
  const auto expected = tensor::FromStored(stored, found.shape());
  if (!expected.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": found ", found.shape().ToString(), ", expected ", stored.shape().ToString()));
  }
  hlo::Tolerance tolerance;
  tolerance.kind = hlo::Tolerance::Kind::kClose;
  tolerance.absolute = options.atol;
  tolerance.relative = options.rtol;
  const hlo::Difference difference = hlo::Compare(found, *expected, tolerance);
  if (difference.mismatches == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(name, ": element ", difference.first, ": found ", difference.actual,
                                                    ", expected ", difference.expected, " (", difference.mismatches,
                                                    " of ", found.elements(), " elements differ)"));
}

// Compares every result with the file. A result that the file lacks and an out.N that is not a result are errors.
absl::Status Compare(const EvalOptions& options, const tensor::NamedArrays& found) {
  XLAD_ASSIGN_OR_RETURN(const tensor::NamedArrays expected,
                        tensor::ReadSafetensors(RealFileSystem(), options.expected));
  for (const auto& [name, array] : found) {
    const auto entry = expected.find(name);
    if (entry == expected.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.expected, " has no ", name, ", a result of shape ", array.shape().ToString()));
    }
    XLAD_RETURN_IF_ERROR(CompareOne(options, name, array, entry->second));
  }
  for (const auto& [name, array] : expected) {
    if (absl::StrContains(name, "out.") && found.count(name) == 0) {
      return absl::FailedPreconditionError(absl::StrCat("found ", found.size(), " results, expected also ", name));
    }
  }
  std::printf("%zu results agree (atol %g, rtol %g)\n", found.size(), options.atol, options.rtol);
  return absl::OkStatus();
}

void Print(const tensor::NamedArrays& named) {
  for (const auto& [name, array] : named) {
    std::printf("%s %s", name.c_str(), array.shape().ToString().c_str());
    const bool is_complex = tensor::IsComplex(array.shape().type);
    const Array values = ConvertArray(array, is_complex ? ElementType::kC128 : ElementType::kF64);
    const auto* numbers = reinterpret_cast<const double*>(values.bytes().data());
    for (int64_t i = 0; i < std::min<int64_t>(8, values.elements()); ++i) {
      if (is_complex) {
        std::printf(" (%.9g, %.9g)", numbers[2 * i], numbers[2 * i + 1]);
      } else {
        std::printf(" %.9g", numbers[i]);
      }
    }
    std::printf("%s\n", values.elements() > 8 ? " ..." : "");
  }
}

absl::Status RunProgram(const EvalOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, ReadInput(options.program));
  const auto module = hlo::ReadModule(bytes);
  if (!module.ok()) return Annotate(module.status(), options.program);
  WarnOfElidedConstants(**module);
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::vector<Literal>> inputs, MakeInputs(options, **module));
  const std::vector<const hlo::Module*> modules(options.devices, module->get());
  const auto results = hlo::Evaluate(modules, inputs);
  if (!results.ok()) return Annotate(results.status(), options.program);
  const tensor::NamedArrays named = NameResults(*results);
  if (!options.output.empty()) {
    XLAD_RETURN_IF_ERROR(tensor::WriteSafetensors(RealFileSystem(), options.output, named));
  }
  if (!options.expected.empty()) return Compare(options, named);
  if (options.output.empty()) Print(named);
  return absl::OkStatus();
}

int RunCorpus(const EvalOptions& options) {
  hlo::ConformanceOptions conformance;
  conformance.through_proto = options.form == "proto";
  conformance.expected_failures = options.expected_failures;
  const auto report = hlo::RunConformance(RealFileSystem(), options.corpus, conformance);
  if (!report.ok()) return Fail(report.status());
  const auto passed = std::count_if(report->begin(), report->end(), [](const auto& result) { return result.passed; });
  const auto failed = static_cast<int64_t>(report->size()) - passed;
  if (options.format == "json") {
    nlohmann::ordered_json json;
    json["passed"] = passed;
    json["failed"] = failed;
    json["cases"] = nlohmann::ordered_json::array();
    for (const auto& result : *report) {
      json["cases"].push_back({{"name", result.name}, {"passed", result.passed}, {"message", result.message}});
    }
    std::printf("%s\n", JsonText(json, 1).c_str());
  } else {
    for (const auto& result : *report) {
      if (!result.passed) std::printf("FAILED %s: %s\n", result.name.c_str(), result.message.c_str());
    }
    absl::PrintF("%d passed, %d failed\n", passed, failed);
  }
  return failed == 0 ? kOk : kFailed;
}

int RunEval(const EvalOptions& options) {
  if (!options.corpus.empty()) return RunCorpus(options);
  if (options.program.empty()) {
    return Fail(WrongUsage(absl::InvalidArgumentError("found no program, expected PROGRAM or --corpus DIR")));
  }
  const absl::Status status = RunProgram(options);
  return status.ok() ? kOk : Fail(status);
}

}  // namespace

void AddEval(CLI::App& parent, Action* action) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* app = parent.add_subcommand("eval", "run a program on the reference evaluator");
  app->footer(
      "Examples:\n"
      "  xlad eval program.hlo --random 1\n"
      "  xlad eval program.hlo --inputs in.safetensors --expected out.safetensors --rtol 1e-4\n"
      "  xlad eval --corpus conformance --format json");
  auto* program = app->add_option("PROGRAM", options->program, "HLO text or proto, or - for standard input");
  auto* inputs = app->add_option("--inputs", options->inputs, "safetensors with in.0, in.1, ... or parameter names");
  app->add_option("--random", options->seed, "generate inputs from this seed (default if there is no --inputs: 0)")
      ->excludes(inputs);
  app->add_option("--devices", options->devices, "run on N devices, whose tensors are p0.in.0, p1.in.0, ...")
      ->check(Between(1, 4096));
  app->add_option("--expected", options->expected, "safetensors with out.0, out.1, ... to compare with");
  app->add_option("--atol", options->atol, "absolute tolerance")->capture_default_str()->check(NonNegativeNumber());
  app->add_option("--rtol", options->rtol, "relative tolerance")->capture_default_str()->check(NonNegativeNumber());
  app->add_option("-o", options->output, "write the results to FILE (safetensors)")->check(OutputFile());
  auto* corpus = app->add_option("--corpus", options->corpus, "run every case of the manifest.jsonl in this folder");
  corpus->excludes(inputs)->excludes(program);
  app->add_option("--expected-failures", options->expected_failures,
                  "file of cases that must fail, lines of \"NAME  # reason\"; the run fails if one of them passes")
      ->needs(corpus);
  app->add_option("--form", options->form, "read the corpus as text, or convert it to a proto and back first")
      ->capture_default_str()
      ->check(OneOf({"text", "proto"}));
  AddFormatFlag(app, &options->format);
  app->callback([=] { *action = [=] { return RunEval(*options); }; });
}

}  // namespace xlad::cli
