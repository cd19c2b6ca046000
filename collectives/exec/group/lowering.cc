#include "collectives/exec/group/lowering.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

class Lowering {
 public:
  Lowering(const CollectiveSpec& spec, const Schedule& schedule, GroupProtocol protocol)
      : schedule_(schedule), width_(tensor::ByteWidth(spec.type)), protocol_(protocol) {}

  absl::StatusOr<GroupProgram> Run() {
    for (size_t i = 0; i < schedule_.ops.size(); ++i) {
      const absl::Status status = Lower(schedule_.ops[i], static_cast<int>(i));
      if (!status.ok()) return Annotate(status, absl::StrCat("operation ", i, " \"", Print(schedule_.ops[i]), "\""));
    }
    program_.scratch_bytes = schedule_.scratch * width_;
    program_.windows = protocol_ == GroupProtocol::kWindows;
    if (!program_.windows) DeferLastWaits();
    FindWhatItHears();
    if (protocol_ == GroupProtocol::kBoard) XLAD_RETURN_IF_ERROR(MakeBoard());
    return std::move(program_);
  }

 private:
  GroupRegion Lower(const Region& region) {
    const int rank = region.rank == kOwnRank ? schedule_.rank : region.rank;
    if (rank != schedule_.rank && region.buffer != ScheduleBuffer::kScratch) touches_peer_buffers_ = true;
    return {BaseIndex(rank, region.buffer), region.begin * width_};
  }

  absl::Status Lower(const ScheduleOp& op, int index) {
    GroupStep step;
    step.op = index;
    switch (op.kind) {
      case OpKind::kSignal:
      case OpKind::kWait:
        return AddPeer(op, op.kind == OpKind::kSignal ? GroupStep::Kind::kSignal : GroupStep::Kind::kWait, index);
      case OpKind::kCopy:
        step.kind = GroupStep::Kind::kCopy;
        step.sources = {Lower(op.src)};
        break;
      case OpKind::kReduceMany:
        step.kind = GroupStep::Kind::kReduce;
        for (const ReduceSource& source : op.sources) {
          if (source.peer >= 0)
            return absl::UnimplementedError("messages need a transport, and this group has memory only");
          step.sources.push_back(Lower(source.region));
        }
        break;
      case OpKind::kZero:
        step.kind = GroupStep::Kind::kZero;
        break;
      default:
        return absl::UnimplementedError("process groups do not execute this kind of operation");
    }
    step.bytes = op.dst.count * width_;
    step.dsts.push_back(Lower(op.dst));
    for (const Region& dst : op.more_dsts) step.dsts.push_back(Lower(dst));
    if (touches_peer_buffers_ && protocol_ != GroupProtocol::kWindows) {
      return absl::InvalidArgumentError("the buffers of other ranks can be accessed only if they are registered");
    }
    const bool is_noop = step.kind == GroupStep::Kind::kCopy && step.dsts.size() == 1 &&
                         step.dsts[0].base == step.sources[0].base && step.dsts[0].offset == step.sources[0].offset;
    if (step.bytes > 0 && !is_noop) program_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  absl::Status AddPeer(const ScheduleOp& op, GroupStep::Kind kind, int index) {
    if (op.flag < 0 || op.flag >= kSignalFlags) {
      return absl::UnimplementedError(absl::StrCat("found flag ", op.flag, ", expected less than ", kSignalFlags));
    }
    if (op.peer == schedule_.rank) return absl::OkStatus();  // The steps run in the order of the list.
    const bool again =
        !program_.steps.empty() && program_.steps.back().kind == kind && program_.steps.back().flag == op.flag;
    if (!again) {
      program_.steps.emplace_back();
      program_.steps.back().kind = kind;
      program_.steps.back().flag = op.flag;
      program_.steps.back().op = index;
    }
    program_.steps.back().peers.push_back(op.peer);
    return absl::OkStatus();
  }

  void FindWhatItHears() {
    std::vector<bool> heard(schedule_.ranks);
    for (const GroupStep& step : program_.steps) {
      if (step.kind != GroupStep::Kind::kWait) continue;
      for (const int peer : step.peers) heard[peer] = true;
    }
    program_.hears_all = std::count(heard.begin(), heard.end(), true) == schedule_.ranks - 1;
  }

  void DeferLastWaits() {
    while (!program_.steps.empty() && program_.steps.back().kind == GroupStep::Kind::kWait) {
      GroupStep& last = program_.steps.back();
      program_.deferred[last.flag].insert(program_.deferred[last.flag].end(), last.peers.begin(), last.peers.end());
      program_.steps.pop_back();
    }
  }

  static bool Synchronizes(const GroupStep& step) {
    return step.kind == GroupStep::Kind::kSignal || step.kind == GroupStep::Kind::kWait;
  }

  // Removes the copy of the input to the scratch, the signals and waits after it, and the signals at the end, which
  // protect the scratch. What is left must not synchronize.
  absl::Status MakeBoard() {
    std::vector<GroupStep>& steps = program_.steps;
    auto at = steps.begin();
    if (at != steps.end() && at->kind == GroupStep::Kind::kCopy &&
        at->dsts[0].base == BaseIndex(schedule_.rank, ScheduleBuffer::kScratch)) {
      if (at->dsts.size() > 1 || at->dsts[0].offset != 0 || at->sources[0].offset != 0 ||
          at->sources[0].base != BaseIndex(schedule_.rank, ScheduleBuffer::kInput)) {
        return absl::InvalidArgumentError("the first copy to scratch is not that of the start of the input");
      }
      program_.board_bytes = at->bytes;
      ++at;
    }
    if (at != steps.end() && at->kind == GroupStep::Kind::kSignal) ++at;
    if (at != steps.end() && at->kind == GroupStep::Kind::kWait) program_.board_peers = (at++)->peers;
    steps.erase(steps.begin(), at);
    if (!steps.empty() && steps.back().kind == GroupStep::Kind::kSignal) steps.pop_back();
    if (std::any_of(steps.begin(), steps.end(), Synchronizes)) {
      return absl::InvalidArgumentError("the schedule has more than one round");
    }
    for (std::vector<int>& peers : program_.deferred) peers.clear();
    program_.board = true;
    return absl::OkStatus();
  }

  const Schedule& schedule_;
  const int64_t width_;
  const GroupProtocol protocol_;
  bool touches_peer_buffers_ = false;
  GroupProgram program_;
};

}  // namespace

absl::StatusOr<GroupProgram> LowerForGroup(const CollectiveSpec& spec, const Schedule& schedule,
                                           GroupProtocol protocol) {
  return Lowering(spec, schedule, protocol).Run();
}

}  // namespace xlad::collectives
