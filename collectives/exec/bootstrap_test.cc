// Each key of a bootstrap is written once, even if several processes try.
#include "collectives/exec/bootstrap.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test_folder.h"

namespace xlad::collectives {
namespace {

// Threads stand for processes: each has a store of its own on the same folder.
TEST(Bootstrap, OneOfSeveralWritersOfAKeySucceeds) {
  constexpr int kWriters = 4, kKeys = 50;
  const TestFolder folder;
  std::vector<std::vector<absl::Status>> statuses(kKeys, std::vector<absl::Status>(kWriters));
  std::barrier at_key(kWriters);
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      const std::unique_ptr<Bootstrap> bootstrap = FileBootstrap(RealFileSystem(), folder.path());
      for (int key = 0; key < kKeys; ++key) {
        at_key.arrive_and_wait();
        statuses[key][writer] = bootstrap->Put(absl::StrCat("key/", key), absl::StrCat(writer));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::unique_ptr<Bootstrap> bootstrap = FileBootstrap(RealFileSystem(), folder.path());
  for (int key = 0; key < kKeys; ++key) {
    int successful = 0;
    for (int writer = 0; writer < kWriters; ++writer) {
      const absl::Status& status = statuses[key][writer];
      EXPECT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
      if (!status.ok()) continue;
      ++successful;
      EXPECT_EQ(*bootstrap->Get(absl::StrCat("key/", key)), absl::StrCat(writer));
    }
    EXPECT_EQ(successful, 1) << "key " << key;
  }
}

}  // namespace
}  // namespace xlad::collectives
