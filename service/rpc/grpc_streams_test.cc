// The order of gRPC's callbacks on the streams of followers, without connections.
#include "service/rpc/grpc_streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace xlad::service {
namespace {

// Has no updates, and counts how often it is asked for one.
class Quiet final : public Follower {
 public:
  explicit Quiet(std::atomic<int>* asked) : asked_(asked) {}
  absl::StatusOr<Update> Next() override {
    ++*asked_;
    return Update();
  }

 private:
  std::atomic<int>* const asked_;
};

// A request that has arrived is delivered after the call was canceled. The followers' thread is busy meanwhile, so it
// sees only the last state of the stream.
TEST(Followers, AStreamThatWasCanceledIsNotOpened) {
  MessageLimits message_limits(std::chrono::hours(1));
  Followers followers(&message_limits);
  std::promise<void> busy, go_on;
  std::atomic<int> asked = 0, opened = 0;
  using FollowerOr = absl::StatusOr<std::unique_ptr<Follower>>;
  auto* const slow = followers.MakeStream(nullptr, CallerAccess(), [&](const grpc::ByteBuffer&) -> FollowerOr {
    busy.set_value();
    go_on.get_future().wait();
    return std::make_unique<Quiet>(&asked);
  });
  auto* const canceled = followers.MakeStream(nullptr, CallerAccess(), [&](const grpc::ByteBuffer&) -> FollowerOr {
    ++opened;
    return std::make_unique<Quiet>(&opened);
  });
  slow->OnReadDone(true);
  busy.get_future().wait();
  canceled->OnCancel();
  canceled->OnReadDone(true);
  go_on.set_value();
  for (int pass = 0; pass < 3; ++pass) {  // All streams are advanced in each pass.
    const int before = asked;
    followers.OnChange();
    while (asked == before) std::this_thread::yield();
  }
  EXPECT_EQ(opened, 0);
  canceled->OnDone();
  slow->OnDone();
}

}  // namespace
}  // namespace xlad::service
