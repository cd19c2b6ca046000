#include "collectives/exec/transports/tcp/tcp.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/net/network.h"
#include "collectives/exec/transports/plugin/engine_path.h"
#include "collectives/exec/transports/shared_memory/shared_path.h"
#include "collectives/exec/transports/tcp/tcp_connection.h"
#include "security/secure_connection.h"

namespace xlad::collectives {
namespace {

// How often connections with a plugin are polled while this worker waits for the end of its peers.
constexpr std::chrono::microseconds kPollEndEvery{100};
// A hello names a plugin in the fields for shared memory. The field for the machine is this mark and the plugin's name.
// The field for the segment is the address of the engine in hexadecimal. A block with the other engine's address
// follows the answer.
constexpr absl::string_view kPluginMark = "plugin:";
// How often a device that waits for a connection tests whether the peer's process has ended.
constexpr std::chrono::milliseconds kPollDialerEvery{100};
constexpr int64_t kMinSilenceMs = 500;
// The text of a refusal may contain up to 64 KB of the peer's hello. A new connection takes a message of a few hundred
// bytes at once, even if the peer does not read; a longer one would block all that wait for the same mutex.
constexpr size_t kMaxRefusalBytes = 1000;

// Returns the beginning of `text`, which ends between two characters of UTF-8.
std::string Shortened(absl::string_view text) {
  if (text.size() <= kMaxRefusalBytes) return std::string(text);
  size_t end = kMaxRefusalBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "...");
}

// Returns the plugin that a hello names, or an empty text.
std::string PluginOf(const PeerHello& hello) {
  absl::string_view machine = hello.machine();
  return absl::ConsumePrefix(&machine, kPluginMark) ? std::string(machine) : "";
}

// Returns the address of the engine that a hello with a plugin contains, or nullopt if that is not an address.
std::optional<std::string> PluginAddressOf(const PeerHello& hello) {
  const std::string& text = hello.segment();
  const bool is_hex = std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isxdigit(c); });
  if (text.empty() || text.size() % 2 != 0 || !is_hex) return std::nullopt;
  return absl::HexStringToBytes(text);
}

}  // namespace

class TcpTransport final : public Transport {
 public:
  TcpTransport(TcpFabric* fabric, int device) : fabric_(fabric), device_(device) {}

  absl::StatusOr<SendLink*> OpenSend(int peer, int channel) override {
    XLAD_ASSIGN_OR_RETURN(TcpConnection * connection, Get(peer, channel));
    return connection->OpenSend(channel);
  }
  absl::StatusOr<ReceiveLink*> OpenReceive(int peer, int channel) override {
    XLAD_ASSIGN_OR_RETURN(TcpConnection * connection, Get(peer, channel));
    return connection->OpenReceive(channel);
  }
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(absl::Span<std::byte> memory, MemoryKind kind) override;
  void Poll() override { fabric_->Pump(device_); }
  std::string Describe(int peer) const override {
    const auto found = fabric_->peers_.find(peer);
    return absl::StrCat("device ", peer,
                        found == fabric_->peers_.end() ? "" : absl::StrCat(" (", found->second.ToString(), ")"));
  }

 private:
  absl::StatusOr<TcpConnection*> Get(int peer, int channel) {
    if (channel < 0 || channel >= kMaxChannels) {
      return absl::InvalidArgumentError(absl::StrCat("found channel ", channel, ", expected 0 to ", kMaxChannels - 1));
    }
    return fabric_->GetConnection(device_, peer);
  }

  TcpFabric* const fabric_;
  const int device_;
};

namespace {

class RegisteredWithEngine final : public RegisteredMemory {
 public:
  RegisteredWithEngine(absl::Span<std::byte> memory, MemoryKind kind,
                       std::unique_ptr<Engine::Registration> registration)
      : RegisteredMemory(memory, kind), registration_(std::move(registration)) {}

 private:
  const std::unique_ptr<Engine::Registration> registration_;  // May be null.
};

}  // namespace

absl::StatusOr<std::unique_ptr<RegisteredMemory>> TcpTransport::Register(absl::Span<std::byte> memory,
                                                                         MemoryKind kind) {
  const auto engine = fabric_->options_.engines.find(device_);
  if (engine == fabric_->options_.engines.end() || kind != MemoryKind::kHost) return Transport::Register(memory, kind);
  XLAD_ASSIGN_OR_RETURN(auto registration, engine->second->Register(memory, XLAD_TRANSPORT_HOST));
  return std::make_unique<RegisteredWithEngine>(memory, kind, std::move(registration));
}

