#include <random>

#include "gmock/gmock.h"
#include "storage/block_sums.h"
#include "storage/object_writer.h"
#include "storage/range_reader.h"
#include "storage/tensor_source.h"
#include "storage/testing/memory_files.h"
#include "storage/uri.h"
#include "tensor/safetensors.h"

namespace xlad::storage {
namespace {

using ::testing::HasSubstr;

std::string RandomBytes(std::mt19937_64& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// A reader of a string that counts its reads.
class StringReader final : public RangeReader {
 public:
  explicit StringReader(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return std::ssize(bytes_); }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    ++reads;
    bytes_read += std::ssize(out);
    if (offset + std::ssize(out) > size()) return absl::DataLossError("too short");
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return absl::OkStatus();
  }
  std::string& bytes() { return bytes_; }
  int reads = 0;
  int64_t bytes_read = 0;

 private:
  std::string bytes_;
};

TEST(Uri, RoundTripsOrIsRefused) {
  const std::string digest(64, 'a');
  for (const std::string& text :
       {std::string("file:/a/b c"), std::string("file:/"), "xlad:" + digest, std::string("xlad:")}) {
    const auto uri = ParseUri(text);
    ASSERT_TRUE(uri.ok()) << uri.status();
    EXPECT_EQ(uri->ToString(), text);
  }
  for (const std::string& text : {std::string(), std::string("file:a"), std::string("file:"), "xlad:" + digest + "a",
                                  "xlad:" + std::string(64, 'A'), std::string("s3://bucket"), std::string("file:/a\nb"),
                                  std::string("file:/a\0b", 9)}) {
    EXPECT_FALSE(ParseUri(text).ok()) << text;
    EXPECT_FALSE(IsCheckpointUri(text)) << text;
  }
  for (const char* text : {"xlad:", "file:/a"}) EXPECT_TRUE(IsCheckpointUri(text)) << text;
  EXPECT_FALSE(IsCheckpointUri("xlad:" + digest)) << "a blob is not a place to write to";
}

TEST(Uri, ShardsAreInTheFolderOfTheirIndex) {
  const Uri index = *ParseUri("file:/a/b/index.json");
  EXPECT_EQ(*Beside(index, "shard-0.safetensors"), "file:/a/b/shard-0.safetensors");
  const std::string blob = BlobUri(std::string(64, '0'));
  EXPECT_EQ(*Beside(index, blob), blob);
  for (const char* name : {"../secret", "/etc/passwd", "", ".hidden", "a/b", "xlad:zz"}) {
    EXPECT_FALSE(Beside(index, name).ok()) << name;
  }
  EXPECT_FALSE(Beside(*ParseUri(blob), "shard-0.safetensors").ok()) << "a blob has no folder";
}

TEST(ReadSpans, EverySpanGetsItsBytesWithFewReads) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    StringReader reader(RandomBytes(random, 1 + random() % 3'000'000));
    std::vector<SpanRead> spans;
    int taken = 0;
    for (int i = 0; i < 40; ++i) {
      const int64_t a = random() % (reader.size() + 1), b = random() % (reader.size() + 1);
      const int64_t begin = std::min(a, b), end = round % 2 == 0 ? std::max(a, b) : std::min(begin + 9, reader.size());
      if (begin == end) continue;
      ++taken;
      spans.push_back({begin, end, [&reader, &taken, begin, end](absl::Span<const std::byte> bytes) {
                         --taken;
                         EXPECT_EQ(std::memcmp(bytes.data(), reader.bytes().data() + begin, end - begin), 0);
                       }});
    }
    ASSERT_TRUE(ReadSpans(reader, spans).ok());
    EXPECT_EQ(taken, 0);
    EXPECT_LE(reader.bytes_read, reader.size()) << "bytes that several spans share are read once";
  }
  StringReader reader(std::string(100, 'x'));
  EXPECT_FALSE(ReadSpans(reader, {{90, 101, [](absl::Span<const std::byte>) {}}}).ok());
}

