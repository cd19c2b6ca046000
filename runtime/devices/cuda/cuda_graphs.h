// CUDA graphs of the groups of steps of a launcher (StepGroup in runtime/device.h). The host enqueues a graph with one
// call of the driver instead of one call for each kernel.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/devices/cuda/cuda_stream.h"

namespace xlad::runtime::cuda {

// The first run of a group launches each kernel, because the first launch of a kernel may load its code, which cannot
// be recorded, and because many programs run once. The second run records a graph. The parameters of its kernels are
// addresses, so a group has a graph for each set of addresses, up to kMaxGraphs: training exchanges the memory of
// parameters and results after each step, so that two sets alternate. For a further set, the least recently used graph
// is updated. If more than kMaxMisses runs in a row have addresses without a graph, or if a graph cannot be made, the
// kernels of the group are launched one by one from then on.
//
// Used by one thread at a time.
class CudaGraphs {
 public:
  static constexpr int64_t kMaxGraphs = 4;
  static constexpr int kMaxMisses = 16;

  // `stream` must outlive this object.
  explicit CudaGraphs(CudaStream* stream) : stream_(*stream) {}
  // The caller must have waited for the stream.
  ~CudaGraphs();
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  // Launcher::BeginGroup and Launcher::EndGroup.
  absl::StatusOr<bool> Begin(const StepGroup& group);
  absl::StatusOr<bool> End(const absl::Status& enqueued);

 private:
  struct Graph {
    std::vector<const void*> addresses;  // The addresses in the StepGroup, the scratch memory last.
    GraphExecHandle exec = nullptr;
    int64_t last_use = 0;
    std::string last_work;  // For messages.
  };
  struct Group {
    std::vector<Graph> graphs;
    bool has_run = false;
    bool is_plain = false;  // No more graphs are made.
    int misses = 0;         // The number of runs since the last one that had a graph.
  };

  // Returns the graph of the current addresses, or null.
  Graph* Find(Group* group);
  // The error is not recorded as one of the stream.
  absl::Status Launch(Graph* graph);
  // Makes the graph executable, in a free place of the group or in that of an older graph.
  absl::StatusOr<Graph*> Store(GraphHandle recorded, Group* group);
  void MakePlain(Group* group, const absl::Status& why);
  void Destroy(Group* group);

  CudaStream& stream_;
  std::map<int, Group> groups_;         // By the number of the group.
  Group* recording_ = nullptr;          // Null if no group is being recorded.
  std::vector<const void*> addresses_;  // The addresses of the current group.
  int64_t uses_ = 0;
  bool has_logged_ = false;
};

}  // namespace xlad::runtime::cuda
