#include "runtime/step_program.h"

#include <map>
#include <set>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "collectives/plan/spec_proto.h"
#include "proto/mesh.h"
#include "runtime/index_text.h"
#include "runtime/numerics_check.h"
#include "runtime/slice.h"
#include "tensor/wire.h"

namespace xlad::runtime {

struct StepProgram::Node {
  enum class Kind { kKernel, kLibrary, kCollective, kCollectiveDone, kCopy, kWhile, kIf };
  Kind kind = Kind::kKernel;
  std::string place;           // "all-reduce.7 (train.py:31)"
  int index = 0;               // The number of the kernel, library op or collective.
  std::vector<Slice> buffers;  // Arguments, a collective's inputs, a copy's source and target, a predicate or selector.
  std::vector<Slice> outputs;  // A collective's outputs.
  int request = 0;             // For the start and the end of an asynchronous collective: the number of its request.
  bool has_scratch = false;
  int64_t tiles = 1;
  bool selector_is_predicate = false;
  int number = 0;  // The number of the step, as in StepTimes.
  std::vector<CheckedSlice> checked_operands, checked_results;
  std::vector<std::vector<Node>> bodies;  // The condition and body of a loop, or the branches of a conditional.
  // If the node is the first one of a StepGroup: the number of its nodes, otherwise 0.
  size_t group_size = 0;
  int group = 0;               // The number of the group.
  int64_t group_launches = 0;  // The kernels and library ops of the group.
};

namespace {

using Node = StepProgram::Node;
using collectives::CollectiveSpec;

constexpr int kMaxDepth = 64;

std::string PlaceOf(const Step& step) {
  if (step.source().empty()) return step.name();
  return absl::StrCat(step.name(), " (", step.source(), ")");
}

// Checks steps and turns them into nodes.
class Preparer {
 public:
  explicit Preparer(const LoadedExecutable& loaded) : loaded_(loaded), executable_(loaded.executable()) {}

  absl::StatusOr<std::vector<Node>> Steps(const google::protobuf::RepeatedPtrField<Step>& steps, int depth) {
    if (depth > kMaxDepth) {
      return absl::InvalidArgumentError(
          absl::StrCat("found loops and branches nested more than ", kMaxDepth, " deep, expected at most ", kMaxDepth));
    }
    std::vector<Node> nodes;
    for (const Step& step : steps) {
      Node& node = nodes.emplace_back();
      node.place = PlaceOf(step);
      node.number = num_steps_++;
      absl::Status status = Fill(step, depth, &node);
      if (status.ok()) status = Checked(step.checked_operands(), &node.checked_operands);
      if (status.ok()) status = Checked(step.checked_results(), &node.checked_results);
      if (!status.ok()) return Annotate(status, absl::StrCat("step ", node.place));
    }
    XLAD_RETURN_IF_ERROR(CheckRequests(nodes));
    FormGroups(steps, &nodes);
    return nodes;
  }

  int num_steps() const { return num_steps_; }

  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  absl::Status Fill(const Step& step, int depth, Node* node) {
    switch (step.step_case()) {
      case Step::kKernel:
        return Kernel(step.kernel(), node);
      case Step::kLibrary:
        return Library(step.library(), node);
      case Step::kCollective:
        return Collective(step.collective(), node);
      case Step::kCollectiveDone:
        node->kind = Node::Kind::kCollectiveDone;
        node->request = step.collective_done().request();
        return absl::OkStatus();
      case Step::kCopy:
        return Copy(step.copy(), node);
      case Step::kWhile:
        return While(step.while_(), depth, node);
      case Step::kIf:
        return If(step.if_(), depth, node);
      default:
        return absl::InvalidArgumentError(
            "found a step of an unknown kind: the executable was compiled by a later version than this worker's");
    }
  }

  // Steps whose floats are checked are enqueued one by one.
  void FormGroups(const google::protobuf::RepeatedPtrField<Step>& steps, std::vector<Node>* nodes) {
    Node* first = nullptr;
    for (int i = 0; i < std::ssize(*nodes); ++i) {
      Node& node = (*nodes)[i];
      if (!node.checked_results.empty() || !loaded_.CanGroup(steps[i])) {
        first = nullptr;
        continue;
      }
      if (first == nullptr) {
        first = &node;
        first->group = num_groups_++;
      }
      ++first->group_size;
      first->group_launches += node.kind == Node::Kind::kCopy ? 0 : 1;
    }
  }

