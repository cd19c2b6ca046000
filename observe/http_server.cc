#include "observe/http_server.h"

#include <httplib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/net/network.h"

namespace xlad::observe {
namespace {

constexpr size_t kMaxBodyBytes = 1024;  // GET and HEAD requests have no body.

// A request in memory, and the response to it.
class MemoryStream final : public httplib::Stream {
 public:
  MemoryStream(const std::string& request, HostPort client) : request_(request), client_(std::move(client)) {}

  bool is_readable() const override { return at_ < request_.size(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* out, size_t size) override {
    const size_t n = request_.copy(out, size, at_);
    at_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* bytes, size_t size) override {
    response_.append(bytes, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip = client_.host;
    port = client_.port;
  }
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }

  std::string TakeResponse() { return std::move(response_); }

 private:
  const std::string& request_;
  const HostPort client_;
  size_t at_ = 0;
  std::string response_;
};

// Removes the header Range, which a server may ignore. The library would send a copy of the page for each of the
// thousands of ranges that a header can hold.
std::string WithoutRanges(absl::string_view request) {
  std::string kept;
  size_t at = 0;
  while (at < request.size()) {
    const size_t end = std::min(request.find('\n', at), request.size() - 1) + 1;
    const absl::string_view line = request.substr(at, end - at);
    if (at == 0 || !absl::StartsWithIgnoreCase(line, "range:")) kept.append(line.data(), line.size());
    at = end;
  }
  return kept;
}

// The library parses requests and writes responses. Its own server is not used, because one of its threads waits for
// each connection: a few clients that send nothing would block all others.
class Library final : public httplib::Server {
 public:
  explicit Library(HttpHandler handler) : handler_(std::move(handler)) {
    set_payload_max_length(kMaxBodyBytes);
    set_default_headers({{"Cache-Control", "no-store"},
                         {"X-Content-Type-Options", "nosniff"},
                         {"X-Frame-Options", "DENY"},
                         {"Referrer-Policy", "no-referrer"},
                         {"Content-Security-Policy",
                          "default-src 'none'; connect-src 'self'; img-src data:; "
                          "script-src 'unsafe-inline'; style-src 'unsafe-inline'"}});
    Get(".*", [this](const httplib::Request& request, httplib::Response& response) { Handle(request, &response); });
  }

  std::string Answer(const std::string& text, const std::string& client) {
    const std::string request = WithoutRanges(text);
    const absl::StatusOr<HostPort> from = ParseHostPort(client);
    MemoryStream stream(request, from.ok() ? *from : HostPort());
    bool closed = false;
    process_request(stream, /*close_connection=*/true, closed, nullptr);
    return stream.TakeResponse();
  }

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
};

class LibraryServer final : public HttpServer {
 public:
  explicit LibraryServer(HttpHandler handler) : library_(std::move(handler)) {}

  absl::Status Listen(const std::string& address, const HttpLimits& limits) {
    XLAD_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(address));
    auto listening = HttpConnections::Listen(
        address,
        [this](const std::string& request, const std::string& client) { return library_.Answer(request, client); },
        limits);
    if (!listening.ok()) {
      return absl::Status(listening.status().code(),
                          absl::StrCat("the pages (--http): ", listening.status().message()));
    }
    connections_ = *std::move(listening);
    XLAD_ASSIGN_OR_RETURN(const HostPort bound, ParseHostPort(connections_->Address()));
    address_ = JoinHostPort(at.host, bound.port);
    return absl::OkStatus();
  }

  std::string Address() const override { return address_; }

 private:
  Library library_;
  std::unique_ptr<HttpConnections> connections_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address, HttpHandler handler,
                                                              const HttpLimits& limits) {
  auto server = std::make_unique<LibraryServer>(std::move(handler));
  XLAD_RETURN_IF_ERROR(server->Listen(address, limits));
  return server;
}

}  // namespace xlad::observe
