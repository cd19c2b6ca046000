// Names that pass between stages inside a program: keys of frontend attributes and targets of custom calls, with the
// functions that write and read their values. A stage that needs a new key adds it here.
//
// Example, after partitioning: the collective below sums over mesh axis dp. The dot that needs it is named, and the
// chain of annotations that caused it is in "xlad.because", nearest cause first.
//   all-reduce.3 = f32[8] all-reduce(dot.2), channel_id=1, replica_groups={{0,1}}, to_apply=add,
//     frontend_attributes={xlad.axes="dp",xlad.because="dot.2: sums over dp",xlad.op="dot.2"}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hlo/module.h"

namespace xlad::hlo {

// --- Keys that frameworks write (Shardy's, and XLA's with a leading underscore). ---

// A module has its meshes: {mesh = #sdy.mesh<["dp"=4]>}. An instruction has #sdy.sharding<@mesh, [{"dp"}, {}]>.
inline constexpr char kMeshesKey[] = "xla.sdy.meshes";
inline constexpr char kShardingKey[] = "xla.sdy.sharding";
// kEnterManualCall has manual axes and in-shardings, kLeaveManualCall has manual axes and out-shardings.
inline constexpr char kSdyManualAxesKey[] = "xla.sdy.manual_axes";
inline constexpr char kInShardingsKey[] = "xla.sdy.in_shardings";
inline constexpr char kOutShardingsKey[] = "xla.sdy.out_shardings";
// kShardingGroupCall has a number, kPropagationBarrierCall a direction from 0 to 3.
inline constexpr char kShardingGroupIdKey[] = "xla.sdy.sharding_group_id";
inline constexpr char kAllowedDirectionKey[] = "xla.sdy.allowed_direction";
// send and recv have pairs of devices: {{0,1},{1,0}}.
inline constexpr char kSendRecvPairsKey[] = "_xla_send_recv_source_target_pairs";

// --- Targets of custom calls that annotate shardings. ---

inline constexpr char kShardingCall[] = "Sharding";                    // Its sharding constrains its operand.
inline constexpr char kEnterManualTilesCall[] = "SPMDFullToShardShape";
inline constexpr char kLeaveManualTilesCall[] = "SPMDShardToFullShape";
inline constexpr char kEnterManualCall[] = "xla.sdy.GlobalToLocalShape";  // The borders of a manual computation
inline constexpr char kLeaveManualCall[] = "xla.sdy.LocalToGlobalShape";  // (jax.shard_map).
inline constexpr char kResultShardingCall[] = "xla.sdy.FuncResultSharding";
inline constexpr char kPropagationBarrierCall[] = "xla.sdy.PropagationBarrier";
inline constexpr char kShardingGroupCall[] = "xla.sdy.ShardingGroup";

// --- Keys that stages of xlad write. ---

// The axes ("dp,sp") that are manual around an instruction. Import writes it when it inlines a manual computation. An
// instruction inside a loop or branch is manual over the axes of the loop or branch too.
inline constexpr char kManualAxesKey[] = "xlad.manual_axes";
// The axes over which the devices hold partial sums of this instruction's result.
inline constexpr char kPartialAxesKey[] = "xlad.partial";
// How these are reduced, if not by addition: "or", "maximum".
inline constexpr char kPartialReductionKey[] = "xlad.partial_reduction";
// The three parts of a CollectiveOrigin.
inline constexpr char kAxesKey[] = "xlad.axes";
inline constexpr char kOpKey[] = "xlad.op";
inline constexpr char kBecauseKey[] = "xlad.because";
// The trip count of a loop, noted before fusion hides the induction variable.
inline constexpr char kTripCountKey[] = "xlad.trip_count";

// The value of an attribute, or null if it is not set. The pointer is valid until the map changes.
const std::string* FindAttribute(const StringMap& attributes, const char* key);
const std::string* FindAttribute(const Instruction& instruction, const char* key);

// Returns true if the instruction is a custom call of this target.
bool IsCustomCall(const Instruction& instruction, absl::string_view target);

// Returns true if the instruction is a call that enters or leaves a manual computation.
bool IsManualBorder(const Instruction& instruction);

// Removes the attributes that describe the sharding of an instruction before partitioning.
void EraseShardingAttributes(Instruction* instruction);

// Why a collective exists. Partitioning writes it; the compiler copies it into the executable.
struct CollectiveOrigin {
  std::string axes;                  // The mesh axes that it communicates over: "dp,tp".
  std::vector<std::string> ops;      // Names of the instructions that need it, before partitioning.
  std::vector<std::string> because;  // One cause per line, nearest first.
};
// Writes the parts that are not empty.
void WriteOrigin(const CollectiveOrigin& origin, Instruction* collective);
CollectiveOrigin ReadOrigin(const Instruction& collective);

// Writes the trip count of a loop, or erases it if `count` is empty. Reading returns nullopt if none is noted.
void NoteTripCount(Instruction* loop, std::optional<int64_t> count);
std::optional<int64_t> NotedTripCount(const Instruction& loop);

}  // namespace xlad::hlo
