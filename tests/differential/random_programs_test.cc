// Random programs compiled to machine code and run by the runtime, with collectives between threads, against the
// evaluator on the program as it was.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "collectives/exec/fabric.h"
#include "collectives/exec/scheduled_communicator.h"
#include "collectives/plan/spec_proto.h"
#include "compiler/compile.h"
#include "compiler/testing/random_program.h"
#include "hlo/eval/evaluate.h"
#include "hlo/proto.h"
#include "hlo/text.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/step_program.h"

namespace xlad {
namespace {

using tensor::Array;
using Values = std::vector<std::vector<Array>>;  // By device, by leaf.

absl::StatusOr<collectives::CollectiveSet> MakeSet(const Executable& executable, int devices) {
  google::protobuf::RepeatedPtrField<CollectivePlanProto> plans;
  for (const CollectiveSpec& proto : executable.collectives()) {
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectiveSpec spec, collectives::SpecFromProto(proto, devices));
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan plan, collectives::MakePlan(spec));
    CollectivePlanProto* out = plans.Add();
    out->set_algorithm(plan.algorithm);
    out->set_chunks(plan.chunks);
    out->set_channels(plan.channels);
  }
  return collectives::MakeCollectiveSet(executable.collectives(), plans, devices);
}

// One device of the run: its memory, launcher and communicator.
class Shard {
 public:
  Shard(runtime::Device* device, const runtime::LoadedExecutable& loaded, const runtime::StepProgram& program)
      : device_(*device), loaded_(loaded), program_(program) {}

  absl::Status Prepare(const std::vector<Array>& inputs) {
    const Executable& executable = loaded_.executable();
    for (const Allocation& allocation : executable.allocations()) {
      XLAD_ASSIGN_OR_RETURN(memory_.emplace_back(), device_.Allocate(allocation.bytes()));
      addresses_.push_back(static_cast<std::byte*>(memory_.back()->address()));
      std::memset(addresses_.back(), 0xEF, static_cast<size_t>(allocation.bytes()));
      std::memcpy(addresses_.back(), allocation.blob().data(), allocation.blob().size());
    }
    for (int p = 0; p < executable.parameters_size(); ++p) {
      const absl::Span<const std::byte> bytes = inputs[static_cast<size_t>(p)].bytes();
      std::copy(bytes.begin(), bytes.end(), At(executable.parameters(p).buffer()));
    }
    XLAD_ASSIGN_OR_RETURN(scratch_, device_.Allocate(program_.scratch_bytes()));
    return absl::OkStatus();
  }

  absl::Status Run(int number, const collectives::CollectiveSet& set, collectives::Transport* transport,
                   collectives::AbortSignal* abort) {
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Launcher> launcher, loaded_.MakeLauncher(number));
    collectives::Recorder recorder(number, &set, &RealClock());
    XLAD_ASSIGN_OR_RETURN(const auto communicator,
                          collectives::ScheduledCommunicator::Form({number, &set, transport, abort, &recorder}));
    runtime::StepEnvironment environment;
    environment.launcher = launcher.get();
    environment.communicator = communicator.get();
    environment.allocations = addresses_;
    environment.scratch = scratch_->address();
    environment.abort = abort;
    return program_.Run(environment);
  }

  std::vector<Array> Results() {
    std::vector<Array> results;
    for (const EntryValue& result : loaded_.executable().results()) {
      const tensor::Shape shape{static_cast<tensor::ElementType>(result.local().element_type()),
                                {result.local().dims().begin(), result.local().dims().end()}};
      const std::byte* first = At(result.buffer());
      results.emplace_back(shape, std::vector<std::byte>(first, first + shape.bytes()));
    }
    return results;
  }

 private:
  std::byte* At(const BufferSlice& slice) {
    return addresses_[static_cast<size_t>(slice.allocation())] + slice.offset();
  }

  runtime::Device& device_;
  const runtime::LoadedExecutable& loaded_;
  const runtime::StepProgram& program_;
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memory_;
  std::vector<std::byte*> addresses_;
  std::unique_ptr<runtime::DeviceMemory> scratch_;
};

