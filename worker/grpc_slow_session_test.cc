// The server of a session, and a client whose network is slow.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/net/grpc_channel.h"
#include "base/net/network.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/session_host.h"
#include "worker/grpc_session_server.h"

namespace xlad::worker {
namespace {

// Forwards one connection to a server. Pauses once, when the client has sent `pause_at` bytes, so that the server's
// AcceptGate, which measures connections every 0.1 s, finds a connection that has received as many.
class PausingProxy {
 public:
  PausingProxy(const std::string& server, int64_t pause_at)
      : listener_(*TcpNetwork().Listen("127.0.0.1:0")), thread_([this, server, pause_at] { Run(server, pause_at); }) {}
  // The client must have closed its connection.
  ~PausingProxy() {
    listener_->Shutdown();
    thread_.join();
  }
  std::string address() const { return listener_->Address(); }

 private:
  void Run(const std::string& server_address, int64_t pause_at) {
    const auto client = listener_->Accept();
    if (!client.ok()) return;
    const auto server = *TcpNetwork().Dial(server_address, 600'000);
    std::thread answers([&] { Copy(server.get(), client->get(), std::numeric_limits<int64_t>::max()); });
    Copy(client->get(), server.get(), pause_at);
    answers.join();
  }
  // Copies until one of the connections ends, and then ends both.
  static void Copy(Connection* from, Connection* to, int64_t pause_at) {
    std::vector<std::byte> piece(64 << 10);
    int64_t copied = 0;
    while (true) {
      const auto size = from->Read(absl::MakeSpan(piece));
      if (!size.ok() || !to->Write(absl::MakeConstSpan(piece).first(*size)).ok()) break;
      const bool pauses = copied < pause_at && copied + static_cast<int64_t>(*size) >= pause_at;
      copied += *size;
      if (pauses) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    from->Shutdown();
    to->Shutdown();
  }

  const std::unique_ptr<Listener> listener_;
  std::thread thread_;
};

// The gate closes a connection on which 2 MiB arrive before the server has reported a call with a key. So the server
// must report the call before it has read the message.
TEST(SlowSession, TheFirstCallOfAConnectionMayBeLarge) {
  runtime::SessionHost host("job-1", "a", /*workers=*/1);
  const auto server = SessionServer::Start("127.0.0.1", {"client's", "the session's", {}}, &host, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  const PausingProxy proxy((*server)->address(), 3 << 20);
  const auto stub = SessionWorker::NewStub(*MakeChannel({proxy.address(), "", ""}));
  grpc::ClientContext context;
  PrepareCall(&context, "client's", 600'000);
  FreeArraysRequest request;
  for (int64_t i = 0; i < 1 << 20; ++i) request.add_arrays((int64_t{1} << 28) + i);  // 5 MiB, none of which exists.
  FreeArraysResponse response;
  const grpc::Status status = stub->FreeArrays(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  host.End("the test ends");
}

}  // namespace
}  // namespace xlad::worker
