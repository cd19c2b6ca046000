// The server of a session's first worker, and another worker that follows it, over real connections.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/net/grpc_channel.h"
#include "base/net/network.h"
#include "base/testing/grpc_first_answer.h"
#include "base/testing/http2.h"
#include "proto/worker.grpc.pb.h"
#include "security/certificates.h"
#include "security/session_keys.h"
#include "tensor/wire.h"
#include "worker/grpc_session_follower.h"
#include "worker/grpc_session_server.h"

namespace xlad::worker {
namespace {

using tensor::ElementType;
using ::testing::HasSubstr;

const tensor::Shape kVector{ElementType::kF32, {4}};
constexpr char kSecret[] = "known to the coordinator and the first worker";

// (x) -> (y): both f32[4], and both split over two devices.
std::string SerializedExecutable() {
  Executable executable;
  for (EntryValue* entry : {executable.add_parameters(), executable.add_results()}) {
    tensor::ShapeToWire(kVector, entry->mutable_global());
    tensor::ShapeToWire({ElementType::kF32, {2}}, entry->mutable_local());
    tensor::BoxToWire({{0}, {2}}, entry->add_boxes());
    tensor::BoxToWire({{2}, {4}}, entry->add_boxes());
  }
  return executable.SerializeAsString();
}

class SessionServerTest : public ::testing::Test {
 protected:
  SessionServerTest() : host_("job-1", "a", /*workers=*/2) {
    launch_.set_job_id("job-1");
    launch_.set_session_key(security::FollowerKey(kSecret, "b"));
    Serve({"client's", kSecret, {"b"}});
  }
  void Serve(const SessionAccess& access) {
    auto server = SessionServer::Start("127.0.0.1", access, &host_, [](const std::string& digest) {
      return digest == "damaged" ? std::string("no executable") : SerializedExecutable();
    });
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = SessionWorker::NewStub(*MakeChannel({server_->address(), "", ""}));
  }
  ~SessionServerTest() override {
    follower_.reset();
    host_.End("the test ends");
    server_.reset();
  }
  void Prepare(grpc::ClientContext* context, const std::string& key = "client's") {
    PrepareCall(context, key, 600'000);
  }
  grpc::Status AddProgram(const std::string& digest, const std::string& key, int64_t* program) {
    AddProgramRequest request;
    request.set_executable_digest(digest);
    request.set_seal(security::ProgramSeal(kSecret, digest, {}));
    return AddProgram(request, key, program);
  }
  grpc::Status AddProgram(const AddProgramRequest& request, const std::string& key, int64_t* program) {
    grpc::ClientContext context;
    Prepare(&context, key);
    AddProgramResponse response;
    const grpc::Status status = stub_->AddProgram(&context, request, &response);
    *program = response.program();
    return status;
  }
  grpc::Status Put(const std::string& bytes, int64_t* array) {
    grpc::ClientContext context;
    Prepare(&context);
    PutArrayResponse response;
    const auto writer = stub_->PutArray(&context, &response);
    PutArrayRequest request;
    tensor::ShapeToWire(kVector, request.mutable_shape());
    for (const char byte : bytes) {
      request.set_chunk(std::string(1, byte));
      if (!writer->Write(request)) break;
      request.Clear();
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    *array = response.array();
    return status;
  }
  std::string Get(int64_t array) {
    grpc::ClientContext context;
    Prepare(&context);
    GetArrayRequest request;
    request.set_array(array);
    const auto reader = stub_->GetArray(&context, request);
    std::string bytes;
    Chunk chunk;
    while (reader->Read(&chunk)) bytes += chunk.data();
    EXPECT_TRUE(reader->Finish().ok());
    return bytes;
  }
  void Follow() {
    const auto deliver = [this](const SessionCommand& command) {
      const std::lock_guard lock(mutex_);
      commands_.push_back(command);
      arrived_.notify_all();
    };
    const auto fail = [this](const absl::Status& status) {
      const std::lock_guard lock(mutex_);
      failure_ = status;
      arrived_.notify_all();
    };
    follower_ = SessionFollower::Make(launch_, "b", {deliver, fail});
    SessionPlace place;
    place.set_address(server_->address());
    place.set_authority(server_->authority());
    ASSERT_TRUE(follower_->Connect(place).ok());
  }
  SessionCommand WaitForCommand(size_t number) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return commands_.size() >= number; });
    return commands_[number - 1];
  }