TcpFabric::TcpFabric(const TcpOptions& options, const std::map<int, Waiter*>& waiters,
                     const std::map<int, PeerInfo>& peers, Network* network, AbortSignal* abort)
    : options_(options),
      waiters_(waiters),
      machine_(options.shared == nullptr || options.ring_bytes == 0 ? "" : MachineName()),
      peers_(peers),
      network_(network),
      abort_(abort) {
  for (const auto& [device, waiter] : waiters_) {
    pumped_.emplace(device, std::make_unique<Pumped>());
    transports_.emplace(device, std::make_unique<TcpTransport>(this, device));
  }
  if (IsOffLoopback(options_.data_address)) {
    guests_ = std::make_unique<SecuredGuests>(options_.key,
                                              [this](std::unique_ptr<Connection> connection, const PeerHello& hello) {
                                                Welcome(std::move(connection), hello);
                                              });
  }
  listener_id_ = abort_->AddListener([this](const Failure&) { OnAbort(); });
}

TcpFabric::~TcpFabric() {
  abort_->RemoveListener(listener_id_);
  guests_.reset();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  if (closer_.joinable()) closer_.join();
  std::map<Pair, std::unique_ptr<TcpConnection>> connections;
  std::lock_guard<std::mutex> lock(mutex_);
  connections.swap(connections_);
}

Transport& TcpFabric::transport(int device) {
  const auto found = transports_.find(device);
  XLAD_CHECK(found != transports_.end()) << "device " << device << " is not on this worker";
  return *found->second;
}

absl::Status TcpFabric::CheckHello(const PeerHello& hello) const {
  if (hello.job_id() != options_.job_id || hello.attempt() != options_.attempt ||
      hello.generation() != options_.generation) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", options_.worker_id, " runs job ", options_.job_id, ", attempt ", options_.attempt,
                     ", generation ", options_.generation, "; the hello is of job ", hello.job_id(), ", attempt ",
                     hello.attempt(), ", generation ", hello.generation()));
  }
  const auto peer = peers_.find(hello.from_device());
  const bool may_dial = hello.from_device() < hello.to_device() || hello.machine() == kFailedMark;
  if (waiters_.count(hello.to_device()) == 0 || peer == peers_.end() || !may_dial) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", options_.worker_id, " expects no hello from device ",
                                                      hello.from_device(), " to device ", hello.to_device()));
  }
  if (peer->second.worker_id != hello.worker_id() || peer->second.incarnation != hello.incarnation()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device ", hello.from_device(), " is on ", peer->second.ToString(), ", incarnation ", peer->second.incarnation,
        "; the hello is from worker ", hello.worker_id(), ", incarnation ", hello.incarnation()));
  }
  return CheckPaths(hello);
}

absl::Status TcpFabric::CheckPaths(const PeerHello& hello) const {
  if (hello.machine() == kFailedMark) return absl::OkStatus();  // No messages follow.
  if (PluginOf(hello) == Plugin()) {
    if (Plugin().empty() || PluginAddressOf(hello).has_value()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("device ", hello.from_device(), " on worker ", hello.worker_id(), ": found the address \"",
                     absl::CHexEscape(hello.segment()), "\" in the transport ", Plugin(),
                     ", expected bytes in hexadecimal; start all workers with the same version of xlad"));
  }
  const auto text = [](const std::string& plugin) {
    return plugin.empty() ? "without a plugin" : absl::StrCat("by ", plugin);
  };
  return absl::FailedPreconditionError(absl::StrCat("worker ", options_.worker_id, " sends messages ", text(Plugin()),
                                                    ", worker ", hello.worker_id(), " ", text(PluginOf(hello)),
                                                    "; start all workers with the same --transport"));
}

absl::Status TcpFabric::CheckShared(const SharedPipe* pipe, const std::string& peer) const {
  if (pipe != nullptr || !options_.requires_shared) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("worker ", options_.worker_id, " and ", peer,
                                                    " cannot share memory, which the transport shm requires; start all "
                                                    "workers with --transport tcp"));
}

void TcpFabric::Accept(std::unique_ptr<Connection> connection, const PeerHello& hello) {
  if (guests_ == nullptr) return Welcome(std::move(connection), hello);
  // A hello of another attempt, or of an unknown worker, is refused before the handshake.
  const absl::Status status = CheckHello(hello);
  if (status.ok()) return guests_->Take(std::move(connection), hello);
  LogWarn("data port: refused a connection", {{"peer", connection->Peer()}, {"error", std::string(status.message())}});
}

