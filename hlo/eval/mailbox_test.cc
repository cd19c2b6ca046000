// send and recv between devices.
#include "hlo/eval/mailbox.h"

#include "hlo/eval/test_programs.h"

namespace xlad::hlo {
namespace {

using testing::Constant;
using testing::ExpectSame;
using testing::Program;

Literal Number(float x) { return Literal(tensor::Array::FromValues<float>(tensor::ElementType::kF32, {1}, {x})); }

std::string SendProgram(const std::string& flags, const std::string& header = "") {
  return "HloModule m" + header + R"(
ENTRY e { p = f32[1] parameter(0)
  t = token[] after-all()
  s = (f32[1], u32[], token[]) send(p, t), channel_id=7)" +
         flags + R"(
  sd = token[] send-done(s), channel_id=7
  r = (f32[1], u32[], token[]) recv(sd), channel_id=7)" +
         flags + R"(
  rd = (f32[1], token[]) recv-done(r), channel_id=7
  ROOT x = f32[1] get-tuple-element(rd), index=0 })";
}

// A ring with a gap: device 0 has no source.
TEST(Mailbox, DevicesSendToTheirTargets) {
  const std::string pairs = ", frontend_attributes={_xla_send_recv_source_target_pairs=\"{{0,1},{1,2}}\"}";
  for (const std::string& header : {"", ", replica_count=3", ", num_partitions=3"}) {
    const auto module = Program(SendProgram(pairs, header));
    const auto results = Evaluate({module.get(), module.get(), module.get()}, {{Number(5)}, {Number(6)}, {Number(7)}});
    ASSERT_TRUE(results.ok()) << results.status();
    ExpectSame((*results)[0], Constant("f32[1] {0}"), header);
    ExpectSame((*results)[1], Constant("f32[1] {5}"), header);
    ExpectSame((*results)[2], Constant("f32[1] {6}"), header);
  }
}

// Partition ids denote partitions of the same replica.
TEST(Mailbox, ReplicasAreSeparate) {
  const std::string pairs = ", frontend_attributes={_xla_send_recv_source_target_pairs=\"{{0,1},{1,0}}\"}";
  const auto module = Program(SendProgram(pairs, ", replica_count=2, num_partitions=2"));
  const auto results =
      Evaluate(std::vector<const Module*>(4, module.get()), {{Number(0)}, {Number(1)}, {Number(2)}, {Number(3)}});
  ASSERT_TRUE(results.ok()) << results.status();
  const float expected[] = {1, 0, 3, 2};
  for (size_t d = 0; d < 4; ++d) EXPECT_EQ((*results)[d].array.values<float>()[0], expected[d]);
}

// One program receives the values in the order in which the other one sends them, although the receiver reaches its
// recv first.
TEST(Mailbox, ConnectsProgramsByChannel) {
  const auto receiver = Program(R"(HloModule receiver
ENTRY e { t = token[] after-all()
  a = (f32[1], u32[], token[]) recv(t), channel_id=3
  ad = (f32[1], token[]) recv-done(a), channel_id=3
  t1 = token[] get-tuple-element(ad), index=1
  b = (f32[1], u32[], token[]) recv(t1), channel_id=3
  bd = (f32[1], token[]) recv-done(b), channel_id=3
  x = f32[1] get-tuple-element(ad), index=0
  y = f32[1] get-tuple-element(bd), index=0
  ROOT r = f32[1] subtract(x, y) })");
  const auto sender = Program(R"(HloModule sender
ENTRY e { p = f32[1] parameter(0)
  t = token[] after-all()
  a = (f32[1], u32[], token[]) send(p, t), channel_id=3
  ad = token[] send-done(a), channel_id=3
  n = f32[1] negate(p)
  b = (f32[1], u32[], token[]) send(n, ad), channel_id=3
  ROOT bd = token[] send-done(b), channel_id=3 })");
  const auto results = Evaluate({receiver.get(), sender.get()}, {{}, {Number(4)}});
  ASSERT_TRUE(results.ok()) << results.status();
  ExpectSame((*results)[0], Constant("f32[1] {8}"), "receiver");
}

TEST(Mailbox, MissingSendsAreErrors) {
  const auto lonely = Program(R"(HloModule m
ENTRY e { t = token[] after-all()
  r = (f32[1], u32[], token[]) recv(t), channel_id=3
  ROOT d = (f32[1], token[]) recv-done(r), channel_id=3 })");
  EXPECT_EQ(Evaluate(*lonely, {}).status().message(), "device 0 waits at d");
  const auto host = Program(SendProgram(", is_host_transfer=true"));
  const auto refused = Evaluate(*host, {Number(1)}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(refused.message(), "its peer is the host")) << refused;
  const auto bad = Program(SendProgram(", frontend_attributes={_xla_send_recv_source_target_pairs=\"{{0,x}}\"}"));
  EXPECT_TRUE(absl::StrContains(Evaluate(*bad, {Number(1)}).status().message(), "expected pairs such as"));
}

TEST(Mailbox, RefusesDevicesThatDoNotExist) {
  for (const std::string& pair : {"{0,2}", "{2,0}", "{0,9223372036854775807}", "{9223372036854775807,0}"}) {
    const std::string flags = ", frontend_attributes={_xla_send_recv_source_target_pairs=\"{" + pair + "}\"}";
    const std::string message = "found _xla_send_recv_source_target_pairs=\"{" + pair +
                                "}\", expected pairs such as {{0,1},{1,2}} of ids from 0 to 1";
    const std::pair<const char*, int> grids[] = {{", replica_count=2", 2}, {", replica_count=2, num_partitions=2", 4}};
    for (const auto& [header, devices] : grids) {
      const auto module = Program(SendProgram(flags, header));
      const std::vector<const Module*> modules(devices, module.get());
      const auto refused = Evaluate(modules, std::vector<std::vector<Literal>>(devices, {Number(1)})).status();
      EXPECT_TRUE(absl::StrContains(refused.message(), message)) << pair << header << ": " << refused;
    }
  }
}

}  // namespace
}  // namespace xlad::hlo
