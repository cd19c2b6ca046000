// Messages of more than 2 GiB, which is the limit of protobuf's own streams.
#include "hlo/wire/wire_format.h"

#include <sys/mman.h>

#include <cstring>

#include "google/protobuf/io/coded_stream.h"
#include "gtest/gtest.h"
#include "proto/hlo.pb.h"

namespace xlad::hlo {
namespace {

// As an int, the first is negative, and the second is 1.
constexpr size_t kSizes[] = {size_t{5} << 29, (size_t{1} << 32) + 1};

// An empty group with the number 5, and then one field of bytes with the number 2. Only the first page takes memory,
// because the other ones are never written.
class LargeMessage {
 public:
  explicit LargeMessage(size_t bytes) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    auto* const begin = static_cast<uint8_t*>(memory_);
    uint8_t* at = begin;
    for (const uint8_t byte : {5 << 3 | 3, 5 << 3 | 4, 2 << 3 | 2}) *at++ = byte;
    constexpr int kLengthBytes = 5;
    length_ = bytes - static_cast<size_t>(at - begin) - kLengthBytes;
    google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(length_), at);
  }
  ~LargeMessage() { munmap(memory_, bytes_); }

  absl::string_view bytes() const { return {static_cast<const char*>(memory_), bytes_}; }
  size_t length() const { return length_; }

 private:
  const size_t bytes_;
  void* memory_ = nullptr;
  size_t length_ = 0;
};

TEST(WireReader, AGroupMayBeFollowedByMoreThan2Gib) {
  for (const size_t bytes : kSizes) {
    const LargeMessage message(bytes);
    WireReader reader(message.bytes());
    WireReader::Field field;
    ASSERT_TRUE(reader.Next(&field)) << bytes;
    EXPECT_TRUE(field.Is(5, WireReader::kGroup));
    EXPECT_EQ(field.whole.size(), 2u);
    ASSERT_TRUE(reader.Next(&field)) << bytes;
    EXPECT_TRUE(field.Is(2, WireReader::kBytes));
    EXPECT_EQ(field.bytes.size(), message.length());
    EXPECT_FALSE(reader.Next(&field));
    EXPECT_TRUE(reader.ok());
  }
}

TEST(MergeMessage, RefusesMoreThan2Gib) {
  for (const size_t bytes : kSizes) {
    const LargeMessage message(bytes);
    hlo_proto::Module module;
    EXPECT_FALSE(MergeMessage(message.bytes(), &module)) << bytes;
  }
}

}  // namespace
}  // namespace xlad::hlo