  // Checks that each collective that is started in a list of steps is ended exactly once in the same list.
  absl::Status CheckRequests(const std::vector<Node>& nodes) {
    std::map<int, const Node*> running;
    for (const Node& node : nodes) {
      if (node.kind == Node::Kind::kCollective && node.request != 0) {
        if (requests_.insert(node.request).second) {
          running[node.request] = &node;
          continue;
        }
        return absl::InvalidArgumentError(
            absl::StrCat("step ", node.place, ": found request ", node.request,
                         " a second time, expected a different number for each request"));
      }
      if (node.kind == Node::Kind::kCollectiveDone && running.erase(node.request) == 0) {
        return absl::InvalidArgumentError(absl::StrCat("step ", node.place, ": found the end of request ", node.request,
                                                       ", expected one that an earlier step of its list started"));
      }
    }
    if (running.empty()) return absl::OkStatus();
    const auto& [request, node] = *running.begin();
    return absl::InvalidArgumentError(
        absl::StrCat("step ", node->place, ": found no end of request ", request,
                     " in its list of steps, expected one"));
  }

  absl::Status Checked(const google::protobuf::RepeatedPtrField<CheckedArray>& arrays,
                       std::vector<CheckedSlice>* out) const {
    for (const CheckedArray& array : arrays) {
      XLAD_ASSIGN_OR_RETURN(const Slice slice, ReadSlice(executable_, array.buffer()));
      const auto type = tensor::TypeFromWire(array);
      const int64_t width = tensor::ByteWidth(type);
      if (width < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("found element type number ", array.element_type(), ", expected a number of PrimitiveType"));
      }
      if (slice.bytes % width != 0) {
        return absl::InvalidArgumentError(absl::StrCat("found a checked array of ", slice.bytes,
                                                       " bytes, expected a multiple of ", width, ", the size of ",
                                                       tensor::ToString(type)));
      }
      out->push_back({slice, type});
    }
    return absl::OkStatus();
  }

  absl::Status AddSlice(const BufferSlice& proto, std::vector<Slice>* out) {
    XLAD_ASSIGN_OR_RETURN(out->emplace_back(), ReadSlice(executable_, proto));
    return absl::OkStatus();
  }

  absl::Status Kernel(const KernelStep& step, Node* node) {
    node->kind = Node::Kind::kKernel;
    XLAD_ASSIGN_OR_RETURN(node->index, loaded_.FindKernel(step.symbol()));
    for (const BufferSlice& slice : step.buffers()) XLAD_RETURN_IF_ERROR(AddSlice(slice, &node->buffers));
    if (step.scratch_bytes() < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("found ", step.scratch_bytes(), " bytes of scratch, expected 0 or more"));
    node->has_scratch = step.scratch_bytes() > 0;
    if (step.tiles() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("found ", step.tiles(), " tiles, expected 0 or more"));
    }
    node->tiles = std::max<int64_t>(1, step.tiles());
    scratch_bytes_ = std::max(scratch_bytes_, step.scratch_bytes());
    return absl::OkStatus();
  }

