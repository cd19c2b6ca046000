#include "runtime/step_listing.h"

namespace xlad::runtime {
namespace {

void AppendSteps(const google::protobuf::RepeatedPtrField<Step>& steps, std::vector<const Step*>* all) {
  for (const Step& step : steps) {
    all->push_back(&step);
    AppendSteps(step.while_().condition(), all);
    AppendSteps(step.while_().body(), all);
    for (const IfStep::Branch& branch : step.if_().branches()) AppendSteps(branch.steps(), all);
  }
}

}  // namespace

std::vector<const Step*> NumberedSteps(const Executable& executable) {
  std::vector<const Step*> all;
  AppendSteps(executable.steps(), &all);
  return all;
}

absl::string_view StepKind(const Executable& executable, const Step& step) {
  switch (step.step_case()) {
    case Step::kKernel:
      return "kernel";
    case Step::kCollective:
      return "collective";
    case Step::kCollectiveDone:
      return "wait";
    case Step::kCopy:
      return "copy";
    case Step::kWhile:
      return "loop";
    case Step::kIf:
      return "branch";
    default:
      break;
  }
  const int index = step.library().op();
  if (index < 0 || index >= executable.library_ops_size()) return "kernel";
  const LibraryOp& op = executable.library_ops(index);
  if (op.has_attention()) return "attention";
  return op.has_dot() ? "dot" : op.has_convolution() ? "convolution" : op.has_fft() ? "fft" : "lapack";
}

}  // namespace xlad::runtime
