// The run of `xlad bench COLLECTIVE` on every rank.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/json_text.h"
#include "base/process/cores.h"
#include "cli/bench/buffers.h"
#include "cli/bench/costs.h"
#include "cli/bench/data.h"
#include "cli/bench/groups.h"
#include "cli/bench/launch.h"
#include "cli/bench/options.h"
#include "cli/bench/shrink.h"
#include "collectives/exec/group/process_group.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/exec/transports/registry/registry.h"
#include "collectives/plan/bus_factor.h"
#include "collectives/plan/calibration.h"
#include "collectives/plan/mapped.h"
#include "collectives/plan/message_type.h"

namespace xlad::cli {
namespace {

using collectives::CollectiveKind;
using collectives::CollectiveSpec;
using collectives::CostModel;
using collectives::MessageGroup;
using collectives::ProcessGroup;
using collectives::Reduction;

// How long `xlad bench --calibrate` measures in total.
constexpr int64_t kCalibrationMs = 1800;

struct Side {
  bool available = true;
  double time_us = 0, mean_us = 0, p99_us = 0, algbw = 0, busbw = 0;
  int64_t wrong = 0;
  uint64_t digest = 0;  // With --digest, a hash of the results on random values.
};

struct BenchRow {
  int64_t bytes = 0, count = 0;
  std::string plan;
  Side out_of_place, in_place;
};

bool HasTotalOfAllRanks(CollectiveKind kind) {
  return collectives::InputHasParts(kind) || collectives::OutputHasParts(kind);
}

// `Group` is an AnyPlanGroup or a MessageGroup.
template <typename Group>
class Bench {
 public:
  // `costs` are the parameters for predicted times. All arguments must outlive the object.
  Bench(const BenchOptions& options, const CostModel& costs, Group* group)
      : options_(options), costs_(costs), group_(*group) {}

  absl::Status Run() {
    XLAD_ASSIGN_OR_RETURN(spec_.kind, ParseBenchCollective(options_.collective));
    XLAD_ASSIGN_OR_RETURN(spec_.type, ParseBenchType(options_.type));
    if (collectives::Reduces(spec_.kind)) {
      XLAD_ASSIGN_OR_RETURN(spec_.reduction, ParseBenchOp(options_.op));
      XLAD_ASSIGN_OR_RETURN(spec_.mode, ParseBenchMode(options_.mode));
    }
    spec_.ranks = group_.ranks();
    spec_.root = collectives::HasRoot(spec_.kind) ? options_.root : 0;
    if (spec_.kind == CollectiveKind::kSendRecv || spec_.kind == CollectiveKind::kCollectivePermute) {
      for (int rank = 0; rank < spec_.ranks; ++rank) spec_.pairs.push_back({rank, (rank + 1) % spec_.ranks});
    }
    if (!options_.plans.empty()) {
      XLAD_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().Read(options_.plans));
      auto rules = collectives::PlanRules::Parse(text);
      if (!rules.ok()) return Annotate(rules.status(), absl::StrCat("--plans ", options_.plans));
      rules_ = *std::move(rules);
    }
    XLAD_RETURN_IF_ERROR(PrepareHelpers());
    if (group_.rank() == 0) PrintHead();
    for (int64_t bytes = options_.min_bytes; bytes >= 0;) {
      XLAD_RETURN_IF_ERROR(RunSize(bytes));
      if (spec_.kind == CollectiveKind::kBarrier) break;
      bytes = collectives::NextByteCount(bytes, options_.factor, options_.step_bytes, options_.max_bytes);
    }
    if (group_.rank() == 0) XLAD_RETURN_IF_ERROR(PrintEnd());
    return absl::OkStatus();
  }

  bool failed() const { return wrong_ > 0 || broken_guards_ > 0; }

