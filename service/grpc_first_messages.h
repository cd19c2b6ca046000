// A time limit for the first message of each call. gRPC keeps the bytes of a message in memory until all of them have
// arrived, so a client that stalls in the middle of a message would occupy this memory until its connection ends.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>

namespace xlad::service {

// Cancels calls whose first message does not arrive in time. Clients send large contents in messages of at most 1 MiB,
// each of which has the whole time, so the limit does not bound the time of an upload. Thread-safe.
class FirstMessages {
 public:
  explicit FirstMessages(std::chrono::milliseconds limit) : limit_(limit), thread_([this] { Run(); }) {}
  ~FirstMessages();

  // Call it before the call's first read. Returns a number for Arrived.
  int64_t Expect(grpc::CallbackServerContext* context);
  // Must be called when the first read has ended, before `context` ends.
  void Arrived(int64_t number);

 private:
  struct Waiting {
    std::chrono::steady_clock::time_point until;
    grpc::CallbackServerContext* context = nullptr;
  };
  void Run();

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;  // Guards all following members.
  std::condition_variable changed_;
  std::map<int64_t, Waiting> waiting_;  // The oldest call is the first one.
  int64_t next_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace xlad::service
