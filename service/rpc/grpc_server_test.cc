// The coordinator's server against malicious clients: raw TCP connections, hand-made HTTP/2 frames, unusual requests.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/net/grpc_channel.h"
#include "base/net/network.h"
#include "base/testing/http2.h"
#include "base/testing/open_files.h"
#include "base/testing/test_folder.h"
#include "proto/reflection.pb.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "service/rpc/coordinator_daemon.h"
#include "service/rpc/grpc_calls.h"
#include "service/rpc/grpc_message_limits.h"
#include "service/rpc/grpc_methods.h"

namespace xlad::service {
namespace {

using testing::HasSubstr;

constexpr char kToken[] = "correct horse battery staple";
// Longer than any test takes, however busy the machine is.
constexpr int64_t kLongMs = 600'000;

class GrpcServerTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string token_file = JoinPath(folder_, "token");
    ASSERT_TRUE(RealFileSystem().WriteAtomically(token_file, kToken).ok());
    DaemonOptions options;
    options.listen = "127.0.0.1:0";
    options.data_folder = JoinPath(folder_, "data");
    options.program_path = "/bin/false";
    options.token_file = token_file;
    auto daemon = CoordinatorDaemon::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    channel_ = *MakeChannel({daemon_->Address(), "", ""});
    stub_ = Coordinator::NewStub(channel_);
  }

