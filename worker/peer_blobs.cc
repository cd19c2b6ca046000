#include "worker/peer_blobs.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/log.h"
#include "collectives/exec/transports/frame.h"
#include "security/secure_connection.h"
#include "storage/block_sums.h"
#include "storage/uri.h"

namespace xlad::worker {
namespace {

using storage::kBlockBytes;

constexpr int64_t kDialTimeoutMs = 2000;

bool IsSecured(const std::string& address) {
  const absl::StatusOr<HostPort> at = ParseHostPort(address);
  return at.ok() && !IsLoopback(at->host);
}

absl::Status CheckRequest(const PeerBlobRequest& request) {
  const bool valid = storage::IsDigest(request.digest()) && request.offset() >= 0 &&
                     request.offset() % kBlockBytes == 0 && request.bytes() > 0 &&
                     request.bytes() <= PeerBlobServer::kMaxRangeBytes &&
                     request.offset() <= std::numeric_limits<int64_t>::max() - request.bytes();
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "found a request for ", request.bytes(), " bytes from ", request.offset(), " of blob \"",
      request.digest().substr(0, 64), "\", expected whole blocks, at most ", PeerBlobServer::kMaxRangeBytes, " bytes"));
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
    for (Guest& guest : guests_) guest.connection->Shutdown();
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
  if (!IsSecured(self->second)) return Start(std::move(connection));
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
    if (!ending_ && guests_.size() < options_.max_connections) {
      Guest& guest = guests_.emplace_back();
      guest.connection = std::move(connection);
      guest.thread = std::thread([this, &guest] {
        Serve(guest.connection.get());
        guest.connection->Shutdown();
        const std::lock_guard guard(mutex_);
        guest.done = true;
      });
    }
  }
  for (Guest& guest : done) guest.thread.join();
}

void PeerBlobServer::Serve(Connection* connection) {
  while (!ending_) {
    const absl::StatusOr<std::string> block = collectives::ReadBlock(connection);
    PeerBlobRequest request;
    if (!block.ok() || !request.ParseFromString(*block) || !Answer(request, connection).ok()) return;
  }
}

// An error ends the connection.
absl::Status PeerBlobServer::Answer(const PeerBlobRequest& request, Connection* connection) {
  XLAD_RETURN_IF_ERROR(CheckRequest(request));
  std::vector<std::byte> buffer;
  const int64_t end = request.offset() + request.bytes();
  for (int64_t at = request.offset(); at < end; at += kBlockBytes) {
    buffer.resize(std::min(kBlockBytes, end - at));
    const absl::Status found =
        cache_->ReadStored(request.digest(), at, absl::MakeSpan(buffer), {options_.max_wait_ms, &ending_});
    PeerBlobAnswer answer;
    if (!found.ok()) answer.set_missing(std::string(found.message()));
    XLAD_RETURN_IF_ERROR(collectives::WriteBlock(connection, answer.SerializeAsString()));
    if (!found.ok()) return absl::OkStatus();  // The reader reads the rest elsewhere.
    XLAD_RETURN_IF_ERROR(connection->Write(buffer));
    sent_bytes_ += std::ssize(buffer);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Connection>> PeerBlobs::Dial(const std::string& address) const {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, network_->Dial(address, kDialTimeoutMs));
  XLAD_RETURN_IF_ERROR(collectives::WriteBlock(connection.get(), peers_.hello.SerializeAsString()));
  if (!IsSecured(address)) return connection;
  XLAD_ASSIGN_OR_RETURN(auto secured,
                        security::SecureClient(connection.get(), peers_.key, collectives::ContextOf(peers_.hello)));
  secured->Own(std::move(connection));
  return std::unique_ptr<Connection>(std::move(secured));
}

absl::Status PeerBlobs::Receive(Connection* connection, const PeerBlobRequest& request,
                                const std::vector<uint64_t>& sums, absl::Span<std::byte> out) {
  XLAD_RETURN_IF_ERROR(collectives::WriteBlock(connection, request.SerializeAsString()));
  for (const uint64_t sum : sums) {
    const absl::Span<std::byte> block = out.first(std::min<size_t>(out.size(), kBlockBytes));
    out.remove_prefix(block.size());
    XLAD_ASSIGN_OR_RETURN(const std::string text, collectives::ReadBlock(connection));
    PeerBlobAnswer answer;
    if (!answer.ParseFromString(text)) return absl::DataLossError("found an answer that is not a PeerBlobAnswer");
    if (!answer.missing().empty()) return absl::NotFoundError(answer.missing());
    XLAD_RETURN_IF_ERROR(collectives::ReadFully(connection, block));
    if (Hash64({reinterpret_cast<const char*>(block.data()), block.size()}) != sum) {
      return absl::DataLossError(absl::StrCat("found other bytes than those of blob ", request.digest()));
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
  if (std::ssize(sums) != (std::ssize(out) + kBlockBytes - 1) / kBlockBytes) {
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
  if (link->connection == nullptr) {
    XLAD_ASSIGN_OR_RETURN(link->connection, Dial(address->second));
  }
  Connection* const connection = link->connection.get();
  const int64_t listener = abort->AddListener([connection](const collectives::Failure&) { connection->Shutdown(); });
  const absl::Status received = Receive(connection, request, sums, out);
  abort->RemoveListener(listener);
  if (!received.ok() && !absl::IsNotFound(received)) link->connection = nullptr;
  if (received.ok()) received_bytes_ += std::ssize(out);
  return abort->raised() ? abort->status() : received;
}

}  // namespace xlad::worker
