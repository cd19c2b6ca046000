// List scheduling of each computation. Times are in microseconds from the start of the step.
#include "simulate/step.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/analysis/collectives.h"
#include "hlo/analysis/leaves.h"
#include "hlo/attribute_keys.h"
#include "simulate/pipelining.h"
#include "simulate/residency.h"
#include "simulate/systolic.h"

namespace xlad::simulate {
namespace {

using hlo::Computation;
using hlo::Instruction;
using hlo::Opcode;

bool HasOneUser(const Instruction& instruction) {
  return instruction.users().size() == 1 && &instruction != instruction.parent()->root();
}

// The product that is fused into `user` (output fusion): `user` takes the product's result from registers, and the
// result is not written to memory. Null if there is none. The product has no other user, and as many elements as the
// largest result of `user`.
const Instruction* AbsorbedBy(const Instruction& user) {
  if (user.opcode() != Opcode::kFusion && !hlo::IsElementwise(user.opcode())) return nullptr;
  int64_t elements = 0;
  for (const hlo::Shape* leaf : hlo::ArrayLeaves(user.shape())) elements = std::max(elements, leaf->elements());
  for (const Instruction* operand : user.operands()) {
    bool is_only_user = HasOneUser(*operand);
    const Instruction* const product = ValueOf(operand);
    for (const Instruction* at = operand; at != product; at = at->operand(0)) {
      is_only_user = is_only_user && HasOneUser(*at->operand(0));
    }
    if (is_only_user && IsProduct(*product) && product->shape().elements() == elements) return product;
  }
  return nullptr;
}

// The state of scheduling one computation.
struct Schedule {
  struct Waiting {
    double ready;
    int index;
    bool operator>(const Waiting& other) const {
      return ready != other.ready ? ready > other.ready : index > other.index;
    }
  };
  std::vector<const Instruction*> instructions;
  std::vector<std::vector<int>> users;  // The users of each instruction, with one entry for each use.
  std::vector<int> missing;             // The number of operands that have no time yet.
  std::vector<double> ready, finish;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> later;  // Ready later than `core`.
  std::set<int> now;                                                         // Ready at `core`.
  // The time from which the core is free.
  double core = 0;
  std::vector<double> ici_free;  // For each dimension of the slice, the time from which its links are free.
};

}  // namespace

// What the steps of a program have in common under all placements.
struct StepTimer::Model {
  // The work of a kernel.
  struct Work {
    double mxu_us = 0, vpu_us = 0, hbm_bytes = 0;
  };
  struct Collective {
    const ProgramCollective* what = nullptr;
    size_t number = 0;  // Equal for collectives that take the same time under every placement.
  };

  Model(const std::vector<ProgramCollective>& all, const sharding::Mesh& mesh_of_devices, const Slice& slice_of_chips)
      : mesh(mesh_of_devices), slice(slice_of_chips), network(slice.Network()), timer(slice) {
    using Key = std::tuple<collectives::CollectiveKind, int64_t, std::vector<int64_t>,
                           std::vector<std::pair<int64_t, int64_t>>>;
    std::map<Key, size_t> numbers;
    for (const ProgramCollective& c : all) {
      const auto [at, is_new] = numbers.try_emplace({c.kind, c.bytes, c.group, c.pairs}, numbers.size());
      collectives_of[c.instruction] = {&c, at->second};
    }
    distinct = numbers.size();
  }

  const sharding::Mesh& mesh;
  const Slice& slice;
  const collectives::Network network;
  GroupTimer timer;
  absl::flat_hash_map<const Instruction*, Collective> collectives_of;
  size_t distinct = 0;  // The number of different values of Collective::number.
  absl::flat_hash_set<const Computation*> visited;
  absl::flat_hash_set<const Instruction*> resident;  // In the visited computations.
  absl::flat_hash_map<const Instruction*, Work> work_of;
};

class StepTimer::Simulation {
 public:
  Simulation(Model* model, const Placement& placement)
      : model_(*model), slice_(model->slice), placement_(placement), placed_(model->distinct) {
    total_.link_us.assign(slice_.grid.size(), 0);
  }

  absl::StatusOr<StepTime> Run(const Computation& entry) {
    XLAD_ASSIGN_OR_RETURN(total_.us, Time(entry, 0, 1, true));
    total_.instruction_us = std::move(instruction_us_);
    return std::move(total_);
  }

