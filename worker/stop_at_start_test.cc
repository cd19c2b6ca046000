// A worker that is stopped while no name server answers. This file replaces getaddrinfo for names that end with
// ".test", which no name server knows (RFC 6761).
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <csignal>

#include "absl/strings/match.h"
#include "worker/worker_main.h"

namespace {

std::atomic<int> lookups_until_stop = 0;
std::atomic<int> stop_worker = 0;

}  // namespace

extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (node == nullptr || !absl::EndsWith(node, ".test")) return real(node, service, hints, result);
  if (--lookups_until_stop <= 0) stop_worker = SIGTERM;
  return EAI_AGAIN;
}

namespace xlad::worker {
namespace {

TEST(StopAtStart, AWorkerThatWaitsForANameServerEndsWithoutAnError) {
  const runtime::DeviceKind kind = {.name = "none",
                                    .description = "a device that is never made",
                                    .models = {},
                                    .memory = {},
                                    .available = [] { return absl::OkStatus(); },
                                    .target = [](const std::string&) { return Target(); },
                                    .make = nullptr};
  WorkerOptions options;
  options.devices = {{"none", "", 1}};
  options.coordinator.address = "host.test:7411";
  options.worker_id = "w0";
  for (const char* listen : {"host.test:0", ""}) {
    for (const int lookups : {1, 2}) {
      options.listen = listen;
      lookups_until_stop = lookups;
      stop_worker = 0;
      const auto end = RunWorker(options, {&kind, 1}, &stop_worker);
      ASSERT_TRUE(end.ok()) << end.status();
      EXPECT_EQ(*end, WorkerEnd::kIdle);
      EXPECT_EQ(stop_worker, SIGTERM) << "the worker has not waited";
      EXPECT_EQ(lookups_until_stop, 0) << "the worker has not stopped waiting";
    }
  }
}

}  // namespace
}  // namespace xlad::worker
