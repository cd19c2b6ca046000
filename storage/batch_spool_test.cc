// BatchSpool: its results for the sender and the workers of a stream, and its contents after a crash at any operation.
#include "storage/batch_spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>

#include "storage/free_space.h"
#include "storage/testing/memory_files.h"

namespace xlad::storage {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class BatchSpoolTest : public ::testing::Test {
 protected:
  BatchSpoolTest() { Open(); }
  void Open() {
    spool_.reset();
    auto opened = BatchSpool::Open(files_, clock_, "spool", limits_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    spool_ = *std::move(opened);
  }
  absl::Status Send(int64_t batch, const std::string& bytes) {
    XLAD_ASSIGN_OR_RETURN(const auto arrival, spool_->Begin("job", batch));
    for (const char c : bytes) XLAD_RETURN_IF_ERROR(arrival->Append(std::string(1, c)));
    return arrival->Finish();
  }
  std::string Read(int64_t batch) {
    const auto reader = spool_->Read("job", batch, 0);
    if (!reader.ok()) return std::string(reader.status().message());
    const auto bytes = ReadString(**reader, 0, (*reader)->size());
    return bytes.ok() ? *bytes : std::string(bytes.status().message());
  }

  BatchSpool::Limits limits_;
  MemoryFiles files_;
  ManualClock clock_{1};
  std::unique_ptr<BatchSpool> spool_;
};

TEST_F(BatchSpoolTest, NothingIsRemovedWhileABackupIsMade) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  ASSERT_TRUE(spool_->Keep("ended", 0).ok());
  for (int64_t batch = 0; batch < 3; ++batch) ASSERT_TRUE(Send(batch, "x").ok());
  auto hold = spool_->HoldRemovals(), another = spool_->HoldRemovals();
  hold.reset();
  ASSERT_TRUE(spool_->Keep("job", 2).ok());
  spool_->Remove("ended");
  EXPECT_THAT(*files_.List("spool/job"), ElementsAre("0.batch", "1.batch", "2.batch"));
  EXPECT_THAT(*files_.List("spool"), ElementsAre("ended", "job"));
  another.reset();
  ASSERT_TRUE(spool_->Keep("job", 2).ok());
  EXPECT_THAT(*files_.List("spool/job"), ElementsAre("2.batch"));
}

TEST_F(BatchSpoolTest, ABackupThatBeginsDuringARemovalKeepsTheRest) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  for (int64_t batch = 0; batch < 3; ++batch) ASSERT_TRUE(Send(batch, "x").ok());
  std::shared_ptr<void> hold;
  files_.after_list = [&] { hold = spool_->HoldRemovals(); };
  spool_->Remove("job");
  ASSERT_NE(hold.use_count(), 0);
  EXPECT_THAT(*files_.List("spool/job"), ElementsAre("0.batch", "1.batch", "2.batch"));
}

// Each call in `use` would wait forever if the lock were held while a file is removed.
TEST_F(BatchSpoolTest, StreamsContinueWhileFilesAreRemoved) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  ASSERT_TRUE(spool_->Keep("ended", 0).ok());
  ASSERT_TRUE(spool_->End("ended", 0).ok());
  for (int64_t batch = 0; batch < 4; ++batch) ASSERT_TRUE(Send(batch, "x").ok());
  int calls = 0;
  const auto use = [&] {
    EXPECT_TRUE(*spool_->WaitForRoom("job", 0));
    EXPECT_TRUE(Send(4 + calls++, "y").ok());
  };
  files_.before_remove = [&] {
    use();
    EXPECT_THAT(Read(1), HasSubstr("was removed"));
    EXPECT_EQ(Read(2), "x");
    EXPECT_TRUE(spool_->Keep("job", 3).ok());
  };
  ASSERT_TRUE(spool_->Keep("job", 2).ok());
  EXPECT_THAT(*files_.List("spool/job"), ElementsAre("3.batch", "4.batch"))
      << "the first call has also removed what the second call does not need";
  files_.before_remove = use;
  spool_->Remove("ended");
  EXPECT_THAT(*files_.List("spool"), ElementsAre("job"));
  EXPECT_EQ(calls, 2);
}

