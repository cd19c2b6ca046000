// Finds the parameters that may be overwritten.
#include "compiler/analysis/donation.h"

#include "hlo/analysis/leaves.h"

namespace xlad::compiler {
namespace {

// The number of the leaf at `index` of a shape, or -1 if there is no array.
int64_t LeafAt(const Shape& shape, const Dims& index) {
  const Shape* at = &shape;
  int64_t leaf = 0;
  for (int64_t i : index) {
    if (!at->is_tuple() || i < 0 || i >= std::ssize(at->tuple())) return -1;
    leaf += FirstLeaf(*at, i);
    at = &at->tuple()[i];
  }
  return at->is_array() ? leaf : -1;
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
  absl::StatusOr<int64_t> Find(int64_t parameter, const Dims& index) const {
    if (parameter >= 0 && parameter < std::ssize(parameters_)) {
      const int64_t leaf = LeafAt(parameters_[parameter]->shape(), index);
      if (leaf >= 0) return first_[parameter] + leaf;
    }
    if (parameter < 0 || parameter >= std::ssize(parameters_)) {
      return absl::InvalidArgumentError(absl::StrCat("input_output_alias or buffer_donor: found parameter ", parameter,
                                                     ", expected one of the entry's ", parameters_.size(),
                                                     " parameters"));
    }
    std::string path;
    for (const int64_t i : index) absl::StrAppend(&path, path.empty() ? "" : ",", i);
    return absl::InvalidArgumentError(absl::StrCat("input_output_alias or buffer_donor: found index {", path,
                                                   "} of parameter ", parameter, ", expected the index of an array"));
  }
  const std::vector<const Shape*>& shapes() const { return shapes_; }

 private:
  std::vector<const Instruction*> parameters_;
  std::vector<int64_t> first_;
  std::vector<const Shape*> shapes_;
};

}  // namespace

absl::StatusOr<Donation> DonationOf(const Module& module) {
  const ParameterLeaves parameters(*module.entry());
  const Shape& result = module.entry()->root()->shape();
  const std::vector<const Shape*> results = Leaves(result);
  Donation donation;
  donation.parameter_is_donated.resize(parameters.shapes().size(), false);
  donation.result_to_parameter.resize(results.size(), -1);
  for (const hlo::BufferDonor& donor : module.buffer_donors) {
    XLAD_ASSIGN_OR_RETURN(int64_t leaf, parameters.Find(donor.parameter, donor.parameter_index));
    donation.parameter_is_donated[leaf] = true;
  }
  std::vector<bool> taken(parameters.shapes().size(), false);
  for (const hlo::InputOutputAlias& alias : module.input_output_alias) {
    XLAD_ASSIGN_OR_RETURN(int64_t parameter, parameters.Find(alias.parameter, alias.parameter_index));
    const int64_t output = LeafAt(result, alias.output_index);
    if (output < 0) {
      return absl::InvalidArgumentError(absl::StrCat("input_output_alias of parameter ", alias.parameter,
                                                     ": found an output index that names no array of the result, "
                                                     "expected the index of an array"));
    }
    if (taken[parameter] || donation.result_to_parameter[output] >= 0) {
      return absl::InvalidArgumentError(absl::StrCat("input_output_alias of parameter ", alias.parameter,
                                                     ": found another alias of the same ",
                                                     taken[parameter] ? "parameter" : "result",
                                                     " array, expected at most one"));
    }
    const Shape& from = *parameters.shapes()[parameter];
    const Shape& to = *results[output];
    donation.parameter_is_donated[parameter] = true;
    if (!from.SameIgnoringLayout(to)) {
      if (!alias.must_alias) continue;  // The parameter is donated, but this result does not use its memory.
      return absl::InvalidArgumentError(absl::StrCat("input_output_alias of parameter ", alias.parameter, ": found ",
                                                     from.ToString(false), " and ", to.ToString(false),
                                                     ", expected equal shapes"));
    }
    taken[parameter] = true;
    donation.result_to_parameter[output] = parameter;
  }
  return donation;
}

}  // namespace xlad::compiler
