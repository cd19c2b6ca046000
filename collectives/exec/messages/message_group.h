// Collectives among the processes of a launch, or the threads of this process, by messages over a transport that the
// caller chooses. ProcessGroup (group/process_group.h) is faster if all processes share memory.
//
// An operation is prepared once, by all ranks in the same order, and runs many times. All ranks run the same operations
// in the same order; a difference is an error that names both sides.
//
// Threads: one thread at a time uses a group.
// Errors: after an error of Prepare or Run (a rank died, or the ranks disagree), all later calls fail and outputs are
// undefined. The message names the operation, the rank, and the peer that caused the error, if one did.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/bootstrap/launcher.h"
#include "collectives/exec/collective_set.h"
#include "collectives/exec/fabric/fabric.h"
#include "collectives/exec/messages/flight_record.h"
#include "collectives/exec/scheduled_communicator.h"
#include "collectives/plan/cost.h"

namespace xlad::collectives {

class MessageGroup {
 public:
  struct Options {
    Launch launch;
    TransportChoice transport;
    int64_t deadline_ms = 30000;  // How long forming waits for all ranks.
    bool checksums = false;       // Each message carries a checksum of its payload.
  };

  // Joins the group of all ranks of a launch; they find each other through files of this host. DeadlineExceeded, naming
  // the ranks that are missing, if not all arrive in time.
  static absl::StatusOr<std::unique_ptr<MessageGroup>> Join(const Options& options);
  // Groups of `ranks` threads of this process, by rank.
  static absl::StatusOr<std::vector<std::unique_ptr<MessageGroup>>> InProcess(int ranks, const Options& options);
  // Waits until all ranks have come this far, unless there was an error.
  ~MessageGroup();
  MessageGroup(const MessageGroup&) = delete;
  MessageGroup& operator=(const MessageGroup&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(peers_.size()); }
  std::string host(int rank) const { return peers_[rank].host; }
  int64_t pid(int rank) const { return peers_[rank].pid; }

  // A collective that is ready to run. Must not outlive its group.
  class Operation {
   public:
    ~Operation();
    const CollectivePlan& plan() const { return set_.collectives[0].plan; }

   private:
    friend class MessageGroup;
    CollectiveSet set_;
    std::unique_ptr<Recorder> recorder_;
    std::unique_ptr<ScheduledCommunicator> communicator_;
    FlightRecord* record_ = nullptr;  // Null without one.
    uint64_t word_ = 0;               // What it is called in the record.
  };

  // `plan` is a plan (ParsePlan), or empty for the one that the cost model prefers. All ranks call it together.
  // InvalidArgument for a spec or plan that cannot run by messages.
  absl::StatusOr<std::unique_ptr<Operation>> Prepare(const CollectiveSpec& spec, const std::string& plan = "");

  // The parameters by which Prepare chooses plans from now on; equal on all ranks.
  void UseCosts(const CostModel& costs) { costs_ = costs; }
  const CostModel& costs() const { return costs_; }

  // Runs an operation and returns when it is finished on this rank. `input` and `output` have the spec's sizes.
  absl::Status Run(Operation& operation, const void* input, void* output);
  // Returns when all ranks have called it.
  absl::Status Barrier();

  // After an error: forms a group of the ranks that are alive, in the same order. All of them must call it; this group
  // then only serves to destroy its operations and memory. DeadlineExceeded, naming the ranks that are alive but have
  // not called it in time. Unimplemented for ranks that are threads.
  absl::StatusOr<std::unique_ptr<MessageGroup>> Shrink(int64_t deadline_ms = 30000);

  // Memory that is registered with the transport, aligned to 4096 bytes. ResourceExhausted if there is not enough.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes);
  // `address` is what Allocate returned, and no operation uses it.
  absl::Status Free(std::byte* address);

 private:
  // What the ranks of one process share.
  struct Shared {
    ~Shared();
    AbortSignal abort;
    std::unique_ptr<DataPlane> data_plane;
    std::unique_ptr<Fabric> fabric;
  };

  MessageGroup(int rank, const Options& options, std::shared_ptr<Shared> shared, std::vector<PeerInfo> peers)
      : rank_(rank), options_(options), shared_(std::move(shared)), peers_(std::move(peers)) {}
  struct Met {
    std::vector<PeerInfo> peers;  // By rank.
    std::unique_ptr<FlightRecord> record;
  };
  static absl::StatusOr<Met> Meet(const Options& options, const PeerInfo& self);
  std::vector<int> AliveRanks() const;

  const int rank_;
  const Options options_;
  const std::shared_ptr<Shared> shared_;
  const std::vector<PeerInfo> peers_;
  ScheduleLinks links_;  // All operations use these, so that ranks that run different ones are noticed.
  std::unique_ptr<FlightRecord> record_;  // Null for ranks that are threads.
  int64_t runs_ = 0;
  struct FreeMemory {
    void operator()(std::byte* address) const { std::free(address); }
  };
  struct Allocated {
    std::unique_ptr<std::byte, FreeMemory> memory;
    std::unique_ptr<RegisteredMemory> registration;
  };
  std::map<std::byte*, Allocated> allocated_;
  std::unique_ptr<Operation> barrier_;
  CostModel costs_;
};

}  // namespace xlad::collectives
