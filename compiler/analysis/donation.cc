// Finds the parameters that may be overwritten.
#include "compiler/analysis/donation.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "hlo/analysis/leaves.h"

namespace xlad::compiler {
namespace {

std::string IndexText(const Dims& index) { return absl::StrCat("{", absl::StrJoin(index, ","), "}"); }

// The number of the leaf at `index` of a shape. If it is not an array, the error is a clause that says so.
absl::StatusOr<int64_t> LeafAt(const Shape& shape, const Dims& index) {
  const Shape* at = &shape;
  int64_t leaf = 0;
  for (int64_t i : index) {
    if (!at->is_tuple() || i < 0 || i >= std::ssize(at->tuple())) {
      return absl::InvalidArgumentError("which does not exist");
    }
    leaf += FirstLeaf(*at, i);
    at = &at->tuple()[i];
  }
  if (!at->is_array()) return absl::InvalidArgumentError(absl::StrCat("which is ", at->ToString(false)));
  return leaf;
}

// The leaves of all entry parameters. Leaves are numbered from 0 across parameters.
class ParameterLeaves {
 public:
  explicit ParameterLeaves(const Computation& entry) {
    for (const Instruction* parameter : entry.parameters()) {
      first_.push_back(std::ssize(shapes_));
      parameters_.push_back(parameter);
      AppendLeaves(parameter->shape(), &shapes_);
    }
  }
  // `list` is the attribute that names the parameter.
  absl::StatusOr<int64_t> Find(const char* list, int64_t parameter, const Dims& index) const {
    absl::Status status = absl::InvalidArgumentError("which does not exist");
    if (parameter >= 0 && parameter < std::ssize(parameters_)) {
      const absl::StatusOr<int64_t> leaf = LeafAt(parameters_[parameter]->shape(), index);
      if (leaf.ok()) return first_[parameter] + *leaf;
      status = leaf.status();
    }
    return absl::InvalidArgumentError(absl::StrCat(list, ": found parameter ", parameter, " ", IndexText(index), ", ",
                                                   status.message(), ", expected an array of the entry's ",
                                                   Counted(parameters_.size(), "parameter")));
  }
  const std::vector<const Shape*>& shapes() const { return shapes_; }

 private:
  std::vector<const Instruction*> parameters_;
  std::vector<int64_t> first_;
  std::vector<const Shape*> shapes_;
};

// What is wrong with an alias: "input_output_alias of result {0} and parameter 1 {}: found ..."
absl::Status AliasError(const hlo::InputOutputAlias& alias, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("input_output_alias of result ", IndexText(alias.output_index),
                                                 " and parameter ", alias.parameter, " ",
                                                 IndexText(alias.parameter_index), ": found ", problem));
}

}  // namespace

absl::StatusOr<Donation> DonationOf(const Module& module) {
  const ParameterLeaves parameters(*module.entry());
  const Shape& result = module.entry()->root()->shape();
  const std::vector<const Shape*> results = Leaves(result);
  Donation donation;
  donation.parameter_is_donated.resize(parameters.shapes().size(), false);
  donation.result_to_parameter.resize(results.size(), -1);
  for (const hlo::BufferDonor& donor : module.buffer_donors) {
    XLAD_ASSIGN_OR_RETURN(int64_t leaf, parameters.Find("buffer_donor", donor.parameter, donor.parameter_index));
    donation.parameter_is_donated[leaf] = true;
  }
  std::vector<bool> parameter_is_taken(parameters.shapes().size(), false), result_is_taken(results.size(), false);
  for (const hlo::InputOutputAlias& alias : module.input_output_alias) {
    XLAD_ASSIGN_OR_RETURN(int64_t parameter,
                          parameters.Find("input_output_alias", alias.parameter, alias.parameter_index));
    const absl::StatusOr<int64_t> output = LeafAt(result, alias.output_index);
    if (!output.ok()) {
      return AliasError(alias, absl::StrCat("a result ", output.status().message(), ", expected an array"));
    }
    if (parameter_is_taken[parameter] || result_is_taken[*output]) {
      return AliasError(alias, absl::StrCat("another alias of this ",
                                            parameter_is_taken[parameter] ? "parameter" : "result",
                                            ", expected one result for one parameter"));
    }
    parameter_is_taken[parameter] = result_is_taken[*output] = true;
    const Shape& from = *parameters.shapes()[parameter];
    const Shape& to = *results[*output];
    donation.parameter_is_donated[parameter] = true;
    if (!from.SameIgnoringLayout(to)) {
      if (!alias.must_alias) continue;  // The parameter is donated, but this result does not use its memory.
      return AliasError(alias, absl::StrCat("the shapes ", to.ToString(false), " and ", from.ToString(false),
                                            ", expected equal shapes"));
    }
    donation.result_to_parameter[*output] = parameter;
  }
  return donation;
}

}  // namespace xlad::compiler
