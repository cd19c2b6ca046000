#include "collectives/exec/fabric/fabric.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/containers.h"
#include "base/log.h"
#include "base/process/cores.h"
#include "collectives/exec/device/device_communicator.h"
#include "collectives/exec/host/host_communicator.h"
#include "collectives/exec/nccl/nccl_communicator.h"
#include "collectives/exec/staged_communicator.h"

namespace xlad::collectives {
namespace {

// Separates the address of a device for NCCL from the name of its shared memory. A worker of a version without shared
// memory treats the name as a part of a message.
constexpr char kGreetingSeparator[] = "\t";

// Must change when other collectives run in shared device memory than before, or with other messages. Devices of
// different versions do not share memory, because some of them would wait for messages that the others do not send.
constexpr int kSharedMemoryVersion = 1;

// Returns the name of the memory that the device can share, and the version; empty if it cannot share memory.
std::string SharedMemoryName(const DeviceOps& ops) {
  const std::string name = ops.shared_memory_name();
  return name.empty() ? "" : absl::StrCat(kSharedMemoryVersion, " ", name);
}

}  // namespace

// Selects the transport by the location of the peer.
class Fabric::Router final : public Transport {
 public:
  Router(const Fabric* fabric, Transport* inside, Transport* outside)
      : fabric_(fabric), inside_(inside), outside_(outside) {}

  absl::StatusOr<SendLink*> OpenSend(int peer, int channel) override { return To(peer)->OpenSend(peer, channel); }
  absl::StatusOr<ReceiveLink*> OpenReceive(int peer, int channel) override {
    return To(peer)->OpenReceive(peer, channel);
  }
  std::string Describe(int peer) const override { return To(peer)->Describe(peer); }
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(absl::Span<std::byte> memory, MemoryKind kind) override {
    return (outside_ == nullptr ? inside_ : outside_)->Register(memory, kind);
  }
  absl::StatusOr<absl::Span<std::byte>> OpenWindow(int peer, const std::string& key) override {
    return To(peer)->OpenWindow(peer, key);
  }
  void Poll() override {
    if (outside_ != nullptr) outside_->Poll();
  }

 private:
  Transport* To(int peer) const {
    return outside_ == nullptr || fabric_->waiters_.count(peer) > 0 ? inside_ : outside_;
  }

  const Fabric* const fabric_;
  Transport* const inside_;
  Transport* const outside_;
};

absl::StatusOr<std::unique_ptr<Fabric>> Fabric::Make(const FabricOptions& options, Bootstrap& bootstrap,
                                                     AbortSignal* abort) {
  std::unique_ptr<Fabric> fabric(new Fabric(abort));
  std::map<int, PeerInfo> peers;
  for (int device = 0; device < options.num_devices; ++device) {
    if (Contains(options.devices, device)) continue;
    XLAD_ASSIGN_OR_RETURN(const std::string text, bootstrap.Get(PeerKey(device)));
    XLAD_ASSIGN_OR_RETURN(peers[device], DecodePeer(text));
  }
  const TransportChoice& transport = options.transport;
  if (transport.one_process && !peers.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "transport ", transport.name, ": found ", peers.size(),
        peers.size() == 1 ? " device in another process" : " devices in other processes", ", expected all in one"));
  }
  if (!peers.empty() && options.tcp.ring_bytes > 0 && transport.shares_memory) {
    absl::StatusOr<std::unique_ptr<SharedWaiters>> shared =
        SharedWaiters::Create(static_cast<int>(options.devices.size()));
    if (!shared.ok() && transport.requires_shared_memory) return shared.status();
    if (shared.ok()) {
      fabric->shared_ = *std::move(shared);
    } else {
      LogWarn("no shared memory; messages are sent by TCP", {{"error", std::string(shared.status().message())}});
    }
  }
  // Spinning helps only if every device thread has a core. The number of all devices of the task is compared, because
  // other processes of this machine may run them.
  const bool own_cores = options.num_devices <= UsableCores();
  fabric->own_cores_ = own_cores;
  fabric->any_network_ = transport.any_network;
  fabric->memory_ = HostMemory::Make(/*with_arena=*/fabric->shared_ != nullptr);
  for (int device : options.devices) fabric->waiters_[device] = nullptr;
  std::map<int, Waiter*> waiters;  // The i-th waiter uses the i-th shared words.
  for (auto& [device, waiter] : fabric->waiters_) {
    WaiterWords* words =
        fabric->shared_ == nullptr ? nullptr : fabric->shared_->words(static_cast<int>(waiters.size()));
    waiter = std::make_unique<Waiter>(own_cores ? 2000 : 20, words);
    waiters[device] = waiter.get();
  }
  fabric->listener_id_ = abort->AddListener([waiters](const Failure&) {
    for (const auto& [device, waiter] : waiters) waiter->Notify();
  });
  fabric->in_process_ = std::make_unique<InProcessFabric>(waiters, abort, options.in_process);
  if (!peers.empty()) XLAD_RETURN_IF_ERROR(fabric->ConnectOutside(options, peers, waiters));
  for (int device : options.devices) {
    std::unique_ptr<Transport>& made = fabric->transports_[device];
    made = std::make_unique<Router>(fabric.get(), &fabric->in_process_->transport(device),
                                    fabric->tcp_ == nullptr ? nullptr : &fabric->tcp_->transport(device));
    if (options.decorate != nullptr) fabric->decorated_[device] = options.decorate(device, made.get());
  }
  return fabric;
}

