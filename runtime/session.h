// The state of one session (proto/session.proto) on its first worker: programs, arrays, and the commands that have not
// been answered by all workers.
//
// This class does no I/O, and is used by one thread at a time. Methods collect effects, which the caller takes and
// carries out.
//
// An array is stored in one or both of two ways: divided among the devices of all workers, in one or more layouts (ways
// to divide it), and as a whole in the host memory of the first worker. The whole array is kept while it is pinned (by
// an unanswered command or a reader) or while the workers have no layout of it.
//
// Example: a client uploads array 1, which is stored as a whole. The client calls a program with the array: the call
// pins the array, and the workers read their boxes of it. When all workers have answered the call, the array is
// unpinned: the whole array is dropped, and the workers keep their boxes.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"
#include "proto/session.pb.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "tensor/shape.h"

namespace xlad::runtime {

// The effects that the caller must carry out, in the order of the members.
struct SessionEffects {
  struct StoredArray {
    int64_t array = 0;
    tensor::Shape shape;
    std::string bytes;      // All elements, row-major; empty if `expected`.
    bool expected = false;  // The workers will send the elements.
  };
  std::vector<StoredArray> stored;       // Arrays that the first worker must store as a whole.
  std::vector<SessionCommand> commands;  // Commands to send to every worker.
  std::vector<int64_t> dropped;          // Whole arrays to drop.
};

class Session {
 public:
  // Adds the program and returns its number. `digest` is the digest of `executable`.
  int64_t LoadProgram(const Executable& executable, const std::string& digest,
                      const std::vector<CollectivePlanProto>& plans);
  // Adds an array that the caller stores as a whole and returns its number.
  int64_t AddArray(const tensor::Shape& shape);
  // The number of bytes of whole arrays that Call would add to the host memory, or 0 if Call would return an error.
  // These arrays are the values in the request, and the arguments that the workers have only in other layouts.
  int64_t BytesToCall(const CallProgramRequest& request);
  // Adds a call and returns the numbers of its results. NotFound if the program or the array of an argument does not
  // exist, InvalidArgument if the arguments do not match the program. If Call returns an error, it has changed nothing.
  absl::StatusOr<std::vector<int64_t>> Call(const CallProgramRequest& request);
  // The number of bytes that Pin would fetch from the workers, or 0 if the whole array is stored here or the array is
  // unknown.
  int64_t BytesToFetch(int64_t array);
  // Keeps the whole array until Unpin is called, and fetches it from the workers if necessary. NotFound if the array is
  // unknown or freed.
  absl::Status Pin(int64_t array);
  void Unpin(int64_t array);
  // Frees arrays for the client. Unknown and freed arrays are ignored.
  void Free(const std::vector<int64_t>& arrays);

  // Records that the worker has done all commands up to `sequence`. `workers` is the number of workers of the session.
  void Answer(const std::string& worker, int64_t sequence, int64_t workers);
  // The commands after `sequence` that not all workers have answered.
  std::vector<SessionCommand> CommandsAfter(int64_t sequence) const;

  size_t pending() const { return pending_.size(); }
  size_t programs() const { return programs_.size(); }
  size_t arrays() const { return arrays_.size(); }
  SessionEffects TakeEffects() { return std::exchange(effects_, {}); }

 private:
  // A parameter or result of a program. `layout` numbers the distinct ways to divide an array among devices.
  struct EntryType {
    tensor::Shape shape;
    int32_t layout = 0;
  };
  struct Program {
    std::vector<EntryType> parameters, results;
  };
  struct ArrayInfo {
    tensor::Shape shape;
    bool whole = false;         // The array is stored as a whole, or is being fetched.
    int pins = 0;               // The number of unanswered commands and readers that need the whole array.
    bool freed = false;         // Clients can no longer use it.
    std::set<int32_t> layouts;  // The layouts that the workers have.
  };
  struct Pending {
    SessionCommand command;
    std::vector<int64_t> pinned;
  };

  EntryType ReadEntry(const EntryValue& entry);
  ArrayInfo* Find(int64_t array);  // Returns null if the array is unknown or freed.
  absl::Status CheckArguments(const Program& program, const CallProgramRequest& request);
  int64_t AddInline(const tensor::Shape& shape, const std::string& bytes);
  // Adds a command that makes the workers send the array, unless it is stored as a whole.
  void FetchWhole(int64_t array, ArrayInfo* info);
  SessionCommand& AddCommand(std::vector<int64_t> pinned);
  // Marks the array freed and adds it to the arrays that `command` makes the workers free.
  void MarkFreed(int64_t array, SessionCommand* command);
  // Does nothing if the array is pinned. Otherwise, drops the whole array if the array is freed or the workers have a
  // layout of it, and removes the array's entry if the array is freed.
  void ReleaseIfUnused(int64_t array);

  std::map<int64_t, Program> programs_;
  std::map<int64_t, ArrayInfo> arrays_;
  std::map<std::string, int32_t> layouts_;   // The number of each layout, by LayoutKey.
  std::deque<Pending> pending_;              // Commands that not all workers have answered, in order.
  std::map<std::string, int64_t> answered_;  // For each worker, the last answered command.
  int64_t next_sequence_ = 1;
  int64_t next_program_ = 1;
  int64_t next_array_ = 1;
  SessionEffects effects_;
};

}  // namespace xlad::runtime
