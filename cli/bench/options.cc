#include "cli/bench/options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cli/flag_checks.h"
#include "cli/transports.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/calibration.h"

namespace xlad::cli {
namespace {

using collectives::CollectiveKind;
using collectives::Reduction;
using collectives::ReductionMode;
using tensor::ElementType;

struct TypeName {
  const char* name;
  ElementType type;
};
constexpr TypeName kTypes[] = {
    {"int8", ElementType::kS8},         {"uint8", ElementType::kU8},      {"int16", ElementType::kS16},
    {"uint16", ElementType::kU16},      {"int32", ElementType::kS32},     {"uint32", ElementType::kU32},
    {"int64", ElementType::kS64},       {"uint64", ElementType::kU64},    {"half", ElementType::kF16},
    {"float", ElementType::kF32},       {"double", ElementType::kF64},    {"bfloat16", ElementType::kBF16},
    {"f8e4m3", ElementType::kF8E4M3FN}, {"f8e5m2", ElementType::kF8E5M2}, {"pred", ElementType::kPred},
};

struct CollectiveName {
  const char* name;
  CollectiveKind kind;
  bool ragged = false;  // If true, the parts of the ranks have different sizes.
};
constexpr CollectiveName kCollectives[] = {
    {"all_reduce", CollectiveKind::kAllReduce},
    {"reduce_scatter", CollectiveKind::kReduceScatter},
    {"all_gather", CollectiveKind::kAllGather},
    {"all_to_all", CollectiveKind::kAllToAll},
    {"alltoall", CollectiveKind::kAllToAll},
    {"broadcast", CollectiveKind::kBroadcast},
    {"reduce", CollectiveKind::kReduce},
    {"gather", CollectiveKind::kGather},
    {"scatter", CollectiveKind::kScatter},
    {"sendrecv", CollectiveKind::kSendRecv},
    {"collective_permute", CollectiveKind::kCollectivePermute},
    {"barrier", CollectiveKind::kBarrier},
    {"all_gather_v", CollectiveKind::kAllGather, true},
    {"allgatherv", CollectiveKind::kAllGather, true},
    {"all_to_all_v", CollectiveKind::kAllToAll, true},
    {"alltoallv", CollectiveKind::kAllToAll, true},
    {"ragged_all_to_all", CollectiveKind::kAllToAll, true},
};

struct OpName {
  const char* name;
  Reduction reduction;
};
constexpr OpName kOps[] = {{"sum", Reduction::kSum}, {"prod", Reduction::kProduct}, {"min", Reduction::kMin},
                           {"max", Reduction::kMax}, {"avg", Reduction::kAverage},  {"and", Reduction::kAnd},
                           {"or", Reduction::kOr},   {"xor", Reduction::kXor}};

template <typename Rows>
std::string Names(const Rows& rows) {
  return absl::StrJoin(rows, ", ", [](std::string* out, const auto& row) { absl::StrAppend(out, row.name); });
}

// The name of a collective in kCollectives. Names of nccl-tests end with _perf, and names of HLO have hyphens.
std::string BaseName(absl::string_view name) {
  return absl::StrReplaceAll(absl::StripSuffix(name, "_perf"), {{"-", "_"}});
}

void AddHostFlags(CLI::App* app, BenchOptions* o) {
  app->add_option("--meet", o->meeting_folder,
                  "folder in which ranks on several hosts find each other; all hosts must share it; not for "
                  "--transport auto or shm")
      ->check(Folder());
  app->add_option(
         "--listen", o->listen_host,
         "address or interface by which other ranks reach this one; if it is not on loopback, --meet is required and "
         "TCP is encrypted")
      ->capture_default_str()
      ->transform(InterfaceAddress())
      ->check(Host());
}

void AddByteCountFlag(CLI::App* app, const char* flags, int64_t* value, const char* help) {
  app->add_option_function<std::string>(
         flags, [value](const std::string& text) { *value = collectives::ParseByteCount(text); }, help)
      ->type_name("BYTES")
      ->check([](const std::string& text) {
        return collectives::ParseByteCount(text) >= 0
                   ? std::string()
                   : absl::StrCat("found ", text, ", expected bytes such as 8, 64K, 256M or 1G");
      });
}

}  // namespace

absl::StatusOr<ElementType> ParseBenchType(const std::string& name) {
  for (const TypeName& row : kTypes) {
    if (name == row.name) return row.type;
  }
  const auto type = tensor::ParseElementType(name);
  // The inputs and checks support only real types whose elements have one or more complete bytes.
  const bool is_checked = type.has_value() && !tensor::IsComplex(*type) && tensor::BitWidth(*type) >= 8;
  if (is_checked) return *type;
  return absl::InvalidArgumentError(absl::StrCat("-d: found \"", name, "\", expected one of ", Names(kTypes),
                                                 ", or a real type of HLO of 8 bits or more"));
}

std::string BenchTypeName(ElementType type) {
  for (const TypeName& row : kTypes) {
    if (type == row.type) return row.name;
  }
  return std::string(tensor::ToString(type));
}

absl::StatusOr<CollectiveKind> ParseBenchCollective(const std::string& name) {
  const std::string base = BaseName(name);
  for (const CollectiveName& row : kCollectives) {
    if (base == row.name) return row.kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found collective \"", name, "\", expected one of ", Names(kCollectives)));
}