  absl::Status Library(const LibraryStep& step, Node* node) {
    node->kind = Node::Kind::kLibrary;
    node->index = step.op();
    if (step.op() < 0 || step.op() >= executable_.library_ops_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("found library op ", step.op(), ", expected ", IndexText(executable_.library_ops_size())));
    }
    for (const BufferSlice& slice : step.buffers()) XLAD_RETURN_IF_ERROR(AddSlice(slice, &node->buffers));
    return absl::OkStatus();
  }

  absl::Status Collective(const CollectiveStep& step, Node* node) {
    node->kind = Node::Kind::kCollective;
    node->index = step.spec();
    node->request = step.request();
    if (step.spec() < 0 || step.spec() >= executable_.collectives_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("found collective ", step.spec(), ", expected ", IndexText(executable_.collectives_size())));
    }
    XLAD_ASSIGN_OR_RETURN(const CollectiveSpec spec, collectives::SpecFromProto(executable_.collectives(step.spec()),
                                                                                NumDevices(executable_.mesh())));
    for (const BufferSlice& slice : step.inputs()) XLAD_RETURN_IF_ERROR(AddSlice(slice, &node->buffers));
    for (const BufferSlice& slice : step.outputs()) XLAD_RETURN_IF_ERROR(AddSlice(slice, &node->outputs));
    XLAD_RETURN_IF_ERROR(CheckSizes("inputs", node->buffers, spec.counts, spec));
    return CheckSizes("outputs", node->outputs, spec.output_counts(), spec);
  }

  static absl::Status CheckSizes(absl::string_view what, const std::vector<Slice>& slices,
                                 const std::vector<int64_t>& counts, const CollectiveSpec& spec) {
    if (slices.size() != counts.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("found ", slices.size(), " ", what, ", expected ", counts.size(), " for ", spec.ToString()));
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      const int64_t needed = counts[i] * tensor::ByteWidth(spec.type);
      if (slices[i].bytes >= needed) continue;
      return absl::InvalidArgumentError(absl::StrCat("found ", slices[i].bytes, " bytes for element ", i, " of the ",
                                                     what, ", expected at least ", needed, " for ", spec.ToString()));
    }
    return absl::OkStatus();
  }

  absl::Status Copy(const CopyStep& step, Node* node) {
    node->kind = Node::Kind::kCopy;
    XLAD_RETURN_IF_ERROR(AddSlice(step.from(), &node->buffers));
    XLAD_RETURN_IF_ERROR(AddSlice(step.to(), &node->buffers));
    if (node->buffers[0].bytes == node->buffers[1].bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("found a copy of ", node->buffers[0].bytes, " bytes to ", node->buffers[1].bytes,
                     " bytes, expected equal sizes"));
  }

  absl::Status While(const WhileStep& step, int depth, Node* node) {
    node->kind = Node::Kind::kWhile;
    XLAD_RETURN_IF_ERROR(AddSlice(step.predicate(), &node->buffers));
    if (node->buffers[0].bytes < 1) {
      return absl::InvalidArgumentError("found a predicate of 0 bytes, expected 1 or more");
    }
    XLAD_ASSIGN_OR_RETURN(node->bodies.emplace_back(), Steps(step.condition(), depth + 1));
    XLAD_ASSIGN_OR_RETURN(node->bodies.emplace_back(), Steps(step.body(), depth + 1));
    return absl::OkStatus();
  }

  absl::Status If(const IfStep& step, int depth, Node* node) {
    node->kind = Node::Kind::kIf;
    node->selector_is_predicate = step.selector_is_predicate();
    XLAD_RETURN_IF_ERROR(AddSlice(step.selector(), &node->buffers));
    const int64_t selector_bytes = step.selector_is_predicate() ? 1 : 4;
    if (node->buffers[0].bytes < selector_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("found a selector whose size in bytes is ", node->buffers[0].bytes,
                                                     ", expected ", selector_bytes, " or more"));
    }
    for (const IfStep::Branch& branch : step.branches()) {
      XLAD_ASSIGN_OR_RETURN(node->bodies.emplace_back(), Steps(branch.steps(), depth + 1));
    }
    const size_t min_branches = step.selector_is_predicate() ? 2 : 1;
    if (node->bodies.size() >= min_branches) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("found ", node->bodies.size(), node->bodies.size() == 1 ? " branch" : " branches", ", expected ",
                     min_branches, " or more"));
  }

  const LoadedExecutable& loaded_;
  const Executable& executable_;
  int64_t scratch_bytes_ = 0;
  int num_steps_ = 0, num_groups_ = 0;
  std::set<int> requests_;  // The requests of all lists of steps.
};

// One run of the program's nodes. `iteration` is a fingerprint of the counters of the enclosing loops, or 0 outside all
// loops.
class Runner {
 public:
  explicit Runner(const StepEnvironment& environment) : environment_(environment) {}