 private:
  absl::Status PrepareHelpers() {
    CollectiveSpec gather;
    gather.kind = CollectiveKind::kAllGather;
    gather.type = tensor::ElementType::kF64;
    gather.counts = {options_.batches};
    gather.ranks = group_.ranks();
    XLAD_ASSIGN_OR_RETURN(gather_, group_.Prepare(gather));
    CollectiveSpec sum;
    sum.kind = CollectiveKind::kAllReduce;
    sum.reduction = Reduction::kSum;
    sum.type = tensor::ElementType::kS64;
    sum.counts = {2};
    sum.ranks = group_.ranks();
    XLAD_ASSIGN_OR_RETURN(sum_, group_.Prepare(sum));
    return absl::OkStatus();
  }

  absl::Status RunSize(int64_t bytes) {
    const int64_t width = tensor::ByteWidth(spec_.type);
    const int64_t count = spec_.kind == CollectiveKind::kBarrier ? 0
                          : HasTotalOfAllRanks(spec_.kind)       ? bytes / width / spec_.ranks
                                                                 : bytes / width;
    spec_.counts = {collectives::InputHasParts(spec_.kind) ? count * spec_.ranks : count};
    if (IsRaggedBench(options_.collective)) SetRaggedSizes(count);
    const int64_t in = spec_.input_elements() * width, out = spec_.output_elements() * width;
    for (const int64_t pair : {in + out, std::max(in, out)}) {  // Out of place and in place; see MakePairs.
      XLAD_RETURN_IF_ERROR(CheckMemory(pair, RotatedPairs(options_.rotate_bytes, pair) * spec_.ranks));
    }
    collectives::PrepareOptions prepare;
    prepare.registered = options_.registered != 0;
    prepare.plan = options_.algorithm.empty() ? rules_.Find(spec_) : options_.algorithm;
    XLAD_ASSIGN_OR_RETURN(operation_, PrepareIn(&group_, spec_, prepare));
    BenchRow row;
    row.count = count;
    row.bytes = count * width * (HasTotalOfAllRanks(spec_.kind) ? spec_.ranks : 1);
    if (!spec_.sizes.empty()) {
      row.bytes = spec_.counts[0] * width / (spec_.kind == CollectiveKind::kAllToAll ? spec_.ranks : 1);
    }
    row.plan = operation_->plan().ToString();
    if (options_.explain && group_.rank() == 0) Explain(row, prepare);
    const BenchData data(spec_);
    XLAD_ASSIGN_OR_RETURN(row.out_of_place, RunSide(data, row, false));
    row.in_place.available = collectives::InPlaceOffsetsOf(spec_, group_.rank()).valid ||
                             spec_.kind == CollectiveKind::kReduce || spec_.kind == CollectiveKind::kBarrier;
    if (row.in_place.available) {
      XLAD_ASSIGN_OR_RETURN(row.in_place, RunSide(data, row, true));
    }
    if (group_.rank() == 0) PrintRow(row);
    rows_.push_back(row);
    return absl::OkStatus();
  }

  // Sets the sizes of the parts to 0, `count` or 2 * `count` elements.
  void SetRaggedSizes(int64_t count) {
    const int senders = spec_.kind == CollectiveKind::kAllToAll ? spec_.ranks : 1;
    spec_.sizes.clear();
    spec_.counts = {0};
    for (int sender = 0; sender < senders; ++sender) {
      for (int rank = 0; rank < spec_.ranks; ++rank) {
        spec_.sizes.push_back(count * ((sender + rank + 1) % 3));
        spec_.counts[0] += spec_.sizes.back();
      }
    }
  }

  struct Pair {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
  };

