// Programs on several devices: group modes, each collective, lockstep, and deadlocks.
#include "hlo/eval/groups.h"
#include "hlo/eval/test_programs.h"

namespace xlad::hlo {
namespace {

using testing::Constant;
using testing::Program;
using testing::Show;

constexpr char kAdd[] = R"(
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
)";

// An array of shape f32[1].
Literal OneFloat(float x) { return Literal(tensor::Array::FromValues<float>(tensor::ElementType::kF32, {1}, {x})); }

// Runs one program on `devices` devices. Parameter 0 of device d is {d * width, d * width + 1, ...}.
absl::StatusOr<std::vector<Literal>> RunSpmd(const std::string& body, int64_t devices, int64_t width,
                                             const std::string& header = "") {
  const auto module = Program("HloModule m" + header + "\n" + (absl::StrContains(header, "add {") ? "" : kAdd) +
                              "ENTRY e {\n  p = f32[" + std::to_string(width) + "] parameter(0)\n" + body + "\n}\n");
  if (module == nullptr) return absl::InvalidArgumentError("no module");
  std::vector<std::vector<Literal>> inputs;
  for (int64_t d = 0; d < devices; ++d) {
    std::vector<float> values;
    for (int64_t i = 0; i < width; ++i) values.push_back(static_cast<float>(d * width + i));
    inputs.push_back({Literal(tensor::Array::FromValues<float>(tensor::ElementType::kF32, {width}, values))});
  }
  return Evaluate(std::vector<const Module*>(static_cast<size_t>(devices), module.get()), inputs);
}

struct Row {
  std::string name, body;
  int64_t devices, width;
  std::vector<std::string> expected;  // One per device: "f32[1] {3}".
  std::string header = "";
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class CollectivesTest : public ::testing::TestWithParam<Row> {};

TEST_P(CollectivesTest, HasTheExpectedResults) {
  const Row& row = GetParam();
  const auto results = RunSpmd(row.body, row.devices, row.width, row.header);
  ASSERT_TRUE(results.ok()) << results.status();
  for (size_t d = 0; d < row.expected.size(); ++d) {
    const Literal expected = Constant(row.expected[d]);
    EXPECT_EQ(Show((*results)[d]), Show(expected)) << "device " << d;
  }
}

// Four devices with one element each: 0, 1, 2, 3. With 2 replicas of 2 partitions they are r0p0, r0p1, r1p0, r1p1.
const std::string kGrid = ", replica_count=2, num_partitions=2";
const Row kCollectivesTestRows[] = {
    {"AllReplicas",
     "ROOT r = f32[1] all-reduce(p), replica_groups={}, to_apply=add",
     4,
     1,
     {"f32[1] {6}", "f32[1] {6}", "f32[1] {6}", "f32[1] {6}"},
     ", replica_count=4"},
    {"CrossReplica",
     "ROOT r = f32[1] all-reduce(p), replica_groups={{0,1}}, to_apply=add",
     4,
     1,
     {"f32[1] {2}", "f32[1] {4}", "f32[1] {2}", "f32[1] {4}"},
     kGrid},
    {"CrossReplicaAndPartition",
     "ROOT r = f32[1] all-reduce(p), channel_id=1, replica_groups={{0},{1}}, to_apply=add",
     4,
     1,
     {"f32[1] {1}", "f32[1] {1}", "f32[1] {5}", "f32[1] {5}"},
     kGrid},
    {"ReduceToOneCrossReplicaAndPartition",
     "ROOT r = f32[1] collective-reduce(p), channel_id=1, replica_groups={{1},{0}}, to_apply=add",
     8,
     1,
     {"f32[1] {6}", "f32[1] {1}", "f32[1] {2}", "f32[1] {3}", "f32[1] {22}", "f32[1] {5}", "f32[1] {6}", "f32[1] {7}"},
     ", replica_count=2, num_partitions=4"},
    {"FlattenedIds",
     "ROOT r = f32[1] all-reduce(p), channel_id=1, use_global_device_ids=true, replica_groups={{0,3},{1,2}}, "
     "to_apply=add",
     4,
     1,
     {"f32[1] {3}", "f32[1] {3}", "f32[1] {3}", "f32[1] {3}"},
     kGrid},
    {"CrossPartition",
     "ROOT r = f32[1] collective-permute(p), channel_id=1, source_target_pairs={{0,1},{1,0}}",
     4,
     1,
     {"f32[1] {1}", "f32[1] {0}", "f32[1] {3}", "f32[1] {2}"},
     kGrid},
    {"PermuteLeavesZeros",
     "ROOT r = f32[1] collective-permute(p), source_target_pairs={{0,1},{2,2}}",
     3,
     1,
     {"f32[1] {0}", "f32[1] {0}", "f32[1] {2}"},
     ", replica_count=3"},
    {"AllGather",
     "ROOT r = f32[4] all-gather(p), replica_groups={{1,0}}, dimensions={0}",
     2,
     2,
     {"f32[4] {2, 3, 0, 1}", "f32[4] {2, 3, 0, 1}"},
     ", replica_count=2"},
    {"ReduceScatter",
     "ROOT r = f32[1] reduce-scatter(p), replica_groups={}, dimensions={0}, to_apply=add",
     2,
     2,
     {"f32[1] {2}", "f32[1] {4}"},
     ", replica_count=2"},
    {"ReduceScatterInGroupOrder",
     "ROOT r = f32[1] reduce-scatter(p), replica_groups={{1,0}}, dimensions={0}, to_apply=add",
     2,
     2,
     {"f32[1] {4}", "f32[1] {2}"},
     ", replica_count=2"},
    {"AllToAll",
     "ROOT r = f32[4] all-to-all(p), replica_groups={}, dimensions={0}",
     2,
     4,
     {"f32[4] {0, 1, 4, 5}", "f32[4] {2, 3, 6, 7}"},
     ", replica_count=2"},
    {"Broadcast",
     "ROOT r = f32[1] collective-broadcast(p), replica_groups={{2,1}}",
     3,
     1,
     {"f32[1] {0}", "f32[1] {2}", "f32[1] {2}"},
     ", replica_count=3"},
    {"Iota",
     "ROOT r = f32[1] all-reduce(p), channel_id=1, use_global_device_ids=true, replica_groups=[2,2]<=[2,2]T(1,0), "
     "to_apply=add",
     4,
     1,
     {"f32[1] {2}", "f32[1] {4}", "f32[1] {2}", "f32[1] {4}"},
     ", num_partitions=4"},
    {"Mesh",
     "ROOT r = f32[1] all-reduce(p), channel_id=1, use_global_device_ids=true, replica_groups=mesh['a'=2,'b'=2] {'b'}, "
     "to_apply=add",
     4,
     1,
     {"f32[1] {1}", "f32[1] {1}", "f32[1] {5}", "f32[1] {5}"},
     ", num_partitions=4"},
    {"StartDone",
     "s = f32[1] all-reduce-start(p), replica_groups={}, to_apply=add\n  ROOT d = f32[1] all-reduce-done(s)",
     2,
     1,
     {"f32[1] {1}", "f32[1] {1}"},
     ", replica_count=2"},
    {"GatherStartDone",
     "s = (f32[1], f32[2]) all-gather-start(p), replica_groups={}, dimensions={0}\n"
     "  ROOT d = f32[2] all-gather-done(s)",
     2,
     1,
     {"f32[2] {0, 1}", "f32[2] {0, 1}"},
     ", replica_count=2"},
    {"PermuteStartDone",
     "s = (f32[1], f32[1], u32[], u32[]) collective-permute-start(p), source_target_pairs={{0,1},{1,0}}\n"
     "  ROOT d = f32[1] collective-permute-done(s)",
     2,
     1,
     {"f32[1] {1}", "f32[1] {0}"},
     ", replica_count=2"},
};
INSTANTIATE_TEST_SUITE_P(Rows, CollectivesTest, ::testing::ValuesIn(kCollectivesTestRows),
                         [](const auto& info) { return info.param.name; });

TEST(Collectives, SeveralOperandsAtOnce) {
  const auto results = RunSpmd(R"(  q = f32[1] negate(p)
  r = (f32[1], f32[1]) all-reduce(p, q), replica_groups={}, to_apply=add
  a = f32[1] get-tuple-element(r), index=0
  b = f32[1] get-tuple-element(r), index=1
  ROOT s = f32[1] divide(a, b))",
                               3, 1, ", replica_count=3");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(Show((*results)[2]), Show(Constant("f32[1] {-1}")));
}

TEST(Collectives, TupleAllToAll) {
  const auto results = RunSpmd(R"(  q = f32[1] negate(p)
  ROOT r = (f32[1], f32[1]) all-to-all(p, q), replica_groups={})",
                               2, 1, ", replica_count=2");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(Show((*results)[0].tuple[1]), Show(Constant("f32[1] {1}")));
  EXPECT_EQ(Show((*results)[1].tuple[0]), Show(Constant("f32[1] {-0}")));
}