bool IsRaggedBench(const std::string& name) {
  const std::string base = BaseName(name);
  return std::any_of(std::begin(kCollectives), std::end(kCollectives),
                     [&](const CollectiveName& row) { return row.ragged && base == row.name; });
}

absl::StatusOr<Reduction> ParseBenchOp(const std::string& name) {
  for (const OpName& row : kOps) {
    if (name == row.name) return row.reduction;
  }
  return absl::InvalidArgumentError(absl::StrCat("--op: found \"", name, "\", expected one of ", Names(kOps)));
}

absl::StatusOr<ReductionMode> ParseBenchMode(const std::string& name) {
  if (name == "run-to-run") return ReductionMode::kRunToRun;
  if (name == "fast") return ReductionMode::kFast;
  if (name == "canonical") return ReductionMode::kCanonical;
  return absl::InvalidArgumentError(
      absl::StrCat("--mode: found \"", name, "\", expected one of fast, run-to-run, canonical"));
}

absl::Status CheckBenchOptions(const BenchOptions& o) {
  const auto error = [](const auto&... what) { return absl::InvalidArgumentError(absl::StrCat(what...)); };
  XLAD_ASSIGN_OR_RETURN(const CollectiveKind kind, ParseBenchCollective(o.collective));
  XLAD_ASSIGN_OR_RETURN(const ElementType type, ParseBenchType(o.type));
  XLAD_ASSIGN_OR_RETURN(const Reduction reduction, ParseBenchOp(o.op));
  XLAD_RETURN_IF_ERROR(ParseBenchMode(o.mode).status());
  if (o.min_bytes > o.max_bytes) {
    return error("-b: found ", o.min_bytes, " bytes with -e ", o.max_bytes,
                 ", expected a smallest size that is not above the largest (both are 32M by default)");
  }
  const bool has_sizes = kind != CollectiveKind::kBarrier && o.min_bytes < o.max_bytes;
  if (has_sizes && o.min_bytes == 0 && o.factor > 0) {
    return error(
        "-b: found 0 bytes with -f ", o.factor,
        ", expected at least 1 byte, because 0 times a factor is 0, or an increment (-i) instead of the factor");
  }
  if (has_sizes && o.factor == 0 && o.step_bytes == 0) {
    return error("-i: found 0 bytes, expected an increment above 0, or a factor (-f)");
  }
  if (!o.algorithm.empty()) {
    if (o.algorithm == "nccl") {
      return error(
          "--algorithm: found nccl, expected a plan of xlad's schedules: the ranks of `xlad bench COLLECTIVE` "
          "have their buffers in the memory of the host; `xlad bench --device cuda:1 --algorithm nccl`, "
          "without a collective, runs NCCL on a GPU");
    }
    const auto plan = collectives::ParsePlan(o.algorithm);
    if (!plan.ok()) return Annotate(plan.status(), "--algorithm");
    const auto found = collectives::FindAlgorithm(plan->algorithm);
    if (!found.ok()) return Annotate(found.status(), "--algorithm");
    if (!plan->engine.empty()) {
      return error("--algorithm: found engine=", plan->engine, ", expected none without --device cuda");
    }
  }
  // A spec of one rank is enough to check whether the reduction is defined for the type.
  collectives::CollectiveSpec spec;
  spec.type = type;
  spec.reduction = reduction;
  spec.counts = {1};
  const absl::Status valid = collectives::Reduces(kind) ? collectives::ValidateSpec(spec) : absl::OkStatus();
  return valid.ok() ? valid : Annotate(valid, "-o");
}