  // Makes one pair of buffers, or several pairs of the total size that --rotate gives.
  absl::StatusOr<std::vector<Pair>> MakePairs(bool in_place, Buffers<Group>* buffers) {
    const int rank = group_.rank();
    const int64_t width = tensor::ByteWidth(spec_.type);
    const int64_t in = spec_.input_elements(rank) * width, out = spec_.output_elements(rank) * width;
    const int64_t pairs = RotatedPairs(options_.rotate_bytes, in_place ? std::max(in, out) : in + out);
    std::vector<Pair> made;
    for (int64_t i = 0; i < pairs; ++i) {
      Pair pair;
      if (in_place) {
        XLAD_ASSIGN_OR_RETURN(std::byte* const shared, buffers->Add(std::max(in, out)));
        // Element `offsets.input` of the input is element `offsets.output` of the output, and one of them is 0.
        const collectives::InPlaceOffsets offsets = collectives::InPlaceOffsetsOf(spec_, rank);
        pair.input = shared + offsets.output * width;
        pair.output = shared + offsets.input * width;
      } else {
        XLAD_ASSIGN_OR_RETURN(pair.input, buffers->Add(in));
        XLAD_ASSIGN_OR_RETURN(pair.output, buffers->Add(out));
      }
      made.push_back(pair);
    }
    return made;
  }

  absl::StatusOr<Side> RunSide(const BenchData& data, const BenchRow& row, bool in_place) {
    Buffers<Group> buffers(&group_, options_.registered != 0);
    XLAD_ASSIGN_OR_RETURN(const std::vector<Pair> pairs, MakePairs(in_place, &buffers));
    for (const Pair& pair : pairs) data.FillInput(group_.rank(), pair.input);
    Side side;
    const auto run = [&](int64_t i) {
      const Pair& pair = pairs[i % pairs.size()];
      return group_.Run(*operation_, pair.input, pair.output);
    };
    for (int i = 0; i < options_.warmup; ++i) XLAD_RETURN_IF_ERROR(run(i));
    XLAD_ASSIGN_OR_RETURN(const std::vector<double> times, Time(row, run));
    side.time_us = times[times.size() / 2];
    for (const double time : times) side.mean_us += time / static_cast<double>(times.size());
    side.p99_us = times[times.size() * 99 / 100];
    side.algbw = side.time_us > 0 ? static_cast<double>(row.bytes) / side.time_us / 1e3 : 0;
    side.busbw = side.algbw * BusFactor(spec_.kind, spec_.ranks);
    int64_t found[2] = {0, 0};
    if (options_.check > 0) {
      data.FillInput(group_.rank(), pairs[0].input);
      XLAD_RETURN_IF_ERROR(run(0));
      found[0] = data.CountWrong(group_.rank(), pairs[0].output);
    }
    if (options_.digest) {
      XLAD_ASSIGN_OR_RETURN(side.digest, Digest(data, pairs[0]));
    }
    found[1] = buffers.BrokenGuards();
    int64_t all[2] = {0, 0};
    XLAD_RETURN_IF_ERROR(group_.Run(*sum_, found, all));
    side.wrong = all[0];
    wrong_ += all[0];
    broken_guards_ += all[1];
    return side;
  }

  // Returns a hash of the outputs of all ranks for random inputs.
  absl::StatusOr<uint64_t> Digest(const BenchData& data, const Pair& pair) {
    const int rank = group_.rank();
    data.FillRandom(rank, pair.input);
    XLAD_RETURN_IF_ERROR(group_.Run(*operation_, pair.input, pair.output));
    const size_t bytes = spec_.output_elements(rank) * tensor::ByteWidth(spec_.type);
    const uint64_t own[2] = {Hash64(absl::string_view(reinterpret_cast<const char*>(pair.output), bytes), rank), 0};
    uint64_t all[2] = {0, 0};
    XLAD_RETURN_IF_ERROR(group_.Run(*sum_, own, all));
    return all[0];
  }

  int Iterations(int64_t bytes) const {
    if (options_.iterations > 0) return options_.iterations;
    constexpr int kDefault = 20;
    constexpr int64_t kBytes = 64 << 20;
    return static_cast<int>(std::clamp<int64_t>(kBytes / std::max<int64_t>(bytes, 1), 2, kDefault));
  }

