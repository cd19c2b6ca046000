#include "storage/host_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <random>
#include <thread>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/testing/test_folder.h"
#include "gmock/gmock.h"

namespace xlad::storage {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

std::string RandomBytes(uint64_t seed, int64_t size) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// A source that counts its reads, and calls a function of the test before each read.
class Source final : public RangeReader {
 public:
  explicit Source(const std::string* bytes) : bytes_(bytes) {}
  int64_t size() const override { return std::ssize(*bytes_); }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    if (before != nullptr) before();
    read_bytes += std::ssize(out);
    std::memcpy(out.data(), bytes_->data() + offset, out.size());
    return absl::OkStatus();
  }
  std::atomic<int64_t> read_bytes = 0;
  std::function<void()> before;

 private:
  const std::string* const bytes_;
};

class HostCacheTest : public testing::Test {
 protected:
  // Opens the cache as another process would. Does not require free disk space.
  std::shared_ptr<HostCache> Open(int64_t max_bytes = 256 * kMiB, int64_t max_wait_ms = 60'000) {
    auto cache = HostCache::Open(folder_, {max_bytes, /*min_free_bytes=*/0, max_wait_ms});
    XLAD_CHECK(cache.ok()) << cache.status();
    return *cache;
  }
  static HostCache::OpenSource From(const std::shared_ptr<Source>& source) {
    return [source](bool) -> absl::StatusOr<std::shared_ptr<RangeReader>> { return source; };
  }
  std::string PathOf(const std::string& digest) const { return folder_ + "/blobs/" + digest; }

  const TestFolder own_folder_;
  const std::string folder_ = own_folder_.path();
};

TEST_F(HostCacheTest, ReadersOfAllProcessesFetchEachByteOnce) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, kMiB - 1, kMiB, kMiB + 1, 21 * kMiB + 12345}) {
    const std::string bytes = RandomBytes(size, size);
    const std::string digest = Sha256Hex(bytes);
    const auto source = std::make_shared<Source>(&bytes);
    std::vector<std::thread> readers;
    for (uint64_t r = 0; r < 8; ++r) {
      readers.emplace_back([&, r] {
        const auto cache = Open();
        const auto reader = cache->OpenBlob(digest, From(source));
        ASSERT_TRUE(reader.ok()) << reader.status();
        ASSERT_EQ((*reader)->size(), size);
        std::mt19937_64 random(r);
        for (int i = 0; i < 30 && size > 0; ++i) {
          const int64_t begin = static_cast<int64_t>(random() % size);
          const int64_t count = static_cast<int64_t>(random() % (size - begin) + 1);
          EXPECT_EQ(*ReadString(**reader, begin, count), bytes.substr(begin, count)) << begin << " " << count;
        }
        EXPECT_EQ(*ReadString(**reader, 0, size), bytes);
      });
    }
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(source->read_bytes, size);
    EXPECT_EQ(*Open()->ReadBlob(digest, From(source)), bytes);
    EXPECT_EQ(source->read_bytes, size) << "later, too";
  }
}

TEST_F(HostCacheTest, OnlyRequestedBlocksAreFetched) {
  const std::string bytes = RandomBytes(1, 16 * kMiB);
  const auto source = std::make_shared<Source>(&bytes);
  const auto reader = *Open()->OpenBlob(Sha256Hex(bytes), From(source));
  EXPECT_EQ(*ReadString(*reader, 5 * kMiB + 7, kMiB), bytes.substr(5 * kMiB + 7, kMiB));
  EXPECT_EQ(source->read_bytes, 2 * kMiB);
  EXPECT_TRUE(absl::IsDataLoss(ReadString(*reader, 16 * kMiB, 1).status()));
}

TEST_F(HostCacheTest, DamageIsFoundAndRepaired) {
  const std::string bytes = RandomBytes(2, 3 * kMiB);
  const std::string digest = Sha256Hex(bytes);
  const auto source = std::make_shared<Source>(&bytes);
  ASSERT_EQ(*Open()->ReadBlob(digest, From(source)), bytes);
  const std::string path = PathOf(digest);
  const std::string whole = *RealFileSystem().Read(path);
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    // The beginning of the file, with header and checksums, is damaged as often as the blocks.
    const int64_t at = static_cast<int64_t>(random() % (i % 2 == 0 ? 64 : whole.size()));
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    if (i % 10 == 9) damaged.resize(at);
    const int file = open(path.c_str(), O_WRONLY | O_TRUNC);
    ASSERT_EQ(write(file, damaged.data(), damaged.size()), std::ssize(damaged));
    close(file);
    ASSERT_EQ(*ReadString(**Open()->OpenBlob(digest, From(source)), 0, 3 * kMiB), bytes) << "a bit of byte " << at;
    const int64_t before = source->read_bytes;
    ASSERT_EQ(*Open()->ReadBlob(digest, From(source)), bytes);
    EXPECT_EQ(source->read_bytes, before) << "the damaged block has been stored again";
  }
}

