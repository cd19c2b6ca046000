#include "compiler/testing/random_collectives.h"

#include <algorithm>

#include "compiler/analysis/hlo_names.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

using hlo::Builder;
using hlo::Computation;
using hlo::ElementType;
using hlo::Opcode;

hlo::ReplicaGroups GroupsOf(const DeviceGroups& groups) {
  hlo::ReplicaGroups result;
  result.groups = groups;
  return result;
}

int64_t SizeOf(const DeviceGroups& groups) { return std::ssize(groups[0]); }

// An all-reduce or reduce-scatter of integers by any reducer.
Sample IntegerReduction(RandomControl& random, Builder& builder, const Sample& x, const DeviceGroups& groups,
                        int64_t channel) {
  static constexpr Opcode kOpcodes[] = {Opcode::kMultiply, Opcode::kMaximum, Opcode::kMinimum,
                                        Opcode::kAnd,      Opcode::kOr,      Opcode::kXor};
  Computation* reducer = hlo::ScalarReducer(&random.module(), kOpcodes[random.Below(6)], x.type());
  const int64_t d = x.ndim() == 0 ? -1 : random.Below(x.ndim());
  if (d < 0 || x.dims()[d] % SizeOf(groups) != 0) {
    return {builder.AllReduce(x.array, reducer, GroupsOf(groups), channel)};
  }
  return {builder.ReduceScatter(x.array, d, reducer, GroupsOf(groups), channel)};
}

// Sends the value of each device to the next device of its group. The first device receives zeros.
Sample Shift(Builder& builder, const Sample& x, const DeviceGroups& groups, int64_t channel) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const std::vector<int64_t>& group : groups) {
    for (size_t i = 0; i + 1 < group.size(); ++i) pairs.emplace_back(group[i], group[i + 1]);
  }
  return Like(x, builder.CollectivePermute(x.array, pairs, channel));
}

}  // namespace

Sample RandomCollective(RandomControl& random, Builder& builder, const Pool& pool, const DeviceGroups& groups,
                        int64_t channel) {
  const Sample x = random.Pick(pool);
  if (x.type() == ElementType::kPred || x.array->shape().elements() == 0) return {};
  const auto size = static_cast<int>(SizeOf(groups));
  const int64_t d = x.ndim() == 0 ? -1 : random.Below(x.ndim());
  Computation* add = hlo::ScalarReducer(&random.module(), Opcode::kAdd, x.type());
  if (RoundingOf(x.type()) == 0 && random.OneIn(2)) return IntegerReduction(random, builder, x, groups, channel);
  // Normalize adds an error if the sum is too large for its grid to be exact in every order.
  Sample sum{nullptr, x.bound * size, x.fraction, x.error * size};
  if (sum.error > 0 || sum.bound * (1 << std::min(x.fraction, 20)) * RoundingOf(x.type()) > 1) {
    sum.error += size * RoundingOf(x.type()) * sum.bound;
  }
  const hlo::ReplicaGroups replicas = GroupsOf(groups);
  const int kind = d < 0 ? 0 : random.Below(4);
  const bool sums = x.finite();  // The sum of special values depends on its order.
  if (kind == 0 && !sums) return {};
  if (kind == 0) return Like(sum, builder.AllReduce(x.array, add, replicas, channel));
  if (kind == 1) return Like(x, builder.AllGather(x.array, d, replicas, channel));
  if (kind == 2) return Shift(builder, x, groups, channel);
  if (x.dims()[d] % size != 0) return {};
  if (sums && random.OneIn(2)) return Like(sum, builder.ReduceScatter(x.array, d, add, replicas, channel));
  return Like(x, builder.AllToAll(x.array, d, random.Below(x.ndim()), replicas, channel));
}

Sample LargestOfGroup(RandomControl& random, Builder& builder, const Sample& x, const DeviceGroups& groups,
                      int64_t channel) {
  const Opcode opcode = x.type() == ElementType::kPred ? Opcode::kOr : Opcode::kMaximum;
  Computation* reducer = hlo::ScalarReducer(&random.module(), opcode, x.type());
  return Like(x, builder.AllReduce(x.array, reducer, GroupsOf(groups), channel));
}

}  // namespace xlad::compiler
