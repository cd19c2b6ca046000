// Collectives among the processes of a launch or the threads of this process, by messages over a transport that the
// caller chooses. ProcessGroup (group/process_group.h) is faster if all processes share memory.
//
// An operation is prepared once, by all ranks in the same order, and runs many times. All ranks must run the same
// operations in the same order; if they do not, the error names both operations.
//
// Threads: one thread at a time may use a group. Errors: if a rank died, or if the ranks disagree, Prepare or Run
// fails. All later calls of Prepare and Run then fail too, and outputs are undefined. The message names the operation,
// the rank, and the peer that caused the error, if a peer did.
#pragma once

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/exec/bootstrap/launcher.h"
#include "collectives/exec/collective_set.h"
#include "collectives/exec/fabric/fabric.h"
#include "collectives/exec/group/split.h"
#include "collectives/exec/group/verdict.h"
#include "collectives/exec/messages/flight_record.h"
#include "collectives/exec/scheduled_communicator.h"
#include "collectives/plan/cost.h"

namespace xlad::collectives {

// Identifies the process of a rank, together with its process id.
struct RankProcess {
  std::string machine;       // MachineName, or empty if it is unknown.
  uint64_t start_ticks = 0;  // StartOfProcess, or 0 if it is unknown. Process ids are reused.
};

// Returns the state of a process, or nullopt if it cannot be examined: its machine is unknown, or is not that of this
// process. Containers of one host may have PID namespaces of their own, and thus different MachineNames.
std::optional<ProcessState> StateOfRank(const RankProcess& process, int64_t pid);

class MessageGroup {
 public:
  struct Options {
    Launch launch;
    TransportChoice transport;
    // The time for which forming waits for all ranks, and for which the first operation that uses a connection waits
    // for the peer. If a rank arrives later, the group fails.
    int64_t deadline_ms = 30000;
    bool checksums = false;  // Each message has a checksum of its payload.
    // The folder in which the ranks find each other, or empty if all ranks are on this host. Ranks on several hosts
    // need a folder that all hosts share.
    std::string meeting_folder;
    // The host name or address, without a port, at which other ranks reach this rank. If it is not on loopback, TCP
    // connections are encrypted with a key that rank 0 writes into the meeting folder.
    std::string listen_host = "127.0.0.1";
    // Set if the ranks also share memory: the record of this rank in the control file of their ProcessGroup. If it is
    // null, the group makes a record.
    std::shared_ptr<FlightRecord> record;
    // If set, called repeatedly while the group forms and this rank waits for `rank`. An error ends the wait.
    std::function<absl::Status(int rank)> check_peer;
  };

  // Returns InvalidArgument if `listen_host` is not on loopback and there is no meeting folder. The message names the
  // flags --listen and --meet, with which users of `xlad bench` set these options.
  static absl::Status CheckListenHost(const Options& options);
  // Joins the group of all ranks of a launch, which find each other through files. DeadlineExceeded, naming the missing
  // ranks, if they do not arrive in time. InvalidArgument if CheckListenHost fails, if `listen_host` is 0.0.0.0 or ::,
  // or if it is on loopback and a rank is on another host. Other errors are those of the folder and of Prepare.
  static absl::StatusOr<std::unique_ptr<MessageGroup>> Join(const Options& options);
  // Returns one group per rank. The ranks are threads of this process.
  static absl::StatusOr<std::vector<std::unique_ptr<MessageGroup>>> InProcess(int ranks, const Options& options);
  // Waits until all ranks destroy their groups, unless there was an error or the ranks are threads. Ranks with several
  // groups must destroy them in the same order.
  ~MessageGroup();
  MessageGroup(const MessageGroup&) = delete;
  MessageGroup& operator=(const MessageGroup&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(peers_.size()); }
  std::string host(int rank) const { return peers_[rank].host; }
  int64_t pid(int rank) const { return peers_[rank].pid; }
  // The connections of the ranks, for communicators on buffers of devices.
  Fabric& fabric() { return *shared_->fabric; }

  // A collective that is ready to run. Must not outlive its group.
  class Operation {
   public:
    ~Operation();
    const CollectivePlan& plan() const { return set_.collectives[0].plan; }
    int64_t number() const { return number_; }  // The number of operations that the group has prepared before.