// Rank r has rows 2r and 2r + 1, and sends one row to each rank.
TEST(Collectives, RaggedAllToAll) {
  const auto results = RunSpmd(R"(  o = f32[3] constant({-1, -1, -1})
  in = s32[2] constant({1, 0})
  n = s32[2] constant({1, 1})
  id = u32[] partition-id()
  i = s32[] convert(id)
  out = s32[2] broadcast(i), dimensions={}
  ROOT r = f32[3] ragged-all-to-all(p, o, in, n, out, n), channel_id=1, replica_groups={{0,1}})",
                               2, 2, ", num_partitions=2");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(Show((*results)[0]), Show(Constant("f32[3] {1, 3, -1}")));
  EXPECT_EQ(Show((*results)[1]), Show(Constant("f32[3] {0, 2, -1}")));
}

// The result of rounding depends on the order of summation, which must be that of the devices in the group.
TEST(Collectives, ReduceInRankOrder) {
  const auto module = Program(std::string("HloModule m, replica_count=3\n") + kAdd + R"(
ENTRY e { p = f32[1] parameter(0)
  ROOT r = f32[1] all-reduce(p), replica_groups={{2,0,1}}, to_apply=add })");
  const auto results =
      Evaluate({module.get(), module.get(), module.get()}, {{OneFloat(1e8f)}, {OneFloat(-1e8f)}, {OneFloat(1.0f)}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].array.values<float>()[0], 0.0f);  // (1 + 1e8) - 1e8 in single precision.
}

