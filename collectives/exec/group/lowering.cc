#include "collectives/exec/group/lowering.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/exec/layout.h"
#include "collectives/exec/reduce.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/mapped.h"

namespace xlad::collectives {
namespace {

class Lowering {
 public:
  Lowering(const CollectiveSpec& spec, const Schedule& schedule, GroupProtocol protocol)
      : spec_(spec),
        schedule_(schedule),
        width_(tensor::ByteWidth(spec.type)),
        protocol_(protocol),
        // If the parts of an operand have different sizes, there is only one operand, and its elements have the same
        // numbers as in the schedule.
        input_(spec.counts, spec.sizes.empty() && InputHasParts(spec.kind) ? spec.ranks : 1, width_),
        output_(spec.sizes.empty() ? spec.output_counts() : spec.counts,
                spec.sizes.empty() && OutputHasParts(spec.kind) ? spec.ranks : 1, width_) {
    program_.bases.inputs = static_cast<int>(spec.counts.size());
    program_.bases.outputs = static_cast<int>(spec.output_counts().size());
  }

  absl::StatusOr<GroupProgram> Run() {
    for (int i = 0; i < std::ssize(schedule_.ops); ++i) {
      const absl::Status status = Lower(schedule_.ops[i], i);
      if (!status.ok()) return Annotate(status, absl::StrCat("operation ", i, " \"", Print(schedule_.ops[i]), "\""));
    }
    program_.scratch_bytes = schedule_.scratch * width_;
    program_.windows = protocol_ == GroupProtocol::kWindows;
    if (!program_.windows) DeferLastWaits();
    FindAwaitedPeers();
    if (protocol_ == GroupProtocol::kBoard) XLAD_RETURN_IF_ERROR(MakeBoard());
    return std::move(program_);
  }

 private:
  struct Extent {
    GroupRegion at;
    int64_t bytes = 0;
  };
  using Extents = std::vector<Extent>;

  // Returns the runs of bytes of a region, in order.
  Extents Lower(const Region& region) {
    const int rank = region.rank == kOwnRank ? schedule_.rank : region.rank;
    const GroupBases& bases = program_.bases;
    if (region.buffer == ScheduleBuffer::kScratch) {
      return {{{bases.Scratch(rank), region.begin * width_}, region.count * width_}};
    }
    if (rank != schedule_.rank) touches_peer_buffers_ = true;
    const bool is_input = region.buffer == ScheduleBuffer::kInput;
    Extents runs;
    for (const Piece& piece : (is_input ? input_ : output_).Pieces(region.begin, region.count)) {
      const int base = is_input ? bases.Input(rank, piece.operand) : bases.Output(rank, piece.operand);
      runs.push_back({{base, piece.offset}, piece.bytes});
    }
    return runs;
  }

  absl::Status Lower(const ScheduleOp& op, int index) {
    GroupStep step;
    step.op = index;
    std::vector<Extents> sources;
    switch (op.kind) {
      case OpKind::kSignal:
      case OpKind::kWait:
        return AddPeer(op, op.kind == OpKind::kSignal ? GroupStep::Kind::kSignal : GroupStep::Kind::kWait, index);
      case OpKind::kCopy:
        step.kind = GroupStep::Kind::kCopy;
        sources.push_back(Lower(op.src));
        break;
      case OpKind::kReduceMany:
      case OpKind::kReduceTree:
        XLAD_RETURN_IF_ERROR(CheckOrder(spec_, op));
        step.kind = GroupStep::Kind::kReduce;
        for (const ReduceSource& source : op.sources) {
          if (source.peer >= 0) return RefuseMessages("an operation on messages");
          sources.push_back(Lower(source.region));
        }
        break;
      case OpKind::kZero:
        step.kind = GroupStep::Kind::kZero;
        break;
      default:
        return RefuseMessages("an operation on messages");
    }
    std::vector<Extents> dsts = {Lower(op.dst)};
    for (const Region& dst : op.more_dsts) dsts.push_back(Lower(dst));
    if (touches_peer_buffers_ && protocol_ != GroupProtocol::kWindows) {
      return absl::InvalidArgumentError("the buffers of other ranks can be accessed only if they are registered");
    }
    AddSteps(step, op.dst.count * width_, dsts, sources);
    return absl::OkStatus();
  }

  // Removes the first `bytes` bytes of run number `*first` and returns their region. Increments `*first` at the end of
  // the run.
  static GroupRegion Take(Extents* runs, size_t* first, int64_t bytes) {
    Extent& run = (*runs)[*first];
    const GroupRegion taken = run.at;
    run.at.offset += bytes;
    run.bytes -= bytes;
    if (run.bytes == 0) ++*first;
    return taken;
  }

