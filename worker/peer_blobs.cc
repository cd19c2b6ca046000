#include "worker/peer_blobs.h"

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/net/network.h"
#include "base/rounding.h"
#include "collectives/exec/transports/frame.h"
#include "security/secure_connection.h"
#include "storage/block_sums.h"
#include "storage/uri.h"

namespace xlad::worker {
namespace {

using storage::kBlockBytes;

constexpr int64_t kDialTimeoutMs = 2000;

absl::Status CheckRequest(const PeerBlobRequest& request) {
  const bool valid = IsSha256Hex(request.digest()) && request.offset() >= 0 &&
                     request.offset() % kBlockBytes == 0 && request.bytes() > 0 &&
                     request.bytes() <= PeerBlobServer::kMaxRangeBytes &&
                     request.offset() <= std::numeric_limits<int64_t>::max() - request.bytes();
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found a request for ", request.bytes(), " bytes from ",
                                                 request.offset(), " of blob \"", request.digest().substr(0, 64),
                                                 "\", expected 1 to ", PeerBlobServer::kMaxRangeBytes,
                                                 " bytes from the beginning of a block"));
}

}  // namespace

AttemptPeers::AttemptPeers(const LaunchTask& launch, const std::string& self)
    : key(launch.spec().session() ? launch.data_key() : launch.session_key()) {
  hello.set_job_id(launch.job_id());
  hello.set_attempt(launch.attempt());
  hello.set_generation(launch.generation());
  hello.set_worker_id(self);
  hello.set_blobs(true);
  for (const Peer& peer : launch.peers()) {
    addresses[peer.worker_id()] = peer.data_address();
    if (peer.worker_id() == self) hello.set_incarnation(peer.incarnation());
  }
}

PeerBlobServer::PeerBlobServer(std::shared_ptr<storage::HostCache> cache, AttemptPeers peers, const Options& options)
    : cache_(std::move(cache)),
      peers_(std::move(peers)),
      options_(options),
      secured_(peers_.key,
               [this](std::unique_ptr<Connection> connection, const PeerHello&) { Start(std::move(connection)); }) {}

PeerBlobServer::~PeerBlobServer() {
  ending_ = true;
  secured_.Close();
  std::list<Guest> guests;
  {
    const std::lock_guard lock(mutex_);
    for (Guest& guest : guests_) {
      guest.connection->Shutdown();  // Done first, so that a guest cannot send an answer after it has read `closed`.
      guest.closed = true;
    }
    guests.swap(guests_);
  }
  for (Guest& guest : guests) guest.thread.join();
}

void PeerBlobServer::Take(std::unique_ptr<Connection> connection, const PeerHello& hello) {
  const PeerHello& own = peers_.hello;
  const auto self = peers_.addresses.find(own.worker_id());
  const bool is_peer = hello.job_id() == own.job_id() && hello.attempt() == own.attempt() &&
                       hello.generation() == own.generation() && peers_.addresses.contains(hello.worker_id());
  if (!is_peer || self == peers_.addresses.end()) return;
  if (!IsOffLoopback(self->second)) return Start(std::move(connection));
  secured_.Take(std::move(connection), hello);
}

void PeerBlobServer::Start(std::unique_ptr<Connection> connection) {
  std::list<Guest> done;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = guests_.begin(); at != guests_.end();) {
      const auto next = std::next(at);
      if (at->done) done.splice(done.end(), guests_, at);
      at = next;
    }
    if (guests_.size() >= options_.max_connections) done.splice(done.end(), TakeReplaced());
    if (!ending_ && guests_.size() < options_.max_connections) {
      Guest& guest = guests_.emplace_back();
      guest.connection = std::move(connection);
      guest.active_ns = options_.clock->NowNs();
      guest.thread = std::thread([this, &guest] {
        Serve(&guest);
        guest.connection->Shutdown();
        const std::lock_guard guard(mutex_);
        guest.done = true;
      });
    }
  }
  for (Guest& guest : done) guest.thread.join();
  if (connection == nullptr || ending_) return;
  PeerBlobAnswer full;
  full.set_missing(absl::StrCat("found ", options_.max_connections, " readers that are served now, expected fewer"));
  full.set_full(true);
  collectives::WriteBlock(connection.get(), full.SerializeAsString()).IgnoreError();
}

