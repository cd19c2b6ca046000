#include "proto/parsed_size.h"

#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/session.pb.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::service {
namespace {

constexpr int64_t kMaxBytes = 1'000'000;

template <typename Message>
bool IsLarge(const std::string& serialized) {
  return ParsedBytes(kMaxBytes, serialized, *Message::descriptor()) > kMaxBytes;
}

std::string Repeat(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(ParsedSize, CountsStringsMessagesAndNumbersOfLists) {
  OpenSessionRequest session;
  HasBlobsRequest blobs;
  FreeArraysRequest arrays;
  for (const bool is_large : {false, true}) {
    const int parts = is_large ? 20'000 : 10'000;
    while (session.mesh_size() < parts) session.add_mesh();
    while (blobs.digests_size() < parts) blobs.add_digests("");
    while (arrays.arrays_size() < 10 * parts) arrays.add_arrays(1);
    EXPECT_EQ(IsLarge<OpenSessionRequest>(session.SerializeAsString()), is_large);
    EXPECT_EQ(IsLarge<HasBlobsRequest>(blobs.SerializeAsString()), is_large);
    EXPECT_EQ(IsLarge<FreeArraysRequest>(arrays.SerializeAsString()), is_large);
  }
}

TEST(ParsedSize, CountsPartsOfParts) {
  SubmitJobRequest request;
  for (int i = 0; i < 9'000; ++i) request.mutable_spec()->add_parameters();
  EXPECT_FALSE(IsLarge<SubmitJobRequest>(request.SerializeAsString()));
  for (auto& parameter : *request.mutable_spec()->mutable_parameters()) parameter.mutable_shape();
  EXPECT_TRUE(IsLarge<SubmitJobRequest>(request.SerializeAsString()));
}

TEST(ParsedSize, CountsPackedNumbersOfFixedLengthByTheirBytes) {
  ShardWritten written;
  for (int i = 0; i < 100'000; ++i) written.mutable_shard()->add_block_sums(1);
  EXPECT_FALSE(IsLarge<ShardWritten>(written.SerializeAsString()));
  for (int i = 0; i < 50'000; ++i) written.mutable_shard()->add_block_sums(1);
  EXPECT_TRUE(IsLarge<ShardWritten>(written.SerializeAsString()));
}

// A parsed message of a worker may take up to 20 times the largest size of a serialized one (grpc_streams.cc).
TEST(ParsedSize, AWrittenShardTakesAtMost20TimesItsBytes) {
  for (const int ndim : {0, 1, 2, 4}) {
    ShardWritten written;
    for (int i = 0; i < 10'000; ++i) {
      CheckpointPiece* piece = written.mutable_shard()->add_pieces();
      piece->set_tensor("w");
      for (int dimension = 0; dimension < ndim; ++dimension) piece->mutable_box()->add_lo(0);
      for (int dimension = 0; dimension < ndim; ++dimension) piece->mutable_box()->add_hi(1);
      piece->set_begin(1000 * i);
    }
    const std::string serialized = written.SerializeAsString();
    const auto limit = 20 * static_cast<int64_t>(serialized.size());
    EXPECT_LE(ParsedBytes(limit, serialized, *ShardWritten::descriptor()), limit) << ndim << " dimensions";
  }
}

TEST(ParsedSize, CountsContentsOnce) {
  CallProgramRequest request;
  request.add_arguments()->set_value(std::string(900'000, 'x'));
  EXPECT_FALSE(IsLarge<CallProgramRequest>(request.SerializeAsString()));
  request.add_arguments()->set_value(std::string(100'000, 'x'));
  EXPECT_TRUE(IsLarge<CallProgramRequest>(request.SerializeAsString()));
}

// A parser keeps unknown fields, groups, and values whose wire type is not that of their field.
TEST(ParsedSize, CountsUnknownFields) {
  const std::string unknown = "\xf8\x3e\x01", start_group = "\xf3\x3e", end_group = "\xf4\x3e";
  const std::string number_as_name = "\x10\x01";  // Field 2 of OpenSessionRequest, a string.
  for (const std::string& part : {unknown, start_group + end_group, number_as_name}) {
    EXPECT_FALSE(IsLarge<OpenSessionRequest>(Repeat(part, 10'000))) << part;
    EXPECT_TRUE(IsLarge<OpenSessionRequest>(Repeat(part, 20'000))) << part;
    EXPECT_TRUE(IsLarge<OpenSessionRequest>(start_group + Repeat(part, 20'000) + end_group)) << part;
  }
}

TEST(ParsedSize, StopsAtBytesThatCannotBeParsed) {
  EXPECT_FALSE(IsLarge<OpenSessionRequest>(""));
  EXPECT_FALSE(IsLarge<OpenSessionRequest>("\x1a\xff\xff\xff\xff\x0f"));
  EXPECT_FALSE(IsLarge<OpenSessionRequest>(Repeat("\xf3\x3e", 100'000)));  // Groups that are nested too deep.
  OpenSessionRequest parsed;
  ASSERT_FALSE(parsed.ParseFromString(Repeat("\xf3\x3e", 100'000)));
}

}  // namespace
}  // namespace xlad::service
