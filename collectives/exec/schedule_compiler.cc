#include "collectives/exec/schedule_compiler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/exec/layout.h"

namespace xlad::collectives {
namespace {

// Whether two regions of one rank may overlap in memory.
bool Overlap(const Region& a, const Region& b, const Schedule& schedule, const InPlaceOffsets& offsets) {
  const bool shared = schedule.in_place && a.buffer != ScheduleBuffer::kScratch && b.buffer != ScheduleBuffer::kScratch;
  if (a.buffer != b.buffer && !shared) return false;
  const auto begin = [&](const Region& region) {
    if (!shared) return region.begin;
    return region.begin + (region.buffer == ScheduleBuffer::kInput ? offsets.output : offsets.input);
  };
  return begin(a) < begin(b) + b.count && begin(b) < begin(a) + a.count;
}

// Resolves the schedule of one rank. Regions become pieces of operands, and ranks become links. Each write lists the
// earlier messages whose memory it overwrites.
class Compiler {
 public:
  Compiler(const Collective& collective, const CollectiveSpec& spec, Schedule schedule, OpenScheduleLink open_link)
      : collective_(collective), spec_(spec), schedule_(std::move(schedule)), open_link_(std::move(open_link)) {
    const int64_t bytes = tensor::ByteWidth(spec.type);
    if (spec.sizes.empty()) {
      layouts_.emplace_back(spec.counts, InputHasParts(spec.kind) ? spec.ranks : 1, bytes);
      layouts_.emplace_back(spec.output_counts(), OutputHasParts(spec.kind) ? spec.ranks : 1, bytes);
    } else {  // There is one operand, whose elements are those of the schedule.
      layouts_.emplace_back(std::vector<int64_t>{schedule_.input}, 1, bytes);
      layouts_.emplace_back(std::vector<int64_t>{schedule_.output}, 1, bytes);
    }
    layouts_.emplace_back(std::vector<int64_t>{schedule_.scratch}, 1, bytes);
  }

  absl::StatusOr<ScheduleProgram> Compile() {
    ScheduleProgram program;
    program.collective = &collective_;
    program.spec = spec_;
    program.rank = schedule_.rank;
    if (Reduces(spec_.kind)) {
      // There may be a kernel for the type of the messages, but none for that of the elements.
      XLAD_RETURN_IF_ERROR(ReduceFunctionOf(collective_.spec).status());
      XLAD_ASSIGN_OR_RETURN(program.reduce, ReduceFunctionOf(spec_));
    }
    for (const ScheduleOp& op : schedule_.ops) {
      XLAD_ASSIGN_OR_RETURN(program.ops.emplace_back(), CompileOp(op));
    }
    program.sent.assign(sent_.begin(), sent_.end());
    program.schedule = std::move(schedule_);
    return program;
  }

 private:
  struct Sent {
    Region region;
    ScheduleLink* link;
    int64_t messages;
  };

  ScheduleOperand ToOperand(const Region& region) const {
    ScheduleOperand operand;
    operand.buffer = region.buffer;
    operand.pieces = layouts_[static_cast<int>(region.buffer)].Pieces(region.begin, region.count);
    return operand;
  }

  absl::Status AddReceive(int peer, int channel, ScheduleInstruction* out) {
    ScheduleOperand operand;
    XLAD_ASSIGN_OR_RETURN(operand.link, open_link_(peer, channel));
    operand.message_index = received_[operand.link]++;
    out->sources.push_back(std::move(operand));
    return absl::OkStatus();
  }

  absl::StatusOr<ScheduleInstruction> CompileOp(const ScheduleOp& op) {
    if (NeedsWindows(op, schedule_.rank) || !op.more_dsts.empty()) {
      return absl::UnimplementedError(absl::StrCat("found operation \"", Print(op),
                                                   "\", which this communicator cannot run; expected operations on "
                                                   "its own memory with one destination"));
    }
    if (HasSources(op.kind)) XLAD_RETURN_IF_ERROR(CheckOrder(spec_, op));
    ScheduleInstruction out;
    out.kind = op.kind;
    // Nothing to do: operations run in the order of the list.
    if (op.kind == OpKind::kSignal || op.kind == OpKind::kWait) return out;
    if (op.kind == OpKind::kSend) {
      XLAD_ASSIGN_OR_RETURN(out.to, open_link_(op.peer, op.channel));
      out.message_index = static_cast<uint32_t>(sent_[out.to]++);
      out.sources.push_back(ToOperand(op.src));
      sends_.push_back({op.src, out.to, sent_[out.to]});
      return out;
    }
    out.dst = ToOperand(op.dst);
    out.bytes = op.dst.count * tensor::ByteWidth(spec_.type);
    if (op.kind == OpKind::kRecv || op.kind == OpKind::kRecvReduce) {
      XLAD_RETURN_IF_ERROR(AddReceive(op.peer, op.channel, &out));
    }
    if (op.kind == OpKind::kCopy || op.kind == OpKind::kRecvReduce) out.sources.push_back(ToOperand(op.src));
    for (const ReduceSource& source : op.sources) {
      if (source.peer < 0) {
        out.sources.push_back(ToOperand(source.region));
      } else {
        XLAD_RETURN_IF_ERROR(AddReceive(source.peer, op.channel, &out));
      }
    }
    for (const Sent& sent : sends_) {
      if (Overlap(sent.region, op.dst, schedule_, InPlaceOffsetsOf(spec_, schedule_.rank)))
        out.overwrites.emplace_back(sent.link, sent.messages);
    }
    return out;
  }

  const Collective& collective_;
  const CollectiveSpec spec_;
  Schedule schedule_;
  const OpenScheduleLink open_link_;
  std::vector<BufferLayout> layouts_;
  std::vector<Sent> sends_;
  std::map<ScheduleLink*, int64_t> sent_;
  std::map<ScheduleLink*, uint32_t> received_;
};

}  // namespace

absl::StatusOr<ScheduleProgram> CompileSchedule(const Collective& collective, const CollectiveSpec& spec,
                                                Schedule schedule, OpenScheduleLink open_link) {
  return Compiler(collective, spec, std::move(schedule), std::move(open_link)).Compile();
}

}  // namespace xlad::collectives
