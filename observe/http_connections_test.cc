// The HTTP server with clients that send nothing, send slowly, or do not take their responses.
#include "observe/http_connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "base/file_descriptor.h"
#include "base/testing/open_files.h"
#include "observe/http_server.h"
#include "observe/testing/http_client.h"

namespace xlad::observe {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

// Longer than an answer takes, however busy the machine is.
constexpr std::chrono::seconds kLong{60};

// No deadline ends a connection, however busy the machine is.
HttpLimits Patient() {
  HttpLimits limits;
  limits.request_ms = limits.progress_ms = limits.response_ms = 600'000;
  return limits;
}

HttpResponse PathOf(const HttpRequest& request) { return {200, "text/plain", request.path}; }

std::unique_ptr<Connection> Begin(const std::string& address, absl::string_view bytes) {
  auto connection = TcpNetwork().Dial(address, 600'000);
  if (!connection.ok()) return nullptr;
  if (!bytes.empty()) {
    (*connection)->Write({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}).IgnoreError();
  }
  return *std::move(connection);
}

int64_t OpenFilesNow() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

// Returns the answer, or an empty text if none arrives within kLong.
std::string GetInTime(const std::string& address, const std::string& path) {
  auto answer = std::make_shared<std::promise<std::string>>();
  auto got = answer->get_future();
  std::thread([answer, address, path] { answer->set_value(Get(address, path)); }).detach();
  return got.wait_for(kLong) == std::future_status::ready ? got.get() : "";
}

// A connection over IPv4 that has sent `bytes`.
FileDescriptor SendBytes(const std::string& address, absl::string_view bytes) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(ParseHostPort(address)->port);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);  // The server may have ended the connection already.
  }
  return fd;
}

// The number of connections that the server has ended.
int64_t EndedBy(const std::vector<FileDescriptor>& connections) {
  return std::count_if(connections.begin(), connections.end(), [](const FileDescriptor& fd) {
    pollfd end{fd.get(), POLLRDHUP, 0};
    return poll(&end, 1, 0) == 1;
  });
}

