// The processes of one host, which run every plan: those for mapped memory in a ProcessGroup, and those that send
// messages in a MessageGroup of the same ranks, which is formed when the first such plan is prepared.
//
// All ranks must prepare operations that send messages, and run all operations, in the same order. If they do not, the
// error of every rank names two operations that differ, even if some ranks wait in mapped memory for ranks that wait
// for their messages. Both groups use one control file, so `xlad comm why` shows both kinds of operations.
//
// Threads and errors are those of the two groups. An error in mapped memory, unless it is InvalidArgument, also ends
// the MessageGroup. After an error of messages, mapped memory can still be used until a rank calls Shrink.
#pragma once

#include <memory>
#include <string>

#include "collectives/exec/group/process_group.h"
#include "collectives/exec/messages/message_group.h"

namespace xlad::collectives {

class AnyPlanGroup {
 public:
  class Operation {
   public:
    const CollectivePlan& plan() const { return mapped_ != nullptr ? mapped_->plan() : messages_->plan(); }

   private:
    friend class AnyPlanGroup;
    // One of these is null.
    std::unique_ptr<GroupOperation> mapped_;
    std::unique_ptr<MessageGroup::Operation> messages_;
  };

  // `messages` are the options for forming the MessageGroup of the same ranks.
  AnyPlanGroup(std::unique_ptr<ProcessGroup> group, MessageGroup::Options messages);
  AnyPlanGroup(const AnyPlanGroup&) = delete;
  AnyPlanGroup& operator=(const AnyPlanGroup&) = delete;

  ProcessGroup& mapped() { return *group_; }
  const ProcessGroup& mapped() const { return *group_; }
  int rank() const { return group_->rank(); }
  int ranks() const { return group_->ranks(); }
  std::string host(int rank) const { return group_->host(rank); }
  int64_t pid(int rank) const { return group_->pid(rank); }
  absl::StatusOr<std::byte*> Allocate(int64_t bytes) { return group_->Allocate(bytes); }
  absl::Status Free(std::byte* address) { return group_->Free(address); }

  // If the options have no plan, the ProcessGroup chooses one.
  absl::StatusOr<std::unique_ptr<Operation>> Prepare(const CollectiveSpec& spec, const PrepareOptions& options = {});
  absl::Status Run(Operation& operation, const void* input, void* output);
  absl::Status Barrier() { return Tell(group_->Barrier()); }
  // Forms a ProcessGroup of the ranks that are alive, as ProcessGroup::Shrink does, even if no rank has died. The other
  // ranks need not have noticed the error: their next operation on mapped memory fails.
  absl::StatusOr<std::unique_ptr<ProcessGroup>> Shrink();

 private:
  absl::Status PrepareMessages(const CollectiveSpec& spec, const std::string& plan, Operation* operation);
  absl::Status Tell(const absl::Status& status);

  // Null until a plan needs it. Its destructor waits for all ranks. If one of them waits in the ProcessGroup for this
  // rank, it continues when this rank has left the ProcessGroup, which is therefore destroyed first.
  std::unique_ptr<MessageGroup> messages_;
  std::unique_ptr<ProcessGroup> group_;
  MessageGroup::Options message_options_;
  absl::Status messages_status_;  // The first error of messages.
};

}  // namespace xlad::collectives
