// libFuzzer target: passes arbitrary messages of workers and requests of clients, each validated as in the server, to
// the real state machines. They must not crash, and a coordinator must be able to recover from the resulting log.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "proto/protocol.h"
#include "service/group_commit.h"
#include "service/rpc/validate.h"
#include "service/testing/odd_messages.h"

namespace xlad::service {
namespace {

using Core = std::remove_pointer_t<decltype(std::declval<GroupCommit&>().coordinator())>;

// A coordinator with one job and one worker. The messages that follow are arbitrary.
class Target {
 public:
  Target() : random_(SeededRandom(1)) {
    XLAD_CHECK(Open()) << "an empty log";
    WorkerMessage message;
    RegisterWorker* registration = message.mutable_register_();
    registration->set_worker_id("w");
    registration->set_incarnation(1);
    registration->set_devices(4);
    registration->set_protocol(kProtocol);
    registration->set_replaces_code(true);
    Do([&](Core& core) { core.OnWorkerMessage(ConnectionId(1), message); });
    SubmitJobRequest submit;
    submit.set_client_key("key");
    submit.mutable_spec()->set_steps(10);
    submit.mutable_spec()->set_keep_final_state(true);
    submit.mutable_spec()->add_mesh()->set_size(2);
    Do([&](Core& core) { job_ = core.Submit(submit).value().job_id(); });
  }

  void Do(const std::function<void(Core&)>& handle, bool tick = false) {
    const auto actions = commit_->Commit({{handle, nullptr}}, tick);
    XLAD_CHECK(actions.ok()) << actions.status();
    for (const Action& action : *actions) {
      if (const auto* build = std::get_if<StartBuild>(&action)) builds_.push_back(*build);
      if (const auto* optimize = std::get_if<StartOptimizing>(&action)) optimizings_.push_back(*optimize);
      if (const auto* index = std::get_if<StoreIndex>(&action)) indexes_.push_back(*index);
    }
  }
  // Reports the requested builds as done and the requested indexes as stored.
  void FollowUp() {
    for (const StartBuild& build : std::exchange(builds_, {})) {
      BuiltProgram built;
      built.executable_digest = "digest";
      built.plan.target = build.targets[0];
      built.quick = build.quick;
      built.compiler = "compiler";
      Do([&](Core& core) { core.OnBuilt(build.job, build.mesh, built); });
    }
    for (const StartOptimizing& request : std::exchange(optimizings_, {})) {
      BuiltProgram built;
      built.executable_digest = "optimized";
      built.compiler = "compiler";
      Do([&](Core& core) { core.OnOptimized(request, built); });
    }
    for (const StoreIndex& index : std::exchange(indexes_, {})) {
      Do([&](Core& core) { core.OnIndexStored(index, Checkpoint{index.index.step(), "uri", "digest"}); });
    }
  }
  bool Open() {
    commit_ = std::make_unique<GroupCommit>(
        CoordinatorOptions(),
        GroupCommit::Environment{&clock_, random_.get(), [this] { return OpenMemoryJobLog(&store_); }});
    return commit_->TryOpen("fuzz").ok();
  }
  void Advance(int64_t ms) { clock_.Advance(ms * kNsPerMs); }

  // Random bytes are rarely a valid id.
  void FillJob(google::protobuf::Message* message) const { FillIn("job_id", job_, message); }

 private:
  ManualClock clock_;
  const std::unique_ptr<Random> random_;
  MemoryJobStore store_;
  std::unique_ptr<GroupCommit> commit_;
  std::string job_;
  std::vector<StartBuild> builds_;
  std::vector<StartOptimizing> optimizings_;
  std::vector<StoreIndex> indexes_;
};

// Makes the next message. Returns false if the message cannot be parsed or Validate refuses it.
template <typename Message>
bool Take(FuzzedDataProvider* input, const Target& target, Message* message) {
  if (input->ConsumeIntegralInRange(0, 3) == 0) {
    if (!message->ParseFromString(input->ConsumeRandomLengthString())) return false;
  } else {
    MakeOdd([input](uint64_t below) { return input->ConsumeIntegralInRange<uint64_t>(0, below - 1); }, message);
  }
  target.FillJob(message);
  return Validate(*message).ok();
}

void OneEvent(FuzzedDataProvider* input, Target* target) {
  WorkerMessage message;
  SubmitJobRequest submit;
  OpenSessionRequest open;
  ResizeJobRequest resize;
  CancelJobRequest cancel;
  DrainWorkerRequest drain;
  switch (input->ConsumeIntegralInRange(0, 9)) {
    case 0:
      target->FollowUp();
      break;
    case 1:
      target->Advance(input->ConsumeIntegralInRange(0, 20'000));
      target->Do([](Core&) {}, /*tick=*/true);
      break;
    case 2:
      if (Take(input, *target, &submit)) target->Do([&](Core& core) { (void)core.Submit(submit); });
      break;
    case 3:
      if (Take(input, *target, &open)) target->Do([&](Core& core) { (void)core.OpenSession(open); });
      break;
    case 4:
      if (Take(input, *target, &resize)) target->Do([&](Core& core) { (void)core.Resize(resize); });
      break;
    case 5:
      if (Take(input, *target, &cancel)) target->Do([&](Core& core) { (void)core.Cancel(JobId(cancel.job_id())); });
      break;
    case 6:
      if (Take(input, *target, &drain)) target->Do([&](Core& core) { (void)core.Drain(WorkerId(drain.worker_id())); });
      break;
    default:
      const ConnectionId connection(input->ConsumeIntegralInRange(1, 3));
      if (Take(input, *target, &message)) {
        target->Do([&](Core& core) { core.OnWorkerMessage(connection, message); });
      }
  }
}

}  // namespace
}  // namespace xlad::service

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = (xlad::SetLogLevel(xlad::LogLevel::kError), true);
  (void)quiet;
  FuzzedDataProvider input(data, size);
  xlad::service::Target target;
  target.FollowUp();
  for (int events = 0; events < 64 && input.remaining_bytes() > 0; ++events) xlad::service::OneEvent(&input, &target);
  XLAD_CHECK(target.Open()) << "the log cannot be recovered";
  return 0;
}
