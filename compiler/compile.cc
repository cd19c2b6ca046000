#include "compiler/compile.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/kernel_abi.h"
#include "compiler/library.h"
#include "compiler/passes/fusion.h"
#include "hlo/read.h"

namespace xlad::compiler {
namespace {

// Runs `work` and notes its time under `name`.
template <typename Work>
auto Timed(const char* name, std::vector<PassTime>* times, const Work& work) {
  const int64_t start = RealClock().NowNs();
  auto result = work();
  times->push_back({name, static_cast<double>(RealClock().NowNs() - start) / kNsPerMs});
  return result;
}

bool SameOnAllDevices(const EntryValue& value) { return value.boxes_size() <= 1; }

PassContext MakeContext(const CompileRequest& request, const hlo::Module& module) {
  PassContext context;
  for (const MeshAxis& axis : request.mesh()) context.devices *= axis.size();
  if (request.mesh().empty()) context.devices = std::max<int64_t>(1, module.num_partitions);
  for (const EntryValue& parameter : request.parameters()) {
    context.parameter_is_uniform.push_back(SameOnAllDevices(parameter));
  }
  return context;
}

absl::Status CheckCount(const char* what, int64_t found, int64_t expected) {
  if (found == 0 || found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("compile request: found ", found, " ", what, ", expected ", expected,
                                                 ", the entry's"));
}

// Entry values with shapes and buffers; what the caller gave (name, global shape, boxes) is kept.
void FillEntry(const google::protobuf::RepeatedPtrField<EntryValue>& given, const std::vector<const Shape*>& leaves,
               const std::vector<BufferSlice>& slices, google::protobuf::RepeatedPtrField<EntryValue>* entry) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    EntryValue* value = entry->Add();
    if (i < static_cast<size_t>(given.size())) *value = given.Get(static_cast<int>(i));
    *value->mutable_local() = ToProto(*leaves[i]);
    if (!value->has_global()) *value->mutable_global() = value->local();
    *value->mutable_buffer() = slices[i];
  }
}

std::vector<BufferSlice> SlicesOf(const Assignment& assignment, const std::vector<int>& values) {
  std::vector<BufferSlice> slices;
  for (int value : values) slices.push_back(assignment.slices[static_cast<size_t>(value)]);
  return slices;
}

absl::StatusOr<std::string> Emit(const Target& target, Compilation* compilation, Executable* executable,
                                 CompileResult* listings) {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<ObjectEmitter> emitter, ObjectEmitter::Create(target));
  *executable->mutable_target() = emitter->target();
  absl::flat_hash_map<std::string, int64_t> scratch;
  for (const KernelRequest& kernel : compilation->steps.kernels) {
    XLAD_ASSIGN_OR_RETURN(scratch[kernel.symbol], emitter->EmitKernel(kernel));
  }
  std::vector<Step> steps = compilation->steps.steps;
  SetScratch(&steps, scratch);
  for (NativeLoop& loop : MakeNativeLoops(&steps)) {
    XLAD_ASSIGN_OR_RETURN(int64_t bytes, emitter->EmitProgram(loop.request));
    loop.step->set_scratch_bytes(bytes);
  }
  executable->mutable_steps()->Add(steps.begin(), steps.end());
  if (listings != nullptr) listings->ir = emitter->IrText();
  XLAD_ASSIGN_OR_RETURN(std::string object, emitter->Finish());
  if (listings != nullptr) {
    XLAD_ASSIGN_OR_RETURN(listings->assembly, emitter->AssemblyText());
  }
  return object;
}

void FillProgram(const CompileRequest& request, const Compilation& compilation, const Donation& donation,
                 Executable* executable) {
  executable->set_name(compilation.module->name());
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
  for (size_t p = 0; p < donation.parameter_is_donated.size(); ++p) {
    executable->mutable_parameters(static_cast<int>(p))->set_donated(donation.parameter_is_donated[p]);
  }
  for (const Allocation& allocation : compilation.assignment.allocations) *executable->add_allocations() = allocation;
  for (const LibraryOp& op : compilation.steps.library_ops) *executable->add_library_ops() = op;
  for (const CollectiveSpec& spec : compilation.steps.collectives) *executable->add_collectives() = spec;
}

}  // namespace

absl::StatusOr<Compilation> CompileToSteps(const CompileRequest& request, const CompileOptions& options) {
  Compilation result;
  XLAD_ASSIGN_OR_RETURN(result.module,
                        Timed("read", &result.times, [&] { return hlo::ReadModule(request.partitioned_module()); }));
  PassContext context = MakeContext(request, *result.module);
  PipelineOptions pipeline;
  pipeline.dump_directory = request.dump_directory();
  pipeline.verify = options.verify;
  XLAD_RETURN_IF_ERROR(RunPipeline(*result.module, context, pipeline, &result.times));
  XLAD_ASSIGN_OR_RETURN(Donation donation, DonationOf(*result.module));
  XLAD_RETURN_IF_ERROR(CheckCount("parameters", request.parameters_size(),
                                  static_cast<int64_t>(donation.parameter_is_donated.size())));
  XLAD_RETURN_IF_ERROR(
      CheckCount("results", request.results_size(), static_cast<int64_t>(donation.result_to_parameter.size())));
  XLAD_ASSIGN_OR_RETURN(result.program,
                        Timed("lower", &result.times, [&] { return Lower(*result.module, donation); }));
  result.assignment = Timed("assign-buffers", &result.times, [&] { return AssignBuffers(result.program); });
  XLAD_RETURN_IF_ERROR(Timed("check-buffers", &result.times,
                             [&] { return CheckAssignment(result.program, result.assignment); }));
  XLAD_ASSIGN_OR_RETURN(result.steps, Timed("build-steps", &result.times, [&] {
                          return BuildSteps(result.program, result.assignment, context.devices);
                        }));
  return result;
}

absl::StatusOr<CompileResult> CompileWithListings(const CompileRequest& request, const CompileOptions& options,
                                                  bool want_listings) {
  CompileResult result;
  XLAD_ASSIGN_OR_RETURN(Compilation compilation, CompileToSteps(request, options));
  XLAD_ASSIGN_OR_RETURN(Donation donation, DonationOf(*compilation.module));
  FillProgram(request, compilation, donation, &result.executable);
  XLAD_ASSIGN_OR_RETURN(std::string object, Timed("emit-code", &compilation.times, [&] {
                          return Emit(request.target(), &compilation, &result.executable,
                                      want_listings ? &result : nullptr);
                        }));
  result.executable.set_object_code(std::move(object));
  result.times = std::move(compilation.times);
  return result;
}

absl::StatusOr<Executable> Compile(const CompileRequest& request) {
  XLAD_ASSIGN_OR_RETURN(CompileResult result, CompileWithListings(request, {}, false));
  return std::move(result.executable);
}

}  // namespace xlad::compiler
