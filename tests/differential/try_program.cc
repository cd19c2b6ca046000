#include "tests/differential/try_program.h"

#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/testing/random_program.h"
#include "hlo/eval/evaluate.h"
#include "hlo/verify/verifier.h"
#include "hlo/wire/proto.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"
#include "sharding/proof/manual_reference.h"
#include "tests/differential/run_on_devices.h"

namespace xlad {
namespace {

using compiler::ArraysOf;
using tensor::Array;

absl::Status Named(absl::string_view stage, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(stage, ": ", std::string(status.message())));
}

absl::StatusOr<Executable> CompileModule(const hlo::Module& module, const sharding::Mesh& mesh, uint64_t seed,
                                         CompileRequest request = {}) {
  XLAD_ASSIGN_OR_RETURN(*request.mutable_partitioned_module(), hlo::SerializeProto(module));
  for (const sharding::Axis& axis : mesh.axes()) {
    request.add_mesh()->set_name(axis.name);
    request.mutable_mesh(request.mesh_size() - 1)->set_size(axis.size);
  }
  compiler::CompileOptions options;
  // About half of the programs may be compiled quickly, which takes less time. The sizes of the programs are remainders
  // of other numbers, which have no common divisor with 7, so that each size is compiled in both ways.
  options.quick = seed % 7 % 2 == 1;
  XLAD_ASSIGN_OR_RETURN(compiler::CompileResult result, compiler::CompileWithListings(request, options, false));
  return std::move(result.executable);
}

}  // namespace

std::vector<hlo::Literal> LiteralsOf(const std::vector<Array>& arrays) {
  std::vector<hlo::Literal> literals;
  for (const Array& array : arrays) literals.emplace_back(array);
  return literals;
}

absl::Status TryLocal(const hlo::Module& module, const Case& test) {
  XLAD_RETURN_IF_ERROR(Named("verify", hlo::Verify(module)));
  const auto random = SeededRandom(test.seed + 1);
  DeviceArrays inputs;
  std::vector<std::vector<hlo::Literal>> literals;
  for (int d = 0; d < test.mesh.devices(); ++d) {
    inputs.push_back(compiler::RandomInputs(module, random.get(), test.special));
    literals.push_back(LiteralsOf(inputs.back()));
  }
  const auto expected = hlo::Evaluate(std::vector<const hlo::Module*>(inputs.size(), &module), literals);
  XLAD_RETURN_IF_ERROR(Named("evaluate", expected.status()));
  // A third of the programs for several devices run on two workers, with each collective split into a start and a done.
  const bool overlaps = test.seed % 3 == 0 && inputs.size() > 1;
  CompileRequest request;
  if (overlaps) request.mutable_policy()->set_overlap(CompilePolicy::ALWAYS);
  // A fifth of the programs run op by op: no instructions are fused, and no collectives are combined.
  if (test.seed % 5 == 4) request.mutable_policy()->set_op_by_op(true);
  const auto executable = CompileModule(module, test.mesh, test.seed, std::move(request));
  XLAD_RETURN_IF_ERROR(Named("compile", executable.status()));
  const auto results = RunOnDevices(*executable, inputs, overlaps ? 2 : 1);
  XLAD_RETURN_IF_ERROR(Named("run", results.status()));
  for (size_t d = 0; d < inputs.size(); ++d) {
    XLAD_RETURN_IF_ERROR(Named(absl::StrCat("compare: device ", d),
                               compiler::CompareResults((*results)[d], ArraysOf((*expected)[d]), test.exactness)));
  }
  return absl::OkStatus();
}

namespace {

bool IsAnnotation(const hlo::Instruction& instruction) {
  return instruction.opcode() == hlo::Opcode::kCustomCall &&
         !instruction.attributes().custom_call_target.starts_with("lapack_");
}

// Returns the program without sharding annotations.
std::unique_ptr<hlo::Module> Bare(const hlo::Module& module) {
  std::unique_ptr<hlo::Module> bare = module.Clone();
  for (const auto& computation : bare->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (IsAnnotation(*instruction)) instruction->ReplaceAllUsesWith(instruction->operand(0));
    }
    computation->RemoveDead();
  }
  return bare;
}

}  // namespace

absl::StatusOr<hlo::Literal> Meaning(const hlo::Module& module, const std::vector<hlo::Literal>& inputs) {
  if (!sharding::HasManualComputations(module)) return hlo::Evaluate(*Bare(module), inputs);
  XLAD_ASSIGN_OR_RETURN(const sharding::MappedProgram mapped, sharding::PartitionManualOnly(module.Clone(), {}));
  return sharding::EvaluatePartitioned(mapped.program, inputs);
}

