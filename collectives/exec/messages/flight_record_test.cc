// Which ranks keep the control file of a group whose ranks exchange messages.
#include "collectives/exec/messages/flight_record.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/random.h"

namespace xlad::collectives {
namespace {

// The number of control files of the group, after its ranks have left in the order of their numbers. Rank `failed`
// leaves after an error, unless it is -1.
int FilesAfter(int ranks, int failed) {
  const std::string key = absl::StrCat("flight-record-test-", getpid(), "-", SystemRandom()->Hex(4));
  const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
  std::vector<std::unique_ptr<FlightRecord>> records(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Rendezvous rendezvous({rank, ranks}, bootstrap.get(), &RealClock());
      auto record = FlightRecord::Join(key, rank, ranks, &rendezvous);
      ASSERT_TRUE(record.ok()) << record.status();
      records[static_cast<size_t>(rank)] = *std::move(record);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failed >= 0) records[static_cast<size_t>(failed)]->Fail();
  for (std::unique_ptr<FlightRecord>& record : records) record.reset();
  int files = 0;
  const std::string folder = *ControlFolder();
  const std::vector<std::string> names = *RealFileSystem().List(folder);
  for (const std::string& name : names) {
    if (!absl::StrContains(name, key)) continue;
    ++files;
    EXPECT_TRUE(RealFileSystem().Remove(JoinPath(folder, name)).ok());
  }
  return files;
}

TEST(FlightRecord, TheFileIsKeptIfAnyRankHadAnError) {
  EXPECT_EQ(FilesAfter(3, -1), 0);
  for (int failed = 0; failed < 3; ++failed) EXPECT_EQ(FilesAfter(3, failed), 1) << "rank " << failed;
}

}  // namespace
}  // namespace xlad::collectives
