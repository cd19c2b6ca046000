#include "sharding/import/import.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "hlo/attribute_keys.h"
#include "hlo/verify/verifier.h"
#include "sharding/import/annotations.h"
#include "sharding/import/expand_batch_norm.h"
#include "sharding/import/inline_calls.h"
#include "sharding/import/library_calls.h"
#include "sharding/import/manual_borders.h"
#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

bool IsOpen(const TensorSharding& sharding) {
  return sharding.replicated.empty() && sharding.unreduced.empty() &&
         std::all_of(sharding.dims.begin(), sharding.dims.end(),
                     [](const DimensionSharding& dim) { return dim.axes.empty() && !dim.closed; });
}

// The value of an attribute "12 : i64" or "12".
absl::StatusOr<int64_t> IntegerAttribute(const hlo::Instruction& instruction, const char* key) {
  const std::string* text = hlo::FindAttribute(instruction, key);
  int64_t value = 0;
  if (text == nullptr || !absl::SimpleAtoi(std::vector<std::string>(absl::StrSplit(*text, ':'))[0], &value)) {
    return AtInstruction(absl::InvalidArgumentError(absl::StrCat(
                             "found ", text == nullptr ? absl::StrCat("no ", key) : absl::StrCat(key, "=", *text),
                             ", expected an integer")),
                         instruction);
  }
  return value;
}

// Opens the dimensions that a Sharding call's backend_config lists, as in "unspecified_dims=[0,2]".
absl::Status OpenUnspecified(const hlo::Instruction& call, TensorSharding* sharding) {
  constexpr absl::string_view kKey = "unspecified_dims=[";
  const std::string& config = call.attributes().backend_config;
  const size_t at = config.find(std::string(kKey));
  if (at == std::string::npos) return absl::OkStatus();
  const size_t begin = at + kKey.size(), end = config.find(']', begin);
  const absl::string_view list =
      absl::string_view(config).substr(begin, end == std::string::npos ? end : end - begin);
  if (absl::StripAsciiWhitespace(list).empty()) return absl::OkStatus();
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    int64_t dim = 0;
    if (!absl::SimpleAtoi(part, &dim) || dim < 0 || dim >= std::ssize(sharding->dims)) {
      return AtInstruction(
          absl::InvalidArgumentError(absl::StrCat("found ", config, ", expected dimensions of the array")), call);
    }
    sharding->dims[dim].closed = false;
  }
  return absl::OkStatus();
}

class Importer {
 public:
  Importer(ShardedModule* out, const Annotations* annotations) : out_(*out), annotations_(*annotations) {}

  absl::Status Run() {
    XLAD_RETURN_IF_ERROR(ReadResults());
    const std::vector<hlo::Computation*> flow = FlowComputations(*out_.module);
    for (hlo::Computation* computation : flow) {
      std::vector<hlo::Instruction*> instructions;
      for (const auto& instruction : computation->instructions()) instructions.push_back(instruction.get());
      for (hlo::Instruction* instruction : instructions) XLAD_RETURN_IF_ERROR(Read(instruction));
    }
    for (hlo::Computation* computation : flow) {
      computation->SortTopologically();
      ForwardTupleElements(computation);
      computation->RemoveDead();
    }
    Finish(flow);
    return absl::OkStatus();
  }

 private:
  // Reads the shardings of the results from the annotation of the root, and from FuncResultSharding calls that are the
  // root or its operands.
  absl::Status ReadResults() {
    hlo::Computation* entry = out_.module->entry();
    for (const hlo::Shape* leaf : ArrayLeaves(entry->root()->shape())) {
      out_.results.push_back(TensorSharding::Open(leaf->ndim()));
    }
    XLAD_ASSIGN_OR_RETURN(const auto of_root, annotations_.Of(*entry->root()));
    if (of_root.has_value()) out_.results = *of_root;
    size_t leaf = 0;
    while (IsCustomCall(*entry->root(), hlo::kResultShardingCall)) {
      XLAD_RETURN_IF_ERROR(ExpectUnary(*entry->root()));
      entry->set_root(entry->root()->operand(0));
    }
    return ReadResultsOf(entry->root(), &leaf);
  }

