// What the coordinator knows of one session (proto/session.proto): its programs, its arrays, and the commands that its
// workers have not answered yet.
//
// Pure logic, used by one thread at a time. What is to be done outside is collected as effects.
//
// An array is held by the workers, in one or more layouts, or by the coordinator, or by both. The coordinator's copy is
// there while somebody needs it (a command that is not answered, a reader: pins), and until the workers have one.
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
#include "tensor/shape.h"

namespace xlad::service {

// To be carried out in this order.
struct SessionEffects {
  struct Kept {
    int64_t array = 0;
    tensor::Shape shape;
    std::string bytes;      // Whole, where it is not expected from the workers.
    bool expected = false;
  };
  std::vector<Kept> kept;                // The coordinator's store takes these arrays.
  std::vector<SessionCommand> commands;  // To every worker; job and attempt are not filled in.
  std::vector<int64_t> dropped;          // The store drops these.
};

class Session {
 public:
  // Returns the program's number. `executable` is the one that the digest names.
  int64_t LoadProgram(const Executable& executable, const std::string& digest,
                      const std::vector<CollectivePlanProto>& plans);
  // An array that the store has got.
  int64_t AddArray(const tensor::Shape& shape);
  // Numbers of the results. NotFound and InvalidArgument name the argument; nothing has changed then.
  absl::StatusOr<std::vector<int64_t>> Call(const CallProgramRequest& request);
  // From now until Unpin the store has the array, or will get it from the workers.
  absl::Status Pin(int64_t array);
  void Unpin(int64_t array);
  void Free(const std::vector<int64_t>& arrays);

  // The worker has done all commands up to this one.
  void Answer(const std::string& worker, int64_t sequence, size_t workers);
  // What a worker that comes back has to be told again.
  std::vector<SessionCommand> UnansweredBy(const std::string& worker) const;

  int64_t done() const { return next_sequence_ - 1 - std::ssize(pending_); }
  size_t pending() const { return pending_.size(); }
  SessionEffects TakeEffects() { return std::exchange(effects_, {}); }

 private:
  struct Value {
    tensor::Shape shape;
    int32_t layout = 0;
  };
  struct Program {
    std::vector<Value> parameters, results;
  };
  struct ArrayInfo {
    tensor::Shape shape;
    bool here = false;  // The store has it, or will.
    int pins = 0;
    bool freed = false;  // For clients it is gone.
    std::set<int32_t> layouts;
  };
  struct Pending {
    SessionCommand command;
    std::vector<int64_t> pinned;
  };

  Value ReadValue(const EntryValue& entry);
  ArrayInfo* Find(int64_t array);  // Null where it is unknown or freed.
  absl::Status CheckArguments(const Program& program, const CallProgramRequest& request);
  int64_t AddInline(const tensor::Shape& shape, const std::string& bytes);
  void Bring(int64_t array, ArrayInfo* info);  // Has the workers send it, where the store has it not.
  SessionCommand& AddCommand(std::vector<int64_t> pinned);
  // Marks them freed; the ids that the workers are to be told.
  void MarkFreed(int64_t array, SessionCommand* command);
  void Settle(int64_t array);

  std::map<int64_t, Program> programs_;
  std::map<int64_t, ArrayInfo> arrays_;
  std::map<std::string, int32_t> layouts_;  // By what makes them equal.
  std::deque<Pending> pending_;             // In order; those that not all workers have answered.
  std::map<std::string, int64_t> answered_; // By worker.
  int64_t next_sequence_ = 1;
  int64_t next_program_ = 1;
  int64_t next_array_ = 1;
  SessionEffects effects_;
};

}  // namespace xlad::service