void AddBenchFlags(CLI::App* app, BenchOptions* o) {
  AddByteCountFlag(app, "-b,--minbytes", &o->min_bytes, "smallest size (default 32M)");
  AddByteCountFlag(app, "-e,--maxbytes", &o->max_bytes, "largest size (default 32M)");
  AddByteCountFlag(app, "-i,--stepbytes", &o->step_bytes, "increment between sizes (default 1M)");
  app->add_option("-f,--stepfactor", o->factor, "factor between sizes, instead of the increment")
      ->check(Between(2, int64_t{1} << 30));
  app->add_option("-n,--iters", o->iterations, "iterations of a batch (default 20, fewer for large sizes)")
      ->check(Between(1, 1000000));
  app->add_option("-w,--warmup_iters", o->warmup, "iterations before the timing")
      ->capture_default_str()
      ->check(Between(0, 1000000));
  app->add_option("-m,--agg_iters", o->aggregated, "operations of one iteration")
      ->capture_default_str()
      ->check(Between(1, 1000000));
  app->add_option("--batches", o->batches, "timed batches, of which the median is printed")
      ->capture_default_str()
      ->check(Between(1, 100000));
  app->add_option("-c,--check", o->check, "check the results; 0: do not")
      ->capture_default_str()
      ->check(Between(0, 1000));
  app->add_option("-d,--datatype", o->type, "element type: float, half, bfloat16, int32, ...")->capture_default_str();
  app->add_option("-o,--op", o->op, "reduction: sum, prod, min, max, avg, and, or, xor")->capture_default_str();
  app->add_option("-r,--root", o->root, "root of broadcast, reduce, gather and scatter")
      ->capture_default_str()
      ->check(Between(0, 1 << 20));
  app->add_option("-a,--average", o->average, "reported time: 0 rank 0; 1 mean, 2 minimum, 3 maximum of the ranks")
      ->capture_default_str()
      ->check(Between(0, 3));
  app->add_option("-R,--local_register", o->registered,
                  "1: buffers that xlad allocated, which ranks access directly; 0: plain memory")
      ->capture_default_str()
      ->check(Between(0, 1));
  app->add_option("--ranks", o->ranks, "start this many processes (without mpirun or srun)")->check(Between(1, 64));
  app->add_option("--algorithm", o->algorithm,
                  "plan to run instead of the one that xlad chooses, in the form that `xlad comm` prints; without "
                  "COLLECTIVE, also nccl");
  app->add_option("--plans", o->plans,
                  "file of plans by size, with lines such as \"all_reduce 64K-1M ring chunks=4\"; "
                  "--algorithm overrides it")
      ->check(InputFile());
  app->add_flag("--calibrate", o->calibrate,
                "measure how fast ranks exchange messages here, for the choice of plans, instead of reading the "
                "results of an earlier run; without COLLECTIVE: for 2, 4 and 8 ranks");
  AddTransportFlags(app, &o->transport, &o->any_network);
  AddHostFlags(app, o);
  app->add_flag("--checksums", o->checksums,
                "messages carry checksums of their payloads; auto and shm send messages only for plans named by "
                "--algorithm or --plans");
  app->add_flag("--shrink", o->shrink,
                "after an error, the ranks that are alive form a new group and finish an all_reduce");
  app->add_option("--mode", o->mode,
                  "order of reductions: fast (any), run-to-run (the same in each run; the default without COLLECTIVE), "
                  "canonical (a balanced tree over the ranks)")
      ->capture_default_str();
  AddByteCountFlag(app, "--rotate", &o->rotate_bytes, "use buffers in turn, of this many bytes in total on each rank");
  app->add_option("--json", o->json, "also write the rows to this file")->check(NamedOutputFile());
  app->add_option("--deadline-ms", o->deadline_ms, "how long to wait until all ranks have started")
      ->capture_default_str()
      ->check(Between(1, int64_t{1} << 31));
  app->add_flag("--explain", o->explain,
                "print the plans among which the ranks choose for each size, with their predicted times, the chosen "
                "plan, and where it rounds; without COLLECTIVE: print the memory in which the devices run the "
                "collective, and whether NCCL was found");
  app->add_flag("--wide", o->wide, "also print the plan and the 99th percentile of the batches");
  app->add_flag("--digest", o->digest, "also run each size on random values and print a hash of all results");
  app->add_flag("--memory", o->memory, "print how much memory all ranks map, without the rings of messages");
}

}  // namespace xlad::cli