  absl::Status ReadResultsOf(hlo::Instruction* root, size_t* leaf) {
    if (root->opcode() != hlo::Opcode::kTuple) {
      *leaf += ArrayLeaves(root->shape()).size();
      return absl::OkStatus();
    }
    for (int64_t i = 0; i < root->operand_count(); ++i) {
      const size_t first = *leaf;
      std::optional<ValueSharding> found;
      while (IsCustomCall(*root->operand(i), hlo::kResultShardingCall)) {
        XLAD_RETURN_IF_ERROR(ExpectUnary(*root->operand(i)));
        if (!found.has_value()) {
          XLAD_ASSIGN_OR_RETURN(found, annotations_.Of(*root->operand(i)));
        }
        root->ReplaceOperand(i, root->operand(i)->operand(0));
      }
      XLAD_RETURN_IF_ERROR(ReadResultsOf(root->operand(i), leaf));
      if (found.has_value())
        std::copy(found->begin(), found->end(), out_.results.begin() + first);
    }
    return absl::OkStatus();
  }

  absl::Status Read(hlo::Instruction* instruction) {
    if (IsCustomCall(*instruction, hlo::kShardingCall)) return ReadConstraint(instruction);
    if (IsCustomCall(*instruction, hlo::kResultShardingCall)) return ReadInnerResult(instruction);
    if (IsCustomCall(*instruction, hlo::kShardingGroupCall)) return ReadGroup(instruction);
    if (IsCustomCall(*instruction, hlo::kPropagationBarrierCall)) return ReadBarrier(instruction);
    if (IsManualBorder(*instruction)) return SplitManualBorder(instruction, annotations_, &out_);
    for (const char* manual : {hlo::kEnterManualTilesCall, hlo::kLeaveManualTilesCall}) {
      if (!IsCustomCall(*instruction, manual)) continue;
      return AtInstruction(absl::UnimplementedError(absl::StrCat(
                               "found ", manual, ", expected manual computations as Shardy writes them (xla.sdy.*)")),
                           *instruction);
    }
    XLAD_ASSIGN_OR_RETURN(auto shardings, annotations_.Of(*instruction));
    if (shardings.has_value() && instruction != out_.module->entry()->root()) {
      out_.shardings[instruction] = *std::move(shardings);
    }
    return absl::OkStatus();
  }

  absl::Status ExpectUnary(const hlo::Instruction& call) {
    if (call.operand_count() == 1 && call.shape().SameIgnoringLayout(call.operand(0)->shape())) {
      return absl::OkStatus();
    }
    return AtInstruction(absl::InvalidArgumentError(absl::StrCat("found ", call.operand_count(), " operands and shape ",
                                                                 call.shape().ToString(false),
                                                                 ", expected one operand of the same shape")),
                         call);
  }

  // Replaces an annotation call by `with`, and clears its side effect so that RemoveDead removes it.
  void Replace(hlo::Instruction* call, hlo::Instruction* with) {
    call->ReplaceAllUsesWith(with);
    call->mutable_attributes().has_side_effect = false;
  }

  // Replaces an annotation call by a copy of its operand.
  hlo::Instruction* ReplaceByCopy(hlo::Instruction* call) {
    auto copy = std::make_unique<hlo::Instruction>(hlo::Opcode::kCopy, call->shape());
    copy->mutable_metadata() = call->metadata();
    copy->set_place(call->line(), call->column());
    hlo::Instruction* added = call->parent()->Add(std::move(copy), {call->operand(0)});
    // The copy takes the call's name, because that is the name that the user knows.
    std::string name = call->name();
    call->set_name(added->name());
    added->set_name(std::move(name));
    Replace(call, added);
    return added;
  }

