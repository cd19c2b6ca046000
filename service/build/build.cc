#include "service/build/build.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <future>
#include <iostream>
#include <iterator>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/process/cores.h"
#include "base/process/sandbox.h"
#include "base/utf8.h"
#include "compiler/compile.h"
#include "compiler/report.h"
#include "compiler/serialize.h"
#include "hlo/analysis/constants.h"
#include "hlo/read/read.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"
#include "service/build/background_proof.h"
#include "service/build/check_spec.h"
#include "service/build/folder_objects.h"
#include "sharding/pipeline.h"
#include "simulate/executable_time.h"
#include "tensor/wire.h"

namespace xlad::service {
namespace {

using tensor::SafetensorsIndex;

// Parses a header without the tensors that follow it. Sizes were checked against the file when the header was read.
absl::StatusOr<SafetensorsIndex> ParseHeader(const std::string& bytes) {
  if (bytes.empty()) return SafetensorsIndex();
  return tensor::ParseSafetensorsIndex(bytes, int64_t{1} << 62);
}

sharding::PipelineOptions OptionsFor(const JobSpec& spec) {
  sharding::PipelineOptions options;
  options.check = false;  // Build checks the program during the compilation.
  options.import.rebind = sharding::MeshFromWire(spec.mesh());
  for (int r = 0; r < spec.results_size(); ++r) {
    if (spec.results(r).feeds() >= 0) options.import.feeds.push_back({r, spec.results(r).feeds()});
  }
  return options;
}

void FillEntry(const sharding::Mesh& mesh, const tensor::Shape& shape, const sharding::TensorSharding& sharding,
               EntryValue* entry) {
  tensor::ShapeToWire(shape, entry->mutable_global());
  tensor::ShapeToWire({shape.type, sharding::LocalDims(shape.dims, sharding)}, entry->mutable_local());
  const int64_t boxes = sharding.IsReplicated() ? 1 : mesh.devices();
  for (int64_t device = 0; device < boxes; ++device) {
    tensor::BoxToWire(sharding::BoxOf(shape.dims, mesh, sharding, device), entry->add_boxes());
  }
}

// Losses and metrics feed no parameter. A client that does not set the field sends 0.
void UnsetFeedsOfReports(JobSpec* spec) {
  for (JobSpec::Result& result : *spec->mutable_results()) {
    const bool is_report = result.kind() == JobSpec::Result::LOSS || result.kind() == JobSpec::Result::METRIC;
    if (is_report && result.feeds() == 0) result.set_feeds(-1);
  }
}

// Refuses a program that was printed without the values of its constants.
absl::Status CheckComplete(const hlo::Module& module) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (!hlo::IsElided(*instruction)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("%", instruction->name(),
                       ": found a constant whose values the text leaves out (\"{...}\"), expected all "
                       "of them; submit the program as a proto (.hlo.pb), or print it with print_large_constants"));
    }
  }
  return absl::OkStatus();
}

void AddTiming(const std::string& name, int64_t nanoseconds, BuildResponse* response) {
  BuildResponse::Timing* timing = response->add_timings();
  timing->set_name(name);
  timing->set_milliseconds(static_cast<double>(nanoseconds) / kNsPerMs);
}

// The serialized executable, with the times of its steps if the target is a simulated chip.
absl::StatusOr<std::string> CompileWithTimes(const CompileRequest& request, const compiler::CompileOptions& options,
                                             BuildResponse* response) {
  XLAD_ASSIGN_OR_RETURN(compiler::CompileResult compiled, compiler::CompileWithListings(request, options, false));
  XLAD_RETURN_IF_ERROR(simulate::SetSimulatedTimes(*compiled.module, &compiled.executable));
  response->set_quick(response->quick() || compiled.executable.quick());
  for (const std::string& warning : compiled.executable.simulated().warnings()) response->add_warnings(warning);
  const std::string changes = compiler::RematerializationText(compiled.executable);
  if (!changes.empty()) response->add_warnings(changes);
  return compiler::SerializeExecutable(compiled.executable);
}

