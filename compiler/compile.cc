#include "compiler/compile.h"

#include <algorithm>

#include "base/clock.h"
#include "base/hash.h"
#include "base/kernel_abi.h"
#include "base/utf8.h"
#include "compiler/buffers/rematerialize.h"
#include "compiler/codegen/emit_code.h"
#include "hlo/analysis/leaves.h"
#include "hlo/attribute_keys.h"
#include "hlo/read/read.h"
#include "tensor/wire.h"

namespace xlad::compiler {
namespace {

// Adds one entry value per leaf, with its shape and buffer. Keeps the name, the global shape and the boxes that the
// request gives for the leaf.
void FillEntry(const google::protobuf::RepeatedPtrField<EntryValue>& given, const std::vector<const Shape*>& leaves,
               const std::vector<BufferSlice>& slices, google::protobuf::RepeatedPtrField<EntryValue>* entry) {
  for (int i = 0; i < std::ssize(leaves); ++i) {
    EntryValue* value = entry->Add();
    if (i < given.size()) *value = given.Get(i);
    tensor::ShapeToWire(leaves[i]->array(), value->mutable_local());
    if (!value->has_global()) *value->mutable_global() = value->local();
    *value->mutable_buffer() = slices[i];
  }
}

std::vector<BufferSlice> SlicesOf(const BufferAssignment& assignment, const std::vector<int>& values) {
  std::vector<BufferSlice> slices;
  for (int value : values) slices.push_back(assignment.slices[value]);
  return slices;
}

void FillProgram(const CompileRequest& request, const Compilation& compilation, const Donation& donation,
                 Executable* executable) {
  executable->set_name(ToUtf8(compilation.module->name()));
  executable->set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  executable->set_program_hash(Sha256Hex(request.partitioned_module()));
  *executable->mutable_mesh() = request.mesh();
  std::vector<const Shape*> parameters;
  for (const Instruction* parameter : compilation.module->entry()->parameters()) {
    AppendLeaves(parameter->shape(), &parameters);
  }
  FillEntry(request.parameters(), parameters, SlicesOf(compilation.assignment, compilation.program.parameters),
            executable->mutable_parameters());
  FillEntry(request.results(), Leaves(compilation.module->entry()->root()->shape()),
            SlicesOf(compilation.assignment, compilation.program.results), executable->mutable_results());
  for (int p = 0; p < std::ssize(donation.parameter_is_donated); ++p) {
    executable->mutable_parameters(p)->set_donated(donation.parameter_is_donated[p]);
  }
  for (const Allocation& allocation : compilation.assignment.allocations) *executable->add_allocations() = allocation;
  for (const LibraryOp& op : compilation.steps.library_ops) *executable->add_library_ops() = op;
  for (const CollectiveSpec& spec : compilation.steps.collectives) *executable->add_collectives() = spec;
}

void FillRematerialization(const Compilation& compilation, Executable* executable) {
  if (compilation.usual_bytes == 0) return;
  const RepeatedWork work = RepeatedWorkOf(compilation.program);
  Rematerialization* changes = executable->mutable_rematerialization();
  changes->set_operations(work.operations);
  changes->set_flops(work.flops);
  changes->set_bytes(work.bytes);
  changes->set_usual_flops(work.usual_flops);
  changes->set_usual_bytes(compilation.usual_bytes);
  changes->set_fuses_all_attention(compilation.fuses_all_attention);
}

// A dump may elide the values of large constants ("{...}"). The reader replaces them with zeros, up to 256 MiB in
// total. Constants beyond this limit have no values, and their module can be verified but not compiled.
absl::Status ExpectValues(const Module& module) {
  for (const auto& computation : module.computations()) {
    for (const auto& i : computation->instructions()) {
      const hlo::Literal* const literal = i->literal().get();
      if (literal == nullptr || literal->is_tuple || !literal->elided || !literal->array.bytes().empty()) continue;
      if (literal->array.shape().bytes() == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat("%", i->name(), ": found a constant of ",
                                                     literal->array.shape().ToString(),
                                                     " without values (\"{...}\"), expected its values; print the "
                                                     "module with large constants"));
    }
  }
  return absl::OkStatus();
}

// Whether a loop, which may be inside of another loop or of a branch, has no known number of iterations.
template <typename Steps>
bool HasUncountedLoop(const Steps& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) {
    const WhileStep& loop = step.while_();
    if (step.has_while_() && loop.trip_count() < 0) return true;
    if (HasUncountedLoop(loop.condition()) || HasUncountedLoop(loop.body())) return true;
    return std::any_of(step.if_().branches().begin(), step.if_().branches().end(),
                       [](const IfStep::Branch& branch) { return HasUncountedLoop(branch.steps()); });
  });
}

