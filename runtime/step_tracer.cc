#include "runtime/step_tracer.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "base/powers_of_two.h"
#include "runtime/step_listing.h"

namespace xlad::runtime {
namespace {

constexpr int64_t kFirstSteps = 16;
constexpr int kPartsOfDoubling = 8;

// Whether each rank's result depends on the operands of all ranks.
bool Joins(const collectives::CollectiveSpec& spec) {
  if (spec.input_elements() == 0) return false;
  switch (spec.kind) {
    case collectives::CollectiveKind::kAllReduce:
    case collectives::CollectiveKind::kAllGather:
    case collectives::CollectiveKind::kReduceScatter:
    case collectives::CollectiveKind::kAllToAll:
      return spec.sizes.empty();  // One of the `sizes` may be 0, and an empty part depends on no operand.
    default:
      return false;
  }
}

}  // namespace

bool IsTraced(int64_t index) {
  if (index < kFirstSteps) return index >= 0;
  return index % (PowerOfTwoAtMost(index) / kPartsOfDoubling) == 0;
}

void StepTracer::Begin(int64_t step) {
  step_ = step;
  dropped_ = 0;
  spans_.clear();
  messages_.messages.clear();
  messages_.dropped = 0;
  begin_ns_ = clock_->NowNs();
}

TracedStep StepTracer::End(int device) {
  const int64_t end_ns = clock_->NowNs();
  TracedStep out;
  out.set_device(device);
  out.set_step(step_);
  out.set_begin_ns(begin_ns_);
  out.set_end_ns(end_ns);
  out.set_dropped(dropped_ + messages_.dropped);
  for (const Span& span : spans_) {
    out.add_instruction(span.instruction);
    out.add_span_begin_ns(span.begin_ns - begin_ns_);
    out.add_span_ns((span.end_ns < 0 ? end_ns : span.end_ns) - span.begin_ns);
  }
  for (const collectives::MessageLog::Message& message : messages_.messages) {
    out.add_message_key(message.key);
    out.add_message_ns(message.ns - begin_ns_);
    out.add_message_sent(message.sent);
  }
  return out;
}

TracedProgram TracedProgramOf(const Executable& executable, const collectives::CollectiveSet& collectives,
                              const std::vector<int>& devices) {
  TracedProgram program;
  std::set<int> started;  // Asynchronous collectives, whose steps end before the collectives do.
  for (const Step* step : NumberedSteps(executable)) {
    if (step->has_collective() && step->collective().request() != 0) started.insert(step->collective().spec());
    TracedInstruction* out = program.add_instructions();
    out->set_name(step->name());
    out->set_kind(std::string(StepKind(executable, *step)));
    out->set_source(step->source());
    if (step->has_collective()) out->set_collective(step->collective().spec() + 1);
  }
  for (const collectives::Collective& collective : collectives.collectives) {
    TracedCollective* out = program.add_collectives();
    out->set_name(absl::StrCat(collective.spec.ToString(), ", plan ", collective.plan.ToString()));
    out->set_why(collective.why);
    out->set_joins(Joins(collective.spec) && !started.contains(program.collectives_size() - 1));
    for (const std::vector<int>& group : collective.groups) {
      const bool is_here =
          std::any_of(group.begin(), group.end(), [&](int device) { return Contains(devices, device); });
      if (is_here) out->add_groups()->mutable_devices()->Assign(group.begin(), group.end());
    }
  }
  return program;
}

}  // namespace xlad::runtime