 private:
  struct Placed {
    GroupTime time;
    std::string group;
    std::vector<int> dimensions;  // The dimensions whose links the collective uses.
  };

  // Schedules a computation that runs `trips` times and first starts at `start`. Returns the time of one execution.
  absl::StatusOr<double> Time(const Computation& computation, double start, double trips, bool in_timeline) {
    Schedule s = Prepare(computation, start);
    if (model_.visited.insert(&computation).second) {
      model_.resident.merge(ResidentValues(computation, slice_.chip.vmem()));
    }
    std::vector<int> first;  // The instructions without operands.
    for (int i = 0; i < std::ssize(s.instructions); ++i) {
      if (s.missing[i] == 0) first.push_back(i);
    }
    for (const int i : first) XLAD_RETURN_IF_ERROR(MakeReady(&s, i, trips, in_timeline));
    while (!s.now.empty() || !s.later.empty()) {
      if (s.now.empty()) {
        total_.stall_us += std::max(0.0, s.later.top().ready - s.core) * trips;
        s.core = std::max(s.core, s.later.top().ready);
      }
      while (!s.later.empty() && s.later.top().ready <= s.core) {
        s.now.insert(s.later.top().index);
        s.later.pop();
      }
      const int index = *s.now.begin();
      s.now.erase(s.now.begin());
      const Instruction& instruction = *s.instructions[index];
      // A loop or branch with collectives starts when the running collectives no longer use the links.
      if (Communicates(instruction)) {
        const double ready = s.core;
        for (const double free : s.ici_free) s.core = std::max(s.core, free);
        total_.stall_us += (s.core - ready) * trips;
      }
      XLAD_ASSIGN_OR_RETURN(const double us, CoreTime(instruction, s.core, trips, in_timeline));
      if (in_timeline && us > 0) total_.timeline.push_back({instruction.name(), Unit::kCore, s.core, us});
      s.core += us;
      XLAD_RETURN_IF_ERROR(Finish(&s, index, s.core, trips, in_timeline));
    }
    double end = s.core;
    for (const double finish : s.finish) end = std::max(end, finish);
    total_.stall_us += (end - s.core) * trips;
    return end - start;
  }

  Schedule Prepare(const Computation& computation, double start) const {
    Schedule s;
    const size_t count = computation.instructions().size();
    s.users.resize(count);
    s.missing.assign(count, 0);
    s.ready.assign(count, start);
    s.finish.assign(count, -1);
    s.core = start;
    s.ici_free.assign(slice_.grid.size(), start);
    absl::flat_hash_map<const Instruction*, int> index_of;
    for (const auto& instruction : computation.instructions()) {
      const int index = std::ssize(s.instructions);
      for (const Instruction* operand : instruction->operands()) {
        s.users[index_of.at(operand)].push_back(index);
        ++s.missing[index];
      }
      index_of[instruction.get()] = index;
      s.instructions.push_back(instruction.get());
    }
    return s;
  }

  // Called when all operands of the instruction have times. Sets the time of the instruction, or queues it for the
  // core.
  absl::Status MakeReady(Schedule* s, int index, double trips, bool in_timeline) {
    const Instruction& instruction = *s->instructions[index];
    if (TakesNoTime(instruction) || IsAbsorbed(instruction)) {
      return Finish(s, index, s->ready[index], trips, in_timeline);
    }
    const auto collective = model_.collectives_of.find(&instruction);
    if (collective == model_.collectives_of.end()) {
      s->later.push({s->ready[index], index});
      return absl::OkStatus();
    }
    XLAD_ASSIGN_OR_RETURN(const Placed* const placed, PlacedOf(collective->second));
    Count(*collective->second.what, *placed, trips);
    const double us = placed->time.us;
    double start = s->ready[index];
    for (const int d : placed->dimensions) start = std::max(start, s->ici_free[d]);
    for (const int d : placed->dimensions) s->ici_free[d] = start + us;
    if (in_timeline && us > 0) total_.timeline.push_back({instruction.name(), Unit::kIci, start, us});
    return Finish(s, index, start + us, trips, in_timeline);
  }

