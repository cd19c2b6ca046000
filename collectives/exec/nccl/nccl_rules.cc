#include "collectives/exec/nccl/nccl_rules.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collectives/exec/nccl/nccl_library.h"

namespace xlad::collectives::nccl {
namespace {

using tensor::ElementType;

constexpr std::pair<ElementType, DataType> kTypes[] = {
    {ElementType::kF64, kFloat64},   {ElementType::kF32, kFloat32}, {ElementType::kF16, kFloat16},
    {ElementType::kBF16, kBfloat16}, {ElementType::kS8, kInt8},     {ElementType::kS32, kInt32},
    {ElementType::kS64, kInt64},     {ElementType::kU8, kUint8},    {ElementType::kU32, kUint32},
    {ElementType::kU64, kUint64},
};

constexpr std::pair<Reduction, Op> kOps[] = {{Reduction::kSum, kSum},
                                             {Reduction::kProduct, kProduct},
                                             {Reduction::kMax, kMax},
                                             {Reduction::kMin, kMin},
                                             {Reduction::kAverage, kAverage}};

template <typename Table, typename Key>
auto* Find(const Table& table, Key key) {
  const auto* const found =
      std::find_if(std::begin(table), std::end(table), [key](const auto& row) { return row.first == key; });
  return found == std::end(table) ? nullptr : &found->second;
}

bool IsExact(const CollectiveSpec& spec) {
  return tensor::IsInteger(spec.type) && spec.reduction != Reduction::kAverage;
}

// Containers with different host names may share a GPU.
std::string BootIdOf(const Endpoint& endpoint) { return endpoint.machine.substr(0, endpoint.machine.find(' ')); }

}  // namespace

std::string Endpoint::Encode() const {
  return absl::StrJoin({absl::StrCat(version), absl::StrCat(any_network ? 1 : 0), machine, gpu, why}, "\n");
}

Endpoint Endpoint::Decode(absl::string_view text) {
  const std::vector<std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 4));
  Endpoint endpoint;
  if (lines.size() != 5 || !absl::SimpleAtoi(lines[0], &endpoint.version)) {
    endpoint.why = "it is not a GPU";
    return endpoint;
  }
  endpoint.any_network = lines[1] == "1";
  endpoint.machine = lines[2];
  endpoint.gpu = lines[3];
  endpoint.why = lines[4];
  return endpoint;
}

std::string WhyNotSpec(const CollectiveSpec& spec, bool required) {
  if (spec.kind == CollectiveKind::kBarrier) return "NCCL has no barrier";
  if (!Reduces(spec.kind)) return "";
  if (Find(kTypes, spec.type) == nullptr) {
    return absl::StrCat("NCCL does not reduce ", tensor::ToString(spec.type));
  }
  if (Find(kOps, spec.reduction) == nullptr) return absl::StrCat("NCCL has no reduction ", ToString(spec.reduction));
  if (spec.mode != ReductionMode::kFast && !IsExact(spec)) {
    return "NCCL reduces in an order of its own, which only the mode fast allows";
  }
  const bool is_extremum = spec.reduction == Reduction::kMax || spec.reduction == Reduction::kMin;
  if (is_extremum && tensor::IsFloating(spec.type) && !required) {
    return "NCCL does not define minima and maxima of NaNs";
  }
  return "";
}

std::string WhyNotGroup(const std::vector<int>& group, const std::map<int, Endpoint>& endpoints) {
  std::map<std::pair<std::string, std::string>, int> gpus;  // By boot id and GPU.
  const Endpoint* first = nullptr;
  for (const int device : group) {
    const auto found = endpoints.find(device);
    if (found == endpoints.end()) return absl::StrCat("device ", device, " has not reported whether it can use NCCL");
    const Endpoint& endpoint = found->second;
    if (endpoint.gpu.empty()) return absl::StrCat("device ", device, ": ", endpoint.why);
    if (first == nullptr) first = &endpoint;
    if (endpoint.version != first->version) {
      return absl::StrCat("device ", device, " has NCCL ", VersionText(endpoint.version), ", expected ",
                          VersionText(first->version), " as device ", group[0], " has");
    }
    if (endpoint.machine != first->machine && !(endpoint.any_network && first->any_network)) {
      return absl::StrCat("devices ", group[0], " and ", device,
                          " are on different machines or in containers with different host names, and NCCL's traffic "
                          "is neither encrypted nor authenticated; start their workers with --insecure-network to "
                          "allow it");
    }
    const auto [other, is_new] = gpus.emplace(std::make_pair(BootIdOf(endpoint), endpoint.gpu), device);
    if (!is_new) {
      return absl::StrCat("devices ", other->second, " and ", device,
                          " share a GPU, expected a GPU of its own for each rank; start one worker per GPU, each with "
                          "its own CUDA_VISIBLE_DEVICES");
    }
  }
  return "";
}

std::string WhyNotCollective(const Collective& collective, const std::vector<int>& group,
                             const std::map<int, Endpoint>& endpoints) {
  const bool required = collective.plan.engine == kNcclEngine;
  if (std::string why = WhyNotSpec(collective.spec, required); !why.empty()) return why;
  if (std::string why = WhyNotGroup(group, endpoints); !why.empty()) return why;
  return group.size() == 1 && !required ? "a single rank does not need NCCL" : "";
}

std::set<int> SpecsOf(const CollectiveSet& collectives, int device, const std::map<int, Endpoint>& endpoints) {
  std::set<int> specs;
  for (int spec = 0; spec < std::ssize(collectives.collectives); ++spec) {
    const Collective& collective = collectives.collectives[spec];
    const std::vector<int>* const group = FindGroup(collective, device).first;
    if (group != nullptr && WhyNotCollective(collective, *group, endpoints).empty()) specs.insert(spec);
  }
  return specs;
}

Elements ElementsOf(const CollectiveSpec& spec) {
  if (!Reduces(spec.kind)) return {kUint8, tensor::ByteWidth(spec.type)};
  return {*Find(kTypes, spec.type), 1};
}

Op OpOf(Reduction reduction) { return *Find(kOps, reduction); }

}  // namespace xlad::collectives::nccl