TEST(BlockSums, AnyRangeIsReadAndVerified) {
  std::mt19937_64 random(2);
  for (const int64_t size : {int64_t{1}, kBlockBytes - 1, kBlockBytes, kBlockBytes + 1, 3 * kBlockBytes + 12345}) {
    const std::string bytes = RandomBytes(random, size);
    ObjectHasher hasher;
    for (size_t at = 0; at < bytes.size();) {
      const size_t piece = random() % 2 == 0 ? random() % 1000 : random() % (2 * kBlockBytes);
      hasher.Add(absl::string_view(bytes).substr(at, piece));
      at += piece;
    }
    const ObjectInfo info = hasher.Finish();
    EXPECT_EQ(info.sha256, Sha256Hex(bytes));
    const auto inner = std::make_shared<StringReader>(bytes);
    const auto reader = *VerifyBlocks(inner, info.sums, "it");
    for (int i = 0; i < 20; ++i) {
      const int64_t begin = random() % size, length = 1 + random() % (size - begin);
      EXPECT_EQ(*ReadString(*reader, begin, length), bytes.substr(begin, length));
      const int64_t flipped = begin + static_cast<int64_t>(random() % length);
      inner->bytes()[flipped] ^= static_cast<char>(1 << (random() % 8));
      const auto damaged = ReadString(*reader, begin, length);
      EXPECT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss);
      const int64_t block = flipped / info.sums.block_bytes, first = block * info.sums.block_bytes;
      const std::string read = inner->bytes().substr(first, info.sums.block_bytes);
      const std::string evidence =
          absl::StrCat("it is damaged: its bytes [", first, ", ", first + read.size(), ") have checksum ",
                       absl::Hex(Hash64(read), absl::kZeroPad16), ", expected ",
                       absl::Hex(info.sums.sums[block], absl::kZeroPad16));
      EXPECT_EQ(damaged.status().message(), evidence);
      inner->bytes()[flipped] = bytes[flipped];
    }
    EXPECT_FALSE(ReadString(*reader, size, 1).ok());
    EXPECT_FALSE(VerifyBlocks(std::make_shared<StringReader>(bytes + "x"), info.sums, "it").ok());
  }
}

TEST(BlockSums, TheirFileIsVerifiedToo) {
  std::mt19937_64 random(3);
  ObjectHasher hasher;
  hasher.Add(RandomBytes(random, 3 * kBlockBytes + 5));
  const ObjectInfo info = hasher.Finish();
  const std::string text = SerializeBlockSums(info);
  const auto parsed = ParseBlockSums(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->sha256, info.sha256);
  EXPECT_EQ(parsed->sums, info.sums);
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_FALSE(ParseBlockSums(damaged).ok()) << bit;
  }
  for (size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(ParseBlockSums(text.substr(0, size)).ok()) << size;
}

// Each file has a valid shape without elements, but the sum of the numbers of rows may overflow.
TEST(OpenSafetensors, TheRowsOfAllFilesHaveALimit) {
  for (const auto& [rows, is_valid] :
       {std::pair{int64_t{1} << 60, true}, {int64_t{1} << 61, true}, {int64_t{1} << 62, false}}) {
    const std::string header = tensor::SafetensorsHeader({{"w", {tensor::ElementType::kU8, {rows, 0}}}});
    std::vector<std::shared_ptr<RangeReader>> files;
    for (int i = 0; i < 2; ++i) files.push_back(std::make_shared<StringReader>(header));
    const auto source = OpenSafetensors(files, {"first", "second"});
    EXPECT_EQ(source.ok(), is_valid) << rows;
    if (source.ok()) {
      EXPECT_TRUE((*source)->CheckShape("w", {tensor::ElementType::kU8, {2 * rows, 0}}).ok());
    } else {
      EXPECT_THAT(std::string(source.status().message()), HasSubstr("second: found \"w\""));
    }
  }
}

TEST(ObjectWriter, AFailureAtAnyOperationLeavesTheOldOrTheNewFile) {
  std::mt19937_64 random(4);
  const std::string old_bytes = "old", new_bytes = RandomBytes(random, 100'000);
  for (int64_t fail_after = 0;; ++fail_after) {
    for (const bool crash : {false, true}) {
      MemoryFiles files;
      ASSERT_TRUE(files.WriteAtomically("/d/x", old_bytes).ok());
      files.fail_after = files.operations + fail_after;
      const absl::Status status = [&] {
        XLAD_ASSIGN_OR_RETURN(const auto writer, ObjectWriter::Create(files, "/d/x.tmp"));
        for (size_t at = 0; at < new_bytes.size(); at += 30'000) {
          XLAD_RETURN_IF_ERROR(writer->Append(absl::string_view(new_bytes).substr(at, 30'000)));
        }
        XLAD_ASSIGN_OR_RETURN(const ObjectInfo info, writer->Finish());
        EXPECT_EQ(info.sha256, Sha256Hex(new_bytes));
        return writer->Publish("/d/x");
      }();
      if (crash) files.Crash(/*lose_names=*/fail_after % 2 == 0);
      const std::string found = *files.Read("/d/x");
      EXPECT_TRUE(found == (status.ok() ? new_bytes : old_bytes) || (!status.ok() && found == new_bytes))
          << "after " << fail_after << " operations: " << status;
      if (status.ok() && crash) return;
    }
  }
}

}  // namespace
}  // namespace xlad::storage
