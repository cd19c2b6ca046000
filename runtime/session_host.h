// The part of a session's first worker that serves clients and the other workers: it puts the calls of clients into an
// order, which all workers follow, and passes arrays on.
//
// Thread-safe. Nothing here uses gRPC. No array passes through the coordinator: clients upload arrays to the host and
// download them from it, and the other workers exchange boxes with it. The host has a whole array in memory while it
// is transferred.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/session.h"
#include "runtime/session_arrays.h"

namespace xlad::runtime {

// What the clients of a session may have at most. A request above a limit is refused with ResourceExhausted.
struct SessionLimits {
  size_t programs = 4096;
  size_t arrays = 1 << 20;         // That exist at a time.
  int64_t host_bytes = INT64_MAX;  // The whole arrays in the memory of this worker, and the uploads under way.
};

// An upload that has begun; see SessionHost::BeginUpload.
class UploadCount {
 public:
  UploadCount(std::atomic<int64_t>* sum, int64_t bytes) : sum_(*sum), bytes_(bytes) { sum_ += bytes_; }
  ~UploadCount() { sum_ -= bytes_; }
  UploadCount(const UploadCount&) = delete;
  UploadCount& operator=(const UploadCount&) = delete;

 private:
  std::atomic<int64_t>& sum_;
  const int64_t bytes_;
};

// Methods return Aborted, with the reason, once the session has ended.
class SessionHost {
 public:
  // `worker` is the id of this worker, one of `workers`.
  SessionHost(std::string session_id, std::string worker, int64_t workers, const SessionLimits& limits = {});
  // From now on, `deliver` gets the commands for this worker, in their order, until End. It returns quickly and does
  // not call the host. Called once.
  void Begin(std::function<void(const SessionCommand&)> deliver);

  // --- Requests of clients. A repeated request with the same key, which is not empty, has the result of the first one;
  // the last kRememberedKeys are known.
  static constexpr size_t kRememberedKeys = 1024;
  static constexpr size_t kMaxKeyBytes = 128;
  // Returns the program's number.
  absl::StatusOr<int64_t> AddProgram(const Executable& executable, const AddProgramRequest& request);
  absl::StatusOr<int64_t> PutArray(std::shared_ptr<const tensor::Array> array, const std::string& key);
  // Counts the bytes of an upload until the result is destroyed, which must be before the host is.
  absl::StatusOr<std::unique_ptr<UploadCount>> BeginUpload(int64_t bytes);
  // Waits while many commands are not done.
  absl::StatusOr<std::vector<int64_t>> Call(const CallProgramRequest& request);
  // Waits until the array is computed.
  absl::StatusOr<std::shared_ptr<const tensor::Array>> GetArray(int64_t array);
  absl::Status FreeArrays(const std::vector<int64_t>& arrays);

  // --- The workers of the session, this one included.
  // Waits for commands after `sequence`. Empty if `gone`, which may change before a call of Wake.
  absl::StatusOr<std::vector<SessionCommand>> CommandsAfter(int64_t sequence, const std::atomic<bool>& gone);
  void Wake();
  // The worker has done all commands up to `sequence`.
  void Answer(const std::string& worker, int64_t sequence);
  // A box of an array, row-major; waits until all of the array is here.
  absl::StatusOr<tensor::Array> ReadBox(int64_t array, const tensor::Box& box);
  // The size of a box of an array that the workers are sending; NotFound if the array is not expected.
  absl::StatusOr<int64_t> BytesOf(int64_t array, const tensor::Box& box);
  // `bytes` are as many as BytesOf says. A box that is not expected, or is here already, is ignored.
  void WriteBox(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes);

  const std::string& worker() const { return worker_; }
  // Ends all calls with `why`.
  void End(const std::string& why);

 private:
  // Returns the remembered result of a request, or null.
  const std::vector<int64_t>* Remembered(const std::string& key) const;
  void Remember(const std::string& key, std::vector<int64_t> result);
  void Perform();  // Carries out the effects of the session. Called with the lock held.
  // Whether `bytes` more fit into the memory of this worker. Called with the lock held.
  absl::Status CheckRoom(int64_t bytes);
  absl::Status CheckArrays() const;  // Whether another array may exist. Called with the lock held.

  const std::string session_id_;
  const std::string worker_;
  const int64_t workers_;
  const SessionLimits limits_;
  SessionArrays arrays_;
  std::atomic<int64_t> uploading_bytes_ = 0;

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  Session session_;
  std::function<void(const SessionCommand&)> deliver_;  // Null before Begin.
  absl::Status ended_;
  std::map<std::string, std::vector<int64_t>> results_;  // By request key.
  std::deque<std::string> keys_;                         // Those of results_, oldest first.
};

}  // namespace xlad::runtime