absl::Status Fabric::ConnectOutside(const FabricOptions& options, const std::map<int, PeerInfo>& peers,
                                    const std::map<int, Waiter*>& waiters) {
  if (options.network == nullptr || options.data_plane == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", peers.size(), peers.size() == 1 ? " device in another process" : " devices in other processes",
        ", expected a network and a data plane to reach other processes"));
  }
  TcpOptions tcp = options.tcp;
  tcp.shared = shared_.get();
  tcp.requires_shared = options.transport.requires_shared_memory;
  const bool has_plugin = options.transport.plugin != nullptr;
  for (int device : options.devices) {
    if (!has_plugin) break;
    XLAD_ASSIGN_OR_RETURN(engines_[device],
                          Engine::Open(options.transport.plugin, device, options.transport.any_network));
    tcp.engines[device] = engines_[device].get();
  }
  tcp_ = std::make_unique<TcpFabric>(tcp, waiters, peers, options.network, abort_);
  for (const auto& [device, waiter] : waiters) {
    waiter->SetPump([tcp = tcp_.get(), device = device] { tcp->Pump(device); }, /*polls=*/has_plugin);
  }
  data_plane_ = options.data_plane;
  data_plane_->AddTask(tcp_.get());
  return absl::OkStatus();
}

Fabric::~Fabric() {
  if (data_plane_ != nullptr) data_plane_->RemoveTask(tcp_.get());
  if (listener_id_ >= 0) abort_->RemoveListener(listener_id_);
}

Transport& Fabric::transport(int device) {
  if (const auto decorated = decorated_.find(device); decorated != decorated_.end()) return *decorated->second;
  const auto found = transports_.find(device);
  XLAD_CHECK(found != transports_.end()) << "device " << device << " is not on this worker";
  return *found->second;
}

absl::StatusOr<int> Fabric::ReserveChannels(const CollectiveSet& collectives) {
  int channels = 0;
  for (const Collective& collective : collectives.collectives) channels = std::max(channels, collective.plan.channels);
  const int first = next_channel_.fetch_add(kFirstDataChannel + channels);
  if (first + kFirstDataChannel + channels <= kMaxTaskChannels) return first;
  return absl::ResourceExhaustedError(
      absl::StrCat("the programs of this task need more than the ", kMaxTaskChannels, " channels of its connections"));
}

absl::StatusOr<std::unique_ptr<Communicator>> Fabric::MakeCommunicator(const Member& member) {
  Recorder* const recorder = member.message_recorder != nullptr ? member.message_recorder : member.recorder;
  const ScheduledCommunicator::Options messages{
      member.device,      member.first_channel, member.collectives, &transport(member.device), abort_, recorder,
      /*checksums=*/false};
  // Each device announces its memory to its peers before it greets them, so that they know this memory after the
  // greetings.
  mailboxes_.Make(member.first_channel, member.device, member.ops != nullptr ? member.ops->memory_name() : "", abort_);
  if (member.ops == nullptr) return HostCommunicator::Form({messages, memory_, own_cores_, member.recorder, ""});
  nccl::OpenedDevice opened = nccl::OpenDevice(member.ops);
  opened.endpoint.any_network = any_network_;
  DeviceCommunicator::Options device;
  device.device = member.device;
  device.first_channel = member.first_channel;
  device.collectives = member.collectives;
  device.ops = member.ops;
  device.mailboxes = &mailboxes_;
  device.blocks = &blocks_;
  device.abort = abort_;
  device.recorder = member.recorder;
  device.transport = &transport(member.device);
  device.shared_memory[member.device] = SharedMemoryName(*member.ops);
  const std::string greeting =
      absl::StrCat(opened.endpoint.Encode(), kGreetingSeparator, device.shared_memory[member.device]);
  XLAD_ASSIGN_OR_RETURN(auto on_host,
                        HostCommunicator::Form({messages, memory_, own_cores_, member.recorder, greeting}));
  std::map<int, nccl::Endpoint> endpoints{{member.device, opened.endpoint}};
  for (const auto& [peer, text] : on_host->greetings()) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(kGreetingSeparator, 1));
    endpoints[peer] = nccl::Endpoint::Decode(parts.first);
    device.shared_memory[peer] = parts.second;
  }
  device.by_nccl = nccl::SpecsOf(*member.collectives, member.device, endpoints);
  auto staged = std::make_unique<StagedCommunicator>(member.ops, member.collectives, member.device, std::move(on_host));
  XLAD_ASSIGN_OR_RETURN(auto on_device, DeviceCommunicator::Form(device, std::move(staged)));
  nccl::NcclCommunicator::Options options;
  options.device = member.device;
  options.collectives = member.collectives;
  options.abort = abort_;
  options.transport = &transport(member.device);
  options.channel = member.first_channel + kLibraryChannel;
  options.recorder = member.recorder;
  return nccl::NcclCommunicator::Form(options, std::move(opened), endpoints, std::move(on_device));
}

void Fabric::Leave() {
  if (tcp_ != nullptr) tcp_->Leave();
}

absl::Status Fabric::Finish() { return tcp_ == nullptr ? absl::OkStatus() : tcp_->Finish(); }

}  // namespace xlad::collectives
