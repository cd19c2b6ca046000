// The pages of the coordinator's HTTP address (--http): metrics, health, and the dashboard with its data.
//
// /metrics, /livez and /readyz are for monitoring and are answered to every client; they contain the
// ids of jobs and workers, and no names. / and /api/ show jobs, so that they are served on loopback only, to the user
// who runs the coordinator.
#pragma once

#include <memory>
#include <string>

#include "observe/http_server.h"
#include "service/engine.h"

namespace xlad::service {

// Listens on `address`. `engine` must outlive the server. Errors: as HttpServer::Start.
absl::StatusOr<std::unique_ptr<observe::HttpServer>> ServeHttp(const std::string& address, Engine* engine);

// The dashboard: one page without outside assets (service/dashboard/page.html).
extern const char kDashboardPage[];

}  // namespace xlad::service
