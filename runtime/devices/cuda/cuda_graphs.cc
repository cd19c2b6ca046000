#include "runtime/devices/cuda/cuda_graphs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace xlad::runtime::cuda {

CudaGraphs::~CudaGraphs() {
  for (auto& [number, group] : groups_) Destroy(&group);
}

absl::StatusOr<bool> CudaGraphs::Begin(const StepGroup& group) {
  Group& known = groups_[group.number];
  if (known.is_plain) return false;
  addresses_.assign(group.allocations.begin(), group.allocations.end());
  addresses_.push_back(group.scratch);
  if (Graph* const graph = Find(&known); graph != nullptr) {
    known.misses = 0;
    XLAD_RETURN_IF_ERROR(stream_.Note(Launch(graph)));
    return true;
  }
  if (!std::exchange(known.has_run, true)) return false;
  if (++known.misses > kMaxMisses) {
    Destroy(&known);
    known.is_plain = true;
    return false;
  }
  const absl::Status begun = stream_.BeginRecording();
  if (begun.ok()) {
    recording_ = &known;
  } else {
    MakePlain(&known, begun);
  }
  return false;
}

absl::StatusOr<bool> CudaGraphs::End(const absl::Status& enqueued) {
  if (recording_ == nullptr) return true;
  Group* const group = std::exchange(recording_, nullptr);
  const absl::StatusOr<GraphHandle> recorded = stream_.EndRecording();
  absl::Status status = enqueued.ok() ? recorded.status() : enqueued;
  if (status.ok()) {
    const absl::StatusOr<Graph*> graph = Store(*recorded, group);
    status = graph.ok() ? Launch(*graph) : graph.status();
  }
  if (recorded.ok()) stream_.gpu().driver().cuGraphDestroy(*recorded);
  if (status.ok()) return true;
  MakePlain(group, status);
  return false;
}

CudaGraphs::Graph* CudaGraphs::Find(Group* group) {
  const auto found = std::find_if(group->graphs.begin(), group->graphs.end(),
                                  [this](const Graph& graph) { return graph.addresses == addresses_; });
  return found == group->graphs.end() ? nullptr : &*found;
}

absl::Status CudaGraphs::Launch(Graph* graph) {
  XLAD_RETURN_IF_ERROR(stream_.Begin());
  graph->last_use = ++uses_;
  stream_.SetLast(graph->last_work);
  const Result launched = stream_.gpu().driver().cuGraphLaunch(graph->exec, stream_.handle());
  return stream_.gpu().Check(launched, absl::StrCat("cuGraphLaunch (", graph->last_work, ")"));
}

absl::StatusOr<CudaGraphs::Graph*> CudaGraphs::Store(GraphHandle recorded, Group* group) {
  const Driver& driver = stream_.gpu().driver();
  Graph* place = nullptr;
  if (std::ssize(group->graphs) < kMaxGraphs) {
    place = &group->graphs.emplace_back();
  } else {
    place = &*std::min_element(group->graphs.begin(), group->graphs.end(),
                               [](const Graph& a, const Graph& b) { return a.last_use < b.last_use; });
    GraphUpdateInfo info = {};
    if (driver.cuGraphExecUpdate_v2(place->exec, recorded, &info) != kSuccess) {
      driver.cuGraphExecDestroy(std::exchange(place->exec, nullptr));
    }
  }
  place->addresses = addresses_;
  place->last_work = absl::StrCat("a graph that ends with ", stream_.last());
  if (place->exec == nullptr) {
    XLAD_RETURN_IF_ERROR(
        stream_.gpu().Check(driver.cuGraphInstantiateWithFlags(&place->exec, recorded, 0), "cuGraphInstantiate"));
  }
  return place;
}

void CudaGraphs::MakePlain(Group* group, const absl::Status& why) {
  if (!std::exchange(has_logged_, true)) {
    LogWarn("cuda: some kernels are launched one by one, because their graph cannot be made",
            {{"error", std::string(why.message())}});
  }
  Destroy(group);
  group->is_plain = true;
}

void CudaGraphs::Destroy(Group* group) {
  stream_.gpu().Activate().IgnoreError();  // The driver's objects are released even after a failure of the GPU.
  for (const Graph& graph : group->graphs) {
    if (graph.exec != nullptr) stream_.gpu().driver().cuGraphExecDestroy(graph.exec);
  }
  group->graphs.clear();
}

}  // namespace xlad::runtime::cuda