TEST_F(HostCacheTest, ContentsOfAnotherDigestAreNotReturned) {
  const std::string bytes = RandomBytes(4, 1000), other = RandomBytes(5, 1000);
  const auto liar = std::make_shared<Source>(&other), honest = std::make_shared<Source>(&bytes);
  EXPECT_TRUE(absl::IsDataLoss(Open()->ReadBlob(Sha256Hex(bytes), From(liar)).status()));
  // Wrong contents in the cache are removed.
  EXPECT_EQ(*ReadString(**Open()->OpenBlob(Sha256Hex(bytes), From(liar)), 0, 1000), other);
  EXPECT_EQ(*Open()->ReadBlob(Sha256Hex(bytes), From(honest)), bytes);
}

TEST_F(HostCacheTest, TheOldestBlobsAreRemovedBeyondTheLimit) {
  constexpr int64_t kLimit = 20 * kMiB;
  for (uint64_t blob = 0; blob < 8; ++blob) {
    const std::string bytes = RandomBytes(blob, 4 * kMiB);
    const auto source = std::make_shared<Source>(&bytes);
    ASSERT_EQ(*ReadString(**Open(kLimit)->OpenBlob(Sha256Hex(bytes), From(source)), 0, 4 * kMiB), bytes);
  }
  const auto used = [&] {
    int64_t total = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder_ + "/blobs")) total += file.file_size();
    return total;
  };
  EXPECT_GT(used(), 4 * kMiB);
  EXPECT_LE(used(), kLimit);
  EXPECT_TRUE(std::filesystem::exists(PathOf(Sha256Hex(RandomBytes(7, 4 * kMiB))))) << "the newest stays";
  EXPECT_FALSE(std::filesystem::exists(PathOf(Sha256Hex(RandomBytes(0, 4 * kMiB)))));
}

TEST_F(HostCacheTest, AProcessThatWritesNothingRemovesNothing) {
  const std::string bytes(1000, 'x');
  const auto source = std::make_shared<Source>(&bytes);
  ASSERT_EQ(*Open()->ReadBlob(Sha256Hex(bytes), From(source)), bytes);
  const auto again = std::make_shared<Source>(&bytes);
  EXPECT_EQ(*Open(/*max_bytes=*/1)->ReadBlob(Sha256Hex(bytes), From(again)), bytes);
  EXPECT_EQ(again->read_bytes, 0);
}