  absl::Status ReadConstraint(hlo::Instruction* call) {
    XLAD_RETURN_IF_ERROR(ExpectUnary(*call));
    XLAD_ASSIGN_OR_RETURN(auto shardings, annotations_.Of(*call));
    const hlo::OpSharding* written = call->sharding();
    const bool grouped = written != nullptr && written->group != hlo::OpSharding::Group::kNone;
    const bool is_open = !shardings.has_value() || std::all_of(shardings->begin(), shardings->end(), IsOpen);
    if (is_open && !grouped) {
      Replace(call, call->operand(0));
      return absl::OkStatus();
    }
    if (!is_open && shardings->size() == 1) XLAD_RETURN_IF_ERROR(OpenUnspecified(*call, &(*shardings)[0]));
    const int64_t group = grouped ? written->group_id : 0;
    hlo::Instruction* copy = ReplaceByCopy(call);
    if (grouped) alike_[group].push_back(copy);
    if (!is_open) out_.shardings[copy] = *std::move(shardings);
    return absl::OkStatus();
  }

  // A FuncResultSharding that is used inside the program is a hint: its dimensions are opened.
  absl::Status ReadInnerResult(hlo::Instruction* call) {
    XLAD_RETURN_IF_ERROR(ExpectUnary(*call));
    XLAD_ASSIGN_OR_RETURN(auto shardings, annotations_.Of(*call));
    bool splits = false;
    if (shardings.has_value() && !call->users().empty()) {
      for (TensorSharding& sharding : *shardings) {
        splits = splits || !sharding.IsReplicated();
        for (DimensionSharding& dim : sharding.dims) dim.closed = false;
      }
    }
    if (splits) {
      out_.shardings[ReplaceByCopy(call)] = *std::move(shardings);
    } else {
      Replace(call, call->operand(0));
    }
    return absl::OkStatus();
  }

  absl::Status ReadGroup(hlo::Instruction* call) {
    if (call->operand_count() != 1) {
      return AtInstruction(
          absl::InvalidArgumentError(
              absl::StrCat("found ", call->operand_count(), " operands, expected one, the member of a sharding group")),
          *call);
    }
    if (!ArrayLeaves(call->shape()).empty()) {
      return AtInstruction(absl::InvalidArgumentError(absl::StrCat("found a sharding group of shape ",
                                                                   call->shape().ToString(false), ", expected ()")),
                           *call);
    }
    XLAD_ASSIGN_OR_RETURN(const int64_t id, IntegerAttribute(*call, hlo::kShardingGroupIdKey));
    group_calls_.emplace_back(id, call);
    return absl::OkStatus();
  }

  absl::Status ReadBarrier(hlo::Instruction* call) {
    XLAD_RETURN_IF_ERROR(ExpectUnary(*call));
    XLAD_ASSIGN_OR_RETURN(const int64_t direction, IntegerAttribute(*call, hlo::kAllowedDirectionKey));
    if (direction < 0 || direction > 3) {
      return AtInstruction(absl::InvalidArgumentError(absl::StrCat("found direction ", direction, ", expected 0 to 3")),
                           *call);
    }
    out_.barriers[ReplaceByCopy(call)] = static_cast<BarrierDirection>(direction);
    return absl::OkStatus();
  }

