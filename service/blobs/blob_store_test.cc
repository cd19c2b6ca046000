#include "service/blobs/blob_store.h"

#include "base/hash.h"
#include "gmock/gmock.h"
#include "storage/testing/memory_files.h"

namespace xlad::service {
namespace {

using storage::MemoryFiles;

std::string Bytes(int64_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 11);
  return bytes;
}

TEST(BlobStore, RoundTripsAndLists) {
  MemoryFiles files;
  BlobStore store = *BlobStore::Open(files, "/blobs");
  std::vector<std::string> digests;
  for (const int64_t size : {0, 1, 1000, 3 << 20}) {
    const std::string bytes = Bytes(size);
    digests.push_back(*store.Put(bytes));
    EXPECT_EQ(digests.back(), Sha256Hex(bytes));
    EXPECT_TRUE(store.Has(digests.back()) && store.Verify(digests.back()));
    EXPECT_EQ(*store.Get(digests.back()), bytes);
  }
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(*store.List(), digests);
  ASSERT_TRUE(*store.RemoveIfUnused(digests[0], INT64_MAX));
  EXPECT_FALSE(store.Has(digests[0]));
  EXPECT_TRUE(absl::IsNotFound(store.Get(digests[0]).status()));
  EXPECT_EQ(store.Get("../secret").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BlobStore, DamageIsFoundByReadsAndRepairedByAnUpload) {
  const std::string bytes = Bytes((2 << 20) + 100);
  const std::string digest = Sha256Hex(bytes), path = "/blobs/" + digest;
  // A bit of the blob is flipped, a part of it is zeroed, or it is truncated. The checksums of its blocks are intact,
  // missing or damaged.
  for (int how = 0; how < 9; ++how) {
    for (const bool has_reader : {false, true}) {
      MemoryFiles files;
      BlobStore store = *BlobStore::Open(files, "/blobs");
      ASSERT_EQ(*store.Put(bytes), digest);
      const auto reader = *store.OpenBlob(digest);
      if (!has_reader) store = *BlobStore::Open(files, "/blobs");
      std::string& stored = files.BytesOf(path);
      if (how % 3 == 0) stored[bytes.size() - 1] ^= 1;
      if (how % 3 == 1) stored.replace(1 << 20, 4096, 4096, '\0');
      if (how % 3 == 2) stored.resize(stored.size() - 1);
      if (how / 3 == 1) ASSERT_TRUE(files.Remove(path + ".sums").ok());
      if (how / 3 == 2) files.BytesOf(path + ".sums")[30] ^= 1;
      EXPECT_TRUE(store.Has(digest));
      EXPECT_FALSE(store.Verify(digest)) << how;
      EXPECT_FALSE(store.Has(digest)) << "set aside";
      EXPECT_FALSE(store.Get(digest).ok());
      ASSERT_EQ(*store.Put(bytes), digest);
      EXPECT_EQ(*store.Get(digest), bytes);
    }
  }
}

// If the reader were kept, OpenBlob would find a removed blob, although Has returns false for it.
TEST(BlobStore, AReaderThatIsOpenedDuringARemovalIsNotKept) {
  for (const bool opens_first : {false, true}) {
    SCOPED_TRACE(opens_first);
    MemoryFiles files;
    BlobStore store = *BlobStore::Open(files, "/blobs");
    const std::string digest = *store.Put(Bytes(1000));
    if (opens_first) {  // The files are removed after the reader has opened the blob.
      int reads = 0;
      const std::function<void()> count = [&] {
        files.before_read = count;
        if (++reads < 3) return;  // The first two reads open the blob. The third one reads its checksums.
        files.before_read = nullptr;
        ASSERT_TRUE(*store.RemoveIfUnused(digest, INT64_MAX));
      };
      files.before_read = count;
      store.OpenBlob(digest).IgnoreError();
    } else {
      files.before_remove = [&] { EXPECT_TRUE(store.OpenBlob(digest).ok()); };
      ASSERT_TRUE(*store.RemoveIfUnused(digest, INT64_MAX));
    }
    EXPECT_FALSE(store.Has(digest));
    EXPECT_TRUE(absl::IsNotFound(store.OpenBlob(digest).status()));
    EXPECT_FALSE(store.Verify(digest));
  }
}

// For example, the check fails if the client has left, because it takes long to verify a blob that is larger than the
// memory.
TEST(BlobStore, VerifyingEndsWithTheErrorOfItsCheck) {
  MemoryFiles files;
  BlobStore store = *BlobStore::Open(files, "/blobs");
  const std::string digest = *store.Put(Bytes(3 * storage::kReadBytes));
  for (int good = 0; good <= 3; ++good) {
    int checks = 0;
    const auto check = [&] { return checks++ < good ? absl::OkStatus() : absl::CancelledError("the client left"); };
    const absl::StatusOr<bool> verified = store.Verify(digest, check);
    EXPECT_EQ(checks, std::min(good + 1, 3)) << "one check before each read";
    if (good < 3) {
      EXPECT_TRUE(absl::IsCancelled(verified.status())) << verified.status();
    } else {
      EXPECT_TRUE(verified.ok() && *verified) << verified.status();
    }
  }
  EXPECT_TRUE(store.Has(digest)) << "an error of the check is not damage";
  // If the checksums are missing, they are computed before the blob is verified.
  const std::string sums = absl::StrCat("/blobs/", digest, ".sums");
  for (const int good : {0, 2, 3, 5, 6}) {
    ASSERT_TRUE(files.Remove(sums).ok());
    const BlobStore reopened = *BlobStore::Open(files, "/blobs");
    int checks = 0;
    const auto check = [&] { return checks++ < good ? absl::OkStatus() : absl::CancelledError("the client left"); };
    const absl::StatusOr<bool> verified = reopened.Verify(digest, check);
    EXPECT_EQ(checks, std::min(good + 1, 6)) << "one check before each read";
    EXPECT_EQ(absl::IsCancelled(verified.status()), good < 6) << verified.status();
    EXPECT_EQ(files.Exists(sums), good >= 3) << "the checksums are written when the blob has been read";
    if (good < 3) ASSERT_TRUE(files.WriteAtomically(sums, "").ok());  // The next round removes it.
  }
  EXPECT_TRUE(store.Has(digest));
}

TEST(BlobStore, OpeningABlobWithoutChecksumsEndsWithTheErrorOfItsCheck) {
  MemoryFiles files;
  BlobStore store = *BlobStore::Open(files, "/blobs");
  const std::string digest = *store.Put(Bytes(3 * storage::kReadBytes));
  const std::string sums = absl::StrCat("/blobs/", digest, ".sums");
  for (const std::string& text : {"", "damaged"}) {
    ASSERT_TRUE(files.WriteAtomically(sums, text).ok());
    const BlobStore reopened = *BlobStore::Open(files, "/blobs");
    int checks = 0;
    const auto check = [&] { return checks++ < 2 ? absl::OkStatus() : absl::CancelledError("the client left"); };
    EXPECT_TRUE(absl::IsCancelled(reopened.OpenBlob(digest, check).status()));
    EXPECT_EQ(checks, 3) << "one check before each read";
    EXPECT_TRUE(reopened.Has(digest)) << "an error of the check is not damage";
    EXPECT_TRUE(reopened.OpenBlob(digest).ok());
  }
}

TEST(BlobStore, AReaderOfADamagedBlobDoesNotRemoveItsReplacement) {
  const std::string bytes = Bytes(5000);
  MemoryFiles files;
  BlobStore store = *BlobStore::Open(files, "/blobs");
  const std::string digest = *store.Put(bytes);
  const auto old_reader = *store.OpenBlob(digest);
  files.BytesOf("/blobs/" + digest)[7] ^= 1;
  EXPECT_FALSE(store.Verify(digest));
  ASSERT_EQ(*store.Put(bytes), digest);
  EXPECT_TRUE(absl::IsDataLoss(storage::ReadString(*old_reader, 0, 5000).status())) << "it reads the damaged file";
  EXPECT_TRUE(store.Has(digest));
  EXPECT_EQ(*store.Get(digest), bytes);
}

TEST(BlobStore, ChecksumsAreMadeForBlobsThatHaveNone) {
  const std::string bytes = Bytes(1 << 20);
  MemoryFiles files;
  BlobStore store = *BlobStore::Open(files, "/blobs");
  const std::string digest = *store.Put(bytes), path = "/blobs/" + digest + ".sums";
  const std::string sums = files.BytesOf(path);
  ASSERT_TRUE(files.Remove(path).ok());
  BlobStore reopened = *BlobStore::Open(files, "/blobs");
  EXPECT_EQ(*reopened.Get(digest), bytes);
  EXPECT_EQ(*files.Read(path), sums);
}

// PermissionDenied, NotFound and InvalidArgument would say that the caller has made a mistake.
TEST(BlobStore, ErrorsOfTheFolderAreNotErrorsOfAnUpload) {
  using absl::StatusCode;
  const std::pair<StatusCode, StatusCode> cases[] = {
      {StatusCode::kPermissionDenied, StatusCode::kFailedPrecondition},
      {StatusCode::kNotFound, StatusCode::kFailedPrecondition},
      {StatusCode::kInvalidArgument, StatusCode::kFailedPrecondition},
      {StatusCode::kResourceExhausted, StatusCode::kResourceExhausted},
      {StatusCode::kUnavailable, StatusCode::kUnavailable},
  };
  for (const auto& [of_folder, of_upload] : cases) {
    for (int64_t fail_after = 0;; ++fail_after) {
      MemoryFiles files;
      BlobStore store = *BlobStore::Open(files, "/blobs");
      files.failure = absl::Status(of_folder, "the folder");
      files.fail_after = fail_after;
      const absl::Status status = store.Put("bytes").status();
      if (status.ok()) break;
      EXPECT_EQ(status, absl::Status(of_upload, "the folder")) << fail_after;
    }
  }
  MemoryFiles files;
  BlobStore store = *BlobStore::Open(files, "/blobs");
  EXPECT_TRUE(absl::IsInvalidArgument(store.BeginUpload("x").status())) << "not a digest";
}

TEST(BlobStore, AFullDiskOrACrashAtAnyOperationLosesNothing) {
  const std::string old_bytes = Bytes(3000), bytes = Bytes(5000), digest = Sha256Hex(bytes);
  for (int64_t fail_after = 0;; ++fail_after) {
    MemoryFiles files;
    BlobStore store = *BlobStore::Open(files, "/blobs");
    const std::string old = *store.Put(old_bytes);
    files.fail_after = files.operations + fail_after;
    const auto put = store.Put(bytes);
    if (fail_after % 2 == 0) files.Crash(/*lose_names=*/true);
    files.fail_after = INT64_MAX;
    BlobStore reopened = *BlobStore::Open(files, "/blobs");
    EXPECT_EQ(*reopened.Get(old), old_bytes);
    if (put.ok()) EXPECT_EQ(*reopened.Get(digest), bytes);
    if (reopened.Has(digest)) EXPECT_TRUE(reopened.Verify(digest)) << fail_after;
    EXPECT_EQ(*reopened.Put(bytes), digest);
    EXPECT_EQ(*reopened.Get(digest), bytes);
    EXPECT_LE(files.List("/blobs")->size(), 4u) << "nothing is left of uploads that failed";
    if (put.ok()) return;
  }
}

}  // namespace
}  // namespace xlad::service