std::list<PeerBlobServer::Guest> PeerBlobServer::TakeReplaced() {
  auto idlest = guests_.end(), most_silent = guests_.end();
  for (auto at = guests_.begin(); at != guests_.end(); ++at) {
    if (at->idle_since > 0 && (idlest == guests_.end() || at->idle_since < idlest->idle_since)) idlest = at;
    if (most_silent == guests_.end() || at->active_ns < most_silent->active_ns) most_silent = at;
  }
  std::list<Guest> taken;
  if (idlest == guests_.end() && most_silent != guests_.end() &&
      options_.clock->NowNs() - most_silent->active_ns >= options_.silent_ms * kNsPerMs) {
    idlest = most_silent;
  }
  if (idlest == guests_.end()) return taken;
  idlest->connection->Shutdown();  // Done first, so that a guest cannot send an answer after it has read `closed`.
  idlest->closed = true;
  taken.splice(taken.end(), guests_, idlest);
  return taken;
}

bool PeerBlobServer::SetIdle(bool is_idle, Guest* guest) {
  const std::lock_guard lock(mutex_);
  guest->idle_since = is_idle ? ++times_ : 0;
  guest->active_ns = options_.clock->NowNs();
  return !guest->closed;
}

void PeerBlobServer::Serve(Guest* guest) {
  Connection* const connection = guest->connection.get();
  while (!ending_) {
    const absl::StatusOr<std::string> block = collectives::ReadBlock(connection);
    if (!block.ok()) return;  // The reader has closed the connection.
    PeerBlobRequest request;
    absl::Status answered = absl::InvalidArgumentError("found a message that is not a PeerBlobRequest");
    if (request.ParseFromString(*block)) {
      if (!SetIdle(false, guest)) return;
      answered = Answer(request, guest);
    }
    if (absl::IsInvalidArgument(answered)) {
      LogWarn("a peer's request for a blob is refused", {{"error", std::string(answered.message())}});
    }
    if (!answered.ok()) return;
    SetIdle(true, guest);
  }
}

// If the request is invalid, tells the reader so and returns InvalidArgument. If a write fails, returns its error. In
// both cases the connection is closed.
absl::Status PeerBlobServer::Answer(const PeerBlobRequest& request, Guest* guest) {
  Connection* const connection = guest->connection.get();
  if (const absl::Status valid = CheckRequest(request); !valid.ok()) {
    PeerBlobAnswer refused;
    refused.set_missing(std::string(valid.message()));
    collectives::WriteBlock(connection, refused.SerializeAsString()).IgnoreError();
    return valid;
  }
  std::vector<std::byte> buffer;
  const int64_t end = request.offset() + request.bytes();
  for (int64_t at = request.offset(); at < end; at += kBlockBytes) {
    buffer.resize(std::min(kBlockBytes, end - at));
    const absl::Status found =
        cache_->ReadStored(request.digest(), at, absl::MakeSpan(buffer), {options_.max_wait_ms, &guest->closed});
    PeerBlobAnswer answer;
    if (!found.ok()) answer.set_missing(std::string(found.message()));
    XLAD_RETURN_IF_ERROR(collectives::WriteBlock(connection, answer.SerializeAsString()));
    if (!found.ok()) return absl::OkStatus();  // The reader reads the rest from another source.
    sent_bytes_ += std::ssize(buffer);  // Counted before the write, so that all bytes that the reader has are counted.
    XLAD_RETURN_IF_ERROR(connection->Write(buffer));
    const std::lock_guard lock(mutex_);
    guest->active_ns = options_.clock->NowNs();
  }
  return absl::OkStatus();
}

// Sends this worker's hello, and secures the connection if it is not on loopback.
absl::Status PeerBlobs::Greet(const std::string& address, std::unique_ptr<Connection>* connection) const {
  XLAD_RETURN_IF_ERROR(collectives::WriteBlock(connection->get(), peers_.hello.SerializeAsString()));
  if (!IsOffLoopback(address)) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(auto secured,
                        security::SecureClient(connection->get(), peers_.key, collectives::ContextOf(peers_.hello)));
  secured->Own(std::move(*connection));
  *connection = std::move(secured);
  return absl::OkStatus();
}

