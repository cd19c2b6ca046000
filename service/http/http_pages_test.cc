// The HTTP pages of a real engine, and the metrics of invented states.
#include "service/http/http_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/testing/test_folder.h"
#include "observe/testing/http_client.h"
#include "service/http/metrics_text.h"

namespace xlad::service {
namespace {

using observe::Get;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpPagesTest : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.data_folder = folder_.path();
    options.program_path = "/bin/false";
    auto engine = Engine::Start(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }
  void TearDown() override {
    server_.reset();
    if (engine_ != nullptr) engine_->Stop();
    engine_.reset();
  }
  std::string Serve(const std::string& address) {
    auto server = ServeHttp(address, engine_.get());
    if (!server.ok()) return std::string(server.status().message());
    server_ = *std::move(server);
    return server_->Address();
  }

  const TestFolder folder_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<observe::HttpServer> server_;
};

TEST_F(HttpPagesTest, HealthMetricsDashboardAndData) {
  const std::string at = Serve("127.0.0.1:0");
  EXPECT_THAT(Get(at, "/livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get(at, "/readyz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get(at, "/metrics"), HasSubstr("xlad_coordinator_serving 1\n"));
  EXPECT_THAT(Get(at, "/"), HasSubstr("<title>xlad</title>"));
  EXPECT_THAT(Get(at, "/api/state"), HasSubstr("\"jobs\":[]"));
  EXPECT_THAT(Get(at, "/api/job"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Get(at, "/api/job?id=none"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get(at, "/api/other"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get(at, "/etc/passwd"), StartsWith("HTTP/1.1 404"));
  engine_->Stop();
  EXPECT_THAT(Get(at, "/livez"), StartsWith("HTTP/1.1 200"));
}

// Every client that reaches an address other than loopback may read metrics, but sees no jobs.
TEST_F(HttpPagesTest, AddressesOtherThanLoopbackHaveOnlyMetricsAndHealth) {
  const std::string at = Serve("0.0.0.0:0");
  const std::string reach = absl::StrCat("127.0.0.1:", ParseHostPort(at)->port);
  EXPECT_THAT(Get(reach, "/metrics"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get(reach, "/livez"), StartsWith("HTTP/1.1 200"));
  for (const char* path : {"/", "/index.html", "/api/state", "/api/job?id=x", "/api/"}) {
    EXPECT_THAT(Get(reach, path), StartsWith("HTTP/1.1 403")) << path;
  }
}

TEST_F(HttpPagesTest, TheDashboardHasTheFirstState) {
  EXPECT_THAT(
      Get(Serve("127.0.0.1:0"), "/"),
      ContainsRegex(R"(<script id="first" type="application/json">\{"unix_ms":[^<]*"serving":true[^<]*</script>)"));
}

TEST(DashboardPage, TextsInTheStateDoNotEndTheScript) {
  const std::string page = DashboardWith(R"({"name":"</script><b>"})");
  EXPECT_THAT(page, HasSubstr(R"(type="application/json">{"name":"\u003c/script>\u003cb>"}</script>)"));
  EXPECT_EQ(page.size(), std::string(kDashboardPage).size() - 4 + 23 + 2 * 5);
}

TEST(DashboardPage, IsSmallAndHasNoOutsideAssets) {
  const std::string page = kDashboardPage;
  EXPECT_LT(page.size(), 150'000u);
  EXPECT_GT(page.size(), 5'000u);
  for (const char* outside : {"http://", "https://", "src=", "@import", "innerHTML"}) {
    EXPECT_FALSE(absl::StrContains(page, outside)) << outside;
  }
  EXPECT_TRUE(absl::EndsWith(page, "</html>\n"));
}

Overview Example() {
  Overview overview;
  overview.status.set_version("1.2");
  overview.status.set_serving(true);
  (*overview.status.mutable_jobs())["RUNNING"] = 1;
  for (const char* state : {"alive", "lost"}) {
    auto* worker = overview.workers.add_workers();
    worker->set_id(absl::StrCat("w-", state));
    worker->set_state(state);
    worker->set_devices(3);
    worker->set_silent_ms(1500);
  }
  JobStatus job;
  job.set_id("job-1");
  job.set_name("secret \"name\"");
  job.set_step(7);
  job.set_loss(0.25);
  overview.jobs = {job};
  overview.step_seconds["job-1"] = 0.5;
  return overview;
}

TEST(MetricsText, HasJobsAndWorkersAndNoNames) {
  const std::string text = MetricsText(Example());
  for (const char* line :
       {"xlad_build_info{version=\"1.2\"} 1\n", "xlad_jobs{state=\"RUNNING\"} 1\n", "xlad_jobs{state=\"FAILED\"} 0\n",
        "xlad_workers{state=\"alive\"} 1\n", "xlad_workers{state=\"suspect\"} 0\n", "xlad_devices{state=\"lost\"} 3\n",
        "xlad_worker_silence_seconds{worker=\"w-alive\"} 1.5\n", "xlad_job_steps{job=\"job-1\"} 7\n",
        "xlad_job_loss{job=\"job-1\"} 0.25\n", "xlad_job_step_duration_seconds{job=\"job-1\"} 0.5\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_FALSE(absl::StrContains(text, "UNSPECIFIED"));
  EXPECT_FALSE(absl::StrContains(text, "w-lost"));
  EXPECT_FALSE(absl::StrContains(text, "secret"));
}

// Every line follows the text format and the naming practices of Prometheus.
TEST(MetricsText, FollowsTheFormatAndTheNamingPractices) {
  const std::regex sample(R"re(([a-z_]+)(\{[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*\})? (\S+))re");
  std::set<std::string> begun;
  std::string family, type, help;
  const std::vector<std::string> lines = absl::StrSplit(MetricsText(Example()), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "#" && words[1] == "HELP") {
      family = words[2];
      EXPECT_TRUE(begun.insert(family).second) << family << " begins twice";
      EXPECT_TRUE(absl::StartsWith(family, "xlad_") || absl::StartsWith(family, "process_")) << line;
      for (const char* bad : {"_ms", "_milliseconds", "_kb", "_minutes"}) EXPECT_FALSE(absl::EndsWith(family, bad));
      continue;
    }
    if (words[0] == "#") {
      ASSERT_EQ(words[2], family);
      type = words[3];
      EXPECT_EQ(type == "counter", absl::EndsWith(family, "_total")) << line;
      continue;
    }
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_EQ(match[1].str(), family) << line;
  }
  EXPECT_GE(begun.size(), 18u);
}

// The table in docs/reference/metrics.md has exactly the families of the program.
TEST(MetricsText, IsDocumented) {
  const auto page = RealFileSystem().Read("docs/reference/metrics.md");
  ASSERT_TRUE(page.ok()) << page.status();
  std::set<std::string> documented, written;
  const std::vector<std::string> rows = absl::StrSplit(*page, '\n');
  for (const std::string& line : rows) {
    if (!absl::StartsWith(line, "| `")) continue;
    const std::string name = line.substr(3, line.find_first_of("`{", 3) - 3);
    documented.insert(name);
  }
  const std::vector<std::string> lines = absl::StrSplit(MetricsText(Example()), '\n');
  for (const std::string& line : lines) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() > 2 && words[1] == "HELP") written.insert(words[2]);
  }
  EXPECT_EQ(documented, written);
}

}  // namespace
}  // namespace xlad::service
