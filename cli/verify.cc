#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "cli/program.h"
#include "cli/values.h"
#include "hlo/eval/evaluate.h"
#include "sharding/partition/ops/families.h"
#include "sharding/proof/equivalence.h"
#include "sharding/proof/first_difference.h"
#include "sharding/proof/manual_reference.h"
#include "sharding/proof/widen.h"
#include "tensor/safetensors.h"

namespace xlad::cli {
namespace {

using hlo::Literal;
using tensor::Array;
using tensor::ElementType;

absl::StatusOr<tensor::NamedArrays> ReadAll(const absl::StatusOr<std::shared_ptr<storage::TensorSource>>& source) {
  if (!source.ok()) return source.status();
  tensor::NamedArrays arrays;
  if (*source == nullptr) return arrays;
  for (const auto& [name, stored] : (*source)->tensors()) {
    std::vector<std::byte> bytes(stored.shape.bytes());
    const storage::BoxRead read{name, stored.shape.type, tensor::FullBox(stored.shape), absl::MakeSpan(bytes)};
    XLAD_RETURN_IF_ERROR((*source)->Read({read}));
    arrays.emplace(name, Array(stored.shape, std::move(bytes)));
  }
  return arrays;
}

// Returns the inputs of step `t`: state, rows of data, the step number.
absl::StatusOr<std::vector<Literal>> InputsOf(const client::Job& job, const hlo::Module& module, int64_t t) {
  XLAD_ASSIGN_OR_RETURN(const tensor::NamedArrays state, ReadAll(client::OpenState(RealFileSystem(), job)));
  XLAD_ASSIGN_OR_RETURN(const tensor::NamedArrays data, ReadAll(client::OpenData(RealFileSystem(), job)));
  std::vector<Literal> inputs;
  for (const JobSpec::Parameter& parameter : job.spec.parameters()) {
    const tensor::Shape& shape = module.entry()->parameter(std::ssize(inputs))->shape().array();
    if (parameter.kind() == JobSpec::Parameter::STEP) {
      inputs.emplace_back(ConvertArray(Array::FromValues<int64_t>(ElementType::kS64, {}, {t}), shape.type));
      continue;
    }
    const bool is_data = parameter.kind() == JobSpec::Parameter::DATA;
    const auto& named = is_data ? data : state;
    const auto found = named.find(parameter.name());
    if (found == named.end()) {
      return absl::InvalidArgumentError(absl::StrCat("found no tensor \"", parameter.name(), "\" in ",
                                                     is_data ? "data.safetensors" : "state.safetensors",
                                                     ", expected every tensor that manifest.json names"));
    }
    tensor::Shape all = shape;  // With the rows of all batches.
    const tensor::Dims& stored = found->second.shape().dims;
    if (is_data && !all.dims.empty() && !stored.empty()) all.dims[0] = stored[0];
    const absl::StatusOr<Array> array = tensor::FromStored(found->second, all);
    if (!array.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", parameter.name(), "\": ", array.status().message()));
    }
    tensor::Box box = tensor::FullBox(all);
    if (is_data && !box.hi.empty()) {
      box.lo[0] = t % job.spec.batch_count() * job.spec.batch_size();
      box.hi[0] = box.lo[0] + job.spec.batch_size();
    }
    inputs.emplace_back(tensor::ExtractBox(*array, box, box.sizes()));
  }
  return inputs;
}

const Array& ResultOf(const Literal& results, size_t r) {
  return results.is_tuple ? results.tuple[r].array : results.array;
}

// Prints the results that differ, and returns their number. Integers and pred must be equal. Other results may differ
// by the sum of the tolerance, which is relative to the largest finite value, and the effect of rounding. The effect of
// rounding is estimated from `nudged`, the results for slightly changed inputs.
int64_t PrintDifferences(const JobSpec& spec, const Literal& expected, const Literal& nudged, const Literal& found,
                         double tolerance) {
  int64_t bad = 0;
  for (int r = 0; r < (expected.is_tuple ? std::ssize(expected.tuple) : 1); ++r) {
    const Array& want = ResultOf(expected, r);
    const Array& got = ResultOf(found, r);
    const bool exact = !tensor::IsFloating(want.shape().type) && !tensor::IsComplex(want.shape().type);
    const double difference = sharding::LargestDifference(got, want);
    const double allowed = sharding::AllowedDifference(want, ResultOf(nudged, r), tolerance);
    if (exact ? std::ranges::equal(want.bytes(), got.bytes()) : difference <= allowed) continue;
    ++bad;
    std::printf(
        "result %d (%s) [%s] differs: %s\n", r, spec.results(r).name().c_str(),
        absl::StrJoin(want.shape().dims, ",").c_str(),
        exact ? "expected the same bits" : absl::StrCat("by ", difference, ", expected at most ", allowed).c_str());
  }
  return bad;
}

// The unpartitioned program, which is evaluated on one device. If it has manual computations, it is instead evaluated
// on the devices of its mesh, partitioned only by the manual computations.
struct Meaning {
  std::unique_ptr<hlo::Module> whole;
  std::optional<sharding::MappedProgram> manual;
};