// Connects on a thread of its own: an abort ends the wait at once, and the thread ends at the time limit of the dial.
absl::StatusOr<std::unique_ptr<Connection>> PeerBlobs::Connect(const std::string& address,
                                                               collectives::AbortSignal* abort) const {
  struct Dialing {
    std::mutex mutex;
    std::condition_variable changed;
    bool aborted = false;
    std::optional<absl::StatusOr<std::unique_ptr<Connection>>> connection;
  };
  const auto dialing = std::make_shared<Dialing>();
  const int64_t listener = abort->AddListener([dialing](const collectives::Failure&) {
    const std::lock_guard lock(dialing->mutex);
    dialing->aborted = true;
    dialing->changed.notify_all();
  });
  std::thread([dialing, network = network_, address] {
    auto connection = network->Dial(address, kDialTimeoutMs);
    const std::lock_guard lock(dialing->mutex);
    dialing->connection = std::move(connection);
    dialing->changed.notify_all();
  }).detach();
  {
    std::unique_lock lock(dialing->mutex);
    dialing->changed.wait(lock, [&] { return dialing->aborted || dialing->connection.has_value(); });
  }
  abort->RemoveListener(listener);
  if (abort->raised()) return abort->status();
  const std::lock_guard lock(dialing->mutex);
  return *std::move(dialing->connection);
}

absl::StatusOr<std::unique_ptr<Connection>> PeerBlobs::Dial(const std::string& address,
                                                            collectives::AbortSignal* abort) const {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, Connect(address, abort));
  const int64_t listener =
      abort->AddListener([dialed = connection.get()](const collectives::Failure&) { dialed->Shutdown(); });
  const absl::Status greeted = Greet(address, &connection);
  abort->RemoveListener(listener);
  if (abort->raised()) return abort->status();
  XLAD_RETURN_IF_ERROR(greeted);
  return connection;
}

absl::Status PeerBlobs::Receive(Connection* connection, const PeerBlobRequest& request,
                                const std::vector<uint64_t>& sums, absl::Span<std::byte> out) {
  // A peer that is full answers before it has read the request, and closes the connection.
  const absl::Status asked = collectives::WriteBlock(connection, request.SerializeAsString());
  for (const uint64_t sum : sums) {
    const absl::Span<std::byte> block = out.first(std::min<size_t>(out.size(), kBlockBytes));
    out.remove_prefix(block.size());
    const absl::StatusOr<std::string> text = collectives::ReadBlock(connection);
    if (!text.ok()) return asked.ok() ? text.status() : asked;
    PeerBlobAnswer answer;
    if (!answer.ParseFromString(*text)) return absl::DataLossError("found an answer that is not a PeerBlobAnswer");
    if (answer.full()) return absl::ResourceExhaustedError(answer.missing());
    if (!answer.missing().empty()) return absl::NotFoundError(answer.missing());
    XLAD_RETURN_IF_ERROR(collectives::ReadFully(connection, block));
    if (Hash64({reinterpret_cast<const char*>(block.data()), block.size()}) != sum) {
      return absl::DataLossError(absl::StrCat("found bytes that differ from those of blob ", request.digest()));
    }
  }
  return absl::OkStatus();
}

absl::Status PeerBlobs::Read(const std::string& peer, const PeerBlobRequest& request, const std::vector<uint64_t>& sums,
                             absl::Span<std::byte> out, collectives::AbortSignal* abort) {
  const auto address = peers_.addresses.find(peer);
  if (address == peers_.addresses.end() || peer == self()) {
    return absl::InvalidArgumentError(absl::StrCat("the attempt has no other worker ", peer));
  }
  if (std::ssize(sums) != CeilDiv(std::ssize(out), kBlockBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", sums.size(), " checksums for ", out.size(), " bytes, expected one for each block"));
  }
  std::shared_ptr<Link> link;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Link>& known = links_[peer];
    if (known == nullptr) known = std::make_shared<Link>();
    link = known;
  }
  const std::lock_guard lock(link->mutex);
  for (int dials = 0;;) {
    if (link->connection == nullptr) {
      ++dials;
      XLAD_ASSIGN_OR_RETURN(link->connection, Dial(address->second, abort));
    }
    Connection* const connection = link->connection.get();
    const int64_t listener = abort->AddListener([connection](const collectives::Failure&) { connection->Shutdown(); });
    const absl::Status received = Receive(connection, request, sums, out);
    abort->RemoveListener(listener);
    if (!received.ok() && !absl::IsNotFound(received)) link->connection = nullptr;
    if (received.ok()) received_bytes_ += std::ssize(out);
    if (abort->raised()) return abort->status();
    // The peer closes connections that are idle or silent when others need their places. It may close a new one during
    // its first request if this worker was slow.
    if (dials > 1 || !absl::IsUnavailable(received)) return received;
  }
}

}  // namespace xlad::worker
