// The functions for graphs. They are not in the library libxlad_cuda_driver_double_without_graphs.so.
#include <atomic>
#include <utility>

#include "tests/cuda_driver_double/driver_double_hooks.h"
#include "tests/cuda_driver_double/library/driver_objects.h"

namespace xlad::runtime::cuda {

#define XLAD_DECLARE(name, parameters) extern "C" __attribute__((visibility("default"))) Result name parameters;
XLAD_CUDA_GRAPH_FUNCTIONS(XLAD_DECLARE)
#undef XLAD_DECLARE

namespace {

struct {
  std::atomic<int64_t> graphs, executables, instantiations, updates, launches;
} counts;

}  // namespace

Result cuStreamBeginCapture_v2(StreamHandle stream, int mode) {
  XLAD_ENTER_WITH_CONTEXT(cuStreamBeginCapture_v2);
  if (stream->capture != nullptr || mode != kCaptureThreadLocal) return kInvalidValue;
  stream->capture = std::make_unique<StreamObject::Capture>();
  stream->capture->thread = std::this_thread::get_id();
  SetCaptureOfThread(stream->capture.get());
  return kSuccess;
}
Result cuStreamEndCapture(StreamHandle stream, GraphHandle* graph) {
  *graph = nullptr;
  if (stream->capture == nullptr || stream->capture->thread != std::this_thread::get_id()) return kInvalidValue;
  const std::unique_ptr<StreamObject::Capture> capture = std::move(stream->capture);
  SetCaptureOfThread(nullptr);
  XLAD_ENTER(cuStreamEndCapture);
  if (!capture->is_valid) return kCaptureInvalidated;
  *graph = new GraphObject{std::move(capture->nodes)};
  ++counts.graphs;
  return kSuccess;
}
Result cuGraphInstantiateWithFlags(GraphExecHandle* exec, GraphHandle graph, unsigned long long) {  // NOLINT
  XLAD_ENTER_WITH_CONTEXT(cuGraphInstantiateWithFlags);
  *exec = new GraphExecObject{std::make_shared<const std::vector<Operation>>(graph->nodes)};
  ++counts.executables;
  ++counts.instantiations;
  return kSuccess;
}
// The graph must have the same nodes except for their parameters.
Result cuGraphExecUpdate_v2(GraphExecHandle exec, GraphHandle graph, GraphUpdateInfo* info) {
  XLAD_ENTER_WITH_CONTEXT(cuGraphExecUpdate_v2);
  *info = {};
  const std::vector<Operation>& old = *exec->nodes;
  bool is_same = old.size() == graph->nodes.size();
  for (size_t i = 0; is_same && i < old.size(); ++i) {
    is_same = old[i].kind == graph->nodes[i].kind && old[i].kernel == graph->nodes[i].kernel;
  }
  if (!is_same) {
    info->result = 1;
    return kGraphUpdateFailure;
  }
  exec->nodes = std::make_shared<const std::vector<Operation>>(graph->nodes);
  ++counts.updates;
  return kSuccess;
}
Result cuGraphLaunch(GraphExecHandle exec, StreamHandle stream) {
  XLAD_ENTER_WITH_CONTEXT(cuGraphLaunch);
  if (const Result refused = RefuseCapture(stream); refused != kSuccess) return refused;
  for (const Operation& node : *exec->nodes) {
    if (const Result checked = CheckOperation(node); checked != kSuccess) return checked;
  }
  ++counts.launches;
  // An update does not change earlier launches.
  stream->queue.Add([nodes = exec->nodes] {
    for (const Operation& node : *nodes) {
      if (const Result result = RunOperation(node); result != kSuccess) return result;
    }
    return kSuccess;
  });
  return kSuccess;
}
Result cuGraphExecDestroy(GraphExecHandle exec) {
  delete exec;
  --counts.executables;
  return kSuccess;
}
Result cuGraphDestroy(GraphHandle graph) {
  delete graph;
  --counts.graphs;
  return kSuccess;
}

}  // namespace xlad::runtime::cuda

void xladCudaDoubleGraphs(XladCudaDoubleGraphs* out) {
  const auto& counts = xlad::runtime::cuda::counts;
  *out = {counts.graphs, counts.executables, counts.instantiations, counts.updates, counts.launches};
}