  // Appends a copy of `step` for each run of bytes that is contiguous in all regions. All regions have `bytes` bytes.
  void AddSteps(const GroupStep& step, int64_t bytes, std::vector<Extents> dsts, std::vector<Extents> sources) {
    std::vector<size_t> dst_at(dsts.size()), source_at(sources.size());
    while (bytes > 0) {
      int64_t run = bytes;
      for (size_t i = 0; i < dsts.size(); ++i) run = std::min(run, dsts[i][dst_at[i]].bytes);
      for (size_t i = 0; i < sources.size(); ++i) run = std::min(run, sources[i][source_at[i]].bytes);
      GroupStep next = step;
      next.bytes = run;
      for (size_t i = 0; i < dsts.size(); ++i) next.dsts.push_back(Take(&dsts[i], &dst_at[i], run));
      for (size_t i = 0; i < sources.size(); ++i) next.sources.push_back(Take(&sources[i], &source_at[i], run));
      bytes -= run;
      const bool is_noop = next.kind == GroupStep::Kind::kCopy && next.dsts.size() == 1 &&
                           next.dsts[0].base == next.sources[0].base && next.dsts[0].offset == next.sources[0].offset;
      if (!is_noop) program_.steps.push_back(std::move(next));
    }
  }

  absl::Status AddPeer(const ScheduleOp& op, GroupStep::Kind kind, int index) {
    if (op.flag < 0 || op.flag >= kSignalFlags) {
      return absl::UnimplementedError(absl::StrCat("found flag ", op.flag, ", expected 0 to ", kSignalFlags - 1));
    }
    // A rank does not signal itself: its steps run in the order of the list.
    if (op.peer == schedule_.rank) return absl::OkStatus();
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

  void FindAwaitedPeers() {
    std::vector<bool> awaited(schedule_.ranks);
    for (const GroupStep& step : program_.steps) {
      if (step.kind != GroupStep::Kind::kWait) continue;
      for (const int peer : step.peers) awaited[peer] = true;
    }
    program_.waits_for_all_peers = std::count(awaited.begin(), awaited.end(), true) == schedule_.ranks - 1;
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

  // Removes the copies of the input to the scratch and the signals and waits after them. Also removes the signals at
  // the end, which protect the scratch. The remaining steps must not synchronize.
  absl::Status MakeBoard() {
    std::vector<GroupStep>& steps = program_.steps;
    auto at = steps.begin();
    for (; at != steps.end() && at->kind == GroupStep::Kind::kCopy; ++at) {
      if (at->dsts[0].base != program_.bases.Scratch(schedule_.rank)) break;
      const int operand = at->sources[0].base - program_.bases.Input(schedule_.rank);
      if (at->dsts.size() > 1 || operand < 0 || operand >= program_.bases.inputs) {
        return absl::InvalidArgumentError(
            "found a copy to scratch that has another source or several destinations, expected a copy of the input to "
            "scratch only");
      }
      program_.board_copies.push_back({operand, at->sources[0].offset, at->dsts[0].offset, at->bytes});
    }
    if (at != steps.end() && at->kind == GroupStep::Kind::kSignal) ++at;
    if (at != steps.end() && at->kind == GroupStep::Kind::kWait) program_.board_peers = (at++)->peers;
    steps.erase(steps.begin(), at);
    if (!steps.empty() && steps.back().kind == GroupStep::Kind::kSignal) steps.pop_back();
    if (std::any_of(steps.begin(), steps.end(), Synchronizes)) {
      return absl::InvalidArgumentError("found a schedule of more than one round, expected one round");
    }
    for (std::vector<int>& peers : program_.deferred) peers.clear();
    program_.board = true;
    return absl::OkStatus();
  }

  const CollectiveSpec& spec_;
  const Schedule& schedule_;
  const int64_t width_;
  const GroupProtocol protocol_;
  const BufferLayout input_, output_;
  bool touches_peer_buffers_ = false;
  GroupProgram program_;
};

}  // namespace

absl::Status RefuseMessages(absl::string_view found) {
  return absl::UnimplementedError(
      absl::StrCat("found ", found, ", expected one of ", AlgorithmNames(/*on_mapped_memory=*/true), " (",
                   kMappedWindows, " only with registered buffers), because the ranks of a process group access each ",
                   "other's memory and send no messages"));
}

absl::StatusOr<GroupProgram> LowerForGroup(const CollectiveSpec& spec, const Schedule& schedule,
                                           GroupProtocol protocol) {
  return Lowering(spec, schedule, protocol).Run();
}

}  // namespace xlad::collectives
