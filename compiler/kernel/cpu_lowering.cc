#include "compiler/kernel/cpu_lowering.h"

#include <algorithm>
#include <iterator>

#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {
namespace {

using hlo::Opcode;

// Opcodes that run but have no kernels: passes remove them, they only rename buffers, or they are other kinds of steps.
constexpr Opcode kWithoutCode[] = {
    Opcode::kAddDependency,     Opcode::kAfterAll,
    Opcode::kAllGather,         Opcode::kAllGatherDone,
    Opcode::kAllGatherStart,    Opcode::kAllReduce,
    Opcode::kAllReduceDone,     Opcode::kAllReduceStart,
    Opcode::kAllToAll,          Opcode::kCall,
    Opcode::kCollectivePermute, Opcode::kCollectivePermuteDone,
    Opcode::kConditional,       Opcode::kCollectivePermuteStart,
    Opcode::kConstant,          Opcode::kCollectiveBroadcast,
    Opcode::kCopyDone,          Opcode::kCopyStart,
    Opcode::kDomain,            Opcode::kCustomCall,
    Opcode::kFft,               Opcode::kFusion,
    Opcode::kGetTupleElement,   Opcode::kOptBarrier,
    Opcode::kParameter,         Opcode::kReduceScatter,
    Opcode::kRaggedAllToAll,    Opcode::kReplicaId,
    Opcode::kTuple,             Opcode::kWhile,
    Opcode::kBitcast,
};

struct Reason {
  Opcode opcode;
  absl::string_view text;
};

constexpr absl::string_view kHost =
    "its data comes from or goes to the host while the program runs; make it a parameter or a result";
constexpr absl::string_view kPeer = "its peer is another program or the host; use collectives";
constexpr absl::string_view kState =
    "its results depend on a generator's hidden state, so no two runs would agree; use rng-bit-generator";
constexpr absl::string_view kDynamic =
    "its result has dimensions of a size known only at run time; pad it to its bound";
constexpr absl::string_view kScheduled =
    "it is written by another compiler's scheduler; use the program from before optimization";

constexpr Reason kReasons[] = {
    {Opcode::kAsyncDone, kScheduled},
    {Opcode::kAsyncStart, kScheduled},
    {Opcode::kAsyncUpdate, kScheduled},
    {Opcode::kCollectiveReduce, "there is no collective that reduces to one device; use all-reduce"},
    {Opcode::kDynamicReshape, kDynamic},
    {Opcode::kInfeed, kHost},
    {Opcode::kOutfeed, kHost},
    {Opcode::kRecv, kPeer},
    {Opcode::kRecvDone, kPeer},
    {Opcode::kRng, kState},
    {Opcode::kRngGetAndUpdateState, kState},
    {Opcode::kScaledDot, "there is no product with block scales; multiply the operands by their scales, then use dot"},
    {Opcode::kSend, kPeer},
    {Opcode::kSendDone, kPeer},
    {Opcode::kSetDimensionSize, kDynamic},
    {Opcode::kShuffle, "it is an instruction of one backend without a documented meaning"},
};

}  // namespace

bool HasCpuLowering(Opcode opcode) {
  const auto* const end = std::end(kWithoutCode);
  return HasCode(opcode) || std::find(std::begin(kWithoutCode), end, opcode) != end;
}

absl::string_view WhyNoCpuLowering(Opcode opcode) {
  for (const Reason& reason : kReasons) {
    if (reason.opcode == opcode) return reason.text;
  }
  return "";
}

}  // namespace xlad::compiler