  // Returns the time of one operation in each batch, in microseconds, sorted.
  template <typename F>
  absl::StatusOr<std::vector<double>> Time(const BenchRow& row, const F& run) {
    const int iterations = Iterations(row.bytes);
    const bool rooted = collectives::HasRoot(spec_.kind);
    std::vector<double> own(options_.batches), all(options_.batches * group_.ranks());
    int64_t done = 0;
    for (double& time_us : own) {
      XLAD_RETURN_IF_ERROR(group_.Barrier());
      const int64_t start_ns = RealClock().NowNs();
      for (int i = 0; i < iterations; ++i) {
        for (int k = 0; k < options_.aggregated; ++k) XLAD_RETURN_IF_ERROR(run(done++));
        if (rooted) XLAD_RETURN_IF_ERROR(group_.Barrier());
      }
      time_us = static_cast<double>(RealClock().NowNs() - start_ns) / 1e3 / iterations / options_.aggregated;
    }
    XLAD_RETURN_IF_ERROR(group_.Run(*gather_, own.data(), all.data()));
    std::vector<double> times(options_.batches);
    for (int batch = 0; batch < options_.batches; ++batch) {
      double sum = 0, least = all[batch], most = all[batch];
      for (int rank = 0; rank < group_.ranks(); ++rank) {
        const double time = all[rank * options_.batches + batch];
        sum += time;
        least = std::min(least, time);
        most = std::max(most, time);
      }
      const double by_average[] = {all[batch], sum / group_.ranks(), least, most};
      times[batch] = by_average[options_.average];
    }
    std::sort(times.begin(), times.end());
    return times;
  }

  void PrintHead() const {
    std::printf("# xlad bench, in the format of nccl-tests\n# Collective test starting: %s_perf\n",
                std::string(collectives::ToString(spec_.kind)).c_str());
    absl::PrintF(
        "# nRanks %d minBytes %d maxBytes %d step: %d(%s) warmup iters: %d iters: %s agg iters: %d "
        "validation: %d registered: %d\n#\n# Using processes\n",
        group_.ranks(), options_.min_bytes, options_.max_bytes,
        options_.factor > 0 ? options_.factor : options_.step_bytes, options_.factor > 0 ? "factor" : "bytes",
        options_.warmup, options_.iterations > 0 ? absl::StrCat(options_.iterations).c_str() : "20 or fewer",
        options_.aggregated, options_.check, options_.registered);
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      absl::PrintF("#  Rank %2d Group  0 Pid %6d on %10s\n", rank, group_.pid(rank), group_.host(rank));
    }
    if (options_.memory) {
      absl::PrintF("# Mapped memory of the group: %d bytes, without the rings of messages\n", SharedBytes(group_));
    }
    std::printf("#\n# %-76s  %-31s  %-31s\n", "", "          out-of-place", "            in-place");
    std::printf("#%11s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "size", "count", "type",
                "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    std::printf("#%11s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "(B)", "(elements)", "", "", "",
                "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
    std::fflush(stdout);
  }

  void PrintSide(const Side& side) const {
    if (!side.available) {
      std::printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
      return;
    }
    const char* const format = side.time_us >= 10000 ? "  %7.0f" : side.time_us >= 100 ? "  %7.1f" : "  %7.2f";
    std::printf(format, side.time_us);
    std::printf("  %6.2f  %6.2f", side.algbw, side.busbw);
    if (options_.check > 0) {
      absl::PrintF("  %6d", side.wrong);
    } else {
      std::printf("  %6s", "N/A");
    }
  }

  void PrintRow(const BenchRow& row) const {
    absl::PrintF("%12d  %12d  %8s  %6s  %6d", row.bytes, row.count, BenchTypeName(spec_.type),
                 collectives::Reduces(spec_.kind) ? options_.op.c_str() : "none",
                 collectives::HasRoot(spec_.kind) ? spec_.root : -1);
    PrintSide(row.out_of_place);
    PrintSide(row.in_place);
    if (options_.wide) {
      std::printf("  p99 %.2f %.2f  %s", row.out_of_place.p99_us, row.in_place.p99_us, row.plan.c_str());
    }
    std::printf("\n");
    if (options_.digest) {
      absl::PrintF("# digest of the results on random values: %016x out of place", row.out_of_place.digest);
      if (row.in_place.available) {
        absl::PrintF(", %016x in place", row.in_place.digest);
      }
      std::printf("\n");
    }
    std::fflush(stdout);
  }

