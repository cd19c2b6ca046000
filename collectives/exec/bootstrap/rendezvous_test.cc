// How long ranks wait for each other, and what they report about ranks that are missing.
#include "collectives/exec/bootstrap/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// A store in which rank r puts its values at the time arrivals_ms[r]. Each look-up takes 1 ms.
class LateRanks final : public Bootstrap {
 public:
  LateRanks(std::vector<int64_t> arrivals_ms, ManualClock* clock)
      : arrivals_ms_(std::move(arrivals_ms)), clock_(*clock) {}

  absl::Status Put(const std::string&, const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::string> Get(const std::string& key) override {
    clock_.Advance(kNsPerMs);
    for (size_t rank = 0; rank < arrivals_ms_.size(); ++rank) {
      if (!absl::StrContains(key, absl::StrCat("/rank/", rank, "/"))) continue;
      if (clock_.NowNs() >= arrivals_ms_[rank] * kNsPerMs) return "1";
    }
    return absl::NotFoundError(key);
  }

 private:
  const std::vector<int64_t> arrivals_ms_;
  ManualClock& clock_;
};

absl::Status FenceOf(const std::vector<int64_t>& arrivals_ms, int64_t deadline_ms, ManualClock* clock) {
  LateRanks bootstrap(arrivals_ms, clock);
  Rendezvous rendezvous({0, static_cast<int>(arrivals_ms.size()), 0, deadline_ms}, &bootstrap, clock);
  return rendezvous.Fence("here");
}

TEST(Rendezvous, AFenceEndsWhenAllRanksHaveArrived) {
  ManualClock clock;
  EXPECT_TRUE(FenceOf({0, 16, 4, 12}, /*deadline_ms=*/20, &clock).ok());
}

// Each rank arrives less than the deadline after the rank before it. The last two arrive after the deadline of the
// fence.
TEST(Rendezvous, AFenceHasOneDeadlineForAllRanks) {
  ManualClock clock;
  const absl::Status status = FenceOf({0, 8, 16, 24}, /*deadline_ms=*/10, &clock);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("within 10 ms"), EndsWith(": 2, 3")));
  EXPECT_LE(clock.NowNs(), 15 * kNsPerMs);
}

// Rank 1 never arrives, and its error is known before the deadline.
TEST(Rendezvous, AnErrorOfThePeerEndsTheWait) {
  ManualClock clock;
  LateRanks bootstrap({0, 1'000'000'000, 0}, &clock);
  const auto check_peer = [](int rank) {
    return rank == 1 ? absl::UnavailableError("rank 1 has left") : absl::OkStatus();
  };
  Rendezvous rendezvous({0, 3, 0, /*deadline_ms=*/1000, "ranks", check_peer}, &bootstrap, &clock);
  EXPECT_EQ(rendezvous.Fence("here"), absl::UnavailableError("rank 1 has left"));
  EXPECT_EQ(rendezvous.Get(1, "key").status(), absl::UnavailableError("rank 1 has left"));
  EXPECT_TRUE(rendezvous.Get(2, "key").ok());
}

}  // namespace
}  // namespace xlad::collectives