  absl::Status Steps(const std::vector<Node>& nodes, uint64_t iteration) {
    const bool measures = environment_.times != nullptr || environment_.tracer != nullptr;
    for (size_t i = 0; i < nodes.size();) {
      if (environment_.abort != nullptr && environment_.abort->raised()) return environment_.abort->status();
      const Node& node = nodes[i];
      if (!measures && node.group_size > 1) {
        XLAD_RETURN_IF_ERROR(Group(absl::MakeConstSpan(nodes).subspan(i, node.group_size)));
        i += node.group_size;
        continue;
      }
      ++i;
      const bool is_observed = measures || !node.checked_results.empty();
      const absl::Status status = is_observed ? Observed(node, iteration) : One(node, iteration);
      if (!status.ok()) return Named(node, status);
    }
    return absl::OkStatus();
  }

 private:
  // Only the innermost step adds its name and source line to the error.
  absl::Status Named(const Node& node, const absl::Status& status) {
    return std::exchange(named_, true) ? status : Annotate(status, node.place);
  }

  absl::Status Group(absl::Span<const Node> nodes) {
    const StepGroup group{nodes[0].group, nodes[0].group_launches, environment_.allocations, environment_.scratch};
    absl::StatusOr<bool> is_enqueued = environment_.launcher->BeginGroup(group);
    if (!is_enqueued.ok()) return Named(nodes[0], is_enqueued.status());
    if (*is_enqueued) return absl::OkStatus();
    const auto [failed, status] = EnqueueAll(nodes);
    is_enqueued = environment_.launcher->EndGroup(status);
    if (!is_enqueued.ok()) return Named(nodes[0], is_enqueued.status());
    if (*is_enqueued) return status.ok() ? status : Named(*failed, status);
    const auto [failed_again, again] = EnqueueAll(nodes);
    return again.ok() ? again : Named(*failed_again, again);
  }

  // Returns the first error and the node that reported it.
  std::pair<const Node*, absl::Status> EnqueueAll(absl::Span<const Node> nodes) {
    for (const Node& node : nodes) {
      absl::Status status = One(node, /*iteration=*/0);  // Only collectives need the iteration.
      if (!status.ok()) return {&node, std::move(status)};
    }
    return {nullptr, absl::OkStatus()};
  }

  std::byte* At(const Slice& slice) const { return environment_.allocations[slice.allocation] + slice.offset; }

  // Runs a node, and measures its time, records it in the tracer, or checks its floats.
  absl::Status Observed(const Node& node, uint64_t iteration) {
    const bool is_checked = !node.checked_results.empty();
    NumericsCheck check(environment_.stream, environment_.allocations);
    const auto on_device = [&](const absl::Status& status) {
      return Annotate(status, absl::StrCat("device ", environment_.device));
    };
    if (is_checked) XLAD_RETURN_IF_ERROR(on_device(check.Before(node.checked_operands)));
    const int64_t start_ns = environment_.times == nullptr ? 0 : environment_.times->clock->NowNs();
    const int span = environment_.tracer == nullptr ? -1 : environment_.tracer->Open(node.number);
    XLAD_RETURN_IF_ERROR(One(node, iteration));
    if (environment_.tracer != nullptr) {
      XLAD_RETURN_IF_ERROR(environment_.stream->Synchronize());
      environment_.tracer->Close(span);
    }
    if (environment_.times != nullptr) {
      XLAD_RETURN_IF_ERROR(environment_.stream->Synchronize());
      ++environment_.times->calls[node.number];
      environment_.times->ns[node.number] += environment_.times->clock->NowNs() - start_ns;
    }
    if (!is_checked) return absl::OkStatus();
    return on_device(check.After(node.checked_results));
  }

  absl::Status One(const Node& node, uint64_t iteration) {
    switch (node.kind) {
      case Node::Kind::kKernel:
      case Node::Kind::kLibrary: {
        absl::InlinedVector<void*, 16> buffers;
        for (const Slice& slice : node.buffers) buffers.push_back(At(slice));
        if (node.kind == Node::Kind::kLibrary) return environment_.launcher->RunLibraryOp(node.index, buffers);
        return environment_.launcher->RunKernel(node.index, buffers, node.has_scratch ? environment_.scratch : nullptr,
                                                node.tiles);
      }
      case Node::Kind::kCopy:
        return environment_.stream->Copy(At(node.buffers[1]), At(node.buffers[0]), node.buffers[0].bytes);
      case Node::Kind::kCollective:
        return Collective(node, iteration);
      case Node::Kind::kCollectiveDone:
        return environment_.communicator->Wait(started_[node.request]);
      case Node::Kind::kWhile:
        return While(node, iteration);
      case Node::Kind::kIf: {
        XLAD_ASSIGN_OR_RETURN(const size_t branch, Branch(node));
        return Steps(node.bodies[branch], iteration);
      }
    }
    return absl::InternalError("unknown step");
  }

