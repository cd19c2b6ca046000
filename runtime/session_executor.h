// One session on one worker: carries out its commands one after the other, and keeps its arrays.
//
// A thread takes the commands; one for each device runs its part of a call. No gRPC and no clock of the system.
#pragma once

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
#include "runtime/entry_layout.h"
#include "runtime/placed_program.h"

namespace xlad::runtime {

// Where executables and arrays come from and arrays go to. Thread-safe. Calls block; they try again while the other
// side is away, and end with the signal's status when it is raised.
class SessionStore {
 public:
  virtual ~SessionStore() = default;
  virtual absl::StatusOr<std::string> ReadBlob(const std::string& digest, collectives::AbortSignal* abort) = 0;
  // The box of an array, row-major, without padding; `out` has exactly its bytes.
  virtual absl::Status ReadArray(int64_t array, const tensor::Box& box, absl::Span<std::byte> out,
                                 collectives::AbortSignal* abort) = 0;
  virtual absl::Status WriteArray(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes,
                                  collectives::AbortSignal* abort) = 0;
};

// Called from the session's thread; must not block for long nor call back into it.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  virtual void OnReady() = 0;                // Once: commands may come.
  virtual void OnDone(int64_t sequence) = 0;  // In order.
  // Once, the last call. `done`: commands that were done before.
  virtual void OnFailed(int64_t done, const collectives::Failure& failure) = 0;
};

// All of it must outlive the session.
struct SessionEnvironment : WorkerEnvironment {
  SessionStore* store = nullptr;
  SessionListener* listener = nullptr;
};

// Thread-safe.
class SessionExecutor {
 public:
  SessionExecutor(const LaunchTask& launch, const SessionEnvironment& environment);
  // Ends the session without a failure; returns when its threads have.
  ~SessionExecutor();

  // Commands come in order of their sequence.
  void Command(const SessionCommand& command);
  void Abort(const collectives::Failure& failure) { abort_.Raise(failure); }
  int64_t done() const { return done_; }

 private:
  // The padded shards of an array, by device here. Devices that hold the same box share theirs.
  using Shards = std::vector<std::shared_ptr<const std::vector<std::byte>>>;
  using Key = std::pair<int64_t, int32_t>;  // Array and layout.
  struct Program {
    std::unique_ptr<PlacedProgram> placed;
    std::vector<EntryLayout> parameters, results;
    std::vector<int32_t> parameter_layouts, result_layouts;
    int64_t calls = 0;
  };
  // Results stay in the memory of the program that computed them until its next call: one that is donated to the
  // parameter in whose memory it lies is never copied.
  struct Held {
    Shards shards;            // Empty where `home` has it.
    Program* home = nullptr;
    size_t result = 0;        // Of `home`.
  };

  void Main();
  absl::Status RunCommands();
  absl::Status RunCommand(const SessionCommand& command);
  absl::Status Load(const SessionCommand& command);
  absl::Status Call(const SessionCommand& command);
  absl::Status CallOn(int index, const Program& program, const std::vector<const Held*>& arguments);
  // Before a call of `program`: what its memory holds and is used later is copied out, but for what may stay there.
  absl::Status MakeRoom(Program* program, const SessionCommand& command);
  absl::Span<const std::byte> BytesOf(const Held& held, size_t index) const;
  absl::Status Fetch(const SessionFetch& fetch);
  absl::StatusOr<Shards> Read(int64_t array, const EntryLayout& layout);
  // Runs `work` for every device here, each in its thread.
  absl::Status OnDevices(const std::function<absl::Status(int index)>& work);
  void DeviceLoop(int index);
  // The first device here that holds the same box as this one.
  int FirstHere(const EntryLayout& layout, int index) const;

  const LaunchTask launch_;
  const SessionEnvironment environment_;
  const std::vector<int> devices_;  // Mesh positions, by index on this worker.
  collectives::AbortSignal abort_;
  int64_t abort_listener_ = 0;
  std::map<int64_t, Program> programs_;
  std::map<int32_t, EntryLayout> layouts_;
  std::map<Key, Held> arrays_;
  std::atomic<int64_t> done_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;  // The session is being dropped.
  bool ended_ = false;    // No more rounds.
  std::deque<SessionCommand> commands_;
  // What the device threads are to do: round after round.
  const std::function<absl::Status(int index)>* work_ = nullptr;
  int64_t round_ = 0;
  int working_ = 0;
  std::vector<std::thread> device_threads_;
  std::thread main_;
};

}  // namespace xlad::runtime
