// `xlad comm check`, `schedule` and `simulate`: prove schedules of collectives, print or draw them, and predict their
// times.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "base/process/cores.h"
#include "base/process/memory_limit.h"
#include "base/random.h"
#include "base/rounding.h"
#include "cli/comm.h"
#include "cli/flag_checks.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/bus_factor.h"
#include "collectives/plan/calibration.h"
#include "collectives/plan/check.h"
#include "collectives/plan/check_all.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/mutate.h"
#include "collectives/plan/simulate.h"

namespace xlad::cli {
namespace {

using collectives::CollectiveKind;
using collectives::CollectivePlan;
using collectives::CollectiveSpec;
using collectives::Reduction;
using collectives::Schedule;
using collectives::ScheduleOp;
using Json = nlohmann::ordered_json;

constexpr int kMaxPipelinedRanks = 1024;
// The maximum for `comm check --all`. The operations of the schedules of some algorithms grow with the square of the
// number of ranks, and there is a check for each number of ranks.
constexpr int kMaxCheckAllRanks = 256;

// The options that the three commands share.
struct ScheduleOptions {
  std::string collective;
  std::string algorithm;
  int ranks = 0;
  int64_t bytes = -1;  // 256 bytes per rank if it is -1.
  int chunks = 1;
  int channels = 1;
  std::string op = "sum";
  int root = 0;
  bool canonical = false;
  std::string format;
};

struct CheckOptions : ScheduleOptions {
  std::string schedules;
  int64_t mutations = 0;
  uint64_t seed = 1;
  int slots = 1;
  bool all = false;
};

struct ScheduleCommandOptions : ScheduleOptions {
  int rank = -1;  // All ranks if it is -1.
  bool draw = false;
};

struct CommSimulateOptions : ScheduleOptions {
  std::string topology;
  std::vector<std::string> broken_links;
  std::vector<int> broken_chips;
};

// The collective with f32 elements, or u32 for operations on bits. `options.bytes` is the size as nccl-tests counts it:
// the larger of the sizes of the input and the output.
absl::StatusOr<CollectiveSpec> SpecOf(const ScheduleOptions& options) {
  CollectiveSpec spec;
  // HLO's names have hyphens.
  XLAD_ASSIGN_OR_RETURN(spec.kind,
                        collectives::ParseCollectiveKind(absl::StrReplaceAll(options.collective, {{"-", "_"}})));
  XLAD_ASSIGN_OR_RETURN(const Reduction reduction, collectives::ParseReduction(options.op));
  if (collectives::Reduces(spec.kind)) {
    spec.reduction = reduction;
    const bool is_of_bits =
        spec.reduction == Reduction::kAnd || spec.reduction == Reduction::kOr || spec.reduction == Reduction::kXor;
    if (is_of_bits) spec.type = tensor::ElementType::kU32;
  }
  spec.ranks = options.ranks;
  spec.root = options.root;
  if (options.canonical) spec.mode = collectives::ReductionMode::kCanonical;
  const int64_t n = std::max(options.ranks, 1);
  int64_t count = options.bytes > 0 ? std::max<int64_t>(1, options.bytes / 4) : options.bytes == 0 ? 0 : n * 64;
  if (InputHasParts(spec.kind)) count = RoundUp(count, n);
  if (spec.kind == CollectiveKind::kAllGather || spec.kind == CollectiveKind::kGather) count = CeilDiv(count, n);
  if (spec.kind == CollectiveKind::kBarrier) count = 0;
  spec.counts = {count};
  if (spec.kind == CollectiveKind::kCollectivePermute || spec.kind == CollectiveKind::kSendRecv) {
    for (int rank = 0; rank < options.ranks; ++rank) spec.pairs.push_back({rank, (rank + 1) % options.ranks});
  }
  XLAD_RETURN_IF_ERROR(collectives::ValidateSpec(spec));
  return spec;
}

// --algorithm takes a name, or a name and parameters: "ring_2d grid=4x4 chunks=2".
absl::StatusOr<CollectivePlan> PlanOf(const ScheduleOptions& options, const CollectiveSpec& spec) {
  if (options.algorithm.empty()) return collectives::MakePlan(spec);
  XLAD_ASSIGN_OR_RETURN(CollectivePlan plan, collectives::ParsePlan(options.algorithm));
  XLAD_RETURN_IF_ERROR(collectives::FindAlgorithm(plan.algorithm).status());
  if (options.chunks > 1) plan.chunks = options.chunks;
  if (options.channels > 1) plan.channels = options.channels;
  return plan;
}

// ResourceExhausted if the schedules of all ranks together take more than half of the machine's memory.
absl::Status CheckFits(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const collectives::CostTerms terms, collectives::TermsOf(plan, spec, /*directions=*/1));
  // A message is an operation of two ranks. In a round of signals, a rank signals to all others.
  const double of_rank = 2 * terms.messages + 2 * terms.signal_rounds * spec.ranks;
  const double bytes = of_rank * spec.ranks * sizeof(ScheduleOp);
  if (bytes <= 0.5 * static_cast<double>(UsableMemoryBytes())) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "the schedules of %s over %d ranks take about %.0f GB, more than half of the memory of this machine; expected "
      "fewer ranks or chunks, or another algorithm",
      plan.ToString(), spec.ranks, bytes / 1e9));
}