void TcpFabric::Welcome(std::unique_ptr<Connection> connection, const PeerHello& hello) {
  if (hello.machine() == kFailedMark) return HearReason(std::move(connection), hello);
  const Pair pair(hello.to_device(), hello.from_device());
  absl::Status status = abort_->raised() ? abort_->status() : CheckHello(hello);
  std::unique_lock<std::mutex> lock(mutex_);
  if (status.ok() && (closing_ || connections_.count(pair) > 0)) {
    status = absl::FailedPreconditionError(closing_ ? "the task is ending" : "these devices are already connected");
  }
  std::unique_ptr<SharedPipe> pipe = status.ok() ? AcceptPipe(hello) : nullptr;
  if (status.ok()) status = CheckShared(pipe.get(), absl::StrCat("worker ", hello.worker_id()));
  PeerWelcome welcome;
  welcome.set_refused(Shortened(status.message()));
  welcome.set_shared(pipe != nullptr);
  if (!WriteBlock(connection.get(), welcome.SerializeAsString()).ok() || !status.ok()) return;
  Dialed accepted{std::move(connection), std::move(pipe), "", false};
  if (const auto engine = options_.engines.find(pair.first); engine != options_.engines.end()) {
    if (!WriteBlock(accepted.connection.get(), engine->second->address()).ok()) return;
    accepted.plugin_address = PluginAddressOf(hello).value();  // CheckHello has found that it is valid.
  }
  Adopt(pair, std::move(accepted));
}

int TcpFabric::IndexOf(int device) const {
  return static_cast<int>(std::distance(waiters_.begin(), waiters_.find(device)));
}

