// The part of a session's first worker that serves clients and the other workers. It puts the calls of clients into an
// order that all workers follow, and transfers arrays between clients and workers.
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
#include <utility>
#include <vector>

#include "runtime/session.h"
#include "runtime/session_arrays.h"

namespace xlad::runtime {

// The limits for all clients of a session together. A request above a limit is rejected with ResourceExhausted.
struct SessionLimits {
  size_t programs = 4096;
  size_t arrays = 1 << 20;         // Requests that add arrays are rejected while this many exist.
  int64_t host_bytes = INT64_MAX;  // For the whole arrays in the memory of this worker and the uploads in progress.
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

// Once the session has ended, methods return Aborted, with the reason; only BytesOf returns NotFound.
class SessionHost {
 public:
  // `worker` is the id of this worker, one of `workers`.
  SessionHost(std::string session_id, std::string worker, int64_t workers, const SessionLimits& limits = {});
  // Passes the commands for this worker to `deliver`, in their order, until End. `deliver` must return quickly and not
  // call the host. Begin must be called only once.
  void Begin(std::function<void(const SessionCommand&)> deliver);

  // --- Requests of clients. A repeated request of the same method with the same nonempty key returns the result of the
  // first one, if its key is among the last kRememberedKeys keys.
  static constexpr size_t kRememberedKeys = 1024;
  static constexpr size_t kMaxKeyBytes = 128;
  // Returns the program's number.
  absl::StatusOr<int64_t> AddProgram(const Executable& executable, const AddProgramRequest& request);
  absl::StatusOr<int64_t> PutArray(std::shared_ptr<const tensor::Array> array, const std::string& key);
  // Counts the bytes of an upload until the result is destroyed. The result must not outlive the host.
  absl::StatusOr<std::unique_ptr<UploadCount>> BeginUpload(int64_t bytes);
  // Waits while 16 or more commands are pending. If the whole arrays that the call needs exceed
  // SessionLimits::host_bytes, waits for pending commands, which may free memory. ResourceExhausted if the limit is
  // exceeded and no command is pending.
  absl::StatusOr<std::vector<int64_t>> Call(const CallProgramRequest& request);
  // Waits until the array has been computed.
  absl::StatusOr<std::shared_ptr<const tensor::Array>> GetArray(int64_t array);
  absl::Status FreeArrays(const std::vector<int64_t>& arrays);

  // --- The workers of the session, this one included.
  // Waits for commands after `sequence`, and returns no commands if `gone` becomes true. After changing `gone`, call
  // Wake.
  absl::StatusOr<std::vector<SessionCommand>> CommandsAfter(int64_t sequence, const std::atomic<bool>& gone);
  void Wake();
  // Records that the worker has done all commands up to `sequence`.
  void Answer(const std::string& worker, int64_t sequence);
  // Returns a box of an array, row-major. Waits until the whole array has arrived. OutOfRange if the box is not inside
  // the array.
  absl::StatusOr<tensor::Array> ReadBox(int64_t array, const tensor::Box& box);
  // Returns the size in bytes of a box of an array that the workers are sending. NotFound if the array is not expected,
  // InvalidArgument if the box is not inside the array.
  absl::StatusOr<int64_t> BytesOf(int64_t array, const tensor::Box& box);
  // The size of `bytes` must be BytesOf(array, box). A box that is not expected, or has already arrived, is ignored.
  void WriteBox(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes);

  const std::string& worker() const { return worker_; }
  // Ends the session: all calls return an error with the reason `why`.
  void End(const std::string& why);

 private:
  enum class Method { kAddProgram, kPutArray, kCall };
  // The methods have different results, so equal keys of different methods are different requests.
  using RequestKey = std::pair<Method, std::string>;

  // Returns the remembered result of a request, or null.
  const std::vector<int64_t>* Remembered(const RequestKey& key) const;
  void Remember(const RequestKey& key, std::vector<int64_t> result);
  void Perform();  // Carries out the effects of the session. Called with the lock held.
  // Returns an error if `bytes` more bytes would exceed the limit on this worker's memory. Called with the lock held.
  absl::Status CheckRoom(int64_t bytes);
  bool CanCall(const CallProgramRequest& request);  // Whether a call need not wait. Called with the lock held.
  absl::Status CheckArrays() const;  // Returns an error if no more arrays are allowed. Called with the lock held.

  const std::string session_id_;
  const std::string worker_;
  const int64_t workers_;
  const SessionLimits limits_;
  SessionArrays arrays_;
  std::atomic<int64_t> uploading_bytes_ = 0;

  std::mutex mutex_;  // Guards the members below.
  std::condition_variable changed_;
  Session session_;
  std::function<void(const SessionCommand&)> deliver_;  // Null before Begin.
  absl::Status ended_;
  std::map<RequestKey, std::vector<int64_t>> results_;
  std::deque<RequestKey> keys_;  // The keys of results_, oldest first.
};

}  // namespace xlad::runtime
