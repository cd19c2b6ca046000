#include "service/folder_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <string>
#include <thread>
#include <vector>

namespace xlad::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kFolderPatienceMs = 60'000;

TEST(FolderWork, RunsTheWorkOfAFolderInOrder) {
  FolderWork folders(kFolderPatienceMs);
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) folders.Push("/a", [&ran, i] { ran.push_back(i); });
  ASSERT_TRUE(folders.Run("/a", [&ran] { ran.push_back(3); }).ok());
  EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3));
}

TEST(FolderWork, AFolderThatBlocksDelaysNoOther) {
  std::promise<void> answers;
  const std::shared_future<void> answered = answers.get_future().share();
  FolderWork folders(kFolderPatienceMs);
  for (const char* blocked : {"/a", "/b", "/c"}) {
    for (int i = 0; i < 3; ++i) folders.Push(blocked, [answered] { answered.wait(); });
  }
  bool is_done = false;
  EXPECT_TRUE(folders.Run("/d", [&is_done] { is_done = true; }).ok());
  EXPECT_TRUE(is_done);
  answers.set_value();
  EXPECT_TRUE(folders.Run("/a", [] {}).ok());
}

TEST(FolderWork, WorkOfAFolderThatBlocksFails) {
  std::promise<void> begun, answers, later_ran;
  const std::shared_future<void> answered = answers.get_future().share();
  bool has_run = false;
  FolderWork folders(/*patience_ms=*/1);
  folders.Push("/a", [&begun, answered] {
    begun.set_value();
    answered.wait();
  });
  begun.get_future().wait();
  for (const char* call : {"may wait", "is refused, because the folder blocks"}) {
    SCOPED_TRACE(call);
    const absl::Status late = folders.Run("/a", [&has_run] { has_run = true; });
    EXPECT_TRUE(absl::IsUnavailable(late)) << late;
    EXPECT_THAT(std::string(late.message()), HasSubstr("/a is busy or has not answered for 1 ms"));
  }
  folders.Push("/a", [&later_ran] { later_ran.set_value(); });
  answers.set_value();
  later_ran.get_future().wait();
  EXPECT_FALSE(has_run) << "work is dropped if it has not begun when its caller stops waiting";
  folders.Stop();
  EXPECT_TRUE(absl::IsUnavailable(folders.Run("/b", [] {})));
}

TEST(FolderWork, ACanceledRunEndsBeforeItsFolderAnswers) {
  std::promise<void> begun, answers;
  const std::shared_future<void> answered = answers.get_future().share();
  FolderWork folders(kFolderPatienceMs);
  std::thread caller([&folders, &begun, answered] {
    const auto work = [&begun, answered] {
      begun.set_value();
      answered.wait();
    };
    EXPECT_TRUE(absl::IsUnavailable(folders.Run("/a", work)));
  });
  begun.get_future().wait();
  folders.Cancel();
  caller.join();
  answers.set_value();
}

TEST(FolderWork, TheNumberOfThreadsIsLimited) {
  std::promise<void> answers, other_ran;
  const std::shared_future<void> answered = answers.get_future().share();
  std::latch all_run(FolderWork::kMaxThreads);
  std::atomic<bool> has_run = false;
  FolderWork folders(/*patience_ms=*/50);
  for (size_t f = 0; f < FolderWork::kMaxThreads; ++f) {
    folders.Push(std::to_string(f), [&all_run, answered] {
      all_run.count_down();
      answered.wait();
    });
  }
  all_run.wait();
  EXPECT_TRUE(absl::IsUnavailable(folders.Run("other", [&has_run] { has_run = true; })));
  folders.Push("other", [&other_ran] { other_ran.set_value(); });
  answers.set_value();
  other_ran.get_future().wait();
  EXPECT_FALSE(has_run) << "its caller no longer waits, and the work of a folder runs in order";
}

}  // namespace
}  // namespace xlad::service
