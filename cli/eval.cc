#include "hlo/eval/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "cli/command.h"
#include "cli/values.h"
#include "hlo/eval/conformance.h"
#include "hlo/read.h"
#include "tensor/safetensors.h"

namespace xlad::cli {
namespace {

using hlo::Literal;
using tensor::Array;
using tensor::ElementType;

struct Options {
  std::string program, inputs, expected, output, corpus, expected_failures, form = "text", format = "table";
  uint64_t seed = 0;
  bool random = false;
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

absl::StatusOr<std::vector<Literal>> MakeInputs(const Options& options, const hlo::Module& module) {
  tensor::NamedArrays given;
  if (!options.inputs.empty()) {
    XLAD_ASSIGN_OR_RETURN(given, tensor::ReadSafetensors(RealFileSystem(), options.inputs));
  }
  const auto random = SeededRandom(options.seed);
  std::vector<Literal> inputs;
  for (const hlo::Instruction* parameter : module.entry()->parameters()) {
    const std::string place = absl::StrCat("parameter ", inputs.size(), " (", parameter->name(), ")");
    if (!parameter->shape().is_array()) {
      return absl::UnimplementedError(absl::StrCat(place, ": found shape ", parameter->shape().ToString(),
                                                   ", expected an array"));
    }
    if (options.inputs.empty()) {
      inputs.emplace_back(RandomArray(parameter->shape().array(), random.get()));
      continue;
    }
    auto found = given.find(absl::StrCat("in.", inputs.size()));
    if (found == given.end()) found = given.find(parameter->name());
    if (found == given.end()) {
      return absl::InvalidArgumentError(absl::StrCat(options.inputs, " has neither in.", inputs.size(), " nor ",
                                                     parameter->name(), " for ", place));
    }
    inputs.emplace_back(found->second);
  }
  return inputs;
}

tensor::NamedArrays NameResults(const Literal& result) {
  tensor::NamedArrays named;
  if (!result.is_tuple) {
    named["out.0"] = result.array;
    return named;
  }
  for (size_t r = 0; r < result.tuple.size(); ++r) named[absl::StrCat("out.", r)] = result.tuple[r].array;
  return named;
}

absl::Status Compare(const Options& options, const tensor::NamedArrays& found) {
  XLAD_ASSIGN_OR_RETURN(const tensor::NamedArrays expected,
                        tensor::ReadSafetensors(RealFileSystem(), options.expected));
  hlo::Tolerance tolerance;
  tolerance.kind = hlo::Tolerance::Kind::kClose;
  tolerance.absolute = options.atol;
  tolerance.relative = options.rtol;
  for (const auto& [name, array] : expected) {
    const auto result = found.find(name);
    if (result == found.end()) continue;
    if (result->second.shape() != array.shape()) {
      return absl::FailedPreconditionError(absl::StrCat(name, ": found ", result->second.shape().ToString(),
                                                        ", expected ", array.shape().ToString()));
    }
    const hlo::Difference difference = hlo::Compare(result->second, array, tolerance);
    if (difference.mismatches > 0) {
      return absl::FailedPreconditionError(absl::StrCat(name, ": element ", difference.first, ": found ",
                                                        difference.actual, ", expected ", difference.expected, " (",
                                                        difference.mismatches, " of ", array.elements(),
                                                        " elements differ)"));
    }
  }
  return absl::OkStatus();
}

absl::Status RunProgram(const Options& options) {
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, ReadInput(options.program));
  const auto module = hlo::ReadModule(bytes);
  if (!module.ok()) return Annotate(module.status(), options.program);
  XLAD_ASSIGN_OR_RETURN(const std::vector<Literal> inputs, MakeInputs(options, **module));
  XLAD_ASSIGN_OR_RETURN(const Literal result, hlo::Evaluate(**module, inputs));
  const tensor::NamedArrays named = NameResults(result);
  if (!options.expected.empty()) XLAD_RETURN_IF_ERROR(Compare(options, named));
  if (!options.output.empty()) return tensor::WriteSafetensors(RealFileSystem(), options.output, named);
  for (const auto& [name, array] : named) {
    std::printf("%s %s", name.c_str(), array.shape().ToString().c_str());
    const Array values = ConvertArray(array, ElementType::kF64);
    for (int64_t i = 0; i < std::min<int64_t>(8, values.elements()); ++i) {
      std::printf(" %.9g", values.values<double>()[static_cast<size_t>(i)]);
    }
    std::printf("%s\n", values.elements() > 8 ? " ..." : "");
  }
  return absl::OkStatus();
}

int RunCorpus(const Options& options) {
  hlo::ConformanceOptions conformance;
  conformance.through_proto = options.form == "proto";
  if (!options.expected_failures.empty()) {
    const auto list = RealFileSystem().Read(options.expected_failures);
    if (!list.ok()) return Fail(list.status());
    conformance.expected_failures = *list;
  }
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
    std::printf("%s\n", json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    for (const auto& result : *report) {
      if (!result.passed) std::printf("FAILED %s: %s\n", result.name.c_str(), result.message.c_str());
    }
    std::printf("%lld passed, %lld failed\n", static_cast<long long>(passed), static_cast<long long>(failed));
  }
  return failed == 0 ? kOk : kFailed;
}

int Run(const Options& options) {
  if (!options.corpus.empty()) return RunCorpus(options);
  if (options.program.empty())
    return Fail(absl::InvalidArgumentError("found no program, expected PROGRAM or --corpus"));
  const absl::Status status = RunProgram(options);
  return status.ok() ? kOk : Fail(status);
}

}  // namespace

void AddEval(CLI::App& parent, Action* action) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand("eval", "run a program on the reference evaluator");
  app->footer("Examples:\n"
              "  xlad eval program.hlo --random 1\n"
              "  xlad eval program.hlo --inputs in.safetensors --expected out.safetensors --rtol 1e-4\n"
              "  xlad eval --corpus conformance --format json");
  app->add_option("PROGRAM", options->program, "HLO text or proto, or - for standard input");
  auto* inputs = app->add_option("--inputs", options->inputs, "safetensors with in.0, in.1, ... or parameter names");
  app->add_option("--random", options->seed, "make inputs from this seed")->excludes(inputs);
  app->add_option("--expected", options->expected, "safetensors with out.0, out.1, ... to compare with");
  app->add_option("--atol", options->atol, "absolute tolerance")->capture_default_str();
  app->add_option("--rtol", options->rtol, "relative tolerance")->capture_default_str();
  app->add_option("-o", options->output, "write the results to FILE (safetensors)");
  app->add_option("--corpus", options->corpus, "run every case of the manifest.jsonl in this folder");
  app->add_option("--expected-failures", options->expected_failures, "cases that may fail, one a line");
  app->add_option("--form", options->form, "read the corpus as text, or again through our own proto")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "proto"}));
  AddFormatFlag(app, &options->format);
  app->callback([=] { *action = [=] { return Run(*options); }; });
}

}  // namespace xlad::cli