  template <typename Call>
  grpc::Status WithContext(const Call& call, const std::string& token = kToken) {
    grpc::ClientContext context;
    PrepareCall(&context, token, kLongMs);
    return call(&context);
  }
  grpc::Status List() {
    return WithContext([&](grpc::ClientContext* context) {
      ListJobsResponse response;
      return stub_->ListJobs(context, {}, &response);
    });
  }
  std::unique_ptr<Connection> Dial() { return *TcpNetwork().Dial(daemon_->Address(), kLongMs); }
  static absl::Status Write(Connection* connection, const std::string& bytes) {
    return connection->Write({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
  }

  // Uploads a blob in chunks.
  grpc::Status Put(const std::string& digest, const std::string& bytes) {
    return WithContext([&](grpc::ClientContext* context) {
      PutBlobResponse response;
      const auto writer = stub_->PutBlob(context, &response);
      PutBlobRequest request;
      request.set_digest(digest);
      for (size_t offset = 0; offset < bytes.size(); offset += 1 << 20) {
        request.set_chunk(bytes.substr(offset, 1 << 20));
        writer->Write(request);
      }
      writer->WritesDone();
      return writer->Finish();
    });
  }
  const TestFolder own_folder_;
  const std::string folder_ = own_folder_.path();
  std::unique_ptr<CoordinatorDaemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Coordinator::Stub> stub_;
};

// The address that the coordinator reports has brackets around an IPv6 address, whether or not --listen has them.
TEST_F(GrpcServerTest, ListensOnIpv6) {
  if (!TcpNetwork().Listen("[::1]:0").ok()) GTEST_SKIP() << "this machine has no IPv6";
  for (const char* listen : {"[::1]:0", "::1:0"}) {
    DaemonOptions options;
    options.listen = listen;
    options.data_folder = JoinPath(folder_, absl::StrCat("ipv6_", absl::string_view(listen).size()));
    options.program_path = "/bin/false";
    const auto daemon = CoordinatorDaemon::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    const std::string address = (*daemon)->Address();
    EXPECT_EQ(address.substr(0, 6), "[::1]:");
    for (const std::string& with : {address, absl::StrCat("::1", address.substr(5))}) {
      const auto stub = Coordinator::NewStub(*MakeChannel({with, "", ""}));
      grpc::ClientContext context;
      PrepareCall(&context, "", kLongMs);
      ListJobsResponse response;
      const grpc::Status status = stub->ListJobs(&context, {}, &response);
      EXPECT_TRUE(status.ok()) << with << ": " << status.error_message();
    }
  }
}

// Reads until `text` has arrived.
bool Receives(Connection* connection, const std::string& text) {
  std::string all;
  std::byte piece[4096];
  while (all.find(text) == std::string::npos) {
    const auto n = connection->Read(absl::MakeSpan(piece));
    if (!n.ok()) return false;
    all.append(reinterpret_cast<const char*>(piece), *n);
  }
  return true;
}

TEST_F(GrpcServerTest, ManyIdleConnectionsDoNotStopAccepting) {
  if (!MayOpenFiles(8192)) GTEST_SKIP() << "this process may not open 8192 files";
  std::vector<std::unique_ptr<Connection>> idle;
  for (int i = 0; i < 3000; ++i) {
    auto connection = TcpNetwork().Dial(daemon_->Address(), kLongMs);
    ASSERT_TRUE(connection.ok()) << i << ": " << connection.status();
    idle.push_back(*std::move(connection));
  }
  EXPECT_TRUE(List().ok()) << "a new connection still gets through";
}

TEST_F(GrpcServerTest, ACallWithoutTokenIsRefusedBeforeItsBodyHasArrived) {
  for (const char* method : {"SubmitJob", "PutBlob", "PutBatch", "PutArray", "Attach", "WatchJob"}) {
    const auto connection = Dial();
    ASSERT_TRUE(Write(connection.get(), StalledCall(absl::StrCat("/xlad.v1.Coordinator/", method))).ok());
    EXPECT_TRUE(Receives(connection.get(), "found no token")) << method;
  }
  EXPECT_TRUE(List().ok());
}

// Calls that stall for half a second are canceled.
class StalledCalls : public GrpcServerTest {
 protected:
  void SetUp() override {
    GrpcServerTest::SetUp();
    DaemonOptions options;
    options.listen = "127.0.0.1:0";
    options.data_folder = JoinPath(folder_, "stalls");
    options.program_path = "/bin/false";
    options.message_ms = 500;
    auto daemon = CoordinatorDaemon::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    impatient_ = *std::move(daemon);
  }
  // Sends a call, and waits until the coordinator cancels it.
  void ExpectCancelled(const std::string& call, const char* what) {
    const auto connection = *TcpNetwork().Dial(impatient_->Address(), kLongMs);
    ASSERT_TRUE(Write(connection.get(), call).ok());
    const std::string reset = Http2Frame(/*RST_STREAM*/ 3, 0, 1, "code").substr(0, 9);
    EXPECT_TRUE(Receives(connection.get(), reset)) << what;
  }
  // Like ExpectCancelled, but meanwhile repeats the message, so that the coordinator never waits long for one.
  void ExpectCancelledWhileSending(const std::string& call, const std::string& message, const char* what) {
    const auto connection = *TcpNetwork().Dial(impatient_->Address(), kLongMs);
    ASSERT_TRUE(Write(connection.get(), call).ok());
    std::atomic<bool> is_over = false;
    std::thread sender([&] {
      constexpr int64_t kPauseMs = 20;
      const std::string frame = Http2Frame(/*DATA*/ 0, 0, 1, message);
      for (int64_t ms = 0; ms < kLongMs && !is_over && Write(connection.get(), frame).ok(); ms += kPauseMs) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
      }
      if (!is_over) connection->Shutdown();  // Then Receives returns false.
    });
    const std::string reset = Http2Frame(/*RST_STREAM*/ 3, 0, 1, "code").substr(0, 9);
    EXPECT_TRUE(Receives(connection.get(), reset)) << what;
    is_over = true;
    sender.join();
  }

  std::unique_ptr<CoordinatorDaemon> impatient_;
};

constexpr char kAttach[] = "/xlad.v1.Coordinator/Attach", kWatchHealth[] = "/grpc.health.v1.Health/Watch",
               kReflection[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

std::string ListServices() {
  grpc::reflection::v1::ServerReflectionRequest request;
  request.set_list_services("");
  return GrpcMessage(request.SerializeAsString());
}

std::string ClockProbe() {
  WorkerMessage message;
  message.mutable_clock_probe();
  return GrpcMessage(message.SerializeAsString());
}

// An upload may take longer than the limit, because it has many messages.
TEST_F(StalledCalls, FirstMessages) {
  const auto stub = Coordinator::NewStub(*MakeChannel({impatient_->Address(), "", ""}));
  grpc::ClientContext context;
  PrepareCall(&context, "", kLongMs);
  context.set_initial_metadata_corked(true);  // The first message is sent with the metadata.
  PutBlobResponse response;
  const auto upload = stub->PutBlob(&context, &response);
  PutBlobRequest request;
  request.set_digest(Sha256Hex("slowly"));
  request.set_chunk("slow");
  ASSERT_TRUE(upload->Write(request));
  for (const char* path : {"/xlad.v1.Coordinator/PutBlob", "/xlad.v1.Coordinator/SubmitJob", kAttach,
                           "/xlad.v1.Coordinator/WatchJob", kWatchHealth, kReflection}) {
    ExpectCancelled(StalledCall(path), path);
  }
  request.set_chunk("ly");
  ASSERT_TRUE(upload->Write(request));
  upload->WritesDone();
  EXPECT_TRUE(upload->Finish().ok());
}

TEST_F(StalledCalls, LaterMessages) {
  ExpectCancelled(Http2Call(kReflection, ListServices() + StartOfGrpcMessage()), kReflection);
  ExpectCancelled(Http2Call(kAttach, ClockProbe() + StartOfGrpcMessage()), kAttach);
  ExpectCancelled(Http2Call(kReflection, ListServices()), "an idle stream");
  ExpectCancelled(Http2Call(kAttach, ClockProbe()), "a worker without heartbeats");
}

TEST_F(StalledCalls, ResponsesThatTheClientDoesNotTake) {
  constexpr uint32_t kNone = 0;
  ExpectCancelled(Http2Call(kReflection, ListServices(), kNone), kReflection);
  ExpectCancelledWhileSending(Http2Call(kAttach, ClockProbe(), kNone), ClockProbe(), kAttach);
  ExpectCancelled(Http2Call(kWatchHealth, GrpcMessage(""), kNone), kWatchHealth);
  const std::string status = "/xlad.v1.Coordinator/GetStatus";
  ExpectCancelled(Http2Call(status, GrpcMessage(""), kNone), "the last response of a handler");
}

constexpr int64_t kMb = 1 << 20;
using Room = MessageLimits::Room;

TEST(MessageLimits, TheMemoryOfUnsentMessagesIsBounded) {
  MessageLimits limits(std::chrono::hours(1));
  int64_t reserved = 0;
  for (int user = 0; user < 10; ++user) {
    for (int i = 0; i < 100; ++i) {
      reserved += limits.Reserve(absl::StrCat("user", user), /*may_wait=*/true, kMb) == Room::kReserved;
    }
  }
  EXPECT_EQ(reserved, 64);
  EXPECT_EQ(limits.Reserve("user0", false, 1), Room::kRefused);
  EXPECT_EQ(limits.Reserve("another", false, 1), Room::kMustWait) << "which has no unsent bytes";
  EXPECT_EQ(limits.Reserve("another", false, 1), Room::kRefused) << "another thread may not wait";
}

TEST(MessageLimits, AUserWhoReadsNothingDoesNotAffectOthers) {
  MessageLimits limits(std::chrono::hours(1));
  int64_t reserved = 0;
  while (limits.Reserve("reader", false, kMb) == Room::kReserved) ++reserved;
  EXPECT_EQ(reserved, 16);
  EXPECT_EQ(limits.Reserve("reader", false, kMb), Room::kRefused);
  EXPECT_EQ(limits.Reserve("reader", /*may_wait=*/true, kMb), Room::kMustWait);
  EXPECT_EQ(limits.Reserve("other", false, 16 * kMb), Room::kReserved);
  EXPECT_EQ(limits.Reserve("large", false, 17 * kMb), Room::kMustWait) << "A large response is sent, too.";
  limits.Release("reader", Room::kMustWait, kMb);
  EXPECT_EQ(limits.Reserve("reader", false, kMb), Room::kRefused);
  limits.Release("reader", Room::kReserved, kMb);
  EXPECT_EQ(limits.Reserve("reader", false, kMb), Room::kReserved);
  for (int i = 0; i < 16; ++i) limits.Release("reader", Room::kReserved, kMb);
  EXPECT_EQ(limits.Reserve("reader", false, 16 * kMb), Room::kReserved);
}

TEST(MessageLimits, TheMemoryOfParsedMessagesIsBounded) {
  MessageLimits limits(std::chrono::hours(1));
  EXPECT_TRUE(limits.ReserveParsed("a", 100 * kMb));
  EXPECT_FALSE(limits.ReserveParsed("a", 29 * kMb));
  EXPECT_TRUE(limits.ReserveParsed("a", 28 * kMb));
  EXPECT_TRUE(limits.ReserveParsed("b", 160 * kMb)) << "one message of a user may be large";
  EXPECT_FALSE(limits.ReserveParsed("b", 1));
  EXPECT_TRUE(limits.ReserveParsed("c", 160 * kMb));
  EXPECT_FALSE(limits.ReserveParsed("d", 65 * kMb)) << "all users have 512 MiB";
  limits.ReleaseParsed("c", 160 * kMb);
  EXPECT_TRUE(limits.ReserveParsed("d", 65 * kMb));
  limits.ReleaseParsed("a", 28 * kMb);
  EXPECT_TRUE(limits.ReserveParsed("a", 28 * kMb));
}

TEST_F(GrpcServerTest, HealthIsAnsweredWithoutATokenAndWithoutReadingTheRequest) {
  const auto connection = Dial();
  ASSERT_TRUE(Write(connection.get(), StalledCall("/grpc.health.v1.Health/Check")).ok());
  EXPECT_TRUE(Receives(connection.get(), std::string("\0\0\0\0\x02\x08\x01", 7)));
}

TEST_F(GrpcServerTest, WrongTokensAreRefused) {
  const auto list = [&](grpc::ClientContext* context) {
    ListJobsResponse response;
    return stub_->ListJobs(context, {}, &response);
  };
  for (const char* token : {"", "wrong", "correct horse battery stapl", "correct horse battery staplf"}) {
    EXPECT_EQ(WithContext(list, token).error_code(), grpc::StatusCode::UNAUTHENTICATED) << token;
  }
  EXPECT_TRUE(WithContext(list).ok());
}

TEST_F(GrpcServerTest, GarbageIsHarmless) {
  const std::string preface = kHttp2Preface;
  const std::string pieces[] = {
      "GET / HTTP/1.1\r\n\r\n",
      std::string(100000, '\xff'),
      std::string("\x16\x03\x01", 3),
      preface + std::string(50000, '\x7f'),
      preface + Http2Frame(4, 0, 0, "odd") + Http2Frame(1, 0xff, 0xffffffff, std::string(1000, '\x80')),
      preface + Http2Frame(0, 0, 1, std::string(16384, 'x'))};
  for (const std::string& bytes : pieces) {
    const auto connection = Dial();
    (void)Write(connection.get(), bytes);  // The server may close the connection during the write.
  }
  EXPECT_TRUE(List().ok());
}

TEST_F(GrpcServerTest, ImpossibleRequestsAreRefused) {
  const grpc::Status mesh = WithContext([&](grpc::ClientContext* context) {
    OpenSessionRequest request;
    for (const char* name : {"x", "y"}) {
      request.add_mesh()->set_name(name);
      request.mutable_mesh(request.mesh_size() - 1)->set_size(int64_t{1} << 32);
    }
    OpenSessionResponse response;
    return stub_->OpenSession(context, request, &response);
  });
  EXPECT_EQ(mesh.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(mesh.error_message(), HasSubstr("mesh"));

  const grpc::Status batch = WithContext([&](grpc::ClientContext* context) {
    PutBatchResponse response;
    const auto writer = stub_->PutBatch(context, &response);
    PutBatchRequest request;
    request.set_job_id("job-unknown");
    request.set_chunk("1234");
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  });
  EXPECT_EQ(batch.error_code(), grpc::StatusCode::NOT_FOUND) << "nothing is kept for unknown jobs";

  const grpc::Status array = WithContext([&](grpc::ClientContext* context) {
    PutArrayResponse response;
    const auto writer = stub_->PutArray(context, &response);
    PutArrayRequest request;
    request.set_session_id("session");
    request.mutable_shape()->set_element_type(11);
    request.mutable_shape()->add_dims(-1);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  });
  EXPECT_EQ(array.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(array.error_message(), HasSubstr("shape"));
}

TEST(HandlerPools, BatchesArriveWhileAllThreadsThatReadBatchesWaitForThem) {
  std::promise<void> arrival;  // Destroyed after the threads of the pools have ended.
  const std::shared_future<void> arrived = arrival.get_future().share();
  HandlerPools pools;
  const CallTable table = MakeCallTable({nullptr, &pools, nullptr, nullptr, nullptr});
  for (int worker = 0; worker < 1000; ++worker) {
    ASSERT_TRUE(table.methods.at("GetBatchRange").pool->Run([arrived] {
      EXPECT_EQ(arrived.wait_for(std::chrono::milliseconds(kLongMs)), std::future_status::ready);
    }));
  }
  ASSERT_TRUE(table.methods.at("PutBatch").pool->Run([&] { arrival.set_value(); }));
  EXPECT_EQ(arrived.wait_for(std::chrono::milliseconds(kLongMs)), std::future_status::ready);
}

TEST(HandlerPools, BlobsAreCheckedWhileAllThreadsForDownloadsWait) {
  std::promise<void> checking;  // Destroyed after the threads of the pools have ended.
  const std::shared_future<void> checked = checking.get_future().share();
  HandlerPools pools;
  const CallTable table = MakeCallTable({nullptr, &pools, nullptr, nullptr, nullptr});
  for (int download = 0; download < 100; ++download) {
    ASSERT_TRUE(table.methods.at("GetBlob").pool->Run(
        [checked] { EXPECT_EQ(checked.wait_for(std::chrono::milliseconds(kLongMs)), std::future_status::ready); }));
  }
  ASSERT_TRUE(table.methods.at("HasBlobs").pool->Run([&] { checking.set_value(); }));
  EXPECT_EQ(checked.wait_for(std::chrono::milliseconds(kLongMs)), std::future_status::ready);
}

TEST(HandlerPools, WorkersReadBatchesWhileAllThreadsForSessionsWait) {
  std::promise<void> reading;  // Destroyed after the threads of the pools have ended.
  const std::shared_future<void> read = reading.get_future().share();
  HandlerPools pools;
  const CallTable table = MakeCallTable({nullptr, &pools, nullptr, nullptr, nullptr});
  for (int session = 0; session < 1000; ++session) {
    ASSERT_TRUE(table.methods.at("LoadProgram").pool->Run([read] {
      EXPECT_EQ(read.wait_for(std::chrono::milliseconds(kLongMs)), std::future_status::ready);
    }));
  }
  ASSERT_TRUE(table.methods.at("GetBatchRange").pool->Run([&] { reading.set_value(); }));
  EXPECT_EQ(read.wait_for(std::chrono::milliseconds(kLongMs)), std::future_status::ready);
}

TEST_F(GrpcServerTest, AWorkerThatSendsNonsenseLosesItsStream) {
  const grpc::Status status = WithContext([&](grpc::ClientContext* context) {
    const auto stream = stub_->Attach(context);
    WorkerMessage message;
    message.mutable_register_()->set_worker_id(std::string(1000, 'w'));
    stream->Write(message);
    CoordinatorMessage answer;
    while (stream->Read(&answer)) {
    }
    return stream->Finish();
  });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("worker_id"));
}

// A refused worker needs the reason, which is the last message to it. Here the worker does not read before it has sent
// everything, so that the messages to it do not fit into the buffers of the stream.
TEST_F(GrpcServerTest, AClosedStreamEndsAfterAllOfItsMessages) {
  constexpr int kProbes = 5000;
  for (int round = 0; round < 3; ++round) {
    int64_t answers = 0;
    std::string refused;
    const grpc::Status status = WithContext([&](grpc::ClientContext* context) {
      const auto stream = stub_->Attach(context);
      WorkerMessage probe, registration;
      for (int i = 0; i < kProbes; ++i) {
        probe.mutable_clock_probe()->set_sent_ns(i);
        EXPECT_TRUE(stream->Write(probe));
      }
      registration.mutable_register_()->set_worker_id("w");
      registration.mutable_register_()->set_devices(1);
      registration.mutable_register_()->set_protocol(1'000'000);
      EXPECT_TRUE(stream->Write(registration));
      CoordinatorMessage answer;
      while (stream->Read(&answer)) {
        EXPECT_EQ(refused, "") << "the refusal is the last message";
        if (answer.has_registered()) refused = answer.registered().refused();
        if (answer.has_clock()) EXPECT_EQ(answer.clock().sent_ns(), answers++);
      }
      return stream->Finish();
    });
    EXPECT_EQ(answers, kProbes);
    EXPECT_THAT(refused, HasSubstr("uses protocol 1000000"));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_THAT(status.error_message(), HasSubstr("the coordinator has closed the connection"));
  }
}

TEST(GrpcStatus, DistinguishesARefusalFromAnUnreachableCoordinator) {
  const grpc::Status refusal = ToGrpcStatus(absl::UnavailableError("the job log cannot be written"));
  EXPECT_EQ(refusal.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(refusal.error_message(), "the job log cannot be written");
  EXPECT_THAT(refusal.error_details(), HasSubstr("the job log cannot be written"));
  EXPECT_TRUE(ToGrpcStatus(absl::NotFoundError("no job")).error_details().empty());
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST_F(GrpcServerTest, BlobsOfManyChunksRoundTrip) {
  std::string bytes(5'000'001, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  const std::string digest = Sha256Hex(bytes);
  const grpc::Status put = Put(digest, bytes);
  ASSERT_TRUE(put.ok()) << put.error_message();
  std::string read;
  const grpc::Status get = WithContext([&](grpc::ClientContext* context) {
    GetBlobRequest request;
    request.set_digest(digest);
    const auto reader = stub_->GetBlob(context, request);
    Chunk chunk;
    while (reader->Read(&chunk)) read += chunk.data();
    return reader->Finish();
  });
  ASSERT_TRUE(get.ok()) << get.error_message();
  EXPECT_TRUE(read == bytes);

  const auto range = [&](int64_t offset, int64_t size, std::string* out) {
    return WithContext([&](grpc::ClientContext* context) {
      GetBlobRangeRequest request;
      request.set_digest(digest);
      request.set_offset(offset);
      request.set_size(size);
      const auto reader = stub_->GetBlobRange(context, request);
      Chunk chunk;
      out->clear();
      while (reader->Read(&chunk)) {
        if (out->empty()) EXPECT_EQ(chunk.total_bytes(), std::ssize(bytes));
        *out += chunk.data();
      }
      return reader->Finish();
    });
  };
  for (const auto& [offset, size] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 0}, {0, 1}, {1'048'575, 2}, {1'048'576, 1'048'576}, {777, 4'000'000}, {5'000'000, 1}, {5'000'001, 0}}) {
    ASSERT_TRUE(range(offset, size, &read).ok()) << offset;
    EXPECT_TRUE(read == bytes.substr(offset, size)) << offset;
  }
  EXPECT_EQ(range(5'000'000, 2, &read).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(range(INT64_MAX / 2048, 2, &read).error_code(), grpc::StatusCode::OUT_OF_RANGE);
}

// The second worker of an attempt is told to read from the first worker. If that fails, it reads from the coordinator.
TEST_F(GrpcServerTest, AWorkerIsToldWhichOtherWorkerHasTheBlob) {
  std::string bytes(5'000'001, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  const std::string digest = Sha256Hex(bytes);
  ASSERT_TRUE(Put(digest, bytes).ok());
  const auto range_for = [&](const std::string& worker, const std::string& failed) {
    std::vector<Chunk> chunks;
    const grpc::Status status = WithContext([&](grpc::ClientContext* context) {
      GetBlobRangeRequest request;
      request.set_digest(digest);
      request.set_size(2 << 20);
      request.mutable_reader()->set_job_id("job");
      request.mutable_reader()->set_attempt(1);
      request.mutable_reader()->set_worker_id(worker);
      if (!failed.empty()) request.mutable_reader()->add_failed(failed);
      const auto reader = stub_->GetBlobRange(context, request);
      for (Chunk chunk; reader->Read(&chunk);) chunks.push_back(chunk);
      return reader->Finish();
    });
    EXPECT_TRUE(status.ok()) << status.error_message();
    return chunks;
  };
  EXPECT_EQ(range_for("a", "").size(), 2u);
  const std::vector<Chunk> named = range_for("b", "");
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].peer(), "a");
  EXPECT_EQ(named[0].total_bytes(), std::ssize(bytes));
  ASSERT_EQ(named[0].sums_size(), 2);
  EXPECT_EQ(named[0].sums(1), Hash64(absl::string_view(bytes).substr(1 << 20, 1 << 20)));
  EXPECT_EQ(named[0].data(), "");
  EXPECT_EQ(range_for("b", "a").size(), 2u);
}

TEST_F(GrpcServerTest, UploadsThatAreCutOffOrHaveOtherContentsLeaveNothing) {
  const std::string digest = Sha256Hex("what was promised");
  for (const bool finish : {true, false}) {
    const grpc::Status put = WithContext([&](grpc::ClientContext* context) {
      PutBlobResponse response;
      const auto writer = stub_->PutBlob(context, &response);
      PutBlobRequest request;
      request.set_digest(digest);
      request.set_chunk("something else");
      writer->Write(request);
      if (finish) {
        writer->WritesDone();
      } else {
        context->TryCancel();
      }
      return writer->Finish();
    });
    EXPECT_EQ(put.error_code(), finish ? grpc::StatusCode::DATA_LOSS : grpc::StatusCode::CANCELLED);
  }
  HasBlobsResponse response;
  const grpc::Status has = WithContext([&](grpc::ClientContext* context) {
    HasBlobsRequest request;
    request.add_digests(digest);
    return stub_->HasBlobs(context, request, &response);
  });
  ASSERT_TRUE(has.ok()) << has.error_message();
  EXPECT_EQ(response.missing_size(), 1);
}

// 60,000 reads of the blob would be 500 GB.
TEST_F(GrpcServerTest, ABlobThatARequestNamesOftenIsReadOnce) {
  const std::string blob(8 << 20, 'x'), digest = Sha256Hex(blob);
  const grpc::Status put = Put(digest, blob);
  ASSERT_TRUE(put.ok()) << put.error_message();
  HasBlobsRequest request;
  for (int i = 0; i < 60'000; ++i) request.add_digests(digest);
  for (int i = 0; i < 3; ++i) request.add_digests(Sha256Hex("no such blob"));
  HasBlobsResponse response;
  grpc::ClientContext context;
  PrepareCall(&context, kToken, kLongMs / 10);
  const grpc::Status has = stub_->HasBlobs(&context, request, &response);
  ASSERT_TRUE(has.ok()) << has.error_message();
  EXPECT_THAT(response.missing(), testing::ElementsAre(Sha256Hex("no such blob")));
}

}  // namespace
}  // namespace xlad::service
