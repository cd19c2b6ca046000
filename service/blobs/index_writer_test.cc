#include "service/blobs/index_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/testing/memory_files.h"
#include "storage/uri.h"

namespace xlad::service {
namespace {

using storage::MemoryFiles;
using ::testing::HasSubstr;

StoreIndex IndexRequest(const std::string& uri) {
  StoreIndex request{{JobId("job"), 1, Generation(1)}, uri, {}};
  request.index.set_job_id("job");
  request.index.set_attempt(1);
  request.index.set_step(40);
  return request;
}

TEST(IndexWriter, AnIndexIsABlobAndForFilesAlsoAFile) {
  MemoryFiles disk, shared;
  BlobStore blobs = *BlobStore::Open(disk, "/data/blobs");
  const absl::StatusOr<Checkpoint> embedded = WriteIndex(shared, IndexRequest("xlad:"), &blobs);
  ASSERT_TRUE(embedded.ok()) << embedded.status();
  EXPECT_EQ(embedded->uri, storage::BlobUri(embedded->digest));
  EXPECT_TRUE(blobs.Has(embedded->digest));
  EXPECT_TRUE(shared.Paths().empty());
  const absl::StatusOr<Checkpoint> file = WriteIndex(shared, IndexRequest("file:/ckpt"), &blobs);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->uri, HasSubstr("file:/ckpt/job/step-000000000040-attempt-1"));
  EXPECT_EQ(shared.Paths().size(), 1u);
}

// A job fails if the place that it names refuses its last state, but not because of the coordinator's disk.
TEST(IndexWriter, ErrorsOfTheCoordinatorsDiskDifferFromThoseOfTheJobsPlace) {
  MemoryFiles disk, shared;
  BlobStore blobs = *BlobStore::Open(disk, "/data/blobs");
  shared.failure = absl::PermissionDeniedError("cannot write /ckpt: Permission denied");
  shared.fail_after = 0;
  EXPECT_TRUE(absl::IsPermissionDenied(WriteIndex(shared, IndexRequest("file:/ckpt"), &blobs).status()));
  disk.failure = absl::PermissionDeniedError("cannot write /data/blobs: Read-only file system");
  disk.fail_after = 0;
  StoreIndex request = IndexRequest("file:/ckpt");
  request.index.set_step(50);
  const absl::Status status = WriteIndex(shared, request, &blobs).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("data folder of the coordinator cannot be written: cannot write"));
  // If there is no other place, the error says what the operator should do.
  disk.failure = absl::ResourceExhaustedError("cannot write /data/blobs: No space left on device");
  request = IndexRequest("xlad:");
  request.index.set_step(60);
  EXPECT_TRUE(absl::IsResourceExhausted(WriteIndex(shared, request, &blobs).status()));
}

}  // namespace
}  // namespace xlad::service
