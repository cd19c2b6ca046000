// Reductions among devices of several hosts, which use other schedules than the plan of the coordinator.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "base/random.h"
#include "collectives/exec/testing/everything.h"
#include "collectives/exec/testing/test_world.h"

namespace xlad::collectives {
namespace {

using Bytes = std::vector<std::byte>;

// Random values of different magnitudes, so that sums depend on the order. Integers are random bits.
template <typename T>
Bytes RandomValues(int64_t count, uint64_t seed) {
  const std::unique_ptr<Random> random = SeededRandom(seed);
  Bytes bytes(count * sizeof(T));
  for (int64_t i = 0; i < count; ++i) {
    const T value = std::is_integral_v<T>
                        ? static_cast<T>(random->Next())
                        : static_cast<T>((random->Unit() - 0.5) * std::pow(10.0, static_cast<double>(i % 9) - 4));
    std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
  }
  return bytes;
}

struct Result {
  Bytes bytes;                        // The same on all devices.
  std::set<std::pair<int, int>> met;  // The pairs of devices that exchange messages of the collective.
};

// Runs an AllReduce over all devices of workers that do not share memory, twice in place and once out of place.
template <typename T>
Result RunAllReduce(const DevicesOfWorkers& placement, const CollectiveSpec& spec) {
  TestWorld::Options options;
  options.transport.shares_memory = false;
  TestWorld world(placement, options);
  const int n = world.num_devices();
  const int64_t count = spec.input_elements();
  CollectiveSet set;
  set.num_devices = n;
  set.max_message_bytes = 1 << 24;
  set.collectives.push_back(MakeCollective(spec, {.algorithm = "direct", .chunks = 2}, n));
  std::vector<Bytes> results(n);
  std::vector<MessageLog> logs(n);
  world.Run([&](int device) {
    Recorder recorder(device, &set, &RealClock());
    auto formed = world.worker_of(device).fabric->MakeCommunicator({device, &set, &recorder});
    ASSERT_TRUE(formed.ok()) << formed.status();
    recorder.KeepMessages(&logs[device]);
    for (int step = 0; step < 3; ++step) {
      Bytes input = RandomValues<T>(count, 100 * step + device);
      Bytes output = step == 2 ? Bytes(input.size()) : Bytes();
      const std::byte* const in = input.data();
      std::byte* const out = step == 2 ? output.data() : input.data();
      const absl::Status status = (*formed)->Launch({0, {&in, 1}, {&out, 1}, step, 0});
      ASSERT_TRUE(status.ok()) << status;
      results[device].insert(results[device].end(), out, out + input.size());
    }
  });
  for (const Bytes& result : results) EXPECT_EQ(result, results[0]);
  Result result{results[0], {}};
  std::map<uint64_t, int> senders;
  for (int device = 0; device < n; ++device) {
    for (const MessageLog::Message& message : logs[device].messages) {
      if (message.sent) senders[message.key] = device;
    }
  }
  for (int device = 0; device < n; ++device) {
    for (const MessageLog::Message& message : logs[device].messages) {
      if (!message.sent) result.met.insert({senders.at(message.key), device});
    }
  }
  return result;
}

CollectiveSpec Over(int ranks, int64_t count, tensor::ElementType type, Reduction reduction) {
  CollectiveSpec spec;
  spec.ranks = ranks;
  spec.counts = {count};
  spec.type = type;
  spec.reduction = reduction;
  return spec;
}

const DevicesOfWorkers kOneWorker = {{0, 1, 2, 3, 4, 5}};
// All but the last two placements have as many consecutive devices on each worker.
const DevicesOfWorkers kPlacements[] = {{{0, 1, 2}, {3, 4, 5}},
                                        {{0, 1}, {2, 3}, {4, 5}},
                                        {{3, 4, 5}, {0, 1, 2}},
                                        {{0, 1}, {2, 3, 4, 5}},
                                        {{0, 2, 4}, {1, 3, 5}}};

TEST(HostChain, BitsAreThoseOfOneHost) {
  for (const int64_t count : {20'000, 44'321}) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kProduct, Reduction::kMax}) {
      const CollectiveSpec floats = Over(6, count, tensor::ElementType::kF32, reduction);
      const CollectiveSpec doubles = Over(6, count, tensor::ElementType::kF64, reduction);
      const CollectiveSpec integers = Over(6, count, tensor::ElementType::kS32, reduction);
      const Bytes of_floats = RunAllReduce<float>(kOneWorker, floats).bytes;
      const Bytes of_doubles = RunAllReduce<double>(kOneWorker, doubles).bytes;
      const Bytes of_integers = RunAllReduce<int32_t>(kOneWorker, integers).bytes;
      for (const DevicesOfWorkers& placement : kPlacements) {
        EXPECT_EQ(RunAllReduce<float>(placement, floats).bytes, of_floats) << floats.ToString();
        EXPECT_EQ(RunAllReduce<double>(placement, doubles).bytes, of_doubles) << doubles.ToString();
        EXPECT_EQ(RunAllReduce<int32_t>(placement, integers).bytes, of_integers) << integers.ToString();
      }
    }
  }
}

// A device exchanges messages only with the devices of its host and with one device of each neighboring host.
TEST(HostChain, OnlyNeighborsExchangeMessages) {
  const CollectiveSpec large = Over(6, 20'000, tensor::ElementType::kF32, Reduction::kSum);
  std::set<std::pair<int, int>> expected;
  for (int a = 0; a < 6; ++a) {
    for (int b = 0; b < 6; ++b) {
      const bool are_on_one_host = a / 2 == b / 2, are_neighbors = std::abs(a - b) == 2;
      if (a != b && (are_on_one_host || are_neighbors)) expected.insert({a, b});
    }
  }
  EXPECT_EQ(RunAllReduce<float>({{0, 1}, {2, 3}, {4, 5}}, large).met, expected);
  const CollectiveSpec small = Over(6, 100, tensor::ElementType::kF32, Reduction::kSum);
  EXPECT_EQ(RunAllReduce<float>({{0, 1}, {2, 3}, {4, 5}}, small).met.size(), 30U);
}

}  // namespace
}  // namespace xlad::collectives
