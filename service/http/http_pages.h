// The pages of the coordinator's HTTP address (--http): metrics, health, and the dashboard with its data.
//
// /metrics, /livez and /readyz are for monitoring. Every client may read them; they contain the ids of jobs and
// workers, but not their names. / and /api/ show jobs. They are served only on loopback, to root and the user who runs
// the coordinator.
#pragma once

#include <memory>
#include <string>

#include "observe/http_server.h"
#include "service/engine.h"

namespace xlad::service {

// Listens on `address`. `engine` must outlive the server. The errors are those of HttpServer::Start.
absl::StatusOr<std::unique_ptr<observe::HttpServer>> ServeHttp(const std::string& address, Engine* engine);

// The dashboard: one page that loads nothing from other servers (service/dashboard/page.html).
extern const char kDashboardPage[];

// Returns the page with the answer to /api/state (JSON) in it. Texts of users in the answer cannot end the script.
std::string DashboardWith(absl::string_view state);

}  // namespace xlad::service