   private:
    friend class MessageGroup;
    CollectiveSet set_;
    std::unique_ptr<Recorder> recorder_;
    std::unique_ptr<ScheduledCommunicator> communicator_;
    FlightRecord* record_ = nullptr;  // Null if there is no record.
    uint64_t word_ = 0;               // The word of the operation in the record.
    int64_t number_ = 0;
  };

  // `plan` is a plan as text (ParsePlan). If it is empty, the cost model chooses one. All ranks must call Prepare
  // together. InvalidArgument or Unimplemented if the spec or the plan cannot run with messages; the group can still be
  // used.
  absl::StatusOr<std::unique_ptr<Operation>> Prepare(const CollectiveSpec& spec, const std::string& plan = "");

  // Sets the parameters by which Prepare chooses plans. They must be equal on all ranks.
  void UseCosts(const CostModel& costs) { costs_ = costs; }
  const CostModel& costs() const { return costs_; }

  // Runs an operation and returns when it is finished on this rank. `input` and `output` have the spec's sizes.
  absl::Status Run(Operation& operation, const void* input, void* output);
  // Returns when all ranks have called Barrier.
  absl::Status Barrier();

  // Forms a smaller group of the ranks with this rank's color, or returns null if the color is negative. All ranks must
  // call Split together, like a collective. Both groups can be used afterwards, with connections of their own, each by
  // one thread at a time; two threads may use the two groups at once. An error in one of them does not end the other.
  // Errors are those of Run and Join. Unimplemented for ranks that are threads.
  absl::StatusOr<std::unique_ptr<MessageGroup>> Split(const PartOfSplit& part, int64_t deadline_ms = 30000);

  // After an error: forms a group of the ranks that are alive, in the same order. All ranks that are alive must call
  // it. Afterwards the old group may only be used to destroy its operations and memory. DeadlineExceeded, naming the
  // ranks that are alive but have not called Shrink in time. FailedPrecondition if there was no error. Unimplemented
  // for ranks that are threads and over MPI.
  absl::StatusOr<std::unique_ptr<MessageGroup>> Shrink(int64_t deadline_ms = 30000);

  // Fails the group: the ranks that wait for messages, and all later calls, get this error. Thread-safe.
  void Abort(const absl::Status& status) { shared_->abort.Raise({status, ""}); }

  // Returns memory that is registered with the transport, aligned to 4096 bytes. ResourceExhausted if there is not
  // enough memory.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes);
  // InvalidArgument unless `address` is a result of Allocate that has not been freed. No running operation may use it.
  absl::Status Free(std::byte* address);

 private:
  // The objects that the ranks of one process share.
  struct Shared {
    ~Shared();
    AbortSignal abort;
    std::unique_ptr<DataPlane> data_plane;
    std::unique_ptr<Fabric> fabric;
  };

  MessageGroup(int rank, const Options& options, std::shared_ptr<Shared> shared, std::vector<PeerInfo> peers)
      : rank_(rank), options_(options), shared_(std::move(shared)), peers_(std::move(peers)) {}
  struct Met {
    std::vector<PeerInfo> peers;                   // By rank.
    std::map<std::string, RankProcess> processes;  // By worker id; see processes_.
    // Null if there is a meeting folder, because records are shared memory, or if there are too many ranks.
    std::shared_ptr<FlightRecord> record;
    std::string key;  // Encrypts connections that are not on loopback.
  };
  static absl::StatusOr<Met> Meet(const Options& options, const PeerInfo& self);
  static absl::Status AddRank(const std::string& text, Met* met);
  absl::Status CheckProcesses() const;
  bool HasGone(int rank) const;
  std::vector<int> AliveRanks() const;

  const int rank_;
  const Options options_;
  const std::shared_ptr<Shared> shared_;
  const std::vector<PeerInfo> peers_;
  // By worker id. The machines are unknown if there is a meeting folder, and the map is empty if the ranks are threads.
  std::map<std::string, RankProcess> processes_;
  ScheduleLinks links_;  // All operations use the same links, so a disagreement of the ranks is detected.
  // Null if the ranks are threads, if there is a meeting folder, or if there are more than kMaxGroupRanks ranks.
  std::shared_ptr<FlightRecord> record_;
  int64_t runs_ = 0;
  int64_t prepared_ = 0;  // The number of operations that were prepared.
  int64_t splits_ = 0;    // The number of calls of Split.
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
