// The HTTP server over real sockets, and the text format of metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/no_free_descriptors.h"
#include "observe/http_server.h"
#include "observe/prometheus.h"
#include "observe/testing/http_client.h"

namespace xlad::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

HttpResponse Echo(const HttpRequest& request) {
  HttpResponse response;
  response.body = request.path;
  for (const auto& [name, value] : request.query) absl::StrAppend(&response.body, " ", name, "=", value);
  if (request.path == "/missing") response.status = 404;
  if (request.path == "/client") response.body = request.client;
  return response;
}

TEST(HttpServer, AnswersGetWithPathQueryAndStatus) {
  const auto server = HttpServer::Start("127.0.0.1:0", Echo);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string at = (*server)->Address();
  EXPECT_THAT(Get(at, "/a/b?x=1&y=a%20b"), ::testing::EndsWith("/a/b x=1 y=a b"));
  EXPECT_THAT(Get(at, "/missing"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get(at, "/client"), HasSubstr("\r\n\r\n127.0.0.1:"));
  const std::string answer = Get(at, "/");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  for (const char* header :
       {"Content-Security-Policy: default-src 'none'", "X-Content-Type-Options: nosniff", "Cache-Control: no-store"}) {
    EXPECT_THAT(answer, HasSubstr(header));
  }
}

TEST(HttpServer, RefusesOtherMethodsAndMalformedRequests) {
  const auto server = HttpServer::Start("127.0.0.1:0", Echo);
  ASSERT_TRUE(server.ok());
  const std::string at = (*server)->Address();
  for (const char* request :
       {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "DELETE /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "nonsense\r\n\r\n"}) {
    EXPECT_FALSE(absl::StrContains(Exchange(at, request), " 200 ")) << request;
  }
  const std::string huge(100'000, 'a');
  EXPECT_FALSE(absl::StrContains(Get(at, "/" + huge), " 200 "));
  EXPECT_THAT(Get(at, "/after"), HasSubstr("/after"));  // The server still works.
}

// Each range would be a further copy of the page.
TEST(HttpServer, AnswersRangesWithTheWholePage) {
  const auto server = HttpServer::Start("127.0.0.1:0", Echo);
  ASSERT_TRUE(server.ok());
  std::string ranges = "bytes=0-";
  for (int r = 1; r < 2000; ++r) ranges += ",0-";
  for (const std::string& header : {"Range: " + ranges, "rANGE:" + ranges, std::string("Range: nonsense")}) {
    const std::string request =
        absl::StrCat("GET /page?x=1 HTTP/1.1\r\nHost: x\r\n", header, "\r\nConnection: close\r\n\r\n");
    const std::string answer = Exchange((*server)->Address(), request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\n/page x=1"));
  }
}

TEST(HttpServer, SaysWhyItCannotListen) {
  const auto server = HttpServer::Start("127.0.0.1:0", Echo);
  ASSERT_TRUE(server.ok());
  const absl::Status taken = HttpServer::Start((*server)->Address(), Echo).status();
  EXPECT_TRUE(absl::IsAlreadyExists(taken));
  EXPECT_EQ(taken.message(),
            absl::StrCat("the pages (--http): cannot listen on ", (*server)->Address(), ": Address already in use"));
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start("no port", Echo).status()));
  absl::Status full;
  {
    const NoFreeDescriptors none;
    full = HttpServer::Start("127.0.0.1:0", Echo).status();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(std::string(full.message()), HasSubstr("raise the limit on open files (ulimit -n)"));
}

TEST(HttpServer, ManyClientsAtOnce) {
  const auto server = HttpServer::Start("127.0.0.1:0", Echo);
  ASSERT_TRUE(server.ok());
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int c = 0; c < 17; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 11; ++i) {
        const std::string path = absl::StrCat("/", c, "/", i);
        if (absl::EndsWith(Get((*server)->Address(), path), path)) ++right;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 17 * 11);
}

TEST(MetricsPage, WritesTheTextFormat) {
  MetricsPage page;
  page.Family("xlad_jobs", "gauge", "Jobs by\nstate \\ all.");
  page.Sample(3, {{"state", "RUNNING"}});
  page.Sample(0.1, {{"state", "a\"b\\c\nd"}, {"x", ""}});
  page.Gauge("xlad_up", "One.", 1);
  EXPECT_EQ(page.text(),
            "# HELP xlad_jobs Jobs by\\nstate \\\\ all.\n# TYPE xlad_jobs gauge\n"
            "xlad_jobs{state=\"RUNNING\"} 3\nxlad_jobs{state=\"a\\\"b\\\\c\\nd\",x=\"\"} 0.1\n"
            "# HELP xlad_up One.\n# TYPE xlad_up gauge\nxlad_up 1\n");
}

TEST(MetricsPage, NumbersAreExact) {
  MetricsPage page;
  const double values[] = {1e300, 5e-324, 1.0 / 3, 12345678901234568.0, -0.5, INFINITY, -INFINITY, NAN};
  for (const double value : values) page.Gauge("x", "x", value);
  for (const char* text :
       {" 1e+300\n", " 0.33333333333333331\n", " 12345678901234568\n", " -0.5\n", " +Inf\n", " -Inf\n", " NaN\n"}) {
    EXPECT_THAT(page.text(), HasSubstr(text));
  }
}

TEST(MetricsPage, HasTheMetricsOfTheProcess) {
  MetricsPage page;
  AddProcess(&page);
  for (const char* name : {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
                           "process_start_time_seconds"}) {
    EXPECT_THAT(page.text(), HasSubstr(absl::StrCat("\n", name, " "))) << name;
  }
}

}  // namespace
}  // namespace xlad::observe
