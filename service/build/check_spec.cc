#include "service/build/check_spec.h"

#include <vector>

#include "storage/job_uris.h"
#include "tensor/wire.h"

namespace xlad::service {
namespace {

using tensor::ElementType;
using tensor::SafetensorsIndex;
using tensor::Shape;
using tensor::ShapeFromWire;

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

// Element types without a name in safetensors are stored as bytes (U8), possibly with more dimensions.
bool SameStored(const Shape& found, const Shape& expected) {
  if (found == expected) return true;
  return found.type == ElementType::kU8 && found.bytes() == expected.bytes() &&
         found.dims.size() >= expected.dims.size();
}

// Workers would not write parameters of other kinds before a step, and would not use such results after it.
absl::Status CheckKinds(const JobSpec& spec) {
  using Parameter = JobSpec::Parameter;
  using Result = JobSpec::Result;
  const auto name = [](const std::string& known, int number) { return known.empty() ? absl::StrCat(number) : known; };
  for (int p = 0; p < spec.parameters_size(); ++p) {
    const Parameter::Kind kind = spec.parameters(p).kind();
    const bool is_of_job = kind == Parameter::STATE || kind == Parameter::DATA || kind == Parameter::STEP;
    if (spec.session() ? kind == Parameter::ARGUMENT : is_of_job) continue;
    return Bad(absl::StrCat("parameter ", p, " (\"", spec.parameters(p).name(), "\"): found kind ",
                            name(Parameter::Kind_Name(kind), kind), ", expected ",
                            spec.session() ? "ARGUMENT" : "STATE, DATA or STEP"));
  }
  for (int r = 0; r < spec.results_size(); ++r) {
    const Result::Kind kind = spec.results(r).kind();
    const bool is_of_job = kind == Result::STATE || kind == Result::LOSS || kind == Result::METRIC;
    if (spec.session() ? kind == Result::VALUE : is_of_job) continue;
    return Bad(absl::StrCat("result ", r, " (\"", spec.results(r).name(), "\"): found kind ",
                            name(Result::Kind_Name(kind), kind), ", expected ",
                            spec.session() ? "VALUE" : "STATE, LOSS or METRIC"));
  }
  return absl::OkStatus();
}

absl::Status CheckParameter(const JobSpec& spec, int p, const SafetensorsIndex& state, const SafetensorsIndex& data) {
  const JobSpec::Parameter& parameter = spec.parameters(p);
  Shape expected = ShapeFromWire(parameter.shape());
  const std::string place = absl::StrCat("parameter ", p, " (\"", parameter.name(), "\")");
  if (parameter.kind() == JobSpec::Parameter::STEP) {
    if (!expected.dims.empty() || !tensor::IsInteger(expected.type)) {
      return Bad(absl::StrCat(place, ": found kind step with shape ", expected.ToString(),
                              ", expected an integer scalar, such as s32[]"));
    }
    return absl::OkStatus();
  }
  if (parameter.kind() == JobSpec::Parameter::ARGUMENT) return absl::OkStatus();
  const bool is_data = parameter.kind() == JobSpec::Parameter::DATA;
  if (is_data) {
    if (expected.dims.empty() || expected.dims[0] != spec.batch_size()) {
      return Bad(absl::StrCat(place, ": found data of shape ", expected.ToString(), ", expected ", spec.batch_size(),
                              " rows (the batch size)"));
    }
    if (spec.data_uri() == storage::kStreamUri) return absl::OkStatus();  // Workers check each batch.
    if (__builtin_mul_overflow(spec.batch_size(), spec.batch_count(), &expected.dims[0])) expected.dims[0] = INT64_MAX;
    const absl::Status is_possible = tensor::CheckedElements(expected.type, expected.dims).status();
    if (!is_possible.ok()) return Annotate(is_possible, absl::StrCat(place, " in all batches"));
  }
  const SafetensorsIndex& index = is_data ? data : state;
  const char* file = is_data ? "data.safetensors" : "state.safetensors";
  const auto entry = index.find(parameter.name());
  if (entry == index.end()) {
    return Bad(absl::StrCat(place, ": found no tensor of that name in ", file, ", expected ", expected.ToString()));
  }
  Shape found = entry->second.shape;
  if (is_data && !found.dims.empty() && found.dims[0] > expected.dims[0]) found.dims[0] = expected.dims[0];
  if (!SameStored(found, expected)) {
    return Bad(absl::StrCat(place, ": found ", entry->second.shape.ToString(), " in ", file, ", expected ",
                            expected.ToString(), is_data ? " or more rows" : ""));
  }
  return absl::OkStatus();
}

std::vector<hlo::Shape> ResultShapes(const hlo::Module& module) {
  const hlo::Shape& root = module.entry()->root()->shape();
  return root.is_tuple() ? root.tuple() : std::vector<hlo::Shape>{root};
}

absl::Status CheckAgainstProgram(const JobSpec& spec, const hlo::Module& module) {
  const auto& parameters = module.entry()->parameters();
  if (std::ssize(parameters) != spec.parameters_size()) {
    return Bad(absl::StrCat("found ", spec.parameters_size(), " parameters in the manifest, expected ",
                            parameters.size(), ", as the program has"));
  }
  for (int p = 0; p < spec.parameters_size(); ++p) {
    const hlo::Shape& expected = parameters[p]->shape();
    const Shape found = ShapeFromWire(spec.parameters(p).shape());
    if (!expected.is_array() || expected.array() != found) {
      return Bad(absl::StrCat("parameter ", p, " (\"", spec.parameters(p).name(), "\"): found ", found.ToString(),
                              " in the manifest, expected ", expected.ToString(false), ", as the program has"));
    }
  }
  const std::vector<hlo::Shape> results = ResultShapes(module);
  if (std::ssize(results) != spec.results_size()) {
    return Bad(absl::StrCat("found ", spec.results_size(), " results in the manifest, expected ", results.size(),
                            ", as the program has"));
  }
  for (int r = 0; r < spec.results_size(); ++r) {
    const hlo::Shape& expected = results[r];
    const Shape found = ShapeFromWire(spec.results(r).shape());
    if (!expected.is_array() || expected.array() != found) {
      return Bad(absl::StrCat("result ", r, " (\"", spec.results(r).name(), "\"): found ", found.ToString(),
                              " in the manifest, expected ", expected.ToString(false), ", as the program has"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckResult(const JobSpec& spec, int r) {
  const JobSpec::Result& result = spec.results(r);
  const std::string place = absl::StrCat("result ", r, " (\"", result.name(), "\")");
  const Shape shape = ShapeFromWire(result.shape());
  if (result.kind() == JobSpec::Result::LOSS || result.kind() == JobSpec::Result::METRIC) {
    if (shape != Shape{ElementType::kF32, {}}) {
      return Bad(absl::StrCat(place, ": found a loss or metric of shape ", shape.ToString(), ", expected f32[]"));
    }
    if (result.feeds() >= 0) {
      return Bad(absl::StrCat(place, ": found a loss or metric that feeds parameter ", result.feeds(),
                              ", expected feeds -1, because only a result of kind state feeds a parameter"));
    }
  }
  if (result.feeds() < 0) return absl::OkStatus();
  if (result.feeds() >= spec.parameters_size()) {
    return Bad(
        absl::StrCat(place, ": found feeds ", result.feeds(), ", expected a parameter below ", spec.parameters_size()));
  }
  const JobSpec::Parameter& parameter = spec.parameters(result.feeds());
  if (parameter.kind() != JobSpec::Parameter::STATE && parameter.kind() != JobSpec::Parameter::ARGUMENT) {
    return Bad(
        absl::StrCat(place, ": feeds parameter ", result.feeds(), " (\"", parameter.name(), "\"), which is not state"));
  }
  if (ShapeFromWire(parameter.shape()) != shape) {
    return Bad(absl::StrCat(place, ": found ", shape.ToString(), ", expected ",
                            ShapeFromWire(parameter.shape()).ToString(), ", the shape of the parameter it feeds (\"",
                            parameter.name(), "\")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CompleteSessionSpec(const hlo::Module& module, JobSpec* spec) {
  spec->clear_parameters();
  const auto set_shape = [](const std::string& place, const hlo::Shape& shape, ArrayShape* out) {
    if (!shape.is_array()) return Bad(absl::StrCat(place, ": found ", shape.ToString(false), ", expected an array"));
    tensor::ShapeToWire(shape.array(), out);
    return absl::OkStatus();
  };
  for (const auto* parameter : module.entry()->parameters()) {
    const std::string place = absl::StrCat("parameter ", spec->parameters_size());
    JobSpec::Parameter* out = spec->add_parameters();
    out->set_kind(JobSpec::Parameter::ARGUMENT);
    XLAD_RETURN_IF_ERROR(set_shape(place, parameter->shape(), out->mutable_shape()));
  }
  const std::vector<hlo::Shape> results = ResultShapes(module);
  const int given = spec->results_size();
  if (given != 0 && given != std::ssize(results)) {
    return Bad(absl::StrCat("found feeds for ", given, " results, expected them for none or for ", results.size(),
                            ", as the program has"));
  }
  for (int r = 0; r < std::ssize(results); ++r) {
    JobSpec::Result* out = given != 0 ? spec->mutable_results(r) : spec->add_results();
    if (given == 0) out->set_feeds(-1);
    out->set_kind(JobSpec::Result::VALUE);
    XLAD_RETURN_IF_ERROR(set_shape(absl::StrCat("result ", r), results[r], out->mutable_shape()));
  }
  return absl::OkStatus();
}

absl::Status CheckSpec(const JobSpec& spec, const hlo::Module& module, const SafetensorsIndex& state,
                       const SafetensorsIndex& data) {
  XLAD_RETURN_IF_ERROR(CheckKinds(spec));
  XLAD_RETURN_IF_ERROR(CheckAgainstProgram(spec, module));
  for (int p = 0; p < spec.parameters_size(); ++p) {
    XLAD_RETURN_IF_ERROR(CheckParameter(spec, p, state, data));
  }
  std::vector<bool> fed(spec.parameters_size(), false);
  for (int r = 0; r < spec.results_size(); ++r) {
    XLAD_RETURN_IF_ERROR(CheckResult(spec, r));
    const int64_t feeds = spec.results(r).feeds();
    if (feeds < 0) continue;
    if (fed[feeds]) {
      return Bad(
          absl::StrCat("result ", r, ": found a second result that feeds parameter ", feeds, ", expected one at most"));
    }
    fed[feeds] = true;
  }
  return absl::OkStatus();
}

}  // namespace xlad::service
