// Verifier rules on the module's header.
#include <set>

#include "absl/strings/str_cat.h"
#include "hlo/analysis/leaves.h"
#include "hlo/infer/rules.h"
#include "hlo/verify/rules.h"

namespace xlad::hlo {
namespace {

using ParameterPlace = std::pair<int64_t, Dims>;  // The number of a parameter and an index into its shape.

const Shape* ParameterPart(const Module& module, int64_t parameter, const Dims& index) {
  const auto& parameters = module.entry()->parameters();
  if (parameter < 0 || parameter >= std::ssize(parameters)) return nullptr;
  return PartAt(parameters[parameter]->shape(), index);
}

absl::Status BadParameter(const Module& module, absl::string_view label, int64_t parameter, const Dims& index) {
  return Violation(label, absl::StrCat("parameter ", parameter, " ", Brief(index)),
                   absl::StrCat("a part of a parameter of the entry, which has ",
                                Counted(module.entry()->parameters().size(), "parameter")));
}

absl::Status CheckCounts(const Module& module) {
  const auto bad = [](int64_t count) { return count < 1 || count > kMaxDevices; };
  if (bad(module.replica_count) || bad(module.num_partitions) ||
      module.replica_count > kMaxDevices / module.num_partitions) {
    return Violation("device-count",
                     absl::StrCat("replica_count=", module.replica_count, ", num_partitions=", module.num_partitions),
                     absl::StrCat("1 or more each, and at most ", kMaxDevices, " together"));
  }
  return absl::OkStatus();
}

absl::Status CheckAliases(const Module& module) {
  std::set<Dims> outputs;
  std::set<ParameterPlace> used;
  const Shape& result = module.entry()->root()->shape();
  for (const InputOutputAlias& alias : module.input_output_alias) {
    const Shape* const output = PartAt(result, alias.output_index);
    if (output == nullptr) {
      return Violation("alias-output", absl::StrCat("output ", Brief(alias.output_index)),
                       absl::StrCat("a part of the result ", Brief(result)));
    }
    const Shape* const input = ParameterPart(module, alias.parameter, alias.parameter_index);
    if (input == nullptr) return BadParameter(module, "alias-parameter", alias.parameter, alias.parameter_index);
    if (!outputs.insert(alias.output_index).second) {
      return Violation("alias-twice", absl::StrCat("output ", Brief(alias.output_index), " a second time"),
                       "each once");
    }
    if (!used.emplace(alias.parameter, alias.parameter_index).second) {
      return Violation(
          "alias-twice",
          absl::StrCat("parameter ", alias.parameter, " ", Brief(alias.parameter_index), " a second time"),
          "each once");
    }
    if (output->is_array() != input->is_array() || output->bytes() != input->bytes()) {
      const bool alike = output->is_array() == input->is_array();
      return Violation("alias-size",
                       absl::StrCat("output ", Brief(*output), " aliased to parameter ", Brief(*input)),
                       alike ? "an equal number of bytes" : "two arrays or two tuples");
    }
  }
  for (const BufferDonor& donor : module.buffer_donors) {
    if (ParameterPart(module, donor.parameter, donor.parameter_index) == nullptr) {
      return BadParameter(module, "donor-parameter", donor.parameter, donor.parameter_index);
    }
    if (!used.emplace(donor.parameter, donor.parameter_index).second) {
      return Violation(
          "donor-twice",
          absl::StrCat("parameter ", donor.parameter, " ", Brief(donor.parameter_index),
                       " that is already aliased or donated"),
          "each once");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckEntryLayout(const Module& module) {
  if (!module.has_entry_layout) return absl::OkStatus();
  const auto& parameters = module.entry()->parameters();
  if (module.entry_parameter_layouts.size() != parameters.size()) {
    return Violation("entry-layout", Counted(module.entry_parameter_layouts.size(), "parameter"),
                     absl::StrCat(parameters.size(), ", as the entry has"));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Shape& layout = module.entry_parameter_layouts[i];
    XLAD_RETURN_IF_ERROR(VerifyShape(layout));
    if (!layout.SameIgnoringLayout(parameters[i]->shape())) {
      return Violation("entry-layout", absl::StrCat("parameter ", i, " of shape ", Brief(layout)),
                       absl::StrCat(Brief(parameters[i]->shape()), ", as the entry has"));
    }
  }
  XLAD_RETURN_IF_ERROR(VerifyShape(module.entry_result_layout));
  if (!module.entry_result_layout.SameIgnoringLayout(module.entry()->root()->shape())) {
    return Violation("entry-layout", absl::StrCat("result of shape ", Brief(module.entry_result_layout)),
                     absl::StrCat(Brief(module.entry()->root()->shape()), ", as the entry has"));
  }
  return absl::OkStatus();
}

// Checks that the parents of frames exist and that no chain of parents has a cycle. A frame that is its own parent is a
// root.
absl::Status CheckStackFrames(const StackFrames& tables) {
  const auto frames = std::ssize(tables.frames);
  std::vector<int64_t> walked(tables.frames.size(), 0);  // By frame: the start of the first walk that visited it, or 0.
  for (int64_t start = 1; start <= frames; ++start) {
    int64_t id = start;
    while (id != 0) {
      if (id < 0 || id > frames) {
        return Violation("stack-frame", absl::StrCat("parent_frame_id=", id), absl::StrCat("0 to ", frames));
      }
      int64_t& first = walked[id - 1];
      if (first == start) return Violation("stack-frame", absl::StrCat("frame ", id, " above itself"), "no cycle");
      if (first != 0) break;
      first = start;
      // In some dumps a root frame is its own parent.
      const int64_t parent = tables.frames[id - 1].parent_frame_id;
      id = parent == id ? 0 : parent;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckHeader(const Module& module) {
  XLAD_RETURN_IF_ERROR(CheckCounts(module));
  XLAD_RETURN_IF_ERROR(CheckAliases(module));
  XLAD_RETURN_IF_ERROR(CheckEntryLayout(module));
  return CheckStackFrames(module.stack_frames);
}

}  // namespace

absl::Status VerifyHeader(const Module& module) {
  return Annotate(CheckHeader(module), absl::StrCat("module ", module.name()));
}

}  // namespace xlad::hlo
