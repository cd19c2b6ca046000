// Fits of skewed clocks, the alignment of recorded steps, and the timeline of the steps.
#include "observe/timeline.h"

#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "observe/clock_fit.h"

namespace xlad::observe {
namespace {

constexpr int64_t kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr int64_t kStart = 1'700'000'000 * kSecond;

// A worker's clock, which shows `offset_ns` at kStart and is too fast by `ppm` parts per million.
struct SkewedClock {
  int64_t offset_ns = 0;
  double ppm = 0;
  int64_t Local(int64_t unix_ns) const {
    return unix_ns - kStart + offset_ns + std::llround(static_cast<double>(unix_ns - kStart) * ppm * 1e-6);
  }
};

// An exchange whose two directions take different times.
ClockSample Exchange(const SkewedClock& clock, int64_t unix_ns, int64_t there_ns, int64_t back_ns) {
  const int64_t sent = clock.Local(unix_ns), received = clock.Local(unix_ns + there_ns + back_ns);
  const int64_t answered_unix = unix_ns + there_ns;
  ClockSample sample;
  sample.set_local_ns(received);
  sample.set_round_trip_ns(received - sent);
  sample.set_offset_ns((answered_unix - sent + answered_unix - received) / 2);
  return sample;
}

TEST(ClockFitTest, FollowsAnOffsetAndADrift) {
  std::mt19937 random(1);
  std::exponential_distribution<double> queue(1.0 / 400'000);
  for (const double ppm : {0.0, 50.0, -50.0, 300.0}) {
    for (const int64_t offset : {int64_t{0}, 3 * kSecond, -3 * kSecond, 400'000 * kSecond}) {
      const SkewedClock clock{offset, ppm};
      std::vector<ClockSample> samples;
      for (int64_t at = 0; at < 120 * kSecond; at += 2 * kSecond) {
        samples.push_back(Exchange(clock, kStart + at, 100'000 + static_cast<int64_t>(queue(random)),
                                   100'000 + static_cast<int64_t>(queue(random))));
      }
      const ClockFit fit(samples);
      for (int64_t at = 0; at < 120 * kSecond; at += 7 * kSecond) {
        const int64_t local = clock.Local(kStart + at);
        EXPECT_NEAR(static_cast<double>(local + fit.At(local).offset_ns - kStart - at), 0, 400'000)
            << ppm << " ppm, offset " << offset << ", after " << at / kSecond << " s";
      }
    }
  }
}

TEST(ClockFitTest, OneSampleIsEnoughAndWithoutSamplesTimesAreUnchanged) {
  EXPECT_EQ(ClockFit({}).At(5 * kSecond).offset_ns, 0);
  const SkewedClock clock{7 * kSecond, 0};
  const ClockFit fit({Exchange(clock, kStart, kMs, kMs)});
  EXPECT_EQ(fit.At(clock.Local(kStart)).offset_ns, kStart - 7 * kSecond);
  EXPECT_EQ(fit.At(clock.Local(kStart)).slope, 0);
}

// Writes the trace file of a job with one device per worker. A step is one kernel, a ring of messages and an
// all-reduce. Times are those of the workers' clocks.
class TraceFile {
 public:
  explicit TraceFile(std::vector<SkewedClock> clocks) : clocks_(std::move(clocks)), programs_(clocks_.size()) {}

  void Sample(int worker, int64_t unix_ns, int64_t there_ns, int64_t back_ns) {
    TraceRecord record = Record(worker);
    *record.mutable_trace()->add_clock() = Exchange(clocks_[worker], unix_ns, there_ns, back_ns);
    Append(record);
  }

  void Step(int64_t step, int64_t unix_ns) {
    const int n = static_cast<int>(clocks_.size());
    for (int w = 0; w < n; ++w) {
      TraceRecord record = Record(w);
      TracedStep* out = record.mutable_trace()->add_steps();
      const auto local = [&](int64_t after_ns) { return clocks_[w].Local(unix_ns + after_ns); };
      out->set_device(w);
      out->set_step(step);
      out->set_begin_ns(local(0));
      out->set_end_ns(local(10 * kMs));
      Span(0, local(1 * kMs), local(2 * kMs + w * 100'000), out);
      Span(1, local(2 * kMs + w * 100'000), local(5 * kMs), out);  // The last rank begins at 2 + (n - 1) / 10 ms.
      Message(step * n + w, true, local(6 * kMs), out);
      Message(step * n + (w + n - 1) % n, false, local(6 * kMs + 200'000), out);
      Append(record);
    }
  }

  std::string bytes;

 private:
  static void Span(int instruction, int64_t begin, int64_t end, TracedStep* out) {
    out->add_instruction(instruction);
    out->add_span_begin_ns(begin - out->begin_ns());
    out->add_span_ns(end - begin);
  }
  static void Message(uint64_t key, bool sent, int64_t at, TracedStep* out) {
    out->add_message_key(key);
    out->add_message_ns(at - out->begin_ns());
    out->add_message_sent(sent);
  }
  TraceRecord Record(int worker) {
    TraceRecord record;
    record.set_attempt(1);
    record.set_worker_id(absl::StrCat("w", worker));
    record.set_host("host");
    record.set_pid(100 + worker);
    if (programs_[worker]) return record;
    programs_[worker] = true;
    TracedProgram* program = record.mutable_trace()->mutable_program();
    TracedInstruction* kernel = program->add_instructions();
    kernel->set_name("fusion.1");
    kernel->set_kind("kernel");
    kernel->set_source("train.py:31");
    TracedInstruction* reduce = program->add_instructions();
    reduce->set_name("all-reduce.2");
    reduce->set_kind("collective");
    reduce->set_collective(1);
    TracedCollective* collective = program->add_collectives();
    collective->set_name("all_reduce(sum) f32[8]");
    collective->set_joins(true);
    TracedGroup* group = collective->add_groups();
    for (size_t d = 0; d < clocks_.size(); ++d) group->add_devices(static_cast<int>(d));
    return record;
  }
  void Append(const TraceRecord& record) {
    google::protobuf::io::StringOutputStream out(&bytes);
    google::protobuf::io::CodedOutputStream coded(&out);
    coded.WriteVarint32(static_cast<uint32_t>(record.ByteSizeLong()));
    record.SerializeToCodedStream(&coded);
  }

  const std::vector<SkewedClock> clocks_;
  std::vector<bool> programs_;
};

const std::vector<SkewedClock> kSkewed = {{3 * kSecond, 50}, {-3 * kSecond, -50}, {0, 0}, {3 * kSecond, -50}};

// The largest difference between the workers' times of one step. The true times are equal.
int64_t WorstSpread(const Traces& traces) {
  std::map<int64_t, std::pair<int64_t, int64_t>> range;
  for (const AlignedStep& at : traces.steps) {
    const auto [entry, fresh] = range.emplace(at.step.step(), std::make_pair(at.begin_unix_ns, at.begin_unix_ns));
    entry->second.first = std::min(entry->second.first, at.begin_unix_ns);
    entry->second.second = std::max(entry->second.second, at.begin_unix_ns);
  }
  int64_t worst = 0;
  for (const auto& [step, minmax] : range) worst = std::max(worst, minmax.second - minmax.first);
  return worst;
}

TEST(AlignmentTest, AlignsClocksThatDiffer) {
  TraceFile file(kSkewed);
  for (int64_t at = 0; at < 300; at += 2) {
    for (int w = 0; w < 4; ++w) file.Sample(w, kStart + at * kSecond, 150'000, 250'000);
    file.Step(at, kStart + at * kSecond + kSecond);
  }
  Traces traces = ReadTraces(file.bytes);
  ASSERT_EQ(traces.workers.size(), 4u);
  ASSERT_EQ(traces.steps.size(), 600u);
  Align(&traces);
  EXPECT_EQ(WorstViolationNs(traces), 0);
  EXPECT_LT(WorstSpread(traces), kMs);
  EXPECT_NEAR(static_cast<double>(traces.steps[0].begin_unix_ns - kStart - kSecond), 0, kMs);
}

// The coordinator's responses to one worker are always delayed by 40 ms, so the worker's samples are wrong by 20 ms.
// Only messages and collectives can show this error.
TEST(AlignmentTest, MessagesCorrectErrorsThatSamplesCannotShow) {
  TraceFile file(kSkewed);
  for (int64_t at = 0; at < 60; at += 2) {
    for (int w = 0; w < 4; ++w) file.Sample(w, kStart + at * kSecond, 100'000, w == 1 ? 40 * kMs : 100'000);
    file.Step(at, kStart + at * kSecond + kSecond);
  }
  Traces traces = ReadTraces(file.bytes);
  Align(&traces);
  EXPECT_EQ(WorstViolationNs(traces), 0);
  // The bound that follows from a ring of messages of 0.2 ms and all-reduces of 3 ms.
  EXPECT_LT(WorstSpread(traces), 4 * kMs);
}

TEST(AlignmentTest, ATruncatedFileHasItsCompleteRecords) {
  TraceFile file(kSkewed);
  file.Step(0, kStart);
  const size_t whole = file.bytes.size();
  file.Step(1, kStart + kSecond);
  for (size_t cut = 0; cut <= file.bytes.size(); cut += 7) {
    const Traces traces = ReadTraces(file.bytes.substr(0, cut));
    EXPECT_LE(traces.steps.size(), 8u);
    if (cut >= whole) {
      EXPECT_GE(traces.steps.size(), 4u);
    }
  }
  EXPECT_EQ(ReadTraces("").steps.size(), 0u);
  EXPECT_EQ(ReadTraces(std::string(100, '\xff')).steps.size(), 0u);
}

// A worker's step at the time 0 with messages: {key, whether it is sent, time}.
AlignedStep StepWith(int worker, const std::vector<std::tuple<uint64_t, bool, int64_t>>& messages) {
  AlignedStep at;
  at.worker = worker;
  at.step.set_device(worker);
  for (const auto& [key, sent, ns] : messages) {
    at.step.add_message_key(key);
    at.step.add_message_sent(sent);
    at.step.add_message_ns(ns);
  }
  return at;
}

// The first two workers exchange messages 1 and 2. Each arrives before it is sent, by 3 ms and by 1 ms, so no moves
// satisfy both. Message 3 requires no move.
TEST(AlignmentTest, ContradictoryMessagesHaveTheLeastViolation) {
  Traces traces;
  for (int w = 0; w < 3; ++w) traces.workers.push_back({1, absl::StrCat("w", w), "host", w, {}, {}});
  traces.steps = {StepWith(0, {{1, true, 5 * kMs}, {2, false, 7 * kMs}, {3, false, kSecond}}),
                  StepWith(1, {{1, false, 2 * kMs}, {2, true, 8 * kMs}}), StepWith(2, {{3, true, 0}})};
  Align(&traces);
  EXPECT_NEAR(static_cast<double>(WorstViolationNs(traces)), 2 * kMs, 2'000);
  EXPECT_LE(WorstSpread(traces), 2 * kMs);
}

// Message 1 arrives 20 ms before it is sent. If the second worker is moved by 20 ms, message 2 arrives 10 us before it
// is sent.
TEST(AlignmentTest, SmallContradictionsDoNotPreventLargeMoves) {
  Traces traces;
  for (int w = 0; w < 2; ++w) traces.workers.push_back({1, absl::StrCat("w", w), "host", w, {}, {}});
  traces.steps = {StepWith(0, {{1, true, 20 * kMs}, {2, false, 30 * kMs}}),
                  StepWith(1, {{1, false, 0}, {2, true, 10 * kMs + 10'000}})};
  Align(&traces);
  EXPECT_LE(WorstViolationNs(traces), 7'000);
  EXPECT_NEAR(static_cast<double>(WorstSpread(traces)), 20 * kMs, 20'000);
}

// A chain of messages over 200 workers, in the order in which the relaxation needs the most rounds.
TEST(AlignmentTest, ChainsOverManyWorkersAreAligned) {
  constexpr int kWorkers = 200;
  Traces traces;
  for (int w = 0; w < kWorkers; ++w) traces.workers.push_back({1, absl::StrCat("w", w), "host", w, {}, {}});
  for (int w = 0; w < kWorkers; ++w) {
    const auto key = [](int from) { return static_cast<uint64_t>(kWorkers - from); };
    traces.steps.push_back(StepWith(w, {{key(w), true, kMs}, {key(w - 1), false, 0}}));
  }
  Align(&traces);
  EXPECT_EQ(WorstViolationNs(traces), 0);
}

// The pages of the file that are never written take no memory.
TEST(AlignmentTest, FilesOfMoreThan2GibAreRead) {
  TraceFile file(kSkewed);
  file.Step(0, kStart);
  file.bytes += std::string(10, '\xff');  // Ends the list of records.
  constexpr size_t kBytes = size_t{5} << 29;
  void* const mapped =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::memcpy(mapped, file.bytes.data(), file.bytes.size());
  EXPECT_EQ(ReadTraces(absl::string_view(static_cast<const char*>(mapped), kBytes)).steps.size(), 4u);
  munmap(mapped, kBytes);
}

TEST(TimelineTest, HasInstructionsCollectivesMessagesAndEvents) {
  TraceFile file(kSkewed);
  for (int w = 0; w < 4; ++w) file.Sample(w, kStart, 100'000, 100'000);
  file.Step(0, kStart + kSecond);
  Traces traces = ReadTraces(file.bytes);
  Align(&traces);
  google::protobuf::RepeatedPtrField<JobLogResponse::Event> events;
  for (const auto& [kind, at] : std::vector<std::pair<std::string, int64_t>>{
           {"submitted", 0},
           {"built", 300 * kMs},
           {"placed", 400 * kMs},
           {"started", 900 * kMs},
           {"ended", 2 * kSecond}}) {
    JobLogResponse::Event* event = events.Add();
    event->set_kind(kind);
    event->set_text(kind + " \"quoted\"\n");
    event->set_unix_ns(kStart + at);
    event->set_attempt(1);
  }
  const auto json = nlohmann::json::parse(TimelineJson("job-1", events, traces));
  EXPECT_EQ(json["otherData"]["start_unix_ns"], std::to_string(kStart));
  EXPECT_EQ(json["otherData"]["worst_violation_us"], 0);
  std::map<std::string, int> count;
  std::map<std::string, std::pair<double, double>> arrows;
  std::map<std::string, double> phases;
  for (const auto& event : json["traceEvents"]) {
    ++count[absl::StrCat(event["ph"].get<std::string>(), ":", event["name"].get<std::string>())];
    if (event["ph"] == "s") arrows[event["id"]].first = event["ts"];
    if (event["ph"] == "f") arrows[event["id"]].second = event["ts"];
    if (event.value("cat", "") == "phase") phases[event["name"]] = event["dur"];
    if (event["name"] == "fusion.1") {
      EXPECT_EQ(event["args"]["source"], "train.py:31");
    }
    if (event["name"] == "all-reduce.2") {
      EXPECT_EQ(event["args"]["collective"], "all_reduce(sum) f32[8]");
    }
  }
  EXPECT_EQ(count["X:fusion.1"], 4);
  EXPECT_EQ(count["X:all-reduce.2"], 4);
  EXPECT_EQ(count["X:step 0"], 4);
  EXPECT_EQ(count["M:thread_name"], 6);
  EXPECT_EQ(arrows.size(), 4u);
  for (const auto& [id, ends] : arrows) EXPECT_GE(ends.second, ends.first) << id;
  EXPECT_EQ(phases, (std::map<std::string, double>{{"compile", 300'000},
                                                   {"wait for devices", 100'000},
                                                   {"load, attempt 1", 500'000},
                                                   {"run, attempt 1", 1'100'000}}));
}

TEST(TimelineTest, AJobWithoutStepsHasItsEvents) {
  const auto json = nlohmann::json::parse(TimelineJson("job-1", {}, {}));
  EXPECT_EQ(json["traceEvents"].size(), 4u);
}

}  // namespace
}  // namespace xlad::observe