// Compiles the program for each target of the request, and adds the executables to the response.
absl::Status CompileForTargets(const sharding::PartitionedProgram& program, const BuildRequest& request,
                               const JobSpec& spec, compiler::ObjectCache* objects, BuildResponse* response) {
  const int64_t since_ns = RealClock().NowNs();
  XLAD_ASSIGN_OR_RETURN(CompileRequest compile, MakeCompileRequest(program, spec, request.target()));
  compile.set_dump_directory(request.dump_directory());
  compiler::CompileOptions options;
  options.objects = objects;
  options.quick = request.quick();
  XLAD_ASSIGN_OR_RETURN(*response->mutable_executable(), CompileWithTimes(compile, options, response));
  compile.clear_dump_directory();
  for (const Target& target : request.other_targets()) {
    *compile.mutable_target() = target;
    XLAD_ASSIGN_OR_RETURN(*response->add_other_executables(), CompileWithTimes(compile, options, response));
  }
  AddTiming("compile", RealClock().NowNs() - since_ns, response);
  return absl::OkStatus();
}

// Moves the objects to the response. New objects are left out unless all of them fit: a message has at most 2 GiB.
void AddObjects(FolderObjects* objects, BuildResponse* response) {
  response->mutable_reused_objects()->Add(objects->found().begin(), objects->found().end());
  size_t bytes = response->ByteSizeLong();
  constexpr size_t kOverhead = 100;  // An upper bound on the bytes of an object's key and its framing.
  std::vector<storage::FolderEntry> added = objects->TakeAdded();
  for (const storage::FolderEntry& entry : added) bytes += entry.contents.size() + kOverhead;
  if (bytes > INT_MAX) return;
  for (storage::FolderEntry& entry : added) {
    BuildResponse::Object* object = response->add_new_objects();
    object->set_key(std::move(entry.key));
    object->set_code(std::move(entry.contents));
  }
}

// Builds a small program for this machine, so that later builds find libraries, tables and code in memory.
void Prepare() {
  constexpr char kProgram[] = R"(HloModule prepare
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
ENTRY main {
  x = f32[16,16] parameter(0)
  y = f32[16,16] parameter(1)
  product = f32[16,16] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[16,16] exponential(product)
  zero = f32[] constant(0)
  sums = f32[16] reduce(e, zero), dimensions={1}, to_apply=add
  all = f32[16,16] broadcast(sums), dimensions={0}
  shares = f32[16,16] divide(e, all)
  ROOT t = f32[16,16] transpose(shares), dimensions={1,0}
}
)";
  BuildRequest request;
  request.set_program(kProgram);
  request.mutable_spec()->set_session(true);  // The parameters and results are those of the program.
  request.set_quick(true);
  const auto built = Build(request);
  XLAD_CHECK(built.ok()) << built.status();
}

// The input of the child (RunBuildChild).
struct ChildInput {
  std::string objects_folder, version;
  std::string bytes;
  size_t request_at = 0;  // Where the request begins in `bytes`.
};

ChildInput ReadInput() {
  ChildInput input;
  char piece[1 << 16];  // The standard streams would read single bytes.
  while (true) {
    const ssize_t n = read(STDIN_FILENO, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    input.bytes.append(piece, n);
  }
  for (std::string* text : {&input.objects_folder, &input.version}) {
    const size_t end = std::min(input.bytes.find('\0', input.request_at), input.bytes.size());
    *text = input.bytes.substr(input.request_at, end - input.request_at);
    input.request_at = std::min(end + 1, input.bytes.size());
  }
  return input;
}

// Frees the bytes of the input, because the build needs the memory.
bool ParseRequest(ChildInput* input, BuildRequest* request) {
  const absl::string_view bytes = absl::string_view(input->bytes).substr(input->request_at);
  const bool is_parsed =
      bytes.size() <= INT_MAX && request->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  std::string().swap(input->bytes);
  return is_parsed;
}

}  // namespace

absl::StatusOr<CompileRequest> MakeCompileRequest(const sharding::PartitionedProgram& program, const JobSpec& spec,
                                                  const Target& target) {
  XLAD_CHECK(program.variants.size() == 1) << "Partition makes one variant for all devices";
  CompileRequest request;
  XLAD_ASSIGN_OR_RETURN(*request.mutable_partitioned_module(), hlo::SerializeProto(*program.variants[0].module));
  *request.mutable_target() = target;
  *request.mutable_policy() = spec.compile();
  for (const sharding::Axis& axis : program.mesh.axes()) {
    MeshAxis* out = request.add_mesh();
    out->set_name(axis.name);
    out->set_size(axis.size);
  }
  for (int p = 0; p < std::ssize(program.parameter_shapes); ++p) {
    EntryValue* entry = request.add_parameters();
    if (p < spec.parameters_size()) entry->set_name(spec.parameters(p).name());
    FillEntry(program.mesh, program.parameter_shapes[p], program.parameters[p], entry);
  }
  for (int r = 0; r < std::ssize(program.result_shapes); ++r) {
    EntryValue* entry = request.add_results();
    if (r < spec.results_size()) entry->set_name(spec.results(r).name());
    FillEntry(program.mesh, program.result_shapes[r], program.results[r], entry);
  }
  return request;
}