  LaunchTask launch_;
  runtime::SessionHost host_;
  std::unique_ptr<SessionServer> server_;
  std::unique_ptr<SessionWorker::Stub> stub_;
  std::unique_ptr<SessionFollower> follower_;
  std::mutex mutex_;
  std::vector<int64_t> host_answers_;
  std::condition_variable arrived_;
  std::vector<SessionCommand> commands_;
  absl::Status failure_;
};

TEST_F(SessionServerTest, RefusesCallsWithoutTheKeyAndWrongContents) {
  int64_t number = 0;
  for (const std::string& key : std::vector<std::string>{"", "wrong", "client's2", launch_.session_key()}) {
    EXPECT_EQ(AddProgram("digest", key, &number).error_code(), grpc::StatusCode::UNAUTHENTICATED) << key;
  }
  EXPECT_THAT(AddProgram("damaged", "client's", &number).error_message(),
              HasSubstr("damaged, which is not an executable"));
  EXPECT_THAT(Put("123", &number).error_message(), HasSubstr("found 3 bytes, expected 16"));
  EXPECT_THAT(Put("12345678901234567", &number).error_message(), HasSubstr("found more than 16 bytes, expected 16"));
  grpc::ClientContext context;
  Prepare(&context, launch_.session_key());
  GetArrayShardRequest request;
  request.mutable_box()->add_lo(0);
  const auto reader = stub_->GetArrayShard(&context, request);
  Chunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_THAT(reader->Finish().error_message(), HasSubstr("expected as many of both"));
}

TEST_F(SessionServerTest, ACallWithoutAKeyIsRefusedBeforeItsBodyHasArrived) {
  for (const char* method : {"AddProgram", "CallProgram", "PutArray", "PutArrayShard"}) {
    const auto connection = *TcpNetwork().Dial(server_->address(), 600'000);
    const std::string call = StalledCall(absl::StrCat("/xlad.v1.SessionWorker/", method));
    ASSERT_TRUE(connection->Write({reinterpret_cast<const std::byte*>(call.data()), call.size()}).ok());
    std::string answer;
    std::byte piece[4096];
    while (answer.find("found no key") == std::string::npos) {
      const auto n = connection->Read(absl::MakeSpan(piece));
      ASSERT_TRUE(n.ok()) << method << ": " << n.status();
      answer.append(reinterpret_cast<const char*>(piece), *n);
    }
  }
  int64_t number = 0;
  EXPECT_TRUE(AddProgram("digest", "client's", &number).ok());
}

// The connections use up the limit on open files, so that the server can accept others only if it closes some.
TEST_F(SessionServerTest, ManyIdleConnectionsDoNotStopAccepting) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(ParseHostPort(server_->address())->port));
  std::vector<int> idle(300);
  for (int& fd : idle) ASSERT_GE(fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), 0);
  rlimit low = limit;
  low.rlim_cur = static_cast<rlim_t>(idle.back()) + 50;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (const int fd : idle) {
    ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  const auto is_exhausted = [] {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd < 0;
  };
  const auto is_closed = [&] {
    char byte = 0;
    return recv(idle[0], &byte, 1, MSG_DONTWAIT) == 0;
  };
  while (!is_exhausted() && !is_closed()) std::this_thread::yield();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  int64_t number = 0;
  EXPECT_TRUE(AddProgram("digest", "client's", &number).ok());
  for (const int fd : idle) close(fd);
}

