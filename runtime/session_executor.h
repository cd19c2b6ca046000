// One session on one worker: executes its commands in order and keeps its arrays.
//
// One thread takes the commands; each device has a thread that runs its part of a call. Nothing here uses gRPC or the
// system's clock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/exec/abort.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/connected_executable.h"
#include "runtime/device_threads.h"
#include "runtime/entry_layout.h"

namespace xlad::runtime {

// The source of executables and arrays, and the destination of fetched arrays. Thread-safe. Calls block. They retry
// while the coordinator or the session's first worker cannot be reached, and return the status of `abort` when it is
// raised.
class SessionStore {
 public:
  virtual ~SessionStore() = default;
  // Returns the contents of a blob, whose SHA-256 is `digest`.
  virtual absl::StatusOr<std::string> ReadBlob(const std::string& digest, collectives::AbortSignal* abort) = 0;
  // Reads a box of an array, row-major, without padding. `out` must have the size of the box.
  virtual absl::Status ReadArray(int64_t array, const tensor::Box& box, absl::Span<std::byte> out,
                                 collectives::AbortSignal* abort) = 0;
  virtual absl::Status WriteArray(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes,
                                  collectives::AbortSignal* abort) = 0;
};

// Called from the session's thread. Implementations return quickly and do not call the session.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  virtual void OnReady() = 0;                 // Called once, when the session accepts commands.
  virtual void OnDone(int64_t sequence) = 0;  // Called for each command, in order.
  // Called at most once, as the last call. `done` is the number of commands that have been executed.
  virtual void OnFailed(int64_t done, const collectives::Failure& failure) = 0;
};

// Every object here must outlive the session.
struct SessionEnvironment : WorkerEnvironment {
  SessionStore* store = nullptr;
  SessionListener* listener = nullptr;
};

// Thread-safe.
class SessionExecutor {
 public:
  SessionExecutor(const LaunchTask& launch, const SessionEnvironment& environment);
  // Ends the session if it has not ended, and returns when its threads have ended. If no command was queued or running,
  // the listener is not told of a failure; otherwise, OnFailed reports Cancelled.
  ~SessionExecutor();

  // Appends a command to the queue. Commands must be added in the order of their sequence numbers.
  void Command(const SessionCommand& command);
  void Abort(const collectives::Failure& failure) { abort_.Raise(failure); }
  int64_t done() const { return done_; }  // The sequence number of the last executed command, or 0 if there is none.

 private:
  // The padded shards of an array in host memory, by device of this worker. Devices that hold the same box share one
  // vector.
  using Shards = std::vector<std::shared_ptr<const std::vector<std::byte>>>;
  using ArrayKey = std::pair<int64_t, int32_t>;  // The numbers of the array and of the layout.
  struct LoadedProgram {
    std::unique_ptr<ConnectedExecutable> executable;
    std::vector<EntryLayout> parameters, results;
    std::vector<int32_t> parameter_layouts, result_layouts;
    int64_t calls = 0;
  };
  // A result stays in the device memory of the program that computed it until the next call of that program. If that
  // call donates the result to the parameter that has the same memory, the result is never copied.
  struct StoredArray {
    Shards shards;                  // Empty if the array is in the memory of `home`.
    LoadedProgram* home = nullptr;
    size_t result = 0;              // Index into the results of `home`.
  };

  void Main();
  absl::Status RunCommands();
  absl::Status RunCommand(const SessionCommand& command);
  absl::Status Load(const SessionCommand& command);
  absl::Status Call(const SessionCommand& command);
  absl::Status CallOn(int index, const LoadedProgram& program, const std::vector<const StoredArray*>& arguments);
  // Called before a call of `program`. Copies arrays from the program's memory to the host, except those that the call
  // donates in place or frees without reading them.
  absl::Status EvictResults(LoadedProgram* program, const SessionCommand& command);
  // Sends an array to the first worker. Among the devices that hold a box, the one with the smallest mesh position
  // sends it.
  absl::Status Fetch(const SessionFetch& fetch);
  absl::StatusOr<Shards> ReadShards(int64_t array, const EntryLayout& layout);
  // Calls `work` for every device of this worker, each on its own thread. The first error aborts the session.
  absl::Status OnDevices(const std::function<absl::Status(int index)>& work);
  // The index of the first device of this worker that holds the same box as device `index`.
  int FirstHolderHere(const EntryLayout& layout, int index) const;

  const LaunchTask launch_;
  const SessionEnvironment environment_;
  const std::vector<int> devices_;  // Mesh positions, by index on this worker.
  collectives::AbortSignal abort_;
  int64_t abort_listener_ = 0;
  std::unique_ptr<AttemptFabric> fabric_;  // Made for the first program.
  std::map<int64_t, LoadedProgram> programs_;
  std::map<int32_t, EntryLayout> layouts_;
  std::map<ArrayKey, StoredArray> arrays_;
  std::atomic<int64_t> done_ = 0;
  DeviceThreads device_threads_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool dropped_ = false;
  std::deque<SessionCommand> commands_;
  std::thread main_;
};

}  // namespace xlad::runtime