  // Chains of transparent instructions may be too long for recursion, so the worklist is explicit.
  absl::Status Finish(Schedule* s, int index, double time, double trips, bool in_timeline) {
    s->finish[index] = time;
    finished_.push_back(index);
    if (is_finishing_) return absl::OkStatus();
    is_finishing_ = true;
    while (!finished_.empty()) {
      const int at = finished_.back();
      finished_.pop_back();
      for (const int user : s->users[at]) {
        s->ready[user] = std::max(s->ready[user], s->finish[at]);
        if (--s->missing[user] > 0) continue;
        const absl::Status status = MakeReady(s, user, trips, in_timeline);
        if (!status.ok()) return status;
      }
    }
    is_finishing_ = false;
    return absl::OkStatus();
  }

  static bool IsAbsorbed(const Instruction& instruction) {
    if (!IsProduct(instruction)) return false;
    const Instruction* user = &instruction;
    do {
      if (!HasOneUser(*user)) return false;
      user = user->users()[0];
    } while (user->opcode() == Opcode::kReshape || user->opcode() == Opcode::kBitcast);
    return AbsorbedBy(*user) == &instruction;
  }

  static bool Communicates(const Instruction& instruction) {
    const bool has_steps = instruction.opcode() == Opcode::kWhile || instruction.opcode() == Opcode::kConditional;
    return has_steps && std::any_of(instruction.called().begin(), instruction.called().end(),
                                    [](const Computation* called) { return hlo::ContainsCollective(*called); });
  }

  // The time of an instruction on the cores, which for loops and branches includes all their instructions.
  absl::StatusOr<double> CoreTime(const Instruction& instruction, double start, double trips, bool in_timeline) {
    if (instruction.opcode() == Opcode::kWhile) return LoopTime(instruction, start, trips, in_timeline);
    if (instruction.opcode() == Opcode::kConditional) return BranchTime(instruction, start, trips, in_timeline);
    const auto [known, is_new] = model_.work_of.try_emplace(&instruction);
    if (is_new) known->second = WorkOf(instruction);
    const Model::Work& work = known->second;
    const double hbm_us = work.hbm_bytes / slice_.chip.hbm_bytes_per_s * 1e6;
    total_.mxu_us += work.mxu_us * trips;
    total_.vpu_us += work.vpu_us * trips;
    total_.hbm_us += hbm_us * trips;
    total_.hbm_bytes += work.hbm_bytes * trips;
    return instruction_us_[&instruction] = std::max({work.mxu_us, work.vpu_us, hbm_us}) + kKernelStartUs;
  }

  // The work of a kernel and of the product that is fused into it.
  Model::Work WorkOf(const Instruction& instruction) const {
    const Instruction* product = AbsorbedBy(instruction);
    const KernelCost cost = CostOf(instruction, slice_.chip);
    Model::Work work{cost.mxu_us, cost.vpu_us, HbmBytes(instruction, cost, product)};
    if (product == nullptr) return work;
    KernelCost absorbed = CostOf(*product, slice_.chip);
    absorbed.written_bytes = 0;
    work.mxu_us += absorbed.mxu_us;
    work.hbm_bytes += HbmBytes(*product, absorbed, nullptr);
    return work;
  }

  // The bytes that a kernel reads from HBM and writes to it. The result of the absorbed product is in registers and
  // does not count.
  double HbmBytes(const Instruction& instruction, const KernelCost& cost, const Instruction* product) const {
    double bytes = model_.resident.contains(&instruction) ? 0 : cost.written_bytes;
    for (const Instruction* user : instruction.users()) {
      const bool is_element = user->opcode() == Opcode::kGetTupleElement && model_.resident.contains(user);
      if (is_element) bytes -= static_cast<double>(user->shape().bytes());
    }
    bytes = std::max(bytes, 0.0);
    for (int64_t i = 0; i < instruction.operand_count(); ++i) {
      const Instruction* value = ValueOf(instruction.operand(i));
      if (value != product && !model_.resident.contains(value)) bytes += cost.read_bytes[i];
    }
    return bytes;
  }

  absl::StatusOr<double> LoopTime(const Instruction& loop, double start, double trips, bool in_timeline) {
    const Trips count = TripsOf(loop);
    if (count.is_assumed && in_timeline) {
      total_.warnings.push_back(absl::StrCat(
          loop.name(), ": the number of iterations is not known before the loop runs; ", count.count, " are assumed"));
    }
    const double inside = trips * count.count;
    XLAD_ASSIGN_OR_RETURN(const double condition_us, Time(*loop.called()[0], start, inside, in_timeline));
    const double mxu_us = total_.mxu_us, vpu_us = total_.vpu_us, hbm_us = total_.hbm_us;
    const Computation& body = *loop.called()[1];
    XLAD_ASSIGN_OR_RETURN(const double body_us, Time(body, start + condition_us, inside, in_timeline));
    if (count.count < 2 || !IsPipelined(body)) return count.count * (condition_us + body_us);
    const double busy_us = std::max({total_.mxu_us - mxu_us, total_.vpu_us - vpu_us, total_.hbm_us - hbm_us}) / inside;
    const double next_us = std::min(body_us, std::max(busy_us, RecurrenceUs(body, instruction_us_)));
    return condition_us + body_us + (count.count - 1) * (condition_us + next_us);
  }