std::unique_ptr<SharedPipe> TcpFabric::OfferPipe(int device) {
  if (machine_.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<SharedPipe>> pipe =
      SharedPipe::Create(*options_.shared, IndexOf(device), options_.ring_bytes);
  if (pipe.ok()) return *std::move(pipe);
  LogWarn("no shared memory; messages are sent by TCP", {{"error", std::string(pipe.status().message())}});
  return nullptr;
}

std::unique_ptr<SharedPipe> TcpFabric::AcceptPipe(const PeerHello& hello) {
  if (machine_.empty() || hello.machine() != machine_ || hello.segment().empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<SharedPipe>> pipe =
      SharedPipe::Open(hello.segment(), *options_.shared, IndexOf(hello.to_device()));
  if (pipe.ok()) return *std::move(pipe);
  LogWarn("no shared memory with a peer; messages are sent by TCP",
          {{"peer", hello.worker_id()}, {"error", std::string(pipe.status().message())}});
  return nullptr;
}

void TcpFabric::Pump(int device) {
  Pumped& pumped = *pumped_.at(device);
  if (pumped.count.load(std::memory_order_acquire) != pumped.seen.size()) {
    std::lock_guard<std::mutex> lock(mutex_);
    pumped.seen = pumped.all;
  }
  for (TcpConnection* connection : pumped.seen) connection->Pump();
}

// The caller must hold mutex_.
TcpConnection* TcpFabric::Adopt(Pair pair, Dialed dialed) {
  const PeerInfo& peer = peers_.at(pair.second);
  TcpConnection::Options options;
  options.self = absl::StrCat("device ", pair.first, " (worker ", options_.worker_id, ")");
  options.peer = absl::StrCat("device ", pair.second, " (", peer.ToString(), ")");
  options.self_worker = options_.worker_id;
  options.peer_worker = peer.worker_id;
  options.slots = options_.slots;
  options.max_message_bytes = options_.max_message_bytes;
  options.reason_ms = options_.reason_ms;
  Waiter* const waiter = waiters_.at(pair.first);
  TcpConnection::MakePath make_path;
  const auto engine = options_.engines.find(pair.first);
  if (engine != options_.engines.end() && !dialed.brings_reason) {
    options.receives_in_place = !engine->second->keeps_memory();
    make_path = [&](const std::atomic<bool>*) {
      return std::make_unique<EnginePath>(engine->second, pair.second, dialed.plugin_address);
    };
  } else if (dialed.pipe != nullptr) {
    ++shared_connections_;
    make_path = [&](const std::atomic<bool>* peer_finished) {
      return std::make_unique<SharedPath>(std::move(dialed.pipe), waiter, abort_, peer_finished);
    };
  }
  auto adopted = std::make_unique<TcpConnection>(options, std::move(dialed.connection), make_path, waiter, abort_);
  TcpConnection* result = adopted.get();
  if (result->has_path()) {
    Pumped& pumped = *pumped_.at(pair.first);
    pumped.all.push_back(result);
    pumped.count.store(pumped.all.size(), std::memory_order_release);
  }
  connections_[pair] = std::move(adopted);
  changed_.notify_all();
  // If the signal was raised before the connection was added to the table, its listener has not notified the
  // connection.
  if (abort_->raised()) result->TellAbort();
  return result;
}

// Waits until the peer has connected or the task is aborted. Unavailable if the peer's process has ended, or if it has
// not connected in time.
absl::Status TcpFabric::WaitForDialer(Pair pair, std::unique_lock<std::mutex>* lock) {
  const auto is_over = [&] { return connections_.count(pair) > 0 || abort_->raised(); };
  if (options_.accept_timeout_ms == 0) {
    changed_.wait(*lock, is_over);
    return absl::OkStatus();
  }
  const PeerInfo& peer = peers_.at(pair.second);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.accept_timeout_ms);
  bool had_ended = false;
  while (!changed_.wait_until(*lock, std::min(end, std::chrono::steady_clock::now() + kPollDialerEvery), is_over)) {
    const std::string what = absl::StrCat("device ", pair.second, " (", peer.ToString(), ") has ");
    // A connection that the peer opened shortly before its end, perhaps to send a reason, may be on its way.
    const bool has_ended = options_.has_ended != nullptr && options_.has_ended(peer);
    if (has_ended && had_ended) {
      return absl::UnavailableError(absl::StrCat(what, "ended before it connected to device ", pair.first));
    }
    had_ended = has_ended;
    if (std::chrono::steady_clock::now() < end) continue;
    return absl::UnavailableError(
        absl::StrCat(what, "not connected to device ", pair.first, " within ", options_.accept_timeout_ms, " ms"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TcpConnection*> TcpFabric::GetConnection(int device, int peer) {
  const Pair pair(device, peer);
  if (waiters_.count(device) == 0 || peers_.count(peer) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("device ", device, " has no connection to device ", peer));
  }
  std::unique_lock<std::mutex> lock(mutex_);
  const absl::Status arrived = device < peer ? absl::OkStatus() : WaitForDialer(pair, &lock);
  const auto found = connections_.find(pair);
  if (found != connections_.end()) return found->second.get();
  if (abort_->raised()) return abort_->status();
  lock.unlock();
  if (!arrived.ok()) {
    abort_->Raise({arrived, peers_.at(peer).worker_id});
    return abort_->status();
  }
  absl::StatusOr<Dialed> dialed = Dial(device, peer);
  lock.lock();
  // The peer may have failed meanwhile, and opened a connection to send the reason.
  const auto brought = connections_.find(pair);
  if (brought != connections_.end()) return brought->second.get();
  if (dialed.ok()) return Adopt(pair, *std::move(dialed));
  lock.unlock();
  const PeerInfo& info = peers_.at(peer);
  abort_->Raise(
      {absl::Status(dialed.status().code(), absl::StrCat("cannot connect device ", device, " to device ", peer, " (",
                                                         info.ToString(), "): ", dialed.status().message())),
       absl::IsUnavailable(dialed.status()) ? info.worker_id : ""});
  return abort_->status();
}

absl::StatusOr<std::unique_ptr<Connection>> TcpFabric::Connect(Pair pair) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    connecting_.insert(pair);
  }
  auto connection = network_->Dial(peers_.at(pair.second).data_address, options_.dial_timeout_ms);
  std::lock_guard<std::mutex> lock(mutex_);
  connecting_.erase(pair);
  return connection;
}

absl::StatusOr<TcpFabric::Dialed> TcpFabric::Dial(int device, int peer) {
  Dialed dialed;
  XLAD_ASSIGN_OR_RETURN(dialed.connection, Connect(Pair(device, peer)));
  dialed.pipe = OfferPipe(device);
  const PeerHello hello = HelloTo(device, peer, dialed.pipe.get());
  XLAD_ASSIGN_OR_RETURN(const PeerWelcome welcome, SayHello(Pair(device, peer), hello, &dialed.connection));
  if (!welcome.refused().empty()) return absl::FailedPreconditionError(absl::StrCat("refused: ", welcome.refused()));
  if (!welcome.shared()) dialed.pipe = nullptr;
  XLAD_RETURN_IF_ERROR(CheckShared(dialed.pipe.get(), absl::StrCat("device ", peer)));
  if (dialed.pipe != nullptr) XLAD_RETURN_IF_ERROR(dialed.pipe->Connect());
  if (!options_.engines.empty()) {
    XLAD_ASSIGN_OR_RETURN(dialed.plugin_address, ReadBlock(dialed.connection.get()));
  }
  return dialed;
}

PeerHello TcpFabric::HelloTo(int device, int peer, const SharedPipe* pipe) const {
  PeerHello hello;
  hello.set_job_id(options_.job_id);
  hello.set_attempt(options_.attempt);
  hello.set_generation(options_.generation);
  hello.set_from_device(device);
  hello.set_to_device(peer);
  hello.set_worker_id(options_.worker_id);
  hello.set_incarnation(options_.incarnation);
  if (pipe != nullptr) {
    hello.set_machine(machine_);
    hello.set_segment(pipe->name());
  }
  if (const auto engine = options_.engines.find(device); engine != options_.engines.end()) {
    hello.set_machine(absl::StrCat(kPluginMark, engine->second->name()));
    hello.set_segment(absl::BytesToHexString(engine->second->address()));
  }
  return hello;
}

// Secures a connection, and replaces it with the secured connection, also in `*known` (dialing_ or telling_).
absl::Status TcpFabric::SecureDialed(const PeerHello& hello, Connection** known,
                                     std::unique_ptr<Connection>* connection) {
  auto secured = security::SecureClient(connection->get(), options_.key, ContextOf(hello));
  XLAD_RETURN_IF_ERROR(secured.status());
  std::lock_guard<std::mutex> lock(mutex_);
  *known = secured->get();
  (*secured)->Own(std::move(*connection));
  *connection = *std::move(secured);
  return absl::OkStatus();
}

absl::StatusOr<PeerWelcome> TcpFabric::SayHello(Pair pair, const PeerHello& hello,
                                                std::unique_ptr<Connection>* connection) {
  XLAD_RETURN_IF_ERROR(WriteBlock(connection->get(), hello.SerializeAsString()));
  Connection** known = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    known = &dialing_[pair];
    *known = connection->get();
    if (abort_->raised()) TellDialed(connection->get());
  }
  absl::Status secured;
  if (IsOffLoopback(peers_.at(pair.second).data_address)) secured = SecureDialed(hello, known, connection);
  const absl::StatusOr<std::string> answer = secured.ok() ? ReadBlock(connection->get()) : secured;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    dialing_.erase(pair);
  }
  XLAD_RETURN_IF_ERROR(answer.status());
  PeerWelcome welcome;
  if (!welcome.ParseFromString(*answer)) return absl::DataLossError("found an answer that is not a PeerWelcome");
  return welcome;
}