TEST_F(HostCacheTest, NoReaderWritesBeforeTheSpaceIsMeasured) {
  const auto cache = *HostCache::Open(folder_, {256 * kMiB, /*min_free_bytes=*/INT64_MAX, /*max_wait_ms=*/60'000});
  for (int i = 0; i < 1000; ++i) std::ofstream(PathOf(std::to_string(i)));  // Measuring them takes some time.
  constexpr int kReaders = 4;
  std::atomic<int> stored = 0;
  std::latch ready(kReaders);
  std::vector<std::thread> readers;
  for (uint64_t blob = 0; blob < kReaders; ++blob) {
    readers.emplace_back([&, blob] {
      const std::string bytes = RandomBytes(blob, 1000);
      const auto source = std::make_shared<Source>(&bytes);
      const auto open_source = [&](bool is_stored) -> absl::StatusOr<std::shared_ptr<RangeReader>> {
        stored += is_stored ? 1 : 0;
        return source;
      };
      const std::shared_ptr<RangeReader> reader = *cache->OpenBlob(Sha256Hex(bytes), open_source);
      ready.arrive_and_wait();  // The reads, the first of which measures the space, begin at the same time.
      EXPECT_EQ(*ReadString(*reader, 0, 1000), bytes);
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(stored, 0) << "the disk has less free space than required";
}

TEST_F(HostCacheTest, ABlobBeyondTheLimitIsReadWithoutBeingKept) {
  const std::string bytes(150 * kMiB, 'x');
  const auto source = std::make_shared<Source>(&bytes);
  const auto reader = *Open(/*max_bytes=*/kMiB)->OpenBlob(Sha256Hex(bytes), From(source));
  EXPECT_EQ(*ReadString(*reader, 0, 150 * kMiB), bytes);
  struct stat status{};
  ASSERT_EQ(stat(PathOf(Sha256Hex(bytes)).c_str(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, 65 * kMiB);
}

// If the bytes of a source are stored, other workers may be told to read them from this worker.
TEST_F(HostCacheTest, ASourceIsToldWhetherItsBytesAreStored) {
  const std::string bytes(100 * kMiB, 'x');
  const auto stored = std::make_shared<Source>(&bytes), passed = std::make_shared<Source>(&bytes);
  const HostCache::OpenSource open_source = [&](bool is_stored) -> absl::StatusOr<std::shared_ptr<RangeReader>> {
    return is_stored ? stored : passed;
  };
  const auto reader = *Open(/*max_bytes=*/kMiB)->OpenBlob(Sha256Hex(bytes), open_source);
  EXPECT_EQ(*ReadString(*reader, 0, 100 * kMiB), bytes);
  EXPECT_GT(stored->read_bytes, 0);
  EXPECT_LE(stored->read_bytes, 64 * kMiB);
  EXPECT_EQ(passed->read_bytes, 100 * kMiB - stored->read_bytes) << "the cache is full";
  std::vector<std::byte> found(stored->read_bytes);
  EXPECT_TRUE(Open()->ReadStored(Sha256Hex(bytes), 0, absl::MakeSpan(found), {}).ok()) << "is_stored was true";
}

TEST_F(HostCacheTest, ASecondTryReadsFromASourceThatStoresNothing) {
  const std::string bytes = RandomBytes(9, 1000), other = RandomBytes(10, 1000);
  const auto liar = std::make_shared<Source>(&other), honest = std::make_shared<Source>(&bytes);
  const auto read = Open()->ReadBlob(
      Sha256Hex(bytes),
      [&](bool is_stored) -> absl::StatusOr<std::shared_ptr<RangeReader>> { return is_stored ? liar : honest; });
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, bytes);
  EXPECT_EQ(liar->read_bytes, 1000);
}

TEST_F(HostCacheTest, AReaderDoesNotWaitForAProcessThatIsStopped) {
  const std::string bytes = RandomBytes(6, 3 * kMiB);
  const std::string digest = Sha256Hex(bytes);
  const auto stopped = std::make_shared<Source>(&bytes), source = std::make_shared<Source>(&bytes);
  const auto reader = *Open(256 * kMiB, /*max_wait_ms=*/1)->OpenBlob(digest, From(source));
  // The reader of `stopped` is in the middle of a fetch and holds its locks while `reader` reads.
  stopped->before = [&] { EXPECT_EQ(*ReadString(*reader, 0, 3 * kMiB), bytes); };
  EXPECT_EQ(*ReadString(**Open()->OpenBlob(digest, From(stopped)), 0, 3 * kMiB), bytes);
  EXPECT_GT(source->read_bytes, 0);
}

TEST_F(HostCacheTest, BelongsToOneUser) {
  ASSERT_TRUE(HostCache::Open(folder_, {}).ok());
  struct stat status{};
  ASSERT_EQ(stat((folder_ + "/blobs").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(chmod((folder_ + "/blobs").c_str(), 0755), 0);
  const absl::Status refused = HostCache::Open(folder_, {}).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("choose another folder"));
}

TEST_F(HostCacheTest, AFileThatOthersMayReadIsNotUsed) {
  const std::string bytes = RandomBytes(8, 100);
  const auto source = std::make_shared<Source>(&bytes);
  ASSERT_EQ(*Open()->ReadBlob(Sha256Hex(bytes), From(source)), bytes);
  ASSERT_EQ(chmod(PathOf(Sha256Hex(bytes)).c_str(), 0644), 0);
  ASSERT_EQ(*Open()->ReadBlob(Sha256Hex(bytes), From(source)), bytes);
  EXPECT_EQ(source->read_bytes, 200);
}

}  // namespace
}  // namespace xlad::storage