  absl::StatusOr<double> BranchTime(const Instruction& conditional, double start, double trips, bool in_timeline) {
    const StepTime before = total_;
    StepTime longest = total_;
    double us = 0;
    for (const Computation* branch : conditional.called()) {
      total_ = before;
      XLAD_ASSIGN_OR_RETURN(const double branch_us, Time(*branch, start, trips, in_timeline));
      if (branch_us < us) continue;
      us = branch_us;
      longest = std::move(total_);
    }
    total_ = std::move(longest);
    return us;
  }

  absl::StatusOr<const Placed*> PlacedOf(const Model::Collective& collective) {
    std::optional<Placed>& placed = placed_[collective.number];
    if (!placed.has_value()) {
      XLAD_ASSIGN_OR_RETURN(placed, Place(*collective.what));
    }
    return &*placed;
  }

  absl::StatusOr<Placed> Place(const ProgramCollective& collective) {
    Placed placed;
    if (collective.kind == collectives::CollectiveKind::kCollectivePermute) {
      std::vector<ChipPair> pairs;
      for (const auto& [from, to] : collective.pairs) {
        pairs.push_back({placement_.ChipOf(from, model_.mesh, slice_), placement_.ChipOf(to, model_.mesh, slice_)});
      }
      XLAD_ASSIGN_OR_RETURN(placed.time, PermuteTime(pairs, collective.bytes, slice_, model_.network));
    } else {
      const GroupShape shape = ShapeOf(collective, placement_, model_.mesh, slice_);
      placed.group = ToString(shape);
      XLAD_ASSIGN_OR_RETURN(const GroupTime* known, model_.timer.TimeOf({collective.kind, collective.bytes, shape}));
      placed.time = *known;
    }
    for (int d = 0; d < std::ssize(placed.time.link_us); ++d) {
      if (placed.time.link_us[d] > 0) placed.dimensions.push_back(d);
    }
    return placed;
  }

  // Adds a collective that runs `trips` times to the totals.
  void Count(const ProgramCollective& collective, const Placed& placed, double trips) {
    const GroupTime& time = placed.time;
    instruction_us_[collective.instruction] = time.us;
    for (size_t d = 0; d < time.link_us.size(); ++d) total_.link_us[d] += time.link_us[d] * trips;
    total_.ici_us += (time.us - time.dcn_us) * trips;
    total_.dcn_us += time.dcn_us * trips;
    // A collective reads the sent bytes from HBM, and writes the received bytes to it.
    const double bytes = 2 * static_cast<double>(collective.bytes) * trips;
    total_.hbm_bytes += bytes;
    total_.hbm_us += bytes / slice_.chip.hbm_bytes_per_s * 1e6;
    total_.collectives.push_back({collective.instruction->name(), std::string(collectives::ToString(collective.kind)),
                                  hlo::ReadOrigin(*collective.instruction).axes, placed.group, time.plan,
                                  collective.bytes, time.us, trips});
  }

  Model& model_;
  const Slice& slice_;
  const Placement& placement_;
  std::vector<std::optional<Placed>> placed_;  // By the number of the collective.
  InstructionTimes instruction_us_;
  StepTime total_;
  std::vector<int> finished_;  // The worklist of Finish.
  bool is_finishing_ = false;
};

StepTimer::StepTimer(const hlo::Module& module, const std::vector<ProgramCollective>& collectives,
                     const sharding::Mesh& mesh, const Slice& slice)
    : module_(module), model_(std::make_unique<Model>(collectives, mesh, slice)) {}

StepTimer::~StepTimer() = default;

absl::StatusOr<StepTime> StepTimer::TimeOf(const Placement& placement) {
  return Simulation(model_.get(), placement).Run(*module_.entry());
}

}  // namespace xlad::simulate
