#include "collectives/exec/transports/tcp/secured_guests.h"

#include "base/log.h"
#include "security/secure_connection.h"

namespace xlad::collectives {
namespace {

constexpr size_t kMaxGuests = 1024;

}  // namespace

std::string ContextOf(const PeerHello& hello) { return hello.SerializeAsString(); }

SecuredGuests::~SecuredGuests() {
  Close();
  for (Guest& guest : guests_) guest.thread.join();
}

void SecuredGuests::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  for (Guest& guest : guests_) {
    if (guest.connection != nullptr) guest.connection->Shutdown();
  }
}

void SecuredGuests::Take(std::unique_ptr<Connection> connection, const PeerHello& hello) {
  std::list<Guest> done;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto at = guests_.begin(); at != guests_.end();) {
      const auto next = std::next(at);
      if (at->done) done.splice(done.end(), guests_, at);
      at = next;
    }
    if (!closed_ && guests_.size() < kMaxGuests) {
      Guest& guest = guests_.emplace_back();
      guest.connection = std::move(connection);
      guest.thread = std::thread([this, &guest, hello] { Greet(&guest, hello); });
    }
  }
  for (Guest& guest : done) guest.thread.join();
}

void SecuredGuests::Greet(Guest* guest, const PeerHello& hello) {
  // No other thread replaces guest->connection, so it can be read without the lock.
  auto secured = security::SecureServer(guest->connection.get(), key_, ContextOf(hello));
  std::unique_ptr<Connection> ready;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (secured.ok()) {
      (*secured)->Own(std::move(guest->connection));
      if (!closed_) ready = *std::move(secured);
    }
    guest->connection = nullptr;
  }
  if (ready != nullptr) {
    ready_(std::move(ready), hello);
  } else if (!secured.ok()) {
    LogWarn("data port: refused a connection",
            {{"worker", hello.worker_id()}, {"error", std::string(secured.status().message())}});
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  guest->done = true;
}

}  // namespace xlad::collectives
