// Names by which a program passes information between stages: keys of frontend attributes and targets of custom calls,
// with the functions that write and read their values. A stage that needs a new key adds it here.
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

// The meshes of a module, {mesh = #sdy.mesh<["dp"=4]>}, and the sharding of an instruction, #sdy.sharding<@mesh,
// [{"dp"}, {}]>.
inline constexpr char kMeshesKey[] = "xla.sdy.meshes";
inline constexpr char kShardingKey[] = "xla.sdy.sharding";
// A kEnterManualCall has the manual axes and in-shardings. A kLeaveManualCall has the manual axes and out-shardings.
inline constexpr char kSdyManualAxesKey[] = "xla.sdy.manual_axes";
inline constexpr char kInShardingsKey[] = "xla.sdy.in_shardings";
inline constexpr char kOutShardingsKey[] = "xla.sdy.out_shardings";
// The number of the group of a kShardingGroupCall, and the direction (0 to 3) of a kPropagationBarrierCall.
inline constexpr char kShardingGroupIdKey[] = "xla.sdy.sharding_group_id";
inline constexpr char kAllowedDirectionKey[] = "xla.sdy.allowed_direction";
// The (source, target) pairs of a send or recv, as ids of partitions or replicas: {{0,1},{1,0}}.
inline constexpr char kSendRecvPairsKey[] = "_xla_send_recv_source_target_pairs";

// --- Targets of custom calls that annotate shardings. ---

inline constexpr char kShardingCall[] = "Sharding";                    // Constrains the sharding of its operand.
inline constexpr char kEnterManualTilesCall[] = "SPMDFullToShardShape";
inline constexpr char kLeaveManualTilesCall[] = "SPMDShardToFullShape";
// The borders of a manual computation (jax.shard_map).
inline constexpr char kEnterManualCall[] = "xla.sdy.GlobalToLocalShape";
inline constexpr char kLeaveManualCall[] = "xla.sdy.LocalToGlobalShape";
inline constexpr char kResultShardingCall[] = "xla.sdy.FuncResultSharding";
inline constexpr char kPropagationBarrierCall[] = "xla.sdy.PropagationBarrier";
inline constexpr char kShardingGroupCall[] = "xla.sdy.ShardingGroup";

// --- Keys that stages of xlad write. ---

// The axes ("dp,sp") that are manual around an instruction. Import writes this key when it inlines a manual
// computation. An instruction inside a loop or branch is manual over the axes of the loop or branch too.
inline constexpr char kManualAxesKey[] = "xlad.manual_axes";
// The axes over which the devices hold partial sums of this instruction's result.
inline constexpr char kPartialAxesKey[] = "xlad.partial";
// The reduction of the partial results if it is not addition: "or", "maximum".
inline constexpr char kPartialReductionKey[] = "xlad.partial_reduction";
// The three parts of a CollectiveOrigin.
inline constexpr char kAxesKey[] = "xlad.axes";
inline constexpr char kOpKey[] = "xlad.op";
inline constexpr char kBecauseKey[] = "xlad.because";
// The trip count of a loop, recorded before fusion hides the induction variable.
inline constexpr char kTripCountKey[] = "xlad.trip_count";
// The carried elements ("3,5") of a loop that the loop writes completely before anything reads them, so that their
// initial values do not matter.
inline constexpr char kUnreadInitsKey[] = "xlad.unread_inits";
// Set to "1" on a bitcast-convert with which the partitioner sends floats as integers. The integers are only moved and
// combined with zeros, so no number of the program depends on the bits of a NaN.
inline constexpr char kMovesBitsKey[] = "xlad.moves_bits";

// The value of an attribute, or null if it is not set. The pointer is valid until the map changes.
const std::string* FindAttribute(const StringMap& attributes, const char* key);
const std::string* FindAttribute(const Instruction& instruction, const char* key);

// Returns true if the instruction is a custom call of this target.
bool IsCustomCall(const Instruction& instruction, absl::string_view target);

// Returns true if the instruction is a call that enters or leaves a manual computation.
bool IsManualBorder(const Instruction& instruction);

// Removes kShardingKey and kManualAxesKey, which have no meaning after partitioning.
void EraseShardingAttributes(Instruction* instruction);

// Why a collective exists. Partitioning writes it; the compiler copies it into the executable.
struct CollectiveOrigin {
  std::string axes;                  // The mesh axes that it communicates over: "dp,tp".
  std::vector<std::string> ops;      // The ops that need it, by their names before partitioning.
  std::vector<std::string> because;  // The chain of causes, nearest first.
};
// Writes the parts that are not empty.
void WriteOrigin(const CollectiveOrigin& origin, Instruction* collective);
CollectiveOrigin ReadOrigin(const Instruction& collective);

// Writes the trip count of a loop, or erases it if `count` is nullopt. NotedTripCount returns nullopt if no trip count
// was written.
void NoteTripCount(Instruction* loop, std::optional<int64_t> count);
std::optional<int64_t> NotedTripCount(const Instruction& loop);

// Writes the numbers of the tuple elements of a loop whose initial values are not read, or erases the attribute if the
// list is empty. NotedUnreadInits returns the list.
void NoteUnreadInits(Instruction* loop, const std::vector<int64_t>& elements);
std::vector<int64_t> NotedUnreadInits(const Instruction& loop);

}  // namespace xlad::hlo