TEST_F(BatchSpoolTest, ABackupWaitsForAFileThatIsBeingRemoved) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  for (int64_t batch = 0; batch < 8; ++batch) ASSERT_TRUE(Send(batch, "x").ok());
  std::vector<std::string> names;
  std::shared_ptr<void> hold;
  std::thread backup;
  files_.before_remove = [&] {
    backup = std::thread([&] {
      hold = spool_->HoldRemovals();
      names = *files_.List("spool/job");
    });
  };
  ASSERT_TRUE(spool_->Keep("job", 8).ok());
  backup.join();
  EXPECT_THAT(names, Not(Contains("0.batch")));
  EXPECT_EQ(*files_.List("spool/job"), names) << "nothing is removed later";
}

TEST_F(BatchSpoolTest, ABatchHasALimitAndTheDiskAReserve) {
  limits_ = {.batch_bytes = 5, .reserve_bytes = int64_t{1} << 30};
  Open();
  ASSERT_TRUE(spool_->Keep("job", 3).ok());
  const absl::Status large = Send(3, "123456");
  EXPECT_EQ(large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(large.message(), HasSubstr("batch 3 of job job: found more than 5 bytes, expected at most 5"));
  EXPECT_TRUE(Send(3, "12345").ok());
  files_.free_bytes = (int64_t{1} << 30) + FreeSpace::kCheckBytes - 1;
  const absl::Status full = Send(4, "1");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("1039 MiB left, expected 1040 MiB or more, of which 1024 MiB are reserved"));
  EXPECT_EQ(*spool_->Next("job"), 4) << "the refused batch was not stored";
  files_.free_bytes += 1;
  EXPECT_TRUE(Send(4, "1").ok());
}

TEST_F(BatchSpoolTest, BatchesArriveInOrderAndAreKeptUntilACheckpoint) {
  ASSERT_TRUE(spool_->Keep("job", 10).ok());
  EXPECT_EQ(*spool_->Next("job"), 10);
  for (int64_t batch = 10; batch < 15; ++batch) ASSERT_TRUE(Send(batch, absl::StrCat("batch", batch)).ok());
  EXPECT_TRUE(absl::IsAborted(Send(12, "again")));
  EXPECT_TRUE(absl::IsAborted(Send(16, "one is missing")));
  EXPECT_EQ(Read(12), "batch12") << "the first one is kept";
  ASSERT_TRUE(spool_->Keep("job", 13).ok());
  EXPECT_THAT(Read(12), HasSubstr("batch 12 of job job was removed"));
  EXPECT_EQ(Read(13), "batch13");
  Open();
  EXPECT_EQ(*spool_->Next("job"), 15);
  EXPECT_EQ(Read(14), "batch14");
  EXPECT_THAT(Read(15), HasSubstr("has not arrived"));
  EXPECT_THAT(Read(12), HasSubstr("was removed"));
  ASSERT_TRUE(spool_->Keep("job", 20).ok()) << "the job was resumed elsewhere";
  EXPECT_EQ(*spool_->Next("job"), 20);
  EXPECT_THAT(*files_.List("spool/job"), IsEmpty()) << "the job needs none of the batches before";
}

