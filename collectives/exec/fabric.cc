// How the devices of one task on one worker reach each other and their peers.
#include "collectives/exec/fabric.h"

#include <thread>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {

// Picks the transport by where the peer is.
class Fabric::Router final : public Transport {
 public:
  Router(const Fabric* fabric, Transport* inside, Transport* outside)
      : fabric_(fabric), inside_(inside), outside_(outside) {}

  absl::StatusOr<SendLink*> OpenSend(int peer, int channel) override { return To(peer)->OpenSend(peer, channel); }
  absl::StatusOr<ReceiveLink*> OpenReceive(int peer, int channel) override {
    return To(peer)->OpenReceive(peer, channel);
  }
  std::string Describe(int peer) const override { return To(peer)->Describe(peer); }

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
  // Spinning only helps where every device thread has a core.
  const bool own_cores = options.devices.size() <= std::thread::hardware_concurrency() / 2;
  std::map<int, Waiter*> waiters;
  for (int device : options.devices) {
    fabric->waiters_[device] = std::make_unique<Waiter>(own_cores ? 2000 : 20);
    waiters[device] = fabric->waiters_[device].get();
  }
  fabric->listener_id_ = abort->AddListener([waiters](const Failure&) {
    for (const auto& [device, waiter] : waiters) waiter->Notify();
  });
  fabric->in_process_ = std::make_unique<InProcessFabric>(waiters, abort, options.in_process);
  std::map<int, PeerInfo> peers;
  for (int device = 0; device < options.num_devices; ++device) {
    if (waiters.count(device) > 0) continue;
    XLAD_ASSIGN_OR_RETURN(const std::string text, bootstrap.Get(PeerKey(device)));
    XLAD_ASSIGN_OR_RETURN(peers[device], DecodePeer(text));
  }
  if (!peers.empty()) {
    if (options.network == nullptr || options.data_plane == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(peers.size(), " devices are elsewhere, but there is no network"));
    }
    fabric->tcp_ = std::make_unique<TcpFabric>(options.tcp, waiters, peers, options.network, abort);
    fabric->data_plane_ = options.data_plane;
    fabric->data_plane_->AddTask(fabric->tcp_.get());
  }
  for (int device : options.devices) {
    fabric->transports_[device] =
        std::make_unique<Router>(fabric.get(), &fabric->in_process_->transport(device),
                                 fabric->tcp_ == nullptr ? nullptr : &fabric->tcp_->transport(device));
  }
  return fabric;
}

Fabric::~Fabric() {
  if (data_plane_ != nullptr) data_plane_->RemoveTask(tcp_.get());
  if (listener_id_ >= 0) abort_->RemoveListener(listener_id_);
}

Transport& Fabric::transport(int device) {
  const auto found = transports_.find(device);
  XLAD_CHECK(found != transports_.end()) << "device " << device << " is not on this worker";
  return *found->second;
}

void Fabric::Leave() {
  if (tcp_ != nullptr) tcp_->Leave();
}

absl::Status Fabric::Finish() { return tcp_ == nullptr ? absl::OkStatus() : tcp_->Finish(); }

}  // namespace xlad::collectives