// Whether `holds` is true within kLong.
template <typename Condition>
bool HoldsInTime(Condition holds) {
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Answers with the request itself, but only after `released` is ready. Counts the requests in `begun`.
HttpConnections::Answer AnswerAfter(std::shared_future<void> released, std::atomic<int>* begun) {
  return [released = std::move(released), begun](const std::string& request, const std::string&) {
    ++*begun;
    released.wait();
    return request;
  };
}

// More complete requests than the threads can answer.
TEST(HttpConnections, RequestsThatWaitForAThreadAreLimited) {
  constexpr int kClients = 600;
  constexpr int kAnswering = 4;
  ASSERT_TRUE(MayOpenFiles(3 * kClients)) << "too few open files are allowed";
  std::promise<void> release;
  std::atomic<int> begun = 0;
  const auto server =
      HttpConnections::Listen("127.0.0.1:0", AnswerAfter(release.get_future().share(), &begun), Patient());
  ASSERT_TRUE(server.ok()) << server.status();
  const int64_t before = OpenFilesNow();
  std::vector<FileDescriptor> clients;
  for (int c = 0; c < kClients; ++c) clients.push_back(SendBytes((*server)->Address(), "GET / HTTP/1.1\r\n\r\n"));
  const int most = Patient().max_connections;
  EXPECT_TRUE(HoldsInTime([&] { return EndedBy(clients) >= kClients - most; }));
  // The gate and the server have a descriptor of each connection. The server also has those that are being answered.
  EXPECT_TRUE(HoldsInTime([&] { return OpenFilesNow() - before - kClients <= 2 * most + kAnswering; }))
      << OpenFilesNow() - before - kClients << " descriptors of the server";
  EXPECT_TRUE(HoldsInTime([&] { return begun == kAnswering; }));
  auto later = std::async(std::launch::async, [at = (*server)->Address()] { return Get(at, "/later"); });
  release.set_value();
  EXPECT_THAT(later.get(), StartsWith("GET /later HTTP/1.1\r\n"));
  EXPECT_LE(begun, kAnswering + most + 1) << "requests of ended connections were answered";
}

TEST(HttpConnections, TheEndDoesNotAnswerRequestsThatWaitForAThread) {
  constexpr int kClients = 20;
  std::promise<void> release;
  std::atomic<int> begun = 0;
  auto server = HttpConnections::Listen("127.0.0.1:0", AnswerAfter(release.get_future().share(), &begun), Patient());
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<FileDescriptor> clients, idle;
  for (int c = 0; c < kClients; ++c) clients.push_back(SendBytes((*server)->Address(), "GET / HTTP/1.1\r\n\r\n"));
  EXPECT_TRUE(HoldsInTime([&] { return begun == 4; }));
  idle.push_back(SendBytes((*server)->Address(), ""));
  std::thread end([&] { server->reset(); });
  EXPECT_TRUE(HoldsInTime([&] { return EndedBy(idle) == 1; })) << "the end has not begun";
  release.set_value();
  end.join();
  EXPECT_EQ(begun, 4);
}

TEST(HttpConnections, IdleAndStalledClientsAreLimitedAndDoNotDelayOthers) {
  constexpr int kClients = 600;
  ASSERT_TRUE(MayOpenFiles(3 * kClients)) << "too few open files are allowed";
  const auto server = HttpServer::Start("127.0.0.1:0", PathOf, Patient());
  ASSERT_TRUE(server.ok()) << server.status();
  const int64_t before = OpenFilesNow();
  for (const char* sent : {"", "GET / HTTP/1.1\r\nHost: x"}) {
    SCOPED_TRACE(sent);
    std::vector<std::unique_ptr<Connection>> kept;
    for (int c = 0; c < kClients; ++c) {
      kept.push_back(Begin((*server)->Address(), sent));
      ASSERT_NE(kept.back(), nullptr);
    }
    EXPECT_THAT(GetInTime((*server)->Address(), "/here"), EndsWith("/here"));
    // All connections were accepted before that of the answer. The gate and the server have a descriptor each.
    EXPECT_LE(OpenFilesNow() - before - kClients, 2 * Patient().max_connections + 8);
  }
}

// More clients than threads, each with more bytes than a socket holds.
TEST(HttpConnections, ClientsThatDoNotTakeTheirResponsesDoNotDelayOthers) {
  const auto server = HttpServer::Start(
      "127.0.0.1:0",
      [](const HttpRequest& request) {
        return request.path == "/large" ? HttpResponse{200, "text/plain", std::string(15 << 20, 'x')} : PathOf(request);
      },
      Patient());
  ASSERT_TRUE(server.ok());
  std::vector<std::unique_ptr<Connection>> kept;
  for (int c = 0; c < 12; ++c) kept.push_back(Begin((*server)->Address(), "GET /large HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_THAT(GetInTime((*server)->Address(), "/here"), EndsWith("/here"));
}

TEST(HttpConnections, LargeResponsesAreComplete) {
  std::string text;
  while (text.size() < 20 << 20) text += std::to_string(text.size());
  const auto server =
      HttpConnections::Listen("127.0.0.1:0", [&](const std::string&, const std::string&) { return text; }, Patient());
  ASSERT_TRUE(server.ok());
  EXPECT_TRUE(Get((*server)->Address(), "/") == text);
}

// The unsent responses of the oldest connections are dropped.
TEST(HttpConnections, UnsentBytesAreLimited) {
  HttpLimits limits = Patient();
  limits.max_unsent_bytes = 40 << 20;
  const auto server = HttpConnections::Listen(
      "127.0.0.1:0", [](const std::string&, const std::string&) { return std::string(30 << 20, 'x'); }, limits);
  ASSERT_TRUE(server.ok());
  std::vector<std::unique_ptr<Connection>> clients;
  for (int c = 0; c < 2; ++c) {
    clients.push_back(Begin((*server)->Address(), "GET / HTTP/1.1\r\n\r\n"));
    std::byte first[1];
    ASSERT_TRUE(clients.back()->Read(absl::MakeSpan(first)).ok());  // The response of this client is being sent.
  }
  const auto rest = [&](int c) {
    std::vector<std::byte> buffer(1 << 20);
    size_t bytes = 1;
    for (auto n = clients[c]->Read(absl::MakeSpan(buffer)); n.ok(); n = clients[c]->Read(absl::MakeSpan(buffer))) {
      bytes += *n;
    }
    return bytes;
  };
  EXPECT_LT(rest(0), size_t{30} << 20);
  EXPECT_EQ(rest(1), size_t{30} << 20);
}

// Otherwise one response would displace those of all other clients.
TEST(HttpConnections, AResponseAboveTheLimitIsRefused) {
  HttpLimits limits = Patient();
  limits.max_unsent_bytes = 1 << 20;
  const auto server = HttpConnections::Listen(
      "127.0.0.1:0",
      [](const std::string& request, const std::string&) {
        return std::string((1 << 20) + (absl::StartsWith(request, "GET /larger ") ? 1 : 0), 'x');
      },
      limits);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Get((*server)->Address(), "/larger"), StartsWith("HTTP/1.1 500 "));
  EXPECT_EQ(Get((*server)->Address(), "/largest").size(), size_t{1} << 20);
}

TEST(HttpConnections, RequestsInPiecesAreAnsweredAndEndlessOnesAreRefused) {
  const auto server = HttpConnections::Listen(
      "127.0.0.1:0", [](const std::string& request, const std::string&) { return request; }, Patient());
  ASSERT_TRUE(server.ok());
  const auto slow = Begin((*server)->Address(), "GET /slow HTTP/1.1\r\nHost: x\r\n\r");
  ASSERT_NE(slow, nullptr);
  EXPECT_THAT(Get((*server)->Address(), "/other"), StartsWith("GET /other HTTP/1.1\r\n"));
  const std::byte last{'\n'};
  ASSERT_TRUE(slow->Write({&last, 1}).ok());
  std::string answer;
  std::byte buffer[4096];
  for (auto n = slow->Read(absl::MakeSpan(buffer)); n.ok(); n = slow->Read(absl::MakeSpan(buffer))) {
    answer.append(reinterpret_cast<const char*>(buffer), *n);
  }
  EXPECT_EQ(answer, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(Exchange((*server)->Address(), "GET / HTTP/1.1\r\n" + std::string(16 << 10, 'a')),
              StartsWith("HTTP/1.1 431"));
}

TEST(HttpConnections, TheEndAnswersWhatHasBegunAndDoesNotWaitForOthers) {
  std::promise<void> begun, may_end;
  auto server = HttpServer::Start(
      "127.0.0.1:0",
      [&](const HttpRequest& request) {
        begun.set_value();
        may_end.get_future().wait();
        return PathOf(request);
      },
      Patient());
  ASSERT_TRUE(server.ok());
  const auto idle = Begin((*server)->Address(), "");
  const auto stalled = Begin((*server)->Address(), "GET");
  auto answer = std::async(std::launch::async, [&, at = (*server)->Address()] { return Get(at, "/begun"); });
  begun.get_future().wait();
  std::thread end([&] { server->reset(); });
  may_end.set_value();
  end.join();
  EXPECT_THAT(answer.get(), EndsWith("/begun"));
}

}  // namespace
}  // namespace xlad::observe
