// Unneeded blobs are removed. Blobs that are needed, in use or just uploaded stay, even if the collection fails.
#include "service/blobs/blob_collector.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "base/hash.h"
#include "storage/checkpoint_index.h"
#include "storage/testing/memory_files.h"
#include "storage/uri.h"
#include "tensor/wire.h"

namespace xlad::service {
namespace {

using storage::BlobUri;
using storage::MemoryFiles;

constexpr int64_t kHourMs = 3'600'000;

class BlobCollectorTest : public testing::Test {
 protected:
  void SetUp() override { Open(); }

  void Open() {
    blobs_ = std::make_unique<BlobStore>(*BlobStore::Open(files_, "/blobs", {0, &clock_}));
    collector_ = std::make_unique<BlobCollector>(blobs_.get(), BlobCollectorOptions{kHourMs, 60'000, &clock_});
  }
  void Wait(int64_t ms) { clock_.Advance(ms * kNsPerMs); }

  // Stores a checkpoint of one tensor with these bytes. Returns the URI of its index.
  std::string PutCheckpoint(int64_t step, const std::string& bytes) {
    CheckpointIndex index;
    index.set_step(step);
    CheckpointTensor* tensor = index.add_tensors();
    tensor->set_name("w");
    tensor::ShapeToWire({tensor::ElementType::kS8, {std::ssize(bytes)}}, tensor->mutable_shape());
    CheckpointShard* shard = index.add_shards();
    shard->set_uri(BlobUri(*blobs_->Put(bytes)));
    shard->set_bytes(std::ssize(bytes));
    shard->set_sha256(std::string(64, '0'));
    shard->set_block_bytes(1 << 20);
    shard->add_block_sums(0);
    CheckpointPiece* piece = shard->add_pieces();
    piece->set_tensor("w");
    piece->mutable_box()->add_lo(0);
    piece->mutable_box()->add_hi(std::ssize(bytes));
    const absl::StatusOr<std::string> text = storage::SerializeIndex(index);
    EXPECT_TRUE(text.ok()) << text.status();
    return BlobUri(*blobs_->Put(*text));
  }
  BlobCollector::AskState Needing(std::set<std::string> states, std::set<std::string> blobs = {}) {
    return [=] { return StoredState{{}, blobs, states}; };
  }
  size_t CountBlobs() { return blobs_->List()->size(); }

  ManualClock clock_{1};
  MemoryFiles files_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<BlobCollector> collector_;
};

TEST_F(BlobCollectorTest, UnneededBlobsAreRemovedAfterAWhile) {
  const std::string program = *blobs_->Put("program"), other = *blobs_->Put("other");
  const std::string checkpoint = PutCheckpoint(10, "weights");
  EXPECT_EQ(*collector_->CollectAll(Needing({}, {})), 0) << "they have just been uploaded";
  Wait(kHourMs + 1);
  EXPECT_EQ(*collector_->CollectAll(Needing({checkpoint}, {program})), 1);
  EXPECT_FALSE(blobs_->Has(other));
  EXPECT_EQ(CountBlobs(), 3u);
  EXPECT_EQ(*collector_->CollectAll(Needing({}, {program})), 2) << "the index and its shard";
  EXPECT_EQ(files_.List("/blobs")->size(), 2u) << "the checksums are removed, too";
}

TEST_F(BlobCollectorTest, ABlobThatAClientMayNameStays) {
  const std::string digest = *blobs_->Put("state");
  Wait(kHourMs + 1);
  EXPECT_TRUE(blobs_->Verify(digest)) << "a client asks whether it must upload it";
  EXPECT_EQ(*collector_->CollectAll(Needing({})), 0);
  Wait(kHourMs + 1);
  {
    const auto hold = blobs_->Hold({digest, digest});  // A submission that is being recorded holds its blobs.
    EXPECT_EQ(*collector_->CollectAll(Needing({})), 0);
  }
  Wait(kHourMs + 1);
  EXPECT_EQ(*collector_->CollectAll(Needing({})), 1);
}

// A submission is recorded after the collection has read the state and before it removes blobs.
TEST_F(BlobCollectorTest, ABlobThatIsSubmittedDuringACollectionStays) {
  BlobCollector eager(blobs_.get(), {/*unnamed_ms=*/0, /*dropped_ms=*/0, &clock_});
  const std::string program = *blobs_->Put("program");
  Wait(1);
  auto hold = blobs_->Hold({program});
  const auto submit = [&]() -> absl::StatusOr<StoredState> {
    hold.reset();
    Wait(1);
    return StoredState();
  };
  EXPECT_EQ(*eager.CollectAll(submit), 0);
  hold = blobs_->Hold({program});
  eager.Drop(BlobUri(program));
  EXPECT_TRUE(eager.CollectDropped(submit).ok());
  EXPECT_TRUE(blobs_->Has(program));
}

TEST_F(BlobCollectorTest, ARestartKeepsUnnamedBlobsForAWhile) {
  blobs_->Put("state").IgnoreError();
  Wait(10 * kHourMs);
  Open();
  EXPECT_EQ(*collector_->CollectAll(Needing({})), 0) << "a client may be about to name it";
  Wait(kHourMs + 1);
  EXPECT_EQ(*collector_->CollectAll(Needing({})), 1);
}

TEST_F(BlobCollectorTest, DroppedCheckpointsAreRemovedSoonUnlessTheirBlobsAreNeededElsewhere) {
  const std::string first = PutCheckpoint(10, "frozen weights"), second = PutCheckpoint(20, "frozen weights");
  const std::string third = PutCheckpoint(30, "other weights");
  collector_->Drop(first);
  EXPECT_TRUE(collector_->CollectDropped(Needing({second, third})).ok());
  EXPECT_EQ(CountBlobs(), 5u)
      << "dropped blobs are kept for 60 s, because a client may be about to name the same bytes";
  Wait(60'001);
  EXPECT_TRUE(collector_->CollectDropped(Needing({second, third})).ok());
  EXPECT_EQ(CountBlobs(), 4u) << "the second checkpoint needs the shard, too";
  collector_->Drop(second);
  EXPECT_TRUE(collector_->CollectDropped(Needing({third})).ok());
  EXPECT_EQ(CountBlobs(), 2u);
  EXPECT_FALSE(collector_->has_dropped());
}

// The disk fails once, at each of the operations that read the index of a dropped checkpoint.
TEST_F(BlobCollectorTest, AnIndexThatCannotBeReadIsReadLater) {
  int failures = 0;
  for (int64_t reads = 0; reads < 6; ++reads) {
    const std::string checkpoint = PutCheckpoint(reads, "weights");
    files_.fail_read_after = files_.reads + reads;
    collector_->Drop(checkpoint);
    failures += files_.reads > files_.fail_read_after ? 1 : 0;
    files_.fail_read_after = INT64_MAX;
    EXPECT_TRUE(collector_->has_dropped());
    Wait(60'001);
    EXPECT_TRUE(collector_->CollectDropped(Needing({})).ok());
    EXPECT_EQ(CountBlobs(), 0u) << reads;
    EXPECT_FALSE(collector_->has_dropped());
  }
  EXPECT_GE(failures, 1);
}

TEST_F(BlobCollectorTest, AnIndexThatStaysUnreadableIsLoggedOnce) {
  const std::string checkpoint = PutCheckpoint(10, "weights");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    files_.fail_read_after = files_.reads;
    collector_->Drop(checkpoint);
    files_.fail_read_after = files_.reads;
    EXPECT_TRUE(collector_->CollectDropped(Needing({})).ok());
  }
  const std::string logged = testing::internal::GetCapturedStderr();
  const std::vector<std::string> parts = absl::StrSplit(logged, "cannot be read now");
  EXPECT_EQ(parts.size(), 2u) << logged;
  EXPECT_TRUE(collector_->has_dropped());
  Wait(60'001);
  EXPECT_TRUE(collector_->CollectDropped(Needing({})).ok());
  EXPECT_EQ(CountBlobs(), 0u);
}

TEST_F(BlobCollectorTest, ARemovalIsDueAfterAPause) {
  const std::string checkpoint = PutCheckpoint(10, "weights");
  EXPECT_FALSE(collector_->is_due());
  collector_->Drop(checkpoint);
  EXPECT_TRUE(collector_->is_due());
  EXPECT_TRUE(collector_->CollectDropped(Needing({})).ok());
  EXPECT_FALSE(collector_->is_due());
  Wait(9'999);
  EXPECT_FALSE(collector_->is_due());
  Wait(1);
  EXPECT_TRUE(collector_->is_due()) << "the blobs were too new";
  Wait(60'001);
  EXPECT_TRUE(collector_->CollectDropped(Needing({})).ok());
  Wait(10'000);
  EXPECT_FALSE(collector_->is_due()) << "all blobs have been removed";
}

TEST_F(BlobCollectorTest, AnIndexStaysUntilTheBlobsThatItNamesAreRemoved) {
  for (int64_t step = 0; step < 8; ++step) {  // The digests of index and shard are in both orders.
    const std::string checkpoint = PutCheckpoint(step, "weights");
    const std::vector<std::string> blobs = *BlobsNamedBy(*blobs_, checkpoint);
    ASSERT_EQ(blobs.size(), 2u);
    Wait(60'001);
    collector_->Drop(checkpoint);
    EXPECT_TRUE(blobs_->Verify(blobs[1])) << "a client is about to name the same bytes";
    EXPECT_TRUE(collector_->CollectDropped(Needing({})).ok());
    EXPECT_TRUE(blobs_->Has(blobs[0]));
    EXPECT_TRUE(blobs_->Has(blobs[1]));
    Wait(60'001);
    EXPECT_TRUE(collector_->CollectDropped(Needing({})).ok());
    EXPECT_EQ(CountBlobs(), 0u);
    EXPECT_FALSE(collector_->has_dropped());
  }
}

// The process ends at each operation of a removal in turn. The next one drops the checkpoint again.
TEST_F(BlobCollectorTest, ARemovalThatARestartInterruptsIsCompleted) {
  for (int64_t step = 0; step < 8; ++step) {
    bool done = false;
    for (int64_t fail_after = 0; !done; ++fail_after) {
      ASSERT_LT(fail_after, 100);
      files_ = MemoryFiles();
      Open();
      const std::string checkpoint = PutCheckpoint(step, "weights");
      Wait(60'001);
      collector_->Drop(checkpoint);
      files_.fail_after = files_.operations + fail_after;
      EXPECT_TRUE(collector_->CollectDropped(Needing({})).ok());
      done = !collector_->has_dropped();
      files_.fail_after = INT64_MAX;
      Open();
      collector_->Drop(checkpoint);
      Wait(60'001);
      EXPECT_TRUE(collector_->CollectDropped(Needing({})).ok());
      EXPECT_EQ(CountBlobs(), 0u) << "step " << step << ", operation " << fail_after;
      EXPECT_FALSE(collector_->has_dropped());
    }
  }
}

// A coordinator that starts drops all checkpoints again whose drops are in its log. Most were removed long ago.
TEST_F(BlobCollectorTest, OnlyCheckpointsThatStillExistAreDroppedAgain) {
  const std::string kept = PutCheckpoint(10, "weights"), left = PutCheckpoint(20, "other weights");
  std::set<std::string> uris = {left, "file:/checkpoints/step-000000000001-attempt-1", "not a URI"};
  for (int i = 0; i < 1000; ++i) uris.insert(BlobUri(Sha256Hex(absl::StrCat(i))));
  const int64_t reads = files_.reads;
  EXPECT_TRUE(collector_->DropAgain(uris).ok());
  EXPECT_LT(files_.reads - reads, 20);
  Wait(60'001);
  EXPECT_TRUE(collector_->CollectDropped(Needing({kept})).ok());
  EXPECT_EQ(CountBlobs(), 2u);
  EXPECT_FALSE(collector_->has_dropped());
}

TEST_F(BlobCollectorTest, NothingIsRemovedIfItIsUnknownWhatIsNeeded) {
  const std::string checkpoint = PutCheckpoint(10, "weights");
  Wait(kHourMs + 1);
  EXPECT_FALSE(collector_->CollectAll([] { return absl::UnavailableError("the log cannot be read"); }).ok());
  collector_->Drop(checkpoint);
  EXPECT_FALSE(collector_->CollectDropped([] { return absl::UnavailableError("the log cannot be read"); }).ok());
  EXPECT_TRUE(collector_->has_dropped());
  EXPECT_EQ(CountBlobs(), 2u);
}

// The disk or the machine fails at each operation of a collection in turn.
TEST_F(BlobCollectorTest, AFailureAtAnyOperationLosesNoNeededBlob) {
  for (int64_t fail_after = 0;; ++fail_after) {
    files_ = MemoryFiles();
    Open();
    const std::string program = *blobs_->Put("program"), checkpoint = PutCheckpoint(10, "weights");
    for (int i = 0; i < 3; ++i) blobs_->Put(absl::StrCat("old ", i)).IgnoreError();
    Wait(kHourMs + 1);
    files_.fail_after = files_.operations + fail_after;
    const bool done = collector_->CollectAll(Needing({checkpoint}, {program})).ok();
    if (fail_after % 2 == 0) files_.Crash(/*lose_names=*/fail_after % 4 == 0);
    files_.fail_after = INT64_MAX;
    Open();
    EXPECT_TRUE(blobs_->Verify(program));
    const std::vector<std::string> named = *BlobsNamedBy(*blobs_, checkpoint);
    EXPECT_EQ(named.size(), 2u);
    for (const std::string& blob : named) EXPECT_TRUE(blobs_->Verify(blob));
    Wait(kHourMs + 1);
    EXPECT_TRUE(collector_->CollectAll(Needing({checkpoint}, {program})).ok());
    EXPECT_EQ(CountBlobs(), 3u) << fail_after;
    if (done) return;
  }
}

// One read fails, for each read in turn. The error says nothing about the index, so the blobs that the index names must
// stay.
TEST_F(BlobCollectorTest, AReadThatFailsOnceLosesNoNeededBlob) {
  for (const bool dropped : {false, true}) {
    for (int64_t fail_after = 0;; ++fail_after) {
      ASSERT_LT(fail_after, 1000);
      files_ = MemoryFiles();
      Open();
      // The checkpoints share the blob of their tensor.
      const std::string older = PutCheckpoint(10, "weights"), newer = PutCheckpoint(20, "weights");
      Wait(kHourMs + 1);
      if (dropped) collector_->Drop(older);
      files_.fail_read_after = files_.reads + fail_after;
      const bool done =
          dropped ? collector_->CollectDropped(Needing({newer})).ok() : collector_->CollectAll(Needing({newer})).ok();
      const bool failed = files_.reads > files_.fail_read_after;
      files_.fail_read_after = INT64_MAX;
      const std::vector<std::string> named = *BlobsNamedBy(*blobs_, newer);
      EXPECT_EQ(named.size(), 2u);
      for (const std::string& blob : named) EXPECT_TRUE(blobs_->Verify(blob)) << "read " << fail_after;
      if (!failed) {
        EXPECT_TRUE(done);
        break;
      }
    }
  }
}

}  // namespace
}  // namespace xlad::service