absl::StatusOr<collectives::ScheduleSet> ReadSchedules(const std::string& path) {
  XLAD_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  absl::StatusOr<collectives::ScheduleSet> set = collectives::ParseScheduleSet(text);
  if (!set.ok()) return Annotate(set.status(), path);
  return set;
}

// Checks all algorithms, or that of --algorithm, with 2 to --ranks ranks and 1 to --slots slots.
int RunCheckAll(const CheckOptions& options) {
  collectives::CheckAllOptions all;
  all.algorithm = options.algorithm;
  all.canonical = options.canonical;
  all.most_ranks = options.ranks;
  all.most_slots = options.slots;
  all.mutants = options.mutations;
  all.seed = options.seed;
  all.threads = UsableThreads();
  const int64_t start_ns = RealClock().NowNs();
  const absl::StatusOr<collectives::CheckAllCounts> counts = CheckAllPlans(all);
  if (!counts.ok()) return Fail(counts.status());
  const double seconds = static_cast<double>(RealClock().NowNs() - start_ns) / static_cast<double>(kNsPerSecond);
  const collectives::MutationCounts& mutants = counts->mutations;
  if (options.format == "json") {
    const Json json = {
        {"plans", counts->plans},
        {"checks", counts->checks},
        {"executions", counts->executions},
        {"mutations",
         {{"mutants", mutants.mutants}, {"rejected", mutants.rejected}, {"equivalent", mutants.equivalent}}},
        {"accepted", true},
        {"seconds", seconds}};
    std::printf("%s\n", JsonText(json, 2).c_str());
    return kOk;
  }
  absl::PrintF("%d %splans for 2 to %d ranks, with 1 to %d slots: %d checks accepted, by %d executions\n",
               counts->plans, options.canonical ? "canonical " : "", options.ranks, options.slots, counts->checks,
               counts->executions);
  absl::PrintF("%d mutants: %d rejected, %d equivalent\n%.1f s\n", mutants.mutants, mutants.rejected,
               mutants.equivalent, seconds);
  return kOk;
}

int RunCheck(const CheckOptions& options) {
  if (options.all) return RunCheckAll(options);
  collectives::ScheduleSet set;
  std::optional<CollectivePlan> checked_plan;
  if (!options.schedules.empty()) {
    absl::StatusOr<collectives::ScheduleSet> read = ReadSchedules(options.schedules);
    if (!read.ok()) return Fail(read.status());
    set = *std::move(read);
  } else {
    const absl::StatusOr<CollectiveSpec> spec = WrongUsage(SpecOf(options));
    if (!spec.ok()) return Fail(spec.status());
    const absl::StatusOr<CollectivePlan> plan = WrongUsage(PlanOf(options, *spec));
    if (!plan.ok()) return Fail(plan.status());
    if (const absl::Status fits = CheckFits(*plan, *spec); !fits.ok()) return Fail(fits);
    absl::StatusOr<std::vector<Schedule>> schedules = BuildSchedules(*plan, *spec);
    if (!schedules.ok()) return Fail(schedules.status());
    set = {*spec, *std::move(schedules)};
    checked_plan = *plan;
  }
  const absl::StatusOr<collectives::ScheduleCosts> costs = CheckSchedules(set.spec, set.schedules, {options.slots});
  absl::Status status = costs.status();
  if (costs.ok() && checked_plan.has_value()) status = CheckFormulas(*checked_plan, set.spec, *costs);
  const std::string plan_text = checked_plan.has_value() ? checked_plan->ToString() : "";
  absl::StatusOr<collectives::MutationCounts> mutants = collectives::MutationCounts();
  if (status.ok() && options.mutations > 0) {
    mutants = CheckMutants(set, options.mutations, SeededRandom(options.seed).get());
  }
  const bool accepted = status.ok() && mutants.ok();
  const std::string error(status.ok() ? mutants.status().message() : status.message());
  if (options.format == "json") {
    Json json = {{"collective", set.spec.ToString()}, {"plan", plan_text}, {"accepted", accepted}, {"error", error}};
    if (costs.ok()) {
      json["rounds"] = costs->rounds;
      json["max_sent_elements"] = costs->max_sent_elements;
    }
    if (accepted && options.mutations > 0) {
      json["mutations"] = {
          {"mutants", mutants->mutants}, {"rejected", mutants->rejected}, {"equivalent", mutants->equivalent}};
    }
    std::printf("%s\n", JsonText(json, 2).c_str());
  } else if (accepted) {
    absl::PrintF("%s: accepted (%s%d rounds, at most %d elements sent by a rank)\n", set.spec.ToString(),
                 plan_text.empty() ? "" : absl::StrCat(plan_text, "; ").c_str(), costs->rounds,
                 costs->max_sent_elements);
    if (options.mutations > 0) {
      absl::PrintF("%d mutants: %d rejected, %d equivalent\n", mutants->mutants, mutants->rejected,
                   mutants->equivalent);
    }
  } else {
    return Fail(absl::InternalError(error));
  }
  return accepted ? kOk : kFailed;
}