// Whether a value of the module may depend on the sign or payload of a NaN. LLVM does not define these bits, so
// optimized and quickly compiled code may compute different ones.
bool ObservesNans(const Module& module) {
  const auto observes = [](const Instruction& i) {
    if (i.opcode() == Opcode::kTopk) return true;  // topk uses the total order of floats.
    if (i.opcode() == Opcode::kCompare) {
      return i.attributes().comparison_type == hlo::ComparisonType::kFloatTotalOrder;
    }
    if (i.opcode() != Opcode::kBitcastConvert || hlo::FindAttribute(i, hlo::kMovesBitsKey) != nullptr) return false;
    const ElementType from = i.operand(0)->shape().type();
    return from != i.shape().type() && (tensor::IsFloating(from) || tensor::IsComplex(from));
  };
  for (const auto& computation : module.computations()) {
    for (const auto& i : computation->instructions()) {
      if (observes(*i)) return true;
    }
  }
  return false;
}

// Whether the program may run on quickly compiled code. Optimized code replaces it only between two steps, so a step on
// quickly compiled code must not take much longer than the time that compiling quickly saves. As an upper bound, the
// work of all steps is added.
bool MayBeQuick(const Module& module, const std::vector<Step>& steps) {
  if (HasUncountedLoop(steps) || ObservesNans(module)) return false;
  // About a second of work: an operation on floats, or a byte, takes at most about 1 ns.
  constexpr double kMaxWork = 1e9;
  double work = 0;
  for (const Step& step : steps) {
    if (step.has_kernel() || step.has_while_() || step.has_if_()) work += step.flops() + step.bytes();
  }
  return work <= kMaxWork;
}

}  // namespace

absl::StatusOr<Compilation> CompileToSteps(const CompileRequest& request, const CompileOptions& options) {
  const int64_t start = RealClock().NowNs();
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, hlo::ReadModule(request.partitioned_module()));
  XLAD_RETURN_IF_ERROR(ExpectValues(*module));
  const PassTime reading = {"read", RealClock().NowNs() - start};
  XLAD_ASSIGN_OR_RETURN(Compilation result, CompileToSteps(std::move(module), request, options));
  result.times.insert(result.times.begin(), reading);
  return result;
}

absl::StatusOr<CompileResult> CompileWithListings(const CompileRequest& request, const CompileOptions& options,
                                                  bool want_listings) {
  CompileResult result;
  XLAD_ASSIGN_OR_RETURN(Compilation compilation, CompileToSteps(request, options));
  XLAD_ASSIGN_OR_RETURN(Donation donation, DonationOf(*compilation.module));
  FillProgram(request, compilation, donation, &result.executable);
  FillRematerialization(compilation, &result.executable);
  const int64_t start = RealClock().NowNs();
  const bool quick = options.quick && MayBeQuick(*compilation.module, compilation.steps.steps);
  XLAD_ASSIGN_OR_RETURN(EmittedCode code,
                        EmitCode(request.target(), compilation.steps, {want_listings, options.objects, quick}));
  compilation.times.push_back({"emit-code", RealClock().NowNs() - start});
  *result.executable.mutable_target() = std::move(code.target);
  result.executable.mutable_steps()->Add(code.steps.begin(), code.steps.end());
  result.executable.set_object_code(std::move(code.object));
  result.executable.set_quick(code.quick);
  result.ir = std::move(code.ir);
  result.compiled_objects = code.compiled;
  result.reused_objects = code.reused;
  result.assembly = std::move(code.assembly);
  result.times = std::move(compilation.times);
  result.module = std::move(compilation.module);
  return result;
}

absl::StatusOr<Executable> Compile(const CompileRequest& request) {
  XLAD_ASSIGN_OR_RETURN(CompileResult result, CompileWithListings(request, {}, false));
  return std::move(result.executable);
}

}  // namespace xlad::compiler