TEST_F(BatchSpoolTest, AReaderDoesNotWaitForABatchThatIsNoLongerNeeded) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  absl::Status read;
  std::thread reader([&] { read = spool_->Read("job", 5, /*wait_ms=*/600'000).status(); });
  while (spool_->Why("job").empty()) std::this_thread::yield();  // Until the reader waits.
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(spool_->Keep("job", 10).ok());
  reader.join();
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(300)) << "the reader was woken";
}

// Batches that the job does not need are removed even if Keep skipped batches and was interrupted, with and without a
// restart.
TEST_F(BatchSpoolTest, BatchesBeforeAGapAreRemoved) {
  for (int64_t fail_after = 0; fail_after < 12; ++fail_after) {
    files_ = MemoryFiles();
    Open();
    ASSERT_TRUE(spool_->Keep("job", 0).ok());
    for (int64_t batch = 0; batch < 5; ++batch) ASSERT_TRUE(Send(batch, "x").ok());
    files_.fail_after = files_.operations + fail_after;
    spool_->Keep("job", 20).IgnoreError();
    files_.fail_after = INT64_MAX;
    EXPECT_EQ(*spool_->Next("job"), 20);
    ASSERT_TRUE(Send(20, "y").ok());
    ASSERT_TRUE(Send(21, "z").ok());
    if (fail_after % 2 == 0) Open();
    EXPECT_EQ(*spool_->Next("job"), 22);
    EXPECT_EQ(Read(20), "y");
    EXPECT_THAT(Read(4), HasSubstr("batch 4 of job job was removed"));
    ASSERT_TRUE(spool_->Keep("job", 21).ok());
    EXPECT_THAT(*files_.List("spool/job"), ElementsAre("21.batch")) << fail_after;
  }
}

TEST_F(BatchSpoolTest, ARequestForAnyBatchLeavesRoomForTheSender) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  for (const int64_t batch : {int64_t{0}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(Read(batch), HasSubstr("has not arrived"));
    EXPECT_TRUE(*spool_->WaitForRoom("job", 0));
  }
}

TEST_F(BatchSpoolTest, TheEndIsKnownToReadersAndSurvivesARestart) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  ASSERT_TRUE(Send(0, "a").ok());
  EXPECT_TRUE(absl::IsAborted(spool_->End("job", 0))) << "another sender has sent a batch meanwhile";
  ASSERT_TRUE(spool_->End("job", 1).ok());
  for (int round = 0; round < 2; ++round, Open()) {
    EXPECT_EQ(Read(0), "a");
    EXPECT_THAT(Read(1), HasSubstr("ended before batch 1, expected a batch for step 1"));
    EXPECT_TRUE(absl::IsAborted(Send(1, "b")));
    EXPECT_TRUE(spool_->End("job", 1).ok()) << "repeated";
  }
}

TEST_F(BatchSpoolTest, AStreamWhoseBatchesAreAllRemovedKeepsItsEnd) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  for (int64_t batch = 0; batch < 3; ++batch) ASSERT_TRUE(Send(batch, "x").ok());
  ASSERT_TRUE(spool_->End("job", 3).ok());
  ASSERT_TRUE(spool_->Keep("job", 3).ok()) << "the checkpoint of the last step is committed";
  EXPECT_THAT(*files_.List("spool/job"), ElementsAre("3.end"));
  Open();
  EXPECT_EQ(*spool_->Next("job"), 3);
  EXPECT_THAT(Read(2), HasSubstr("batch 2 of job job was removed"));
  EXPECT_THAT(Read(3), HasSubstr("ended before batch 3"));
}

TEST_F(BatchSpoolTest, TheSenderIsSlowedDownToThePaceOfTheReaders) {
  ASSERT_TRUE(spool_->Keep("job", 100).ok());
  int64_t batch = 100;
  while (*spool_->WaitForRoom("job", 0)) ASSERT_TRUE(Send(batch++, "x").ok());
  EXPECT_EQ(batch, 100 + BatchSpool::kAhead);
  EXPECT_EQ(Read(103), "x");
  while (*spool_->WaitForRoom("job", 0)) ASSERT_TRUE(Send(batch++, "x").ok());
  EXPECT_EQ(batch, 103 + BatchSpool::kAhead + 1);
}

TEST_F(BatchSpoolTest, WaitsEndWhenTheBatchArrivesThereIsRoomOrTheJobIsRemoved) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  constexpr int64_t kLong = 600'000;
  std::thread reader([&] { EXPECT_TRUE(spool_->Read("job", 0, kLong).ok()); });
  ASSERT_TRUE(Send(0, "a").ok());
  reader.join();
  for (int64_t batch = 1; *spool_->WaitForRoom("job", 0); ++batch) ASSERT_TRUE(Send(batch, "x").ok());
  std::thread sender([&] { EXPECT_TRUE(*spool_->WaitForRoom("job", kLong)); });
  EXPECT_EQ(Read(1), "x");
  sender.join();
  std::thread last([&] { EXPECT_TRUE(absl::IsNotFound(spool_->Read("job", 99, kLong).status())); });
  spool_->Remove("job");
  last.join();
  EXPECT_TRUE(absl::IsNotFound(spool_->Next("job").status()));
  EXPECT_THAT(files_.Paths(), IsEmpty());
}

TEST_F(BatchSpoolTest, SaysWhichBatchIsMissing) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  ASSERT_TRUE(Send(0, "a").ok());
  EXPECT_EQ(spool_->Why("job"), "") << "no worker has asked for more";
  Read(1);
  clock_.Advance(12 * kNsPerSecond);
  EXPECT_THAT(spool_->Why("job"), HasSubstr("waits for batch 1, which its client has not sent"));
  EXPECT_THAT(spool_->Why("job"), HasSubstr("12 s ago"));
  EXPECT_EQ(spool_->Why("other"), "");
}