// One row per rank and one column per operation: where each rank sends to and receives from.
void Draw(const std::vector<Schedule>& schedules) {
  const auto cell = [](const ScheduleOp& op) {
    switch (op.kind) {
      case collectives::OpKind::kSend:
        return absl::StrCat("->", op.peer);
      case collectives::OpKind::kRecv:
        return absl::StrCat("<-", op.peer);
      case collectives::OpKind::kRecvReduce:
        return absl::StrCat("+<", op.peer);
      case collectives::OpKind::kSignal:
        return absl::StrCat("!", op.peer);
      case collectives::OpKind::kWait:
        return absl::StrCat("?", op.peer);
      case collectives::OpKind::kCopy:
        return std::string("=");
      case collectives::OpKind::kZero:
        return std::string("0");
      default:
        return std::string("sum");
    }
  };
  for (const Schedule& schedule : schedules) {
    std::printf("rank %4d |", schedule.rank);
    for (const ScheduleOp& op : schedule.ops) std::printf(" %5s", cell(op).c_str());
    std::printf("\n");
  }
  std::printf("-> send, <- receive, +< receive and reduce, sum: reduce several, = copy, 0 zero, ! signal, ? wait\n");
}

int RunSchedule(const ScheduleCommandOptions& options) {
  const absl::StatusOr<CollectiveSpec> spec = WrongUsage(SpecOf(options));
  if (!spec.ok()) return Fail(spec.status());
  const absl::StatusOr<CollectivePlan> plan = WrongUsage(PlanOf(options, *spec));
  if (!plan.ok()) return Fail(plan.status());
  if (const absl::Status fits = CheckFits(*plan, *spec); options.rank < 0 && !fits.ok()) return Fail(fits);
  std::vector<Schedule> schedules;
  for (int rank = options.rank < 0 ? 0 : options.rank; rank < spec->ranks; ++rank) {
    absl::StatusOr<Schedule> schedule = BuildSchedule(*plan, *spec, rank);
    if (!schedule.ok()) return Fail(schedule.status());
    schedules.push_back(*std::move(schedule));
    if (options.rank >= 0) break;
  }
  if (schedules.empty()) {
    return Fail(WrongUsage(
        absl::InvalidArgumentError(absl::StrCat("--rank: found ", options.rank, ", expected 0 to ", spec->ranks - 1))));
  }
  if (options.draw) {
    Draw(schedules);
  } else if (options.rank >= 0) {
    std::printf("%s", Print(schedules[0]).c_str());
  } else {
    std::printf("%s", Print(collectives::ScheduleSet{*spec, std::move(schedules)}).c_str());
  }
  return kOk;
}

