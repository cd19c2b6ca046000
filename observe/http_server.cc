#include "observe/http_server.h"

#include <httplib.h>

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/network.h"

namespace xlad::observe {
namespace {

constexpr int kThreads = 4;
constexpr int kTimeoutSeconds = 2;
constexpr size_t kMaxBodyBytes = 1024;  // GET and HEAD requests have no body.
constexpr size_t kMaxRequestsPerConnection = 1000;

class LibraryServer final : public HttpServer {
 public:
  explicit LibraryServer(HttpHandler handler) : handler_(std::move(handler)) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    // By default the library sets SO_REUSEPORT, which lets several processes share the port.
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    server_.set_read_timeout(kTimeoutSeconds);
    server_.set_write_timeout(kTimeoutSeconds);
    server_.set_payload_max_length(kMaxBodyBytes);
    server_.set_keep_alive_max_count(kMaxRequestsPerConnection);
    server_.set_default_headers({{"Cache-Control", "no-store"},
                                 {"X-Content-Type-Options", "nosniff"},
                                 {"X-Frame-Options", "DENY"},
                                 {"Referrer-Policy", "no-referrer"},
                                 {"Content-Security-Policy",
                                  "default-src 'none'; connect-src 'self'; img-src data:; "
                                  "script-src 'unsafe-inline'; style-src 'unsafe-inline'"}});
    server_.Get(".*",
                [this](const httplib::Request& request, httplib::Response& response) { Handle(request, &response); });
  }

  ~LibraryServer() override {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen(const std::string& address) {
    XLAD_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(address));
    int port = at.port;
    if (port == 0) {
      port = server_.bind_to_any_port(at.host);
    } else if (!server_.bind_to_port(at.host, port)) {
      port = -1;
    }
    if (port < 0) {
      return absl::AlreadyExistsError(
          absl::StrCat("cannot listen on ", address,
                       " for HTTP: the port is in use, or the host is not an address of this machine"));
    }
    address_ = JoinHostPort(at.host, port);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    // Waits until the server runs, because an earlier stop would have no effect.
    while (!server_.is_running()) std::this_thread::yield();
    return absl::OkStatus();
  }

  std::string Address() const override { return address_; }

 private:
  void Handle(const httplib::Request& request, httplib::Response* response) {
    HttpRequest asked;
    asked.path = request.path;
    asked.client = JoinHostPort(request.remote_addr, request.remote_port);
    for (const auto& [name, value] : request.params) asked.query.emplace(name, value);
    HttpResponse answer = handler_(asked);
    response->status = answer.status;
    response->set_content(std::move(answer.body), answer.type.c_str());
  }

  const HttpHandler handler_;
  httplib::Server server_;
  std::string address_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address, HttpHandler handler) {
  auto server = std::make_unique<LibraryServer>(std::move(handler));
  XLAD_RETURN_IF_ERROR(server->Listen(address));
  return server;
}

}  // namespace xlad::observe