TEST_F(BatchSpoolTest, ABatchOfAnEarlierVersionIsReadAndRemoved) {
  ASSERT_TRUE(files_.MakeDirectories("spool/job").ok());
  for (const char* name : {"3", "4"}) {
    ASSERT_TRUE(files_.WriteAtomically(absl::StrCat("spool/job/", name, ".safetensors"), name).ok());
  }
  Open();
  ASSERT_TRUE(Send(5, "new").ok());
  EXPECT_EQ(Read(3), "3");
  EXPECT_EQ(Read(4), "4");
  EXPECT_EQ(Read(5), "new");
  ASSERT_TRUE(spool_->Keep("job", 5).ok());
  EXPECT_THAT(*files_.List("spool/job"), ElementsAre("5.batch"));
}

// A removal of the job may leave files if a backup is being made, and the job may then begin again.
TEST_F(BatchSpoolTest, ABatchThatArrivesAgainReplacesThatOfAnEarlierVersion) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  ASSERT_TRUE(Send(0, "zero").ok());
  ASSERT_TRUE(files_.WriteAtomically("spool/job/1.safetensors", "old").ok());
  ASSERT_TRUE(Send(1, "new").ok());
  EXPECT_THAT(*files_.List("spool/job"), ElementsAre("0.batch", "1.batch", "1.safetensors"));
  for (int opening = 0; opening < 2; ++opening) {
    EXPECT_EQ(Read(0), "zero");
    EXPECT_EQ(Read(1), "new");
    EXPECT_EQ(*spool_->Next("job"), 2);
    Open();
  }
  ASSERT_TRUE(spool_->Keep("job", 2).ok());
  EXPECT_THAT(*files_.List("spool/job"), IsEmpty());
}

TEST_F(BatchSpoolTest, ADamagedBatchIsNotRead) {
  ASSERT_TRUE(spool_->Keep("job", 0).ok());
  ASSERT_TRUE(Send(0, "the batch").ok());
  ASSERT_TRUE(Send(1, "").ok());
  for (const int64_t batch : {0, 1}) {
    const std::string path = absl::StrCat("spool/job/", batch, ".batch"), whole = *files_.Read(path);
    const std::string contents = Read(batch);
    EXPECT_EQ(contents, batch == 0 ? "the batch" : "");
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string flipped = whole;
      flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
      ASSERT_TRUE(files_.WriteAtomically(path, flipped).ok());
      EXPECT_THAT(Read(batch), HasSubstr(absl::StrCat("batch ", batch, " of job job"))) << "bit " << bit;
    }
    for (size_t size = 0; size < whole.size(); ++size) {
      ASSERT_TRUE(files_.WriteAtomically(path, whole.substr(0, size)).ok());
      EXPECT_THAT(Read(batch), HasSubstr(absl::StrCat("batch ", batch, " of job job is damaged"))) << size;
    }
    ASSERT_TRUE(files_.WriteAtomically(path, whole).ok());
    EXPECT_EQ(Read(batch), contents);
  }
}

// After a crash at any operation of the disk, the batches that were acknowledged are complete.
TEST_F(BatchSpoolTest, AcknowledgedBatchesSurviveACrashAnywhere) {
  for (int64_t fail_after = 0; fail_after < 60; ++fail_after) {
    for (const bool lose_names : {false, true}) {
      files_ = MemoryFiles();
      Open();
      ASSERT_TRUE(spool_->Keep("job", 0).ok());
      files_.fail_after = files_.operations + fail_after;
      int64_t acknowledged = 0;
      for (int64_t batch = 0; batch < 8 && Send(batch, absl::StrCat("batch", batch)).ok(); ++batch) {
        acknowledged = batch + 1;
        if (batch == 4) spool_->Keep("job", 3).IgnoreError();
      }
      files_.Crash(lose_names);
      Open();
      if (acknowledged == 0) continue;
      EXPECT_GE(*spool_->Next("job"), acknowledged) << fail_after;
      for (int64_t batch = acknowledged > 4 ? 3 : 0; batch < acknowledged; ++batch) {
        EXPECT_EQ(Read(batch), absl::StrCat("batch", batch)) << fail_after;
      }
    }
  }
}

}  // namespace
}  // namespace xlad::storage
