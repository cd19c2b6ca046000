// Tests the requests for devices that the flag --device accepts, and the kinds in the registry.
#include "runtime/device_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_join.h"
#include "proto/device_name.h"
#include "runtime/devices/registry/registry.h"

namespace xlad::runtime {
namespace {

using ::testing::HasSubstr;

const std::vector<DeviceKind>& Kinds() {
  static const auto* const kinds = [] {
    const auto available = [] { return absl::OkStatus(); };
    const auto target = [](const std::string& model) {
      Target made;
      made.set_device_kind("gpu_sim");
      made.set_device_model(model);
      return made;
    };
    const auto make = [](const std::string&) -> absl::StatusOr<std::unique_ptr<Device>> {
      return absl::UnimplementedError("not needed");
    };
    return new std::vector<DeviceKind>{
        {"cpu", "", {}, {MEMORY_DEVICE}, available, target, make},
        {"opaque", "", {}, {MEMORY_DEVICE}, [] { return absl::UnavailableError("no memfd"); }, target, make},
        {"gpu_sim", "", {"h200", "b200"}, {MEMORY_DEVICE}, available, target, make}};
  }();
  return *kinds;
}

std::string Parse(const std::string& text) {
  const auto requests = ParseDeviceRequests(text, Kinds());
  if (!requests.ok()) return std::string(requests.status().message());
  return absl::StrJoin(*requests, ",",
                       [](std::string* out, const DeviceRequest& request) { out->append(request.ToString()); });
}

TEST(DeviceRequests, KindsModelsAndCounts) {
  EXPECT_EQ(Parse("cpu"), "cpu");
  EXPECT_EQ(Parse("cpu:4"), "cpu:4");
  EXPECT_EQ(Parse("cpu:1024"), "cpu:1024");
  EXPECT_EQ(Parse("cpu:2,opaque:3"), "cpu:2,opaque:3");
  EXPECT_EQ(Parse("gpu_sim:b200:2"), "gpu_sim:b200:2");
  EXPECT_EQ(Parse("gpu_sim:b200"), "gpu_sim:b200");
  EXPECT_EQ(Parse("gpu_sim"), "gpu_sim:h200") << "the first model is the default";
  EXPECT_EQ(Parse("gpu_sim:8"), "gpu_sim:h200:8") << "a number is a count";
  EXPECT_EQ(Parse("gpu_sim:h200:1,gpu_sim:b200:1,cpu:1"), "gpu_sim:h200:1,gpu_sim:b200:1,cpu:1");
}

TEST(DeviceRequests, ErrorsSayWhatWasFoundAndWhatIsExpected) {
  EXPECT_EQ(Parse("opqaue:2"), "found kind \"opqaue\", expected one of cpu, opaque, gpu_sim; did you mean opaque?");
  EXPECT_EQ(Parse("4"), "found kind \"4\", expected one of cpu, opaque, gpu_sim");
  EXPECT_EQ(Parse("CPU"), "found kind \"CPU\", expected one of cpu, opaque, gpu_sim; did you mean cpu?");
  EXPECT_THAT(Parse("gpu:2"), HasSubstr("devices of kind cuda, and gpu_sim simulates them; found kind"));
  EXPECT_THAT(Parse("tpu"), HasSubstr("tpu_sim simulates them; found kind \"tpu\""));
  EXPECT_THAT(Parse("rocm"), HasSubstr("no device for AMD GPUs; found kind \"rocm\""));
  EXPECT_EQ(Parse("cpu:znver5"),
            "found model \"znver5\" of kind cpu, expected cpu or cpu:COUNT, because cpu has no models");
  EXPECT_THAT(Parse("cpu:znver5:2"), HasSubstr("because cpu has no models"));
  EXPECT_EQ(Parse("gpu_sim:a100:2"), "found model \"a100\" of kind gpu_sim, expected one of h200, b200");
  for (const char* count : {"0", "-1", "1025", "+0", "99999999999999999999"}) {
    EXPECT_EQ(Parse(absl::StrCat("cpu:", count)),
              absl::StrCat("found count ", count, " of kind cpu, expected a number from 1 to 1024"));
  }
  EXPECT_EQ(Parse("gpu_sim:h200:many"),
            "found count \"many\" in \"gpu_sim:h200:many\", expected a number from 1 to 1024");
  EXPECT_THAT(Parse("cpu:2:3"), HasSubstr("cpu has no models"));
  for (const char* text : {"", ":", ":2", "cpu:", "gpu_sim:h200:", "a:b:c:d"}) {
    EXPECT_EQ(Parse(text), absl::StrCat("found \"", text, "\", expected KIND[:MODEL][:COUNT]"));
  }
  for (const char* text : {",", "cpu:2,", ",cpu:2", "cpu:2,,opaque:2"}) {
    EXPECT_EQ(Parse(text),
              absl::StrCat("found an empty entry in \"", text, "\", expected KIND[:MODEL][:COUNT] around each comma"));
  }
  EXPECT_EQ(Parse("cpu:1,cpu:2"), "found cpu twice in \"cpu:1,cpu:2\", expected each kind and model once");
  EXPECT_EQ(Parse("gpu_sim:1,gpu_sim:h200:1"),
            "found gpu_sim:h200 twice in \"gpu_sim:1,gpu_sim:h200:1\", expected each kind and model once");
  EXPECT_EQ(Parse("cpu,opaque:2"),
            "found no count of kind cpu in \"cpu,opaque:2\", expected a count for each of several kinds, as in "
            "cpu:2,opaque:2");
}

TEST(DeviceRequests, OffersNameKindModelCountAndMemory) {
  const auto offer = MakeOffer({"gpu_sim", "b200", 3}, Kinds());
  ASSERT_TRUE(offer.ok()) << offer.status();
  EXPECT_EQ(offer->count(), 3);
  EXPECT_EQ(DeviceName(offer->target()), "gpu_sim:b200");
  EXPECT_EQ(offer->memory_size(), 1);
  EXPECT_EQ(MakeOffer({"opaque", "", 1}, Kinds()).status(),
            absl::UnavailableError("this machine has no devices of kind opaque: no memfd"));
}

TEST(DeviceRequests, NamesInTheRegistryCanBeRequested) {
  for (const DeviceKind& kind : AllDeviceKinds()) {
    for (const std::string& text : {kind.name, kind.name + ":2"}) {
      EXPECT_TRUE(ParseDeviceRequests(text, AllDeviceKinds()).ok()) << text;
    }
  }
}

// The devices of each worker: "cpu:2 | cpu:1,opaque:1".
std::string Dealt(const std::string& requests, int64_t workers) {
  return absl::StrJoin(DealDevices(*ParseDeviceRequests(requests, Kinds()), workers), " | ",
                       [](std::string* out, const std::vector<DeviceRequest>& worker) {
                         out->append(absl::StrJoin(worker, ",", [](std::string* one, const DeviceRequest& request) {
                           one->append(request.ToString());
                         }));
                       });
}

TEST(DealDevices, DealsEvenlyAndContinuesWithTheNextWorker) {
  EXPECT_EQ(Dealt("cpu:8", 3), "cpu:3 | cpu:3 | cpu:2");
  EXPECT_EQ(Dealt("cpu:8", 1), "cpu:8");
  EXPECT_EQ(Dealt("cpu:1,opaque:1", 2), "cpu:1 | opaque:1");
  EXPECT_EQ(Dealt("cpu:3,opaque:2", 2), "cpu:2,opaque:1 | cpu:1,opaque:1");
  EXPECT_EQ(Dealt("cpu:5,opaque:2", 3), "cpu:2,opaque:1 | cpu:2 | cpu:1,opaque:1");
}

TEST(DealDevices, WorkersWithoutDevicesAreLeftOut) {
  EXPECT_EQ(Dealt("cpu:2", 5), "cpu:1 | cpu:1");
  EXPECT_EQ(Dealt("cpu:1", 0), "cpu:1");
}

// Every device is assigned to one worker, and the workers' shares of a kind differ by one at most.
TEST(DealDevices, EveryDeviceIsDealtOnce) {
  for (int64_t cpus = 1; cpus <= 9; ++cpus) {
    for (int64_t opaques = 1; opaques <= 5; ++opaques) {
      for (int64_t workers = 1; workers <= 7; ++workers) {
        std::map<std::string, std::vector<int64_t>> shares;
        for (const auto& worker : DealDevices({{"cpu", "", cpus}, {"opaque", "", opaques}}, workers)) {
          EXPECT_FALSE(worker.empty());
          for (const DeviceRequest& request : worker) shares[request.kind].push_back(request.count);
        }
        for (auto& [kind, counts] : shares) {
          const int64_t count = kind == "cpu" ? cpus : opaques;
          EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), count);
          counts.resize(workers, 0);
          const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
          EXPECT_LE(*most - *least, 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace xlad::runtime
