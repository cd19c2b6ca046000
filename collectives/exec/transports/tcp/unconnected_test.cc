// What a worker that waits for a peer's connection learns when the peer, or a third worker, has failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "collectives/exec/transports/frame.h"
#include "collectives/exec/transports/plugin/engine.h"
#include "collectives/exec/transports/skeleton/skeleton.h"
#include "collectives/exec/transports/tcp/data_plane.h"
#include "collectives/exec/transports/tcp/tcp.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

// Longer than any test takes. Only a failing test waits so long.
constexpr int64_t kWaitLimitMs = 60'000;
constexpr char kElsewhere[] = "192.0.2.1";

// Loopback TCP whose addresses look like those of other machines, so connections are secured.
class OtherMachines final : public Network {
 public:
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    XLAD_ASSIGN_OR_RETURN(auto listener, TcpNetwork().Listen(Here(address)));
    return std::make_unique<Renamed>(std::move(listener));
  }
  absl::StatusOr<std::unique_ptr<Connection>> Dial(const std::string& address, int64_t timeout_ms) override {
    return TcpNetwork().Dial(Here(address), timeout_ms);
  }

 private:
  class Renamed final : public Listener {
   public:
    explicit Renamed(std::unique_ptr<Listener> listener) : listener_(std::move(listener)) {}
    absl::StatusOr<std::unique_ptr<Connection>> Accept() override { return listener_->Accept(); }
    void Shutdown() override { listener_->Shutdown(); }
    std::string Address() const override {
      return absl::StrReplaceAll(listener_->Address(), {{"127.0.0.1", kElsewhere}});
    }

   private:
    const std::unique_ptr<Listener> listener_;
  };

  static std::string Here(const std::string& address) {
    return absl::StrReplaceAll(address, {{kElsewhere, "127.0.0.1"}});
  }
};

// Loopback TCP on which one address does not answer, like that of a machine that is gone.
class OneSilentAddress final : public Network {
 public:
  // Must be called before the first call of Dial.
  void Silence(const std::string& address) { silent_ = address; }
  void End() { end_.set_value(); }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    return TcpNetwork().Listen(address);
  }
  // For the silent address: Unavailable after `timeout_ms`, or when End is called.
  absl::StatusOr<std::unique_ptr<Connection>> Dial(const std::string& address, int64_t timeout_ms) override {
    if (address != silent_) return TcpNetwork().Dial(address, timeout_ms);
    ended_.wait_for(std::chrono::milliseconds(timeout_ms));
    return absl::UnavailableError(absl::StrCat("cannot connect to ", address, ": no answer"));
  }

 private:
  std::string silent_;
  std::promise<void> end_;
  const std::shared_future<void> ended_ = end_.get_future().share();
};

// Workers without a coordinator, each with one device.
class UnconnectedTest : public ::testing::Test {
 protected:
  struct Worker {
    AbortSignal abort;
    Waiter waiter;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<DataPlane> data_plane;
    std::unique_ptr<TcpFabric> fabric;
  };

  // Worker 2 dials by `dialer_of_two` if it is not null.
  void Start(Network* network, const xlad_transport_api* plugin, TcpOptions options = {},
             Network* dialer_of_two = nullptr) {
    std::map<int, PeerInfo> all;
    for (int w = 0; w < 3; ++w) {
      workers_[w].data_plane = *DataPlane::ListenForSecured(network, "127.0.0.1:0");
      all[w] = {absl::StrCat("w", w), 7, "host", 100 + w, workers_[w].data_plane->address()};
    }
    options.job_id = "job";
    options.key = "the key of the attempt";
    options.incarnation = 7;
    options.accept_timeout_ms = options.close_after_abort_ms = kWaitLimitMs;
    for (int w = 0; w < 3; ++w) {
      Worker& worker = workers_[w];
      if (plugin != nullptr) {
        worker.engine = *Engine::Open(plugin, w, false);
        options.engines = {{w, worker.engine.get()}};
      }
      std::map<int, PeerInfo> peers = all;
      peers.erase(w);
      options.worker_id = all[w].worker_id;
      options.data_address = all[w].data_address;
      Network* const dialer = w == 2 && dialer_of_two != nullptr ? dialer_of_two : network;
      worker.fabric = std::make_unique<TcpFabric>(options, std::map<int, Waiter*>{{w, &worker.waiter}}, peers, dialer,
                                                  &worker.abort);
      worker.abort.AddListener([&worker](const Failure&) { worker.waiter.Notify(); });
      worker.data_plane->AddTask(worker.fabric.get());
    }
  }
  void TearDown() override {
    for (Worker& worker : workers_) worker.data_plane->RemoveTask(worker.fabric.get());
    // Ends the connections that a fabric has opened to a worker whose task had already been removed.
    for (Worker& worker : workers_) worker.data_plane.reset();
  }

  // Returns the error of `device` when it receives a message from `peer`.
  absl::Status Receive(int device, int peer) {
    const absl::StatusOr<ReceiveLink*> link = workers_[device].fabric->transport(device).OpenReceive(peer, 0);
    return link.ok() ? (*link)->Next().status() : link.status();
  }