  absl::Status Collective(const Node& node, uint64_t iteration) {
    absl::InlinedVector<const std::byte*, 8> inputs;
    absl::InlinedVector<std::byte*, 8> outputs;
    for (const Slice& slice : node.buffers) inputs.push_back(At(slice));
    for (const Slice& slice : node.outputs) outputs.push_back(At(slice));
    if (environment_.communicator == nullptr) {
      return absl::FailedPreconditionError("found no communicator, expected one because the step is a collective");
    }
    const collectives::CollectiveLaunch launch{node.index, inputs, outputs, environment_.step, iteration};
    if (node.request == 0) return environment_.communicator->Launch(launch);
    XLAD_ASSIGN_OR_RETURN(started_[node.request], environment_.communicator->Start(launch));
    return absl::OkStatus();
  }

  absl::Status While(const Node& node, uint64_t iteration) {
    for (uint64_t count = 1;; ++count) {
      // Any good mixing function is suitable, because different iterations only need different fingerprints.
      const uint64_t inner = (iteration * 0x9e3779b97f4a7c15ull + count) * 0xbf58476d1ce4e5b9ull;
      XLAD_RETURN_IF_ERROR(Steps(node.bodies[0], inner));
      XLAD_ASSIGN_OR_RETURN(const uint8_t predicate, Read<uint8_t>(node.buffers[0]));
      if (predicate == 0) return absl::OkStatus();
      XLAD_RETURN_IF_ERROR(Steps(node.bodies[1], inner));
      if (environment_.abort != nullptr && environment_.abort->raised()) return environment_.abort->status();
    }
  }

  // The branch to run. As HLO defines, a selector out of range selects the last branch.
  absl::StatusOr<size_t> Branch(const Node& node) const {
    if (node.selector_is_predicate) {
      XLAD_ASSIGN_OR_RETURN(const uint8_t predicate, Read<uint8_t>(node.buffers[0]));
      return predicate != 0 ? 0 : 1;
    }
    XLAD_ASSIGN_OR_RETURN(const int32_t selector, Read<int32_t>(node.buffers[0]));
    const bool in_range = selector >= 0 && selector < std::ssize(node.bodies);
    return in_range ? selector : node.bodies.size() - 1;
  }

  // Waits for the work that computes the value.
  template <typename T>
  absl::StatusOr<T> Read(const Slice& slice) const {
    T value = 0;
    XLAD_RETURN_IF_ERROR(
        environment_.stream->CopyToHost(absl::MakeSpan(reinterpret_cast<std::byte*>(&value), sizeof value), At(slice)));
    XLAD_RETURN_IF_ERROR(environment_.stream->Synchronize());
    return value;
  }

  const StepEnvironment& environment_;
  bool named_ = false;
  std::map<int, int64_t> started_;  // For each request, the number that the communicator returned.
};

}  // namespace

StepProgram::~StepProgram() = default;

absl::StatusOr<std::unique_ptr<StepProgram>> StepProgram::Prepare(const LoadedExecutable& loaded) {
  std::unique_ptr<StepProgram> program(new StepProgram);
  Preparer preparer(loaded);
  absl::StatusOr<std::vector<Node>> nodes = preparer.Steps(loaded.executable().steps(), 0);
  if (!nodes.ok()) return Annotate(nodes.status(), absl::StrCat("executable '", loaded.executable().name(), "'"));
  program->nodes_ = *std::move(nodes);
  program->scratch_bytes_ = preparer.scratch_bytes();
  program->num_steps_ = preparer.num_steps();
  return program;
}

absl::Status StepProgram::Run(const StepEnvironment& environment) const {
  if (environment.times != nullptr) {
    environment.times->calls.resize(num_steps_);
    environment.times->ns.resize(num_steps_);
  }
  XLAD_RETURN_IF_ERROR(Runner(environment).Steps(nodes_, 0));
  return environment.stream->Synchronize();
}

}  // namespace xlad::runtime
