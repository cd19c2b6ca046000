// Two workers of one attempt and their blobs: the fixture of tests in which one worker reads a blob from the other.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/net/network.h"
#include "base/testing/test_folder.h"
#include "collectives/exec/abort.h"
#include "collectives/exec/transports/frame.h"
#include "storage/host_cache.h"
#include "storage/range_reader.h"
#include "worker/peer_blobs.h"

namespace xlad::worker {

// Returns a pattern of `size` bytes.
inline std::string BlobOfSize(int64_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  return bytes;
}

// Worker "a" has a cache and a listener. Worker "b" reads from it.
class TwoWorkersTest : public testing::Test {
 protected:
  TwoWorkersTest() {
    SetLogLevel(LogLevel::kError);
    cache_of_a_ = *storage::HostCache::Open(folder_ + "/a", {.min_free_bytes = 0});
    launch_.set_job_id("job");
    launch_.set_attempt(3);
    launch_.set_generation(7);
    launch_.set_session_key("0123456789abcdef");
    launch_.add_peers()->set_worker_id("a");
    Peer* const b = launch_.add_peers();
    b->set_worker_id("b");
    b->set_data_address("127.0.0.1:1");
    Listen();
  }
  ~TwoWorkersTest() override {
    StopA();
    server_of_a_.reset();
    SetLogLevel(LogLevel::kInfo);
  }

  // Makes worker "a" listen at a new address.
  void Listen() {
    listener_ = *TcpNetwork().Listen("127.0.0.1:0");
    launch_.mutable_peers(0)->set_data_address(listener_->Address());
  }
  // Starts a thread that accepts the connections to worker "a" until StopA. It reads the hello of each connection and
  // passes both to `take`. Must be called at most once per Listen.
  void Accept(std::function<void(std::unique_ptr<Connection>, const PeerHello&)> take) {
    acceptor_ = std::thread([this, take = std::move(take)] {
      while (true) {
        auto connection = listener_->Accept();
        if (!connection.ok()) return;
        const auto block = collectives::ReadBlock(connection->get());
        PeerHello hello;
        if (block.ok() && hello.ParseFromString(*block)) take(*std::move(connection), hello);
      }
    });
  }
  // Makes the server of worker "a", which serves the blobs in its cache.
  void MakeServer(const PeerBlobServer::Options& options) {
    server_of_a_ = std::make_unique<PeerBlobServer>(cache_of_a_, AttemptPeers(launch_, "a"), options);
  }
  // Closes the listener of worker "a" and ends the thread of Accept.
  void StopA() {
    if (listener_ != nullptr) listener_->Shutdown();
    if (acceptor_.joinable()) acceptor_.join();
    listener_ = nullptr;
  }
  // Stores a blob in the cache of worker "a", as if that worker had read it.
  void StoreAtA(const std::string& digest, const std::string& blob) {
    const auto stored = cache_of_a_->ReadBlob(digest, [&](bool) { return storage::MakeMemoryReader(blob); });
    ASSERT_TRUE(stored.ok()) << stored.status();
  }

  const TestFolder own_folder_;
  const std::string folder_ = own_folder_.path();
  LaunchTask launch_;
  collectives::AbortSignal abort_;
  std::unique_ptr<Listener> listener_;  // Null after StopA.
  std::shared_ptr<storage::HostCache> cache_of_a_;
  std::unique_ptr<PeerBlobServer> server_of_a_;

 private:
  std::thread acceptor_;
};

}  // namespace xlad::worker