absl::StatusOr<BuildResponse> Build(const BuildRequest& request, compiler::ObjectCache* objects) {
  BuildResponse response;
  int64_t since_ns = RealClock().NowNs();
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<hlo::Module> module, hlo::ReadModule(request.program()));
  XLAD_RETURN_IF_ERROR(CheckComplete(*module));
  XLAD_ASSIGN_OR_RETURN(const SafetensorsIndex state, ParseHeader(request.state_header()));
  XLAD_ASSIGN_OR_RETURN(const SafetensorsIndex data, ParseHeader(request.data_header()));
  JobSpec spec = request.spec();
  if (spec.session()) XLAD_RETURN_IF_ERROR(CompleteSessionSpec(*module, &spec));
  UnsetFeedsOfReports(&spec);
  XLAD_RETURN_IF_ERROR(CheckSpec(spec, *module, state, data));
  AddTiming("read", RealClock().NowNs() - since_ns, &response);

  since_ns = RealClock().NowNs();
  XLAD_ASSIGN_OR_RETURN(const sharding::PipelineResult sharded,
                        sharding::RunPipeline(std::move(module), OptionsFor(spec)));
  AddTiming("partition", RealClock().NowNs() - since_ns, &response);
  // The text is printed while the program is compiled.
  std::future<std::string> text = std::async(
      std::launch::async, [&sharded] { return hlo::PrintText(*sharded.partitioned.variants.at(0).module); });
  for (const std::string& warning : sharded.partitioned.warnings) response.add_warnings(ToUtf8(warning));

  BackgroundProof proof(sharded, objects);
  const absl::Status compiled = CompileForTargets(sharded.partitioned, request, spec, objects, &response);
  XLAD_RETURN_IF_ERROR(proof.Join());  // A program that was partitioned wrongly may also fail to compile.
  AddTiming("check", proof.nanoseconds(), &response);
  XLAD_RETURN_IF_ERROR(compiled);
  response.set_partitioned_text(text.get());
  return response;
}

int RunBuildChild(bool is_idle) {
  if (is_idle) Prepare();
  ChildInput input = ReadInput();
  CpuQuota();  // Read here, because the sandbox hides the files of the control group.
  // The program is untrusted. From here on, it cannot make this process change anything outside of the process.
  const absl::Status sandbox = EnterSandbox(input.objects_folder);
  if (!sandbox.ok()) std::cerr << "the build is not isolated: " << sandbox.message() << std::endl;
  BuildRequest request;
  BuildResponse response;
  const storage::EntryFolder folder(&RealFileSystem(), {input.objects_folder, input.version});
  FolderObjects objects(&folder);
  const bool is_parsed = ParseRequest(&input, &request);
  if (!is_parsed) {
    response.set_error("the build request cannot be parsed");
    response.set_error_code(static_cast<int>(absl::StatusCode::kInternal));
  } else if (auto built = Build(request, input.objects_folder.empty() ? nullptr : &objects); built.ok()) {
    response = *std::move(built);
    AddObjects(&objects, &response);
  } else {
    response.set_error(ToUtf8(built.status().message()));  // It may contain bytes of the program.
    response.set_error_code(static_cast<int>(built.status().code()));
  }
  const std::string not_isolated = sandbox.ok() ? "" : std::string(sandbox.message());
  response.set_not_isolated(not_isolated);
  if (const size_t bytes = response.ByteSizeLong(); bytes > INT_MAX) {
    response.Clear();
    response.set_not_isolated(not_isolated);
    response.set_error(absl::StrCat("the executables and the partitioned program have ", bytes,
                                    " bytes, expected at most 2 GiB, the most that the response of a build can hold; "
                                    "make large constants parameters of the program"));
    response.set_error_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  }
  const bool written = response.SerializeToOstream(&std::cout);  // In pieces, without a copy of the whole response.
  return written && std::cout.flush().good() ? 0 : 1;
}

}  // namespace xlad::service