  // Collects the sharding groups, and drops the entries of instructions that were removed.
  void Finish(const std::vector<hlo::Computation*>& flow) {
    std::map<int64_t, std::vector<const hlo::Instruction*>> groups;  // Keyed by the id of an xla.sdy.ShardingGroup.
    for (auto& [id, call] : group_calls_) {
      groups[id].push_back(call->operand(0));
      call->mutable_attributes().has_side_effect = false;
    }
    for (hlo::Computation* computation : flow) computation->RemoveDead();
    out_.module->RemoveUnusedComputations();  // Their loops or conditionals were removed.
    absl::flat_hash_map<const hlo::Instruction*, bool> live;
    for (const hlo::Computation* computation : FlowComputations(*out_.module)) {
      for (const auto& instruction : computation->instructions()) live[instruction.get()] = true;
    }
    absl::erase_if(out_.shardings, [&](const auto& entry) { return !live.contains(entry.first); });
    absl::erase_if(out_.barriers, [&](const auto& entry) { return !live.contains(entry.first); });
    for (auto& [id, members] : alike_) out_.groups.push_back(members);
    for (auto& [id, members] : groups) out_.groups.push_back(std::move(members));
    for (auto& members : out_.groups) {
      std::erase_if(members, [&](const hlo::Instruction* member) { return !live.contains(member); });
    }
    std::erase_if(out_.groups, [](const auto& members) { return members.size() < 2; });
  }

  ShardedModule& out_;
  const Annotations& annotations_;
  std::vector<std::pair<int64_t, hlo::Instruction*>> group_calls_;
  std::map<int64_t, std::vector<const hlo::Instruction*>> alike_;  // Keyed by the id of a shard_as or shard_like group.
};

absl::Status CheckFeeds(const hlo::Module& module, const std::vector<Feed>& feeds) {
  std::vector<const hlo::Shape*> parameters;
  for (const hlo::Instruction* parameter : module.entry()->parameters()) {
    for (const hlo::Shape* leaf : ArrayLeaves(parameter->shape())) parameters.push_back(leaf);
  }
  const std::vector<const hlo::Shape*> results = ArrayLeaves(module.entry()->root()->shape());
  std::vector<bool> fed(parameters.size(), false);
  for (const Feed& feed : feeds) {
    if (feed.result < 0 || feed.result >= std::ssize(results) || feed.parameter < 0 ||
        feed.parameter >= std::ssize(parameters)) {
      return absl::InvalidArgumentError(
          absl::StrCat("feed: found result ", feed.result, " to parameter ", feed.parameter, ", expected one of ",
                       std::ssize(results), " results and one of ", std::ssize(parameters), " parameters, from 0"));
    }
    const hlo::Shape& from = *results[feed.result];
    const hlo::Shape& to = *parameters[feed.parameter];
    if (!from.SameIgnoringLayout(to)) {
      return absl::InvalidArgumentError(absl::StrCat("feed: found result ", feed.result, " of shape ",
                                                     from.ToString(false), ", expected parameter ", feed.parameter,
                                                     "'s ", to.ToString(false)));
    }
    if (fed[feed.parameter]) {
      return absl::InvalidArgumentError(
          absl::StrCat("feed: found parameter ", feed.parameter, " twice, expected it once"));
    }
    fed[feed.parameter] = true;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShardedModule> Import(std::unique_ptr<hlo::Module> module, const ImportOptions& options) {
  if (module == nullptr || module->entry() == nullptr || module->entry()->root() == nullptr) {
    return absl::InvalidArgumentError("found a module without an entry computation, expected one");
  }
  XLAD_RETURN_IF_ERROR(CheckFeeds(*module, options.feeds));
  ReplaceLibraryCalls(module.get());
  XLAD_RETURN_IF_ERROR(InlineCalls(module.get()));
  XLAD_ASSIGN_OR_RETURN(Annotations annotations, Annotations::Create(*module));
  if (!options.rebind.axes().empty()) XLAD_RETURN_IF_ERROR(annotations.Rebind(options.rebind));
  if (annotations.mesh().devices() > 1) ExpandBatchNorms(module.get());
  ShardedModule out;
  out.module = std::move(module);
  out.mesh = annotations.mesh();
  out.feeds = options.feeds;
  out.module->num_partitions = out.mesh.devices();
  XLAD_RETURN_IF_ERROR(Importer(&out, &annotations).Run());
  return out;
}

}  // namespace xlad::sharding