absl::StatusOr<Values> RunOnDevices(const Executable& executable, const Values& inputs) {
  const int devices = static_cast<int>(inputs.size());
  const std::unique_ptr<runtime::Device> device = runtime::MakeCpuDevice();
  XLAD_ASSIGN_OR_RETURN(const auto loaded, device->Load(executable));
  XLAD_ASSIGN_OR_RETURN(const auto program, runtime::StepProgram::Prepare(*loaded));
  XLAD_ASSIGN_OR_RETURN(const collectives::CollectiveSet set, MakeSet(executable, devices));
  collectives::AbortSignal abort;
  collectives::FabricOptions options;
  options.num_devices = devices;
  for (int d = 0; d < devices; ++d) options.devices.push_back(d);
  options.network = &TcpNetwork();
  XLAD_ASSIGN_OR_RETURN(const auto data_plane, collectives::DataPlane::Listen(&TcpNetwork(), "127.0.0.1:0"));
  options.data_plane = data_plane.get();
  const auto bootstrap = collectives::MapBootstrap({});
  XLAD_ASSIGN_OR_RETURN(const auto fabric, collectives::Fabric::Make(options, *bootstrap, &abort));
  std::vector<Shard> shards;
  for (int d = 0; d < devices; ++d) shards.emplace_back(device.get(), *loaded, *program);
  std::vector<absl::Status> statuses(inputs.size());
  std::vector<std::thread> threads;
  for (int d = 0; d < devices; ++d) {
    XLAD_RETURN_IF_ERROR(shards[static_cast<size_t>(d)].Prepare(inputs[static_cast<size_t>(d)]));
  }
  for (int d = 0; d < devices; ++d) {
    threads.emplace_back([&, d] {
      absl::Status& status = statuses[static_cast<size_t>(d)];
      status = shards[static_cast<size_t>(d)].Run(d, set, &fabric->transport(d), &abort);
      if (!status.ok()) abort.Raise({status, ""});
    });
  }
  for (std::thread& thread : threads) thread.join();
  Values results;
  for (size_t d = 0; d < inputs.size(); ++d) {
    XLAD_RETURN_IF_ERROR(statuses[d]);
    results.push_back(shards[d].Results());
  }
  return results;
}

void AppendArrays(const hlo::Literal& literal, std::vector<Array>* arrays) {
  if (!literal.is_tuple) {
    arrays->push_back(literal.array);
    return;
  }
  for (const hlo::Literal& element : literal.tuple) AppendArrays(element, arrays);
}

// Sums in another order, vectorised functions: a few units in the last place of the largest value around.
bool Near(const Array& found, const Array& expected) {
  if (found.shape() != expected.shape()) return false;
  if (found.shape().type != tensor::ElementType::kF32) return found == expected;
  float largest = 1;
  for (float value : expected.values<float>()) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < found.values<float>().size(); ++i) {
    const float a = found.values<float>()[i], b = expected.values<float>()[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!(std::abs(a - b) <= 2e-4f * std::max(largest, std::abs(b)))) return false;
  }
  return true;
}

void RunBoth(uint64_t seed, int instructions, int devices) {
  const std::unique_ptr<hlo::Module> module = compiler::RandomProgram(seed, instructions, devices);
  SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", instructions, " instructions, ", devices, " devices\n",
                            hlo::PrintText(*module)));
  const auto random = SeededRandom(seed + 1);
  Values inputs;
  std::vector<std::vector<hlo::Literal>> literals;
  for (int d = 0; d < devices; ++d) {
    inputs.push_back(compiler::RandomInputs(*module, random.get()));
    literals.emplace_back();
    for (const Array& input : inputs.back()) literals.back().emplace_back(input);
  }
  const auto expected = hlo::Evaluate(std::vector<const hlo::Module*>(inputs.size(), module.get()), literals);
  ASSERT_TRUE(expected.ok()) << expected.status();
  CompileRequest request;
  const auto bytes = hlo::SerializeProto(*module);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  request.set_partitioned_module(*bytes);
  request.add_mesh()->set_name("x");
  request.mutable_mesh(0)->set_size(devices);
  const auto executable = compiler::Compile(request);
  ASSERT_TRUE(executable.ok()) << executable.status();
  const auto results = RunOnDevices(*executable, inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  for (size_t d = 0; d < inputs.size(); ++d) {
    std::vector<Array> wanted;
    AppendArrays((*expected)[d], &wanted);
    ASSERT_EQ(wanted.size(), (*results)[d].size());
    for (size_t r = 0; r < wanted.size(); ++r) {
      ASSERT_TRUE(Near((*results)[d][r], wanted[r])) << "result " << r << " of device " << d;
    }
  }
}

// XLAD_RANDOM_PROGRAMS=N tries N programs of each kind instead of a few.
int Count(int standard) {
  const char* count = std::getenv("XLAD_RANDOM_PROGRAMS");
  return count == nullptr ? standard : std::atoi(count);
}

TEST(RandomPrograms, OneDevice) {
  for (int i = 0; i < Count(25) && !HasFailure(); ++i) RunBoth(static_cast<uint64_t>(i), 3 + i % 25, 1);
}

TEST(RandomPrograms, ManyDevices) {
  for (int i = 0; i < Count(15) && !HasFailure(); ++i)
    RunBoth(100'000 + static_cast<uint64_t>(i), 3 + i % 17, 2 + i % 3);
}

}  // namespace
}  // namespace xlad