absl::StatusOr<Meaning> MeaningOf(std::unique_ptr<hlo::Module> module, const sharding::ImportOptions& import) {
  Meaning meaning;
  if (sharding::HasManualComputations(*module)) {
    XLAD_ASSIGN_OR_RETURN(meaning.manual, sharding::PartitionManualOnly(std::move(module), import));
    XLAD_RETURN_IF_ERROR(sharding::Widen(&meaning.manual->program));
  } else {
    meaning.whole = std::move(module);
    XLAD_RETURN_IF_ERROR(sharding::Widen(meaning.whole.get()));
  }
  return meaning;
}

absl::StatusOr<Literal> Evaluate(const Meaning& meaning, const std::vector<Literal>& inputs) {
  return meaning.manual ? sharding::EvaluatePartitioned(meaning.manual->program, inputs)
                        : hlo::Evaluate(*meaning.whole, inputs);
}

// Prints the first instruction of the unpartitioned program whose value differs on the devices.
absl::Status Locate(sharding::ShardedModule whole, const Meaning& meaning, const std::vector<Literal>& inputs,
                    double tolerance) {
  sharding::MappedProgram mapped;
  mapped.whole = std::move(whole);
  XLAD_ASSIGN_OR_RETURN(mapped.program, sharding::Partition(mapped.whole, sharding::FamilyOf, &mapped.source_map));
  XLAD_RETURN_IF_ERROR(sharding::Widen(mapped.whole.module.get()));
  XLAD_RETURN_IF_ERROR(sharding::Widen(&mapped.program));
  XLAD_ASSIGN_OR_RETURN(
      const std::optional<sharding::Difference> first,
      sharding::FirstDifference(mapped, meaning.manual ? &*meaning.manual : nullptr, inputs, tolerance));
  std::printf("%s\n", first ? absl::StrCat("first difference: ", first->ToString()).c_str()
                            : "no single instruction differs by that much; small differences accumulate");
  return absl::OkStatus();
}

absl::Status RunVerify(const std::string& path, const std::string& mesh, double tolerance) {
  XLAD_ASSIGN_OR_RETURN(LoadedProgram program, LoadProgram(path, mesh));
  if (!program.is_job) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": found a program, expected a job directory, because xlad verify needs its inputs"));
  }
  const client::Job job = program.job;
  const sharding::ImportOptions import = program.import;
  XLAD_ASSIGN_OR_RETURN(const std::vector<Literal> given, InputsOf(job, *program.module, 0));
  XLAD_ASSIGN_OR_RETURN(const std::vector<Literal> inputs, sharding::Widen(given));
  std::unique_ptr<hlo::Module> whole = program.module->Clone();
  XLAD_ASSIGN_OR_RETURN(sharding::PipelineResult result, PartitionProgram(std::move(program)));
  XLAD_ASSIGN_OR_RETURN(const Meaning meaning, MeaningOf(std::move(whole), import));
  XLAD_ASSIGN_OR_RETURN(const Literal expected, Evaluate(meaning, inputs));
  XLAD_RETURN_IF_ERROR(sharding::Widen(&result.partitioned));
  XLAD_ASSIGN_OR_RETURN(const Literal partitioned, sharding::EvaluatePartitioned(result.partitioned, inputs));
  const size_t results = expected.is_tuple ? expected.tuple.size() : 1;
  XLAD_ASSIGN_OR_RETURN(const Literal nudged, Evaluate(meaning, sharding::Nudged(inputs)));
  const int64_t bad = PrintDifferences(job.spec, expected, nudged, partitioned, tolerance);
  if (bad > 0) {
    const absl::Status located = Locate(std::move(result.propagated), meaning, inputs, tolerance);
    if (!located.ok()) {
      std::printf("the first difference could not be located: %s\n", std::string(located.message()).c_str());
    }
    return absl::FailedPreconditionError(absl::StrCat(bad, " of ", results, " results of the partitioned program "
                                                      "differ from the unpartitioned program's by more than rounding "
                                                      "and a relative tolerance of ",
                                                      tolerance));
  }
  std::printf(
      "%zu results on mesh %s agree with the unpartitioned program within rounding and a relative tolerance of %g\n",
      results, result.partitioned.mesh.ToString().c_str(), tolerance);
  return absl::OkStatus();
}

}  // namespace

void AddVerify(CLI::App& parent, Action* action) {
  auto path = std::make_shared<std::string>();
  auto mesh = std::make_shared<std::string>();
  auto tolerance = std::make_shared<double>(1e-6);
  CLI::App* app =
      parent.add_subcommand("verify", "compare a job's first step, partitioned and unpartitioned, on the evaluator");
  app->footer("Example:\n  xlad verify examples/spiral_mlp --mesh dp=4,tp=2");
  app->add_option("JOBDIR", *path, "job directory")->required();
  app->add_option("--mesh", *mesh, "mesh axes and sizes, such as dp=4,tp=2")->check(MeshAxes());
  app->add_option("--tolerance", *tolerance, "allowed difference, relative to a result's largest value")
      ->capture_default_str()
      ->check([](const std::string& text) {
        double value = 0;
        const bool is_valid = absl::SimpleAtod(text, &value) && std::isfinite(value) && value >= 0;
        return is_valid ? std::string() : absl::StrCat("found ", text, ", expected a number of 0 or more");
      });
  app->callback([=] {
    *action = [=] {
      const absl::Status status = RunVerify(*path, *mesh, *tolerance);
      return status.ok() ? kOk : Fail(status);
    };
  });
}

}  // namespace xlad::cli