std::map<std::string, int64_t> TcpFabric::SilentWorkers(int64_t now_ns) {
  constexpr Answers kNone{/*awaited=*/true, /*last_ms_ago=*/std::numeric_limits<int64_t>::max()};
  std::lock_guard<std::mutex> lock(mutex_);
  silence_.Begin(now_ns);
  const auto note = [&](Pair pair, const Answers& answers) {
    silence_.Note(pair, peers_.at(pair.second).worker_id, answers);
  };
  for (const Pair& pair : connecting_) note(pair, kNone);
  for (const auto& [pair, connection] : dialing_) note(pair, connection->GetAnswers());
  for (const auto& [pair, connection] : connections_) note(pair, connection->stream().GetAnswers());
  return silence_.Silent(kMinSilenceMs);
}

int TcpFabric::connections() {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(connections_.size());
}

void TcpFabric::Leave() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (abort_->raised()) return;
  for (const auto& [pair, connection] : connections_) connection->SendBye();
}

absl::Status TcpFabric::Finish() {
  std::vector<TcpConnection*> open;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [pair, connection] : connections_) open.push_back(connection.get());
  }
  for (TcpConnection* connection : open) connection->SendBye();
  // Peers may still need messages that a plugin has not sent. The plugin sends them only while it is called.
  const auto all_have_ended = [&] {
    return std::all_of(open.begin(), open.end(),
                       [](const TcpConnection* connection) { return connection->HasEnded(); });
  };
  while (!options_.engines.empty() && !all_have_ended()) {
    for (const auto& [device, waiter] : waiters_) Pump(device);
    std::this_thread::sleep_for(kPollEndEvery);
  }
  for (TcpConnection* connection : open) connection->WaitForEnd();
  return abort_->raised() ? abort_->status() : absl::OkStatus();
}

}  // namespace xlad::collectives