TEST(Collectives, InLoopsOnEveryIteration) {
  const auto module = Program(std::string("HloModule m, num_partitions=2\n") + kAdd + R"(
body { t = (s32[], f32[1]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[1] get-tuple-element(t), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[1] all-reduce(x), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=add
  ROOT r = (s32[], f32[1]) tuple(n, y) }
cond { t = (s32[], f32[1]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  five = s32[] constant(5)
  ROOT c = pred[] compare(i, five), direction=LT }
ENTRY e { p = f32[1] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[1]) tuple(zero, p)
  w = (s32[], f32[1]) while(t), condition=cond, body=body
  ROOT r = f32[1] get-tuple-element(w), index=1 })");
  const auto results = Evaluate({module.get(), module.get()}, {{OneFloat(1)}, {OneFloat(2)}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].array.values<float>()[0], 48.0f);  // (1 + 2) * 2^4.
}

// Device 3 skips the collective at which the others wait.
TEST(Collectives, DeadlocksNameDevicesAndCollectives) {
  const auto results = RunSpmd(R"(  id = u32[] partition-id()
  three = u32[] constant(3)
  c = pred[] compare(id, three), direction=EQ
  ROOT r = f32[1] conditional(c, p, p), true_computation=skip, false_computation=meet)",
                               4, 1,
                               R"(, num_partitions=4
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
skip { x = f32[1] parameter(0)
  ROOT y = f32[1] negate(x) }
meet { x = f32[1] parameter(0)
  ROOT all-reduce.7 = f32[1] all-reduce(x), channel_id=1, use_global_device_ids=true,
      replica_groups={{0,1,2,3}}, to_apply=add }
)");
  EXPECT_EQ(results.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(results.status().message(), "devices 0-2 wait at all-reduce.7, 3 has returned");
}

TEST(Collectives, BadIdsAreErrors) {
  const auto missing =
      RunSpmd("ROOT r = f32[1] all-reduce(p), replica_groups={{0}}, to_apply=add", 2, 1, ", replica_count=2");
  EXPECT_FALSE(missing.ok());
  const auto too_many = RunSpmd("ROOT r = f32[1] collective-permute(p), source_target_pairs={{5,0}}", 2, 1);
  EXPECT_FALSE(too_many.ok());
  EXPECT_EQ(too_many.status().code(), absl::StatusCode::kInvalidArgument) << too_many.status();
}

TEST(Collectives, APermuteOfSlicesIsNotEvaluated) {
  const auto slices = RunSpmd(
      "i = s32[] constant(0)\n  at = (s32[]) tuple(i)\n  ROOT r = f32[1] collective-permute(p, p, at, at), "
      "source_target_pairs={{0,1}}, slice_sizes={{1}}",
      2, 1);
  EXPECT_EQ(slices.status().code(), absl::StatusCode::kUnimplemented) << slices.status();
  EXPECT_TRUE(absl::StrContains(slices.status().message(), "found a collective-permute with slice sizes"))
      << slices.status();
}

// Instructions of different programs are one collective if they have the same channel_id; their names may differ.
TEST(Collectives, OfDifferentProgramsMatchByChannelId) {
  const auto variant = [](const std::string& op) {
    return Program(std::string("HloModule m, num_partitions=2\n") + kAdd +
                   "ENTRY e { p = f32[1] parameter(0)\n x = f32[1] " + op + "(p)\n ROOT r" + op.substr(0, 1) +
                   " = f32[1] all-reduce(x), channel_id=4, use_global_device_ids=true, replica_groups={{0,1}}, "
                   "to_apply=add }");
  };
  const auto a = variant("negate"), b = variant("abs");
  const auto results = Evaluate({a.get(), b.get()}, {{OneFloat(-5)}, {OneFloat(-7)}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[1].array.values<float>()[0], 12.0f);
}

// A reducer of several instructions is called for each element.
TEST(Collectives, AnyReducer) {
  const auto module = Program(R"(HloModule m, replica_count=2
f { a = f32[] parameter(0)
  b = f32[] parameter(1)
  two = f32[] constant(2)
  c = f32[] multiply(b, two)
  ROOT s = f32[] add(a, c) }
ENTRY e { p = f32[2] parameter(0)
  ROOT r = f32[2] all-reduce(p), replica_groups={}, to_apply=f })");
  const auto results =
      Evaluate({module.get(), module.get()}, {{Constant("f32[2] {1, 2}")}, {Constant("f32[2] {10, 20}")}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(Show((*results)[1]), Show(Constant("f32[2] {21, 42}")));
}

}  // namespace
}  // namespace xlad::hlo
