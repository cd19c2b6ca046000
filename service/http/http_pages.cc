#include "service/http/http_pages.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/clock.h"
#include "base/net/network.h"
#include "base/net/peer_user.h"
#include "proto/job_state.h"
#include "service/http/metrics_text.h"

namespace xlad::service {
namespace {

using observe::HttpRequest;
using observe::HttpResponse;

constexpr int64_t kMedianOfSteps = 101;
constexpr int kMaxEndedJobs = 200;  // The dashboard shows the latest ended jobs.

std::string Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) return "null";
  return json;
}

HttpResponse JsonPage(std::string body) { return {200, "application/json", std::move(body)}; }

HttpResponse ErrorPage(const absl::Status& status) {
  const int code = absl::IsNotFound(status)           ? 404
                   : absl::IsPermissionDenied(status) ? 403
                   : absl::IsInvalidArgument(status)  ? 400
                                                      : 503;
  return {code, "text/plain; charset=utf-8", absl::StrCat(status.message(), "\n")};
}

class Pages {
 public:
  explicit Pages(Engine* engine) : engine_(engine) {}

  // Sets the address on which the pages are served. Called again when the port is known.
  void SetAddress(const std::string& address) {
    const std::lock_guard lock(mutex_);
    address_ = address;
  }

  HttpResponse Answer(const HttpRequest& request) {
    if (request.path == "/livez") return {200, "text/plain; charset=utf-8", "ok\n"};
    if (request.path == "/readyz") return Ready();
    if (request.path == "/metrics") return Metrics();
    const bool is_page = request.path == "/" || request.path == "/index.html";
    if (!is_page && !absl::StartsWith(request.path, "/api/")) {
      return ErrorPage(absl::NotFoundError("found no such page, expected /, /metrics, /livez or /readyz"));
    }
    if (const absl::Status allowed = CheckViewer(request.client); !allowed.ok()) return ErrorPage(allowed);
    if (is_page) return Dashboard();
    if (request.path == "/api/state") return State();
    if (request.path == "/api/job") return Job(request);
    return ErrorPage(absl::NotFoundError("found no such data, expected /api/state or /api/job"));
  }