absl::Status BreakLinks(const std::vector<std::string>& links, collectives::Network* network) {
  for (const std::string& link : links) {
    const std::vector<std::string> ends = absl::StrSplit(link, '-');
    int a = 0, b = 0;
    if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &a) || !absl::SimpleAtoi(ends[1], &b)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--broken-link: found ", link, ", expected two chips such as 0-1"));
    }
    XLAD_RETURN_IF_ERROR(network->BreakLink(a, b));
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> SimulateToJson(CommSimulateOptions options) {
  XLAD_ASSIGN_OR_RETURN(collectives::Network network, WrongUsage(collectives::Network::Preset(options.topology)));
  for (const int chip : options.broken_chips) XLAD_RETURN_IF_ERROR(WrongUsage(network.BreakChip(chip)));
  if (options.ranks == 0) options.ranks = network.ranks();
  XLAD_RETURN_IF_ERROR(WrongUsage(BreakLinks(options.broken_links, &network)));
  XLAD_ASSIGN_OR_RETURN(const CollectiveSpec spec, WrongUsage(SpecOf(options)));
  CollectivePlan plan;
  if (options.algorithm.empty()) {
    XLAD_ASSIGN_OR_RETURN(plan, collectives::PlanFor(spec, network));
  } else {
    XLAD_ASSIGN_OR_RETURN(plan, WrongUsage(PlanOf(options, spec)));
    // A ring algorithm with as many dimensions as the network gets the network's grid, and one channel for each
    // direction of each dimension.
    const int dimensions = static_cast<int>(network.grid().size());
    const bool fits = plan.algorithm == absl::StrCat("ring_", dimensions, "d") && spec.ranks == network.ranks() &&
                      network.HasAllChips();
    if (fits && plan.grid.empty()) {
      plan.grid = network.grid();
      if (plan.channels == 1) plan.channels = 2 * dimensions;
      // Six chunks mean six times as many messages. Above kMaxPipelinedRanks ranks, their simulation takes minutes.
      if (plan.chunks == 1 && options.chunks != 1 && spec.ranks <= kMaxPipelinedRanks) plan.chunks = 6;
    }
  }
  XLAD_ASSIGN_OR_RETURN(const collectives::SimulatedRun run, collectives::Simulate(plan, spec, network));
  const double bytes = static_cast<double>(std::max(spec.input_elements(), spec.output_elements())) * 4;
  const double factor = collectives::BusFactor(spec.kind, spec.ranks);
  const double bound = BandwidthBoundUs(spec, network);
  const double time_us = std::max(run.time_us, 1e-3);  // A rank that sends nothing takes no time.
  Json links = Json::array();
  for (size_t i = 0; i < network.links().size(); ++i) {
    const collectives::NetworkLink& link = network.links()[i];
    links.push_back({{"from", link.from},
                     {"to", link.to},
                     {"broken", link.broken},
                     {"use", run.time_us > 0 ? run.busy_us[i] / run.time_us : 0}});
  }
  return Json{{"topology", options.topology},
              {"collective", spec.ToString()},
              {"plan", plan.ToString()},
              {"bytes", bytes},
              {"time_us", run.time_us},
              {"algbw", bytes / time_us / 1e3},
              {"busbw", bytes * factor / time_us / 1e3},
              {"bound_us", bound},
              {"fraction_of_bound", bound / time_us},
              {"messages", run.messages},
              {"links", links}};
}

int RunCommSimulate(const CommSimulateOptions& options) {
  const absl::StatusOr<Json> json = SimulateToJson(options);
  if (!json.ok()) return Fail(json.status());
  if (options.format == "json") {
    std::printf("%s\n", json->dump(1).c_str());
    return kOk;
  }
  std::printf("%s on %s, %s\n%.1f us, algbw %.2f GB/s, busbw %.2f GB/s, %.1f %% of the bandwidth bound of %.1f us\n",
              (*json)["collective"].get<std::string>().c_str(), options.topology.c_str(),
              (*json)["plan"].get<std::string>().c_str(), (*json)["time_us"].get<double>(),
              (*json)["algbw"].get<double>(), (*json)["busbw"].get<double>(),
              100 * (*json)["fraction_of_bound"].get<double>(), (*json)["bound_us"].get<double>());
  return kOk;
}

// Options that describe the collective and the plan.
void AddScheduleFlags(CLI::App* app, ScheduleOptions* options, bool needs_collective) {
  CLI::Option* const collective = app->add_option("COLLECTIVE", options->collective,
                                                  "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ...");
  if (needs_collective) collective->required();
  app->add_option("--algorithm", options->algorithm,
                  "a name, or a name with parameters: \"ring_2d grid=4x4\"; default: chosen by predicted time");
  app->add_option("--ranks", options->ranks, "number of ranks")->check(Between(1, 1 << 16));
  app->add_option_function<std::string>(
         "--bytes", [options](const std::string& text) { options->bytes = collectives::ParseByteCount(text); },
         "size of the larger of input and output, such as 4096, 64K or 16M; default: 256 bytes per rank")
      ->type_name("BYTES")
      ->check([](const std::string& text) {
        return collectives::ParseByteCount(text) >= 0
                   ? std::string()
                   : absl::StrCat("found ", text, ", expected bytes such as 4096, 64K or 16M, at most 1024G");
      });
  app->add_option("--chunks", options->chunks, "number of pipelined pieces")->check(Between(1, 4096));
  app->add_option("--channels", options->channels, "number of channels")->check(Between(1, 4096));
  app->add_option("--op", options->op, "sum, prod, min, max, avg, and, or, xor");
  app->add_option("--root", options->root, "the root of broadcast, reduce, gather and scatter");
  app->add_flag("--canonical", options->canonical, "reduce in the canonical order: a balanced tree over the ranks");
}

}  // namespace