// On other addresses, only clients with the server's authority can read its answers, and plaintext is rejected.
TEST_F(SessionServerTest, ConnectionsToAddressesOtherThanLoopbackAreEncrypted) {
  auto server = SessionServer::Start("0.0.0.0", {"client's", kSecret, {"b"}}, &host_, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = absl::StrCat("127.0.0.1", (*server)->address().substr((*server)->address().rfind(':')));
  EXPECT_EQ(server_->authority(), "");
  const auto other = security::MakeAuthority(RealClock().WallNs() / kNsPerSecond);
  ASSERT_TRUE(other.ok());
  for (const auto& [authority, code] : std::vector<std::pair<std::string, grpc::StatusCode>>{
           {(*server)->authority(), grpc::StatusCode::OK},
           {other->certificate, grpc::StatusCode::UNAVAILABLE},
           {"", grpc::StatusCode::UNAVAILABLE}}) {
    const auto stub = SessionWorker::NewStub(*MakeSessionChannel(address, authority));
    grpc::ClientContext context;
    PrepareCall(&context, "client's", 600'000);
    FreeArraysRequest request;
    FreeArraysResponse response;
    EXPECT_EQ(stub->FreeArrays(&context, request, &response).error_code(), code) << authority;
  }
}

// An IPv6 address may be written without brackets, both with and without TLS.
TEST_F(SessionServerTest, AddressesOfIpv6NeedNoBrackets) {
  auto secure = SessionServer::Start("::", {"client's", kSecret, {"b"}}, &host_, nullptr);
  auto plain = SessionServer::Start("::1", {"client's", kSecret, {"b"}}, &host_, nullptr);
  if (absl::IsUnavailable(plain.status())) GTEST_SKIP() << "found no IPv6 on this machine";
  ASSERT_TRUE(secure.ok()) << secure.status();
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_NE((*secure)->authority(), "");
  for (const SessionServer* server : {secure->get(), plain->get()}) {
    const std::string port = server->address().substr(server->address().rfind(':'));
    for (const char* host : {"::1", "[::1]"}) {
      const auto stub = SessionWorker::NewStub(*MakeSessionChannel(host + port, server->authority()));
      grpc::ClientContext context;
      PrepareCall(&context, "client's", 600'000);
      FreeArraysRequest request;
      FreeArraysResponse response;
      const grpc::Status status = stub->FreeArrays(&context, request, &response);
      EXPECT_TRUE(status.ok()) << host << port << ": " << status.error_message();
    }
  }
}

std::string RequestFor(const std::string& call) {
  if (call == "Follow") {
    FollowSessionRequest follow;
    follow.set_worker_id("b");
    return follow.SerializeAsString();
  }
  if (call == "AddProgram") {
    AddProgramRequest add;
    add.set_executable_digest("digest");
    add.set_seal(security::ProgramSeal(kSecret, "digest", {}));
    return add.SerializeAsString();
  }
  PutArrayRequest put;
  tensor::ShapeToWire({ElementType::kF32, {0}}, put.mutable_shape());
  return call == "PutArray" ? put.SerializeAsString() : "";
}

TEST_F(SessionServerTest, AnyAddressOfLoopbackServes) {
  const auto server = SessionServer::Start("127.0.0.2", {"client's", kSecret, {"b"}}, &host_, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = SessionWorker::NewStub(*MakeSessionChannel((*server)->address(), (*server)->authority()));
  grpc::ClientContext context;
  PrepareCall(&context, "client's", 600'000);
  FreeArraysResponse response;
  const grpc::Status status = stub->FreeArrays(&context, FreeArraysRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// What the handler answers to RequestFor.
grpc::StatusCode Allowed(const std::string& call) {
  const bool names_nothing = call == "CallProgram" || call == "GetArray" || call == "GetArrayShard";
  return names_nothing ? grpc::StatusCode::NOT_FOUND : grpc::StatusCode::OK;
}

// Every call of the service, with every key and with an authority that is not the server's.
TEST_F(SessionServerTest, EveryCallWithEveryCaller) {
  auto server = SessionServer::Start("0.0.0.0", {"client's", kSecret, {"b"}}, &host_,
                                     [](const std::string&) { return SerializedExecutable(); });
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = absl::StrCat("127.0.0.1", (*server)->address().substr((*server)->address().rfind(':')));
  const auto channel = *MakeSessionChannel(address, (*server)->authority());
  const auto other = security::MakeAuthority(RealClock().WallNs() / kNsPerSecond);
  ASSERT_TRUE(other.ok());
  const auto untrusting = *MakeSessionChannel(address, other->certificate);
  const std::string workers_key = security::FollowerKey(kSecret, "b");
  for (const SessionCallRule& rule : SessionCallRules()) {
    const std::string call = rule.call, path = absl::StrCat("/xlad.v1.SessionWorker/", call);
    const auto code = [&](const std::shared_ptr<grpc::Channel>& over, const std::string& key) {
      return FirstAnswer(over, key, path, RequestFor(call)).error_code();
    };
    const bool is_clients = rule.caller == SessionCaller::kClient;
    for (const std::string& key : {std::string(), std::string("wrong"), security::FollowerKey("of another", "b"),
                                   security::FollowerKey(kSecret, "c"),
                                   is_clients ? workers_key : std::string("client's")}) {
      EXPECT_EQ(code(channel, key), grpc::StatusCode::UNAUTHENTICATED) << call << " with " << key;
    }
    const std::string key = is_clients ? "client's" : workers_key;
    // The end of the request ends a Follow stream, perhaps before its first answer.
    const grpc::StatusCode found = code(channel, key);
    EXPECT_TRUE(found == Allowed(call) || (call == "Follow" && found == grpc::StatusCode::CANCELLED)) << call << found;
    EXPECT_EQ(code(untrusting, key), grpc::StatusCode::UNAVAILABLE) << call;
  }
}

TEST(SessionCalls, AreAllInTheTableAndDocumented) {
  std::set<std::string> known, named;
  const auto page = RealFileSystem().Read("docs/reference/security.md");
  ASSERT_TRUE(page.ok()) << page.status();
  for (const SessionCallRule& rule : SessionCallRules()) {
    known.insert(rule.call);
    const bool is_clients = rule.caller == SessionCaller::kClient;
    EXPECT_THAT(*page, HasSubstr(absl::StrCat("| ", rule.call, is_clients ? " | yes | no |\n" : " | no | yes |\n")));
  }
  const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("xlad.v1.SessionWorker");
  ASSERT_NE(service, nullptr);
  for (int m = 0; m < service->method_count(); ++m) named.insert(service->method(m)->name());
  EXPECT_EQ(known, named);
}

// Machine code is loaded only if the coordinator compiled it for this session.
TEST_F(SessionServerTest, AProgramNeedsTheSealOfTheCoordinator) {
  AddProgramRequest request;
  request.set_executable_digest("digest");
  int64_t number = 0;
  const grpc::Status none = AddProgram(request, "client's", &number);
  EXPECT_EQ(none.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(none.error_message(), HasSubstr("found executable digest without a seal, expected digest, plans and seal "
                                              "of a response of LoadProgram"));
  request.set_seal(security::ProgramSeal("of another session", "digest", {}));
  EXPECT_THAT(AddProgram(request, "client's", &number).error_message(), HasSubstr("with a wrong seal"));
  request.set_seal(security::ProgramSeal(kSecret, "digest", {}));
  EXPECT_TRUE(AddProgram(request, "client's", &number).ok());
  request.add_plans()->set_algorithm("ring");
  EXPECT_THAT(AddProgram(request, "client's", &number).error_message(), HasSubstr("with a wrong seal"));
  request.set_seal(security::ProgramSeal(kSecret, "digest", request.plans()));
  EXPECT_TRUE(AddProgram(request, "client's", &number).ok());
}

TEST_F(SessionServerTest, ClientsAndWorkersHaveTheirOwnCalls) {
  const auto read_shard = [&](const std::string& key) {
    grpc::ClientContext context;
    Prepare(&context, key);
    const auto reader = stub_->GetArrayShard(&context, GetArrayShardRequest());
    Chunk chunk;
    while (reader->Read(&chunk)) {
    }
    return reader->Finish().error_code();
  };
  EXPECT_EQ(read_shard("client's"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(read_shard(security::FollowerKey(kSecret, "c")), grpc::StatusCode::UNAUTHENTICATED)
      << "c is not a worker of this session";
  EXPECT_EQ(read_shard(launch_.session_key()), grpc::StatusCode::NOT_FOUND);
  // A worker cannot follow the session under the id of another worker.
  grpc::ClientContext context;
  Prepare(&context, launch_.session_key());
  const auto stream = stub_->Follow(&context);
  FollowSessionRequest request;
  request.set_worker_id("a");
  stream->Write(request);
  SessionCommand command;
  EXPECT_FALSE(stream->Read(&command));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

// One worker of the session has the previous version, so the coordinator has not made a secret.
TEST_F(SessionServerTest, WithoutASecretAllCallsHaveTheClientsKey) {
  LaunchTask launch;
  launch.set_session_key("shared");
  for (const char* worker : {"a", "b"}) launch.add_peers()->set_worker_id(worker);
  const SessionAccess access = AccessOf(launch, "a");
  EXPECT_THAT(access.followers, ::testing::ElementsAre("b"));
  Serve(access);
  launch_.set_session_key("shared");
  Follow();
  AddProgramRequest request;
  request.set_executable_digest("digest");
  int64_t number = 0;
  ASSERT_TRUE(AddProgram(request, "shared", &number).ok());
  EXPECT_EQ(WaitForCommand(1).load().executable_digest(), "digest");
}

TEST_F(SessionServerTest, ImpossibleBoxesAreRefused) {
  int64_t x = 0;
  ASSERT_TRUE(Put("1111222233334444", &x).ok());
  using Dims = std::vector<int64_t>;
  const std::vector<std::pair<Dims, Dims>> boxes = {{{0}, {5}},
                                                    {{-1}, {4}},
                                                    {{3}, {2}},
                                                    {{INT64_MIN}, {INT64_MAX}},
                                                    {{0}, {}},
                                                    {{}, {4}},
                                                    {{}, {}},
                                                    {{0, 0}, {4, 1}},
                                                    {Dims(64, 0), Dims(64, 1)},
                                                    {Dims(65, 0), Dims(65, 1)},
                                                    {Dims(1 << 20, 0), Dims(1 << 20, 1)}};
  for (const auto& [lo, hi] : boxes) {
    GetArrayShardRequest get;
    PutArrayShardRequest put;
    for (Box* box : {get.mutable_box(), put.mutable_box()}) tensor::BoxToWire({lo, hi}, box);
    get.set_array(x);
    put.set_array(x);
    grpc::ClientContext getting, putting;
    Prepare(&getting, launch_.session_key());
    const auto reader = stub_->GetArrayShard(&getting, get);
    Chunk chunk;
    EXPECT_FALSE(reader->Read(&chunk));
    Prepare(&putting, launch_.session_key());
    PutArrayShardResponse response;
    const auto writer = stub_->PutArrayShard(&putting, &response);
    writer->Write(put);
    writer->WritesDone();
    for (const grpc::Status& status : {reader->Finish(), writer->Finish()}) {
      const bool is_refused = status.error_code() == grpc::StatusCode::INVALID_ARGUMENT ||
                              status.error_code() == grpc::StatusCode::OUT_OF_RANGE;
      EXPECT_TRUE(is_refused) << status.error_message();
      EXPECT_THAT(status.error_message(), HasSubstr("expected"));
      EXPECT_LT(status.error_message().size(), 1000u) << "a message repeats no long input";
    }
  }
}

TEST_F(SessionServerTest, ImpossibleArraysAndNumbersAreRefused) {
  int64_t x = 0;
  ASSERT_TRUE(Put("1111222233334444", &x).ok());
  const auto f32 = static_cast<int32_t>(ElementType::kF32);
  const std::vector<std::pair<int32_t, std::vector<int64_t>>> shapes = {{f32, {-1}},
                                                                        {f32, {INT64_MIN}},
                                                                        {f32, {INT64_MAX, 2}},
                                                                        {f32, {(int64_t{1} << 34) + 1}},
                                                                        {f32, std::vector<int64_t>(65, 1)},
                                                                        {0, {1}},
                                                                        {-1, {1}},
                                                                        {99, {1}}};
  for (const auto& [type, dims] : shapes) {
    PutArrayRequest request;
    request.mutable_shape()->set_element_type(type);
    request.mutable_shape()->mutable_dims()->Assign(dims.begin(), dims.end());
    grpc::ClientContext context;
    Prepare(&context);
    PutArrayResponse response;
    const auto writer = stub_->PutArray(&context, &response);
    writer->Write(request);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << request.ShortDebugString();
    EXPECT_LT(status.error_message().size(), 1000u);
  }
  for (const int64_t number : {int64_t{0}, int64_t{-1}, x + 1, INT64_MAX, INT64_MIN}) {
    grpc::ClientContext getting, calling, freeing, following;
    for (grpc::ClientContext* context : {&getting, &calling, &freeing}) Prepare(context);
    GetArrayRequest get;
    get.set_array(number);
    Chunk chunk;
    const auto reader = stub_->GetArray(&getting, get);
    EXPECT_FALSE(reader->Read(&chunk));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND) << number;
    CallProgramRequest call;
    call.set_program(number);
    CallProgramResponse called;
    EXPECT_EQ(stub_->CallProgram(&calling, call, &called).error_code(), grpc::StatusCode::NOT_FOUND) << number;
    FreeArraysRequest free;
    free.add_arrays(number);
    FreeArraysResponse freed;
    EXPECT_TRUE(stub_->FreeArrays(&freeing, free, &freed).ok()) << "it may have been freed before";
    // The commands that a follower reports as received and done.
    Prepare(&following, launch_.session_key());
    const auto stream = stub_->Follow(&following);
    FollowSessionRequest follow;
    follow.set_worker_id("b");
    follow.set_received(number);
    follow.set_done(number);
    EXPECT_TRUE(stream->Write(follow));
    following.TryCancel();
    (void)stream->Finish();
  }
  EXPECT_EQ(Get(x), "1111222233334444") << "the session works as before";
}

TEST_F(SessionServerTest, EntriesOfRequestsHaveALimit) {
  grpc::ClientContext freeing;
  Prepare(&freeing);
  FreeArraysRequest request;
  for (int i = 0; i <= 1 << 20; ++i) request.add_arrays(i);
  FreeArraysResponse response;
  EXPECT_THAT(stub_->FreeArrays(&freeing, request, &response).error_message(),
              HasSubstr("arrays: found 1048577 entries, expected at most 1048576"));
}

TEST_F(SessionServerTest, AFollowerGetsCommandsAndBoxesAndSendsResults) {
  Follow();
  host_.Begin([this](const SessionCommand& command) { host_answers_.push_back(command.sequence()); });
  int64_t program = 0, x = 0;
  ASSERT_TRUE(AddProgram("digest", "client's", &program).ok());
  ASSERT_TRUE(Put("1111222233334444", &x).ok());
  CallProgramRequest call;
  call.set_program(program);
  call.add_arguments()->set_array(x);
  CallProgramResponse called;
  grpc::ClientContext context;
  Prepare(&context);
  ASSERT_TRUE(stub_->CallProgram(&context, call, &called).ok());
  EXPECT_EQ(WaitForCommand(1).load().executable_digest(), "digest");
  EXPECT_EQ(WaitForCommand(2).call().arguments(0), x);
  collectives::AbortSignal abort;
  std::string box(8, ' ');
  const auto bytes = [](std::string& text) {
    return absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size());
  };
  ASSERT_TRUE(follower_->ReadArray(x, {{2}, {4}}, bytes(box), &abort).ok());
  EXPECT_EQ(box, "33334444");

  // The client reads the result, of which each worker sends its part.
  const int64_t y = called.results(0);
  std::string got;
  std::thread client([&] { got = Get(y); });
  EXPECT_EQ(WaitForCommand(3).fetch().array(), y);
  std::string high = "ccccdddd", low = "aaaabbbb";
  ASSERT_TRUE(follower_->WriteArray(y, {{2}, {4}}, bytes(high), &abort).ok());
  host_.WriteBox(y, {{0}, {2}}, bytes(low));
  client.join();
  EXPECT_EQ(got, "aaaabbbbccccdddd");

  // The host drops the commands when both workers have answered them.
  host_.Answer("a", 3);
  follower_->Done(2);
  follower_->Done(3);
  const std::atomic<bool> gone = true;
  while (!host_.CommandsAfter(0, gone)->empty()) std::this_thread::yield();
}

TEST_F(SessionServerTest, ARefusedFollowerReportsTheError) {
  launch_.set_session_key("wrong");
  Follow();
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return !failure_.ok(); });
  EXPECT_EQ(failure_.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(failure_.message(), HasSubstr("first worker: found no key or a wrong key"));
}

TEST_F(SessionServerTest, AFollowerDeliversNothingAfterItHasStopped) {
  Follow();
  int64_t program = 0;
  ASSERT_TRUE(AddProgram("digest", "client's", &program).ok());
  WaitForCommand(1);
  follower_->Stop();
  const size_t delivered = commands_.size();  // No other thread uses `commands_` after Stop.
  follower_->Done(1);
  ASSERT_TRUE(AddProgram("digest", "client's", &program).ok());
  follower_->Stop();
  EXPECT_EQ(commands_.size(), delivered);
}

}  // namespace
}  // namespace xlad::worker