 private:
  absl::Status CheckViewer(const std::string& client) {
    std::string address;
    {
      const std::lock_guard lock(mutex_);
      address = address_;
    }
    XLAD_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(address));
    if (!IsLoopback(at.host)) {
      return absl::PermissionDeniedError(absl::StrCat("jobs are shown on loopback only, and this is ", address,
                                                      "; use xlad ps and xlad status, or "
                                                      "--http 127.0.0.1:PORT with a tunnel (ssh -L)"));
    }
    return CheckSameUser(client, at.host == "localhost" ? absl::StrCat("127.0.0.1:", at.port) : address);
  }

  HttpResponse Ready() {
    const CoordinatorStatus status = engine_->Status();
    if (status.serving()) return {200, "text/plain; charset=utf-8", "ok\n"};
    return ErrorPage(absl::UnavailableError(status.reason()));
  }

  // Returns all open jobs and, if `ended` is set, the latest ended ones.
  absl::StatusOr<std::vector<JobStatus>> Jobs(bool ended) {
    std::vector<JobStatus> jobs;
    ListJobsRequest request;
    do {
      XLAD_ASSIGN_OR_RETURN(const ListJobsResponse page, engine_->ListJobs(request));
      for (const JobStatus& job : page.jobs()) {
        if (ended || !HasEnded(job.state())) jobs.push_back(job);
      }
      request.set_after(page.next());
    } while (!request.after().empty());
    if (!ended) return jobs;
    int count = 0;
    std::set<std::string> kept;
    for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
      if (!HasEnded(job->state()) || ++count <= kMaxEndedJobs) kept.insert(job->id());
    }
    jobs.erase(std::remove_if(jobs.begin(), jobs.end(), [&](const JobStatus& job) { return !kept.contains(job.id()); }),
               jobs.end());
    return jobs;
  }

  HttpResponse Metrics() {
    Overview overview;
    overview.status = engine_->Status();
    if (overview.status.serving()) {
      if (auto workers = engine_->ListWorkers(); workers.ok()) overview.workers = *std::move(workers);
      if (auto jobs = Jobs(/*ended=*/false); jobs.ok()) overview.jobs = *std::move(jobs);
    }
    for (const JobStatus& job : overview.jobs) {
      if (auto time = engine_->Time(job.id()); time.ok()) overview.time[job.id()] = *std::move(time);
      WatchJobRequest request;
      request.set_job_id(job.id());
      request.set_from_step(std::max<int64_t>(0, job.step() - kMedianOfSteps));
      const auto watched = engine_->Watch(request);
      if (!watched.ok() || watched->metrics().empty()) continue;
      std::vector<double> times;
      for (const StepMetrics& step : watched->metrics()) times.push_back(step.step_ms());
      std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
      overview.step_seconds[job.id()] = times[times.size() / 2] / 1e3;
    }
    return {200, "text/plain; version=0.0.4; charset=utf-8", MetricsText(overview)};
  }

  HttpResponse State() {
    const CoordinatorStatus status = engine_->Status();
    ListWorkersResponse workers;
    std::string jobs = "[";
    if (status.serving()) {
      if (auto listed = engine_->ListWorkers(); listed.ok()) workers = *std::move(listed);
      const auto found = Jobs(/*ended=*/true);
      if (!found.ok()) return ErrorPage(found.status());
      for (const JobStatus& job : *found) absl::StrAppend(&jobs, jobs.size() > 1 ? "," : "", Json(job));
    }
    return JsonPage(absl::StrCat("{\"unix_ms\":", RealClock().WallNs() / kNsPerMs, ",\"status\":", Json(status),
                                 ",\"workers\":", Json(workers), ",\"jobs\":", jobs, "]}"));
  }

  HttpResponse Dashboard() {
    const HttpResponse state = State();
    return {200, "text/html; charset=utf-8", DashboardWith(state.status == 200 ? state.body : "null")};
  }

  // Returns a job, its time by cause and the step shares of its devices. Also returns one page of its metrics, from
  // step `from` of the query on, and one page of its events, after sequence number `after`.
  HttpResponse Job(const HttpRequest& request) {
    const auto number = [&](const char* name) {
      const auto found = request.query.find(name);
      int64_t value = 0;
      return found != request.query.end() && absl::SimpleAtoi(found->second, &value) ? std::max<int64_t>(value, 0) : 0;
    };
    const auto id = request.query.find("id");
    if (id == request.query.end())
      return ErrorPage(absl::InvalidArgumentError("found no id, expected /api/job?id=JOB"));
    WatchJobRequest watch;
    watch.set_job_id(id->second);
    watch.set_from_step(number("from"));
    const auto watched = engine_->Watch(watch);
    if (!watched.ok()) return ErrorPage(watched.status());
    JobLogRequest log;
    log.set_job_id(id->second);
    log.set_after_sequence(number("after"));
    const auto events = engine_->Log(log);
    if (!events.ok()) return ErrorPage(events.status());
    std::string time, shares;
    if (const auto found = engine_->Time(id->second); found.ok()) {
      for (const JobTime& part : *found) {
        absl::StrAppend(&time, time.empty() ? "" : ",", "\"", part.cause(), "\":", part.seconds());
      }
    }
    for (const auto& [device, share] : engine_->StepShares(id->second)) {
      absl::StrAppend(&shares, shares.empty() ? "" : ",", "{\"device\":", device, ",\"step\":", share.step,
                      ",\"compute_ms\":", share.compute_ms, ",\"collective_ms\":", share.collective_ms,
                      ",\"other_ms\":", share.other_ms, "}");
    }
    return JsonPage(absl::StrCat("{\"watch\":", Json(*watched), ",\"log\":", Json(*events), ",\"time\":{", time,
                                 "},\"shares\":[", shares, "]}"));
  }

  Engine* const engine_;
  std::mutex mutex_;
  std::string address_;
};

}  // namespace

std::string DashboardWith(absl::string_view state) {
  constexpr absl::string_view kBefore = R"(type="application/json">)", kNoState = "null";
  const absl::string_view page = kDashboardPage;
  const size_t at = page.find(kBefore) + kBefore.size();
  return absl::StrCat(page.substr(0, at), absl::StrReplaceAll(state, {{"<", "\\u003c"}}),
                      page.substr(at + kNoState.size()));
}

absl::StatusOr<std::unique_ptr<observe::HttpServer>> ServeHttp(const std::string& address, Engine* engine) {
  const auto pages = std::make_shared<Pages>(engine);
  pages->SetAddress(address);
  XLAD_ASSIGN_OR_RETURN(auto server, observe::HttpServer::Start(address, [pages](const HttpRequest& request) {
                          return pages->Answer(request);
                        }));
  pages->SetAddress(server->Address());
  return server;
}

}  // namespace xlad::service