  const char* OrderText() const {
    if (spec_.mode == collectives::ReductionMode::kCanonical) return "reduced as a balanced tree over the ranks";
    return IsReducedOnce() ? "reduced in order of rank" : "reduced in order of the plan, in several operations";
  }

  // Whether each element is reduced by one operation.
  bool IsReducedOnce() const {
    const std::string ascending = collectives::ReductionOrder({.algorithm = collectives::kMappedWindows});
    return collectives::ReductionOrder(operation_->plan()) == ascending;
  }

  const char* RoundingText() const {
    if (!tensor::IsFloating(spec_.type)) return "";
    if (tensor::BitWidth(spec_.type) >= 32) return ", each reduction of two values rounded";
    if (IsReducedOnce()) return ", in f32, rounded once at the end";
    return collectives::MessageType(operation_->plan(), spec_) == spec_.type
               ? ", in f32, rounded at the end of each operation of the plan"
               : ", in f32, partial results are sent in f32, rounded once at the end";
  }

  void Explain(const BenchRow& row, const collectives::PrepareOptions& prepare) const {
    PlanChoice choice{operation_->plan(), "", Candidates(group_, spec_, prepare, costs_)};
    choice.why = !options_.algorithm.empty() ? "given by --algorithm"
                 : !prepare.plan.empty()     ? "given by --plans"
                                             : WhyChosen(group_, spec_, prepare);
    std::fputs(ExplainChoice(row.bytes, choice).c_str(), stdout);
    if (collectives::Reduces(spec_.kind)) std::printf("#   %s%s\n", OrderText(), RoundingText());
  }

  absl::Status PrintEnd() const {
    double sum = 0;
    int64_t sides = 0;
    for (const BenchRow& row : rows_) {
      for (const Side* side : {&row.out_of_place, &row.in_place}) {
        if (!side->available) continue;
        sum += side->busbw;
        ++sides;
      }
    }
    absl::PrintF("# Out of bounds values : %d %s\n", wrong_ + broken_guards_, failed() ? "FAILED" : "OK");
    std::printf("# Avg bus bandwidth    : %g \n#\n# Collective test concluded: %s_perf\n",
                sides > 0 ? sum / static_cast<double>(sides) : 0.0,
                std::string(collectives::ToString(spec_.kind)).c_str());
    return options_.json.empty() ? absl::OkStatus() : WriteJson();
  }

  static nlohmann::ordered_json Json(const Side& side) {
    if (!side.available) return nullptr;
    nlohmann::ordered_json json = {{"time_us", side.time_us}, {"mean_us", side.mean_us}, {"p99_us", side.p99_us},
                                   {"algbw", side.algbw},     {"busbw", side.busbw},     {"wrong", side.wrong}};
    if (side.digest != 0) json["digest"] = absl::StrCat(absl::Hex(side.digest, absl::kZeroPad16));
    return json;
  }

  absl::Status WriteJson() const {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const BenchRow& row : rows_) {
      rows.push_back({{"bytes", row.bytes},
                      {"count", row.count},
                      {"algorithm", row.plan},
                      {"out_of_place", Json(row.out_of_place)},
                      {"in_place", Json(row.in_place)}});
    }
    std::ofstream file(options_.json);
    file << JsonText(nlohmann::ordered_json{{"rows", rows}}, 2) << "\n";
    file.close();
    if (file.fail()) return absl::InternalError(absl::StrCat("cannot write ", options_.json));
    return absl::OkStatus();
  }