namespace {

// Fills `entry` with the boxes of a parameter or result that the devices hold.
void FillEntry(const sharding::Mesh& mesh, const tensor::Shape& shape, const sharding::TensorSharding& sharding,
               EntryValue* entry) {
  const tensor::Dims local = sharding::LocalDims(shape.dims, sharding);
  for (ArrayShape* out : {entry->mutable_global(), entry->mutable_local()}) {
    out->set_element_type(static_cast<int32_t>(shape.type));
    const tensor::Dims& dims = out == entry->mutable_global() ? shape.dims : local;
    out->mutable_dims()->Add(dims.begin(), dims.end());
  }
  const int64_t boxes = sharding.IsReplicated() ? 1 : mesh.devices();
  for (int64_t device = 0; device < boxes; ++device) {
    const tensor::Box box = sharding::BoxOf(shape.dims, mesh, sharding, device);
    Box* out = entry->add_boxes();
    out->mutable_lo()->Add(box.lo.begin(), box.lo.end());
    out->mutable_hi()->Add(box.hi.begin(), box.hi.end());
  }
}

absl::StatusOr<Executable> CompileProgram(const sharding::PartitionedProgram& program, uint64_t seed) {
  CompileRequest request;
  for (size_t p = 0; p < program.parameter_shapes.size(); ++p) {
    FillEntry(program.mesh, program.parameter_shapes[p], program.parameters[p], request.add_parameters());
  }
  for (size_t r = 0; r < program.result_shapes.size(); ++r) {
    FillEntry(program.mesh, program.result_shapes[r], program.results[r], request.add_results());
  }
  return CompileModule(*program.variants[0].module, program.mesh, seed, std::move(request));
}

}  // namespace

absl::Status TryAnnotated(const hlo::Module& module, const Case& test) {
  XLAD_RETURN_IF_ERROR(Named("verify", hlo::Verify(module)));
  const auto random = SeededRandom(test.seed + 1);
  const std::vector<hlo::Literal> inputs = LiteralsOf(compiler::RandomInputs(module, random.get(), test.special));
  const auto whole = Meaning(module, inputs);
  XLAD_RETURN_IF_ERROR(Named("evaluate", whole.status()));
  const std::vector<Array> expected = ArraysOf(*whole);
  const auto sharded = sharding::RunPipeline(module.Clone(), {});
  XLAD_RETURN_IF_ERROR(Named("partition", sharded.status()));
  const sharding::PartitionedProgram& program = sharded->partitioned;
  const auto evaluated = sharding::EvaluatePartitioned(program, inputs);
  XLAD_RETURN_IF_ERROR(Named("evaluate partitioned", evaluated.status()));
  XLAD_RETURN_IF_ERROR(Named("compare partitioned",
                             compiler::CompareResults(ArraysOf(*evaluated), expected, test.exactness)));
  const auto executable = CompileProgram(program, test.seed);
  XLAD_RETURN_IF_ERROR(Named("compile", executable.status()));
  DeviceArrays local;
  for (const std::vector<hlo::Literal>& shards : sharding::ShardInputs(program, inputs)) {
    local.push_back(ArraysOf(hlo::Literal::Tuple(shards)));
  }
  const auto results = RunOnDevices(*executable, local);
  XLAD_RETURN_IF_ERROR(Named("run", results.status()));
  std::vector<hlo::Literal> parts;
  for (const std::vector<Array>& arrays : *results) parts.push_back(hlo::Literal::Tuple(LiteralsOf(arrays)));
  const auto joined = sharding::JoinResults(program, parts);
  XLAD_RETURN_IF_ERROR(Named("join", joined.status()));
  return Named("compare compiled", compiler::CompareResults(ArraysOf(*joined), expected, test.exactness));
}

std::string InChild(Try run, const hlo::Module& module, const Case& test) {
  int ends[2];
  if (pipe(ends) != 0) return "cannot make a pipe";
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return "cannot fork";
  }
  if (child == 0) {
    alarm(300);  // Kills a child that hangs. Others take much less time, even on a busy machine.
    const absl::Status status = run(module, test);
    const std::string text = status.ok() ? "ok" : std::string(status.message());
    const bool written = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return absl::StrCat("signal ", WTERMSIG(status), " ended the child");
  return text == "ok" ? "" : text.empty() ? "the child ended without a message" : text;
}

}  // namespace xlad
