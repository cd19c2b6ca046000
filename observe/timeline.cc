#include "observe/timeline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json_text.h"

namespace xlad::observe {
namespace {

using Events = google::protobuf::RepeatedPtrField<JobLogResponse::Event>;

constexpr int kJobProcess = 1;  // The job's number among the timeline's processes. The workers have later numbers.

std::string Quoted(const std::string& text) { return JsonText(nlohmann::json(text)); }

// The phase of a job after an event, or "" if the event does not change the phase.
std::string PhaseAfter(const JobLogResponse::Event& event) {
  if (event.kind() == "submitted") return "compile";
  if (event.kind() == "built") return "wait for devices";
  if (event.kind() == "placed") return absl::StrCat("load, attempt ", event.attempt());
  if (event.kind() == "started" || event.kind() == "adopted") return absl::StrCat("run, attempt ", event.attempt());
  if (event.kind() == "attempt_ended") return "wait for devices";
  return "";
}

class Writer {
 public:
  explicit Writer(int64_t start_unix_ns) : start_unix_ns_(start_unix_ns) {}

  void Name(const char* what, int process, int thread, const std::string& name) {
    Add(absl::StrFormat(R"({"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{"name":%s}})", what, process, thread,
                        Quoted(name)));
  }
  // Places `process` below the processes with smaller numbers.
  void Order(int process) {
    Add(absl::StrFormat(R"({"ph":"M","name":"process_sort_index","pid":%d,"tid":0,"args":{"sort_index":%d}})", process,
                        process));
  }
  // `head` is a result of Head: the name, the category, the process and the arguments.
  void Span(const std::string& head, int thread, int64_t begin_ns, int64_t end_ns) {
    Add(absl::StrCat(R"({"ph":"X",)", head, R"(,"tid":)", thread, R"(,"ts":)", Us(begin_ns - start_unix_ns_),
                     R"(,"dur":)", Us(std::max<int64_t>(0, end_ns - begin_ns)), "}"));
  }
  void Instant(const std::string& head, int thread, int64_t at_ns) {
    const std::string at = Us(at_ns - start_unix_ns_);
    Add(absl::StrCat(R"({"ph":"i","s":"p",)", head, R"(,"tid":)", thread, R"(,"ts":)", at, "}"));
  }
  void Message(bool sent, uint64_t key, int process, int thread, int64_t at_ns) {
    Add(absl::StrCat(sent ? R"({"ph":"s",)" : R"({"ph":"f","bp":"e",)", R"("name":"message","cat":"message","id":"0x)",
                     absl::Hex(key), R"(","pid":)", process, R"(,"tid":)", thread, R"(,"ts":)",
                     Us(at_ns - start_unix_ns_), "}"));
  }
  static std::string Head(const std::string& name, const std::string& kind, int process, const std::string& args) {
    return absl::StrCat(R"("name":)", Quoted(name), R"(,"cat":)", Quoted(kind), R"(,"pid":)", process,
                        args.empty() ? "" : absl::StrCat(R"(,"args":{)", args, "}"));
  }
  std::string Finish(const std::string& other) {
    return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"otherData\":{", other, "},\"traceEvents\":[\n", text_, "\n]}\n");
  }

 private:
  static std::string Us(int64_t ns) {
    return absl::StrFormat("%s%d.%03d", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
  }
  void Add(const std::string& event) { absl::StrAppend(&text_, text_.empty() ? "" : ",\n", event); }

  const int64_t start_unix_ns_;
  std::string text_;
};

void AddJob(const std::string& job, const Events& events, int64_t end_ns, Writer* writer) {
  writer->Name("process_name", kJobProcess, 0, absl::StrCat("job ", job));
  writer->Order(kJobProcess);
  writer->Name("thread_name", kJobProcess, 1, "phases");
  writer->Name("thread_name", kJobProcess, 2, "events");
  std::string phase;
  int64_t since_ns = 0;
  const auto finish = [&](int64_t until_ns) {
    if (!phase.empty()) writer->Span(Writer::Head(phase, "phase", kJobProcess, ""), 1, since_ns, until_ns);
    phase.clear();
  };
  for (const JobLogResponse::Event& event : events) {
    writer->Instant(Writer::Head(event.text(), event.kind(), kJobProcess, ""), 2, event.unix_ns());
    const std::string next = PhaseAfter(event);
    if (next.empty() && event.kind() != "ended") continue;
    finish(event.unix_ns());
    phase = next;
    since_ns = event.unix_ns();
  }
  finish(std::max(end_ns, since_ns));
}

// Names each worker's process and the threads of its devices.
void AddWorkers(const Traces& traces, Writer* writer) {
  std::vector<std::set<int>> devices(traces.workers.size());
  for (const AlignedStep& at : traces.steps) devices[at.worker].insert(at.step.device());
  for (int w = 0; w < std::ssize(traces.workers); ++w) {
    const TracedWorker& worker = traces.workers[w];
    const int process = kJobProcess + 1 + w;
    writer->Name("process_name", process, 0,
                 absl::StrCat(worker.worker_id, " (", worker.host, ", pid ", worker.pid, "), attempt ",
                              worker.attempt));
    writer->Order(process);
    for (const int device : devices[w]) {
      writer->Name("thread_name", process, device, absl::StrCat("device ", device));
    }
  }
}

