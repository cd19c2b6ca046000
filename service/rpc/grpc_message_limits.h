// Limits for single messages of calls. gRPC keeps a message in memory until all of it has arrived or has been sent. A
// client that stalls in the middle of a message would occupy this memory until its connection ends.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace xlad::service {

// Cancels a call if one of its messages does not arrive, or is not sent, in time. Clients send large contents in
// messages of at most 1 MiB. The limit applies to each message, so an upload may take longer. Thread-safe.
class MessageLimits {
 public:
  explicit MessageLimits(std::chrono::milliseconds limit) : limit_(limit), thread_([this] { Run(); }) {}
  ~MessageLimits();

  // Call it before a read or a write of the call begins. Returns a number for End.
  int64_t Begin(grpc::CallbackServerContext* context);
  // Must be called when the read or the write has ended, before `context` ends. Does nothing for kNone, and if it was
  // called for this number before.
  void End(int64_t number);
  static constexpr int64_t kNone = -1;

  // How the last message of a call is sent.
  enum class Room {
    kReserved,  // No thread needs to wait for its end.
    kMustWait,  // The thread of the call must wait until the message has been sent.
    kRefused,   // The call must end with an error instead.
  };
  // Counts the bytes of a message, until Release, unless the result is kRefused. At most kMaxUnsentBytes of all users
  // and kMaxUnsentBytesOfUser of each user are sent without a thread that waits. A user who has no unsent bytes may
  // always use one thread to wait. Otherwise calls wait only if `may_wait`, so that the threads remain for other users.
  Room Reserve(const std::string& user, bool may_wait, int64_t bytes);
  // Must be called when the message has ended, with the arguments and the result of Reserve.
  void Release(const std::string& user, Room room, int64_t bytes);

  // Counts the memory of a message that is about to be parsed, until ReleaseParsed. Returns false, and counts nothing,
  // if the messages of all users would take more than kMaxParsedBytesOfAll, or those of this user more than
  // kMaxParsedBytesOfUser. One message of a user may take more.
  bool ReserveParsed(const std::string& user, int64_t bytes);
  void ReleaseParsed(const std::string& user, int64_t bytes);

 private:
  struct Waiting {
    std::chrono::steady_clock::time_point until;
    grpc::CallbackServerContext* context = nullptr;
  };
  void Run();

  static constexpr int64_t kMaxUnsentBytes = 64 << 20;
  static constexpr int64_t kMaxUnsentBytesOfUser = 16 << 20;
  static constexpr int64_t kMaxParsedBytesOfAll = 512 << 20;
  static constexpr int64_t kMaxParsedBytesOfUser = 128 << 20;

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;  // Guards all following members.
  std::condition_variable changed_;
  std::map<int64_t, Waiting> waiting_;  // The oldest one is the first.
  int64_t next_ = 0;
  int64_t unsent_bytes_ = 0;                       // The bytes with Room::kReserved.
  std::map<std::string, int64_t> unsent_by_user_;  // All counted bytes; only users who have some.
  int64_t parsed_bytes_ = 0;
  std::map<std::string, int64_t> parsed_by_user_;  // Only users who have some.
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace xlad::service