  void Fail(int worker) {
    workers_[worker].abort.Raise({absl::ResourceExhaustedError(absl::StrCat("device ", worker, " has no memory left")),
                                  absl::StrCat("w", worker)});
  }
  // A worker fails while device 2 waits for a connection from `peer`. No device has a connection.
  void WorkerFailsWhileDeviceTwoWaitsFor(int worker, int peer) {
    std::future<absl::Status> waiting = std::async(std::launch::async, [&] { return Receive(2, peer); });
    Fail(worker);
    const absl::Status status = waiting.get();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("device ", worker, " has no memory left")));
    EXPECT_EQ(workers_[2].abort.failure().suspect_worker, absl::StrCat("w", worker));
  }

  OtherMachines other_machines_;
  OneSilentAddress one_silent_address_;
  Worker workers_[3];
};

TEST_F(UnconnectedTest, AFailedWorkerTellsAPeerThatWaitsForItsConnection) {
  Start(&TcpNetwork(), nullptr);
  WorkerFailsWhileDeviceTwoWaitsFor(1, 1);
}

TEST_F(UnconnectedTest, AFailedWorkerTellsAPeerThatWaitsForAnother) {
  Start(&TcpNetwork(), nullptr);
  WorkerFailsWhileDeviceTwoWaitsFor(1, 0);
}

// The failed worker may be unable to share memory, for example because it has no memory left.
TEST_F(UnconnectedTest, AReasonNeedsNoSharedMemory) {
  TcpOptions options;
  options.requires_shared = true;
  Start(&TcpNetwork(), nullptr, options);
  WorkerFailsWhileDeviceTwoWaitsFor(1, 1);
}

TEST_F(UnconnectedTest, AReasonNeedsNoPlugin) {
  Start(&TcpNetwork(), SkeletonTransport());
  WorkerFailsWhileDeviceTwoWaitsFor(1, 1);
}

TEST_F(UnconnectedTest, AReasonIsSecuredBetweenMachines) {
  Start(&other_machines_, nullptr);
  WorkerFailsWhileDeviceTwoWaitsFor(1, 1);
}

// Worker 0 fails. It tells worker 2 while it still waits for an answer of worker 1.
TEST_F(UnconnectedTest, APeerThatDoesNotAnswerDoesNotDelayTheOthers) {
  Start(&one_silent_address_, nullptr);
  one_silent_address_.Silence(workers_[1].data_plane->address());
  WorkerFailsWhileDeviceTwoWaitsFor(0, 0);
  one_silent_address_.End();
}

// The failed process may have ended when a peer with a lower number would connect to it.
TEST_F(UnconnectedTest, AFailedWorkerTellsPeersThatHaveNotConnectedToIt) {
  Start(&TcpNetwork(), nullptr);
  std::promise<void> told;
  workers_[0].abort.AddListener([&](const Failure&) { told.set_value(); });
  Fail(1);
  ASSERT_EQ(told.get_future().wait_for(std::chrono::milliseconds(kWaitLimitMs)), std::future_status::ready);
  EXPECT_EQ(workers_[0].abort.failure().suspect_worker, "w1");
  EXPECT_THAT(std::string(Receive(0, 1).message()), HasSubstr("device 1 has no memory left"));
}

// Worker 2 fails and cannot reach worker 1. Worker 0, which learns the reason, tells worker 1.
TEST_F(UnconnectedTest, AWorkerThatLearnsTheReasonTellsItsOwnPeers) {
  Start(&TcpNetwork(), nullptr, {}, &one_silent_address_);
  one_silent_address_.Silence(workers_[1].data_plane->address());
  std::future<absl::Status> waiting = std::async(std::launch::async, [&] { return Receive(1, 0); });
  Fail(2);
  EXPECT_THAT(std::string(Receive(0, 2).message()), HasSubstr("device 2 has no memory left"));
  EXPECT_THAT(std::string(waiting.get().message()), HasSubstr("device 2 has no memory left"));
  one_silent_address_.End();
}

TEST_F(UnconnectedTest, AReasonOfAnEarlierProcessIsIgnored) {
  Start(&TcpNetwork(), nullptr);
  PeerHello hello;
  hello.set_job_id("job");
  hello.set_from_device(0);
  hello.set_to_device(2);
  hello.set_worker_id("w0");
  hello.set_incarnation(8);  // The process that had this worker id before.
  hello.set_machine("failed");
  const auto connection = *TcpNetwork().Dial(workers_[2].data_plane->address(), kWaitLimitMs);
  ASSERT_TRUE(WriteBlock(connection.get(), hello.SerializeAsString()).ok());
  std::byte answer;
  EXPECT_FALSE(connection->Read({&answer, 1}).ok());  // The connection is closed.
  EXPECT_FALSE(workers_[2].abort.raised());
  EXPECT_EQ(workers_[2].fabric->connections(), 0);
}

TEST_F(UnconnectedTest, APeerThatEndedBeforeItConnectedIsNamed) {
  TcpOptions options;
  options.has_ended = [](const PeerInfo& peer) { return peer.pid == 101; };
  Start(&TcpNetwork(), nullptr, options);
  const absl::Status status = Receive(2, 1);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("device 1 (worker w1, host host, pid 101) has ended before it connected to device 2"));
  EXPECT_EQ(workers_[2].abort.failure().suspect_worker, "w1");
}

}  // namespace
}  // namespace xlad::collectives