void AddCommSchedules(CLI::App* comm, Action* action) {
  auto check_options = std::make_shared<CheckOptions>();
  CLI::App* check = comm->add_subcommand("check", "prove that schedules are correct, or say why they are not");
  check->footer(
      "Examples:\n  xlad comm check all_reduce --ranks 8 --algorithm ring\n"
      "  xlad comm check all_gather --ranks 5 --mutations 100\n"
      "  xlad comm check --all --ranks 64 --slots 8 --mutations 10000");
  AddScheduleFlags(check, check_options.get(), /*needs_collective=*/false);
  check->add_option("--schedules", check_options->schedules,
                    "check the schedules that `comm schedule` printed to a file");
  check
      ->add_option("--mutations", check_options->mutations,
                   "also make this many random changes of the schedules; those that are wrong must be rejected")
      ->check(NonNegativeNumber());
  check->add_option("--seed", check_options->seed, "seed of the random changes");
  check->add_option("--slots", check_options->slots, "messages in flight on a channel")->check(Between(1, 64));
  CLI::Option* const all = check->add_flag(
      "--all", check_options->all,
      "check every algorithm, or that of --algorithm, with its default parameters, for every collective (sums of f32), "
      "with 2 to --ranks ranks and 1 to --slots slots; with --canonical, only reductions");
  for (const char* const other : {"--bytes", "--chunks", "--channels", "--op", "--root"}) {
    all->excludes(check->get_option(other));
  }
  AddFormatFlag(check, &check_options->format);
  check->callback([=] {
    const bool one = !check_options->collective.empty() || !check_options->schedules.empty();
    if (check_options->all && (one || check_options->ranks < 2)) {
      throw CLI::RequiredError("--ranks of 2 or more, without COLLECTIVE and --schedules,");
    }
    if (check_options->all && check_options->ranks > kMaxCheckAllRanks) {
      throw CLI::ValidationError("--ranks", absl::StrCat("found ", check_options->ranks, ", expected 2 to ",
                                                         kMaxCheckAllRanks, " with --all"));
    }
    if (!check_options->all && check_options->schedules.empty() &&
        (check_options->collective.empty() || check_options->ranks == 0)) {
      throw CLI::RequiredError("COLLECTIVE and --ranks, or --schedules,");
    }
    *action = [=] { return RunCheck(*check_options); };
  });

  auto schedule_options = std::make_shared<ScheduleCommandOptions>();
  CLI::App* print = comm->add_subcommand("schedule", "print or draw the schedule of each rank");
  print->footer("Example:\n  xlad comm schedule all_reduce --ranks 4 --algorithm ring --draw");
  AddScheduleFlags(print, schedule_options.get(), /*needs_collective=*/true);
  print->get_option("--ranks")->required();
  print->add_option("--rank", schedule_options->rank, "only this rank")->check(Between(0, (1 << 16) - 1));
  print->add_flag("--draw", schedule_options->draw, "a row of operations per rank");
  print->callback([=] { *action = [=] { return RunSchedule(*schedule_options); }; });

  auto simulate_options = std::make_shared<CommSimulateOptions>();
  CLI::App* simulate = comm->add_subcommand("simulate", "predict the time of a collective on a network");
  simulate->footer("Example:\n  xlad comm simulate all_reduce --topology v5e-4x4 --bytes 16M");
  AddScheduleFlags(simulate, simulate_options.get(), /*needs_collective=*/true);
  simulate_options->chunks = 0;
  simulate->add_option("--topology", simulate_options->topology, "v5e-16x16, v4-4x4x8, switch-64, ...")->required();
  simulate
      ->add_option("--broken-link", simulate_options->broken_links,
                   "A-B: the link between these two neighboring chips is broken; may be repeated")
      ->allow_extra_args(false);
  simulate
      ->add_option("--broken-chip", simulate_options->broken_chips,
                   "this chip is broken, with its links, and the ranks are the others; may be repeated")
      ->allow_extra_args(false)
      ->check(Between(0, (1 << 16) - 1));
  AddFormatFlag(simulate, &simulate_options->format);
  simulate->callback([=] { *action = [=] { return RunCommSimulate(*simulate_options); }; });
}

}  // namespace xlad::cli