std::string ArgsOf(const TracedProgram& program, const TracedInstruction& instruction) {
  std::string args;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&args, args.empty() ? "" : ",", "\"", name, "\":", Quoted(value));
  };
  add("source", instruction.source());
  const int collective = instruction.collective() - 1;
  if (collective < 0 || collective >= program.collectives_size()) return args;
  add("collective", program.collectives(collective).name());
  add("because", program.collectives(collective).why());
  return args;
}

void AddStep(const AlignedStep& at, int process, const std::vector<std::string>& heads, Writer* writer) {
  const TracedStep& step = at.step;
  writer->Span(Writer::Head(absl::StrCat("step ", step.step()), "step", process, ""), step.device(), at.UnixNs(0),
               at.UnixNs(step.end_ns() - step.begin_ns()));
  for (int s = 0; s < step.instruction_size(); ++s) {
    const int number = step.instruction(s);
    if (number < 0 || number >= std::ssize(heads)) continue;
    const int64_t begin_ns = step.span_begin_ns(s);
    writer->Span(heads[number], step.device(), at.UnixNs(begin_ns), at.UnixNs(begin_ns + step.span_ns(s)));
  }
}

// The attempt and key of each message whose sending and arrival are both recorded. Only these messages get an arrow.
std::set<std::pair<int64_t, uint64_t>> WholeMessages(const Traces& traces) {
  std::map<std::pair<int64_t, uint64_t>, int> ends;
  for (const AlignedStep& at : traces.steps) {
    for (int m = 0; m < at.step.message_key_size(); ++m) {
      ends[{traces.workers[at.worker].attempt, at.step.message_key(m)}] |= at.step.message_sent(m) ? 1 : 2;
    }
  }
  std::set<std::pair<int64_t, uint64_t>> whole;
  for (const auto& [message, seen] : ends) {
    if (seen == 3) whole.insert(message);
  }
  return whole;
}

void AddSteps(const Traces& traces, Writer* writer) {
  std::vector<std::vector<std::string>> heads(traces.workers.size());
  for (int w = 0; w < std::ssize(traces.workers); ++w) {
    const TracedProgram& program = traces.workers[w].program;
    for (const TracedInstruction& instruction : program.instructions()) {
      heads[w].push_back(
          Writer::Head(instruction.name(), instruction.kind(), kJobProcess + 1 + w, ArgsOf(program, instruction)));
    }
  }
  const auto whole = WholeMessages(traces);
  for (const AlignedStep& at : traces.steps) {
    const int process = kJobProcess + 1 + at.worker;
    AddStep(at, process, heads[at.worker], writer);
    const int64_t attempt = traces.workers[at.worker].attempt;
    for (int m = 0; m < at.step.message_key_size(); ++m) {
      const uint64_t key = at.step.message_key(m);
      if (!whole.contains({attempt, key})) continue;
      // The id of an arrow combines the key with the attempt, because other attempts use the same keys.
      const uint64_t id = key ^ (static_cast<uint64_t>(attempt) * 0x9e3779b97f4a7c15ull);
      writer->Message(at.step.message_sent(m), id, process, at.step.device(), at.UnixNs(at.step.message_ns(m)));
    }
  }
}

}  // namespace

std::string TimelineJson(const std::string& job, const Events& events, const Traces& traces) {
  int64_t start_ns = std::numeric_limits<int64_t>::max(), end_ns = 0, dropped = 0;
  for (const JobLogResponse::Event& event : events) {
    start_ns = std::min<int64_t>(start_ns, event.unix_ns());
    end_ns = std::max<int64_t>(end_ns, event.unix_ns());
  }
  for (const AlignedStep& at : traces.steps) {
    start_ns = std::min(start_ns, at.begin_unix_ns);
    end_ns = std::max(end_ns, at.UnixNs(at.step.end_ns() - at.step.begin_ns()));
    dropped += at.step.dropped();
  }
  if (end_ns == 0) start_ns = 0;
  Writer writer(start_ns);
  AddJob(job, events, end_ns, &writer);
  AddWorkers(traces, &writer);
  AddSteps(traces, &writer);
  return writer.Finish(absl::StrCat("\"job\":", Quoted(job), ",\"start_unix_ns\":\"", start_ns,
                                    "\",\"spans_without_room\":", dropped, ",\"later_steps_not_kept\":",
                                    traces.full ? "true" : "false", ",\"worst_violation_us\":",
                                    absl::StrFormat("%.3f", static_cast<double>(WorstViolationNs(traces)) / 1e3)));
}

}  // namespace xlad::observe