  const BenchOptions& options_;
  const CostModel& costs_;
  Group& group_;
  CollectiveSpec spec_;
  std::unique_ptr<typename Group::Operation> operation_, gather_, sum_;
  collectives::PlanRules rules_;
  std::vector<BenchRow> rows_;
  int64_t wrong_ = 0, broken_guards_ = 0;
};

int Report(const absl::Status& status) {
  std::fprintf(stderr, "xlad: error: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

template <typename Group>
int RunIn(const BenchOptions& options, const CostModel& costs, Group* group) {
  Bench<Group> bench(options, costs, group);
  const absl::Status status = bench.Run();
  if (status.ok()) return bench.failed() ? 1 : 0;
  const int64_t failed_ns = RealClock().NowNs();
  if (absl::IsInvalidArgument(status)) {
    // All ranks find the same wrong option. The barrier keeps every rank alive until all have found it, and rank 0
    // reports it.
    group->Barrier().IgnoreError();
    return group->rank() > 0 ? 2 : Report(status);
  }
  const int code = Report(status);
  if (!options.shrink) return code;
  const absl::Status finished = FinishInNewGroup(group, failed_ns);
  return finished.ok() ? code : Report(finished);
}

// If --algorithm gives a plan for all sizes, the group chooses none and needs no parameters. Without a collective, the
// function only measures the parameters.
int RunOn(const BenchOptions& options, const std::string& transport, MessageGroup* group) {
  if (options.algorithm.empty() || options.calibrate) {
    const CostSource source{transport, options.calibrate, options.calibrate_ms};
    if (const absl::Status status = UseMachineCosts(source, group); !status.ok()) return Report(status);
  }
  if (options.collective.empty()) {
    if (group->rank() == 0) {
      absl::PrintF("# %s, %s: %s\n%s", transport, Counted(group->ranks(), "rank"), CostsPath(transport, group->ranks()),
                   collectives::PrintCosts(group->costs()));
      std::fflush(stdout);
    }
    return 0;
  }
  return RunIn(options, group->costs(), group);
}

// The group chooses plans by size. The measured parameters are only needed to explain the choice.
int RunMapped(const BenchOptions& options, const MessageGroup::Options& messages, std::unique_ptr<ProcessGroup> group) {
  CostModel costs;
  if (options.explain) {
    const auto found = MachineCosts({"shm", options.calibrate, options.calibrate_ms}, group.get());
    if (!found.ok()) return Report(found.status());
    costs = *found;
  }
  collectives::AnyPlanGroup ranks(std::move(group), messages);
  return RunIn(options, costs, &ranks);
}

// Runs the ranks as threads of this process.
int RunThreads(const BenchOptions& options, int ranks, const MessageGroup::Options& group_options) {
  const auto groups = MessageGroup::InProcess(ranks, group_options);
  if (!groups.ok()) return Report(groups.status());
  std::vector<int> codes(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { codes[rank] = RunOn(options, group_options.transport.name, (*groups)[rank].get()); });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(codes.begin(), codes.end());
}

int RunMessages(const BenchOptions& options, const MessageGroup::Options& group_options) {
  const bool on_one_host = group_options.meeting_folder.empty();
  if (on_one_host) {
    const absl::Status status = collectives::CheckOneHost(group_options.launch);
    if (!status.ok()) return Report(status);
  }
  const auto group = MessageGroup::Join(group_options);
  if (!group.ok()) return Report(group.status());
  // The measured parameters of a network are not those of one host.
  const std::string& transport = group_options.transport.name;
  return RunOn(options, on_one_host ? transport : absl::StrCat(transport, "-hosts"), group->get());
}

// Checks the transport for ranks on several hosts, which exchange messages and find each other in a folder.
absl::Status CheckHosts(const BenchOptions& options, const collectives::TransportChoice& transport) {
  if (!options.meeting_folder.empty() && (transport.one_process || transport.shares_memory)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--meet: found --transport ", options.transport, ", expected tcp, ucx or mpi"));
  }
  if (!options.meeting_folder.empty() && transport.plugin != nullptr && !options.any_network) {
    return absl::InvalidArgumentError(absl::StrCat("--meet: found --transport ", options.transport,
                                                   " without --insecure-network, which is needed because its traffic ",
                                                   "between hosts is not encrypted"));
  }
  return absl::OkStatus();
}

// Starts the ranks, or runs this rank if a launcher has started it.
int RunRanked(const BenchOptions& options) {
  const auto transport = collectives::ChooseTransport(options.transport, options.any_network);
  if (!transport.ok()) return Report(transport.status());
  if (const absl::Status valid = CheckHosts(options, *transport); !valid.ok()) return Report(valid);
  const auto listen_host = ParseHost(options.listen_host);
  if (!listen_host.ok()) return Report(Annotate(listen_host.status(), "--listen"));
  const auto launch = collectives::DetectLaunch();
  if (!launch.ok()) return Report(launch.status());
  const int ranks = options.ranks > 0 ? options.ranks : std::clamp(UsableCores(), 2, 8);
  MessageGroup::Options messages;
  messages.transport = *transport;
  messages.deadline_ms = options.deadline_ms;
  messages.checksums = options.checksums;
  messages.meeting_folder = options.meeting_folder;
  messages.listen_host = *listen_host;
  // Ranks would check this too, but each of them would report the error.
  if (const absl::Status valid = MessageGroup::CheckListenHost(messages); !valid.ok()) return Report(valid);
  if (!launch->has_value()) {
    if (transport->one_process) return RunThreads(options, ranks, messages);
    const auto code = RunRanks(ranks);
    return code.ok() ? *code : Report(code.status());
  }
  if (options.ranks > 0 && options.ranks != (*launch)->ranks) {
    return Report(absl::InvalidArgumentError(absl::StrCat("--ranks: found ", options.ranks, ", but ",
                                                          (*launch)->launcher, " has started ",
                                                          Counted((*launch)->ranks, "rank"), "; omit the flag")));
  }
  if (transport->one_process) {
    return Report(
        absl::InvalidArgumentError(absl::StrCat("--transport ", options.transport, ": ", (*launch)->launcher,
                                                " has started processes; this transport connects only threads")));
  }
  messages.launch = **launch;
  if (!options.meeting_folder.empty()) {
    messages.launch.key = "launch";  // The folder is for one launch. The keys of launchers differ between hosts.
  }
  if (!transport->shares_memory) return RunMessages(options, messages);
  auto group = collectives::JoinLaunchedGroup(options.deadline_ms);
  return group.ok() ? RunMapped(options, messages, *std::move(group)) : Report(group.status());
}

}  // namespace

int RunCalibration(const BenchOptions& given) {
  BenchOptions options = given;
  const auto launch = collectives::DetectLaunch();
  if (!launch.ok()) return Report(launch.status());
  // With the transports auto and shm, ranks of one host share memory, and plans are chosen only by size.
  const bool mapped = options.transport == "auto" || options.transport == "shm";
  const std::vector<int> ranks = options.ranks > 0 ? std::vector<int>{options.ranks} : std::vector<int>{2, 4, 8};
  const int64_t parts = std::ssize(ranks) * (mapped ? 2 : 1);
  options.calibrate_ms = kCalibrationMs / parts;
  if (mapped) options.transport = "tcp";
  if (launch->has_value()) return RunRanked(options);
  for (const int n : ranks) {
    options.ranks = n;
    if (const int code = RunRanked(options); code != 0) return code;
    if (!mapped) continue;
    BenchOptions threads = options;
    threads.transport = "in-process";
    threads.meeting_folder.clear();
    if (const int code = RunRanked(threads); code != 0) return code;
  }
  return 0;
}

int RunBench(const BenchOptions& options) {
  const absl::Status status = CheckBenchOptions(options);
  return status.ok() ? RunRanked(options) : Report(status);
}

}  // namespace xlad::cli
