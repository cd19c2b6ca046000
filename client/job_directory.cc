#include "client/job_directory.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/hash.h"
#include "proto/mesh.h"
#include "storage/store.h"
#include "storage/uri.h"
#include "tensor/wire.h"

namespace xlad::client {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kHashBytes = 4 << 20;

absl::Status ManifestError(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

std::set<std::string> Names(const std::vector<MeshAxis>& axes) {
  std::set<std::string> names;
  for (const MeshAxis& axis : axes) names.insert(axis.name());
  return names;
}

std::vector<MeshAxis> AxesOf(const Json& mesh) {
  std::vector<MeshAxis> axes;
  for (const auto& [name, size] : mesh.at("axes").items()) {
    MeshAxis axis;
    axis.set_name(name);
    axis.set_size(size.get<int64_t>());
    axes.push_back(axis);
  }
  return axes;
}

bool SameAxes(const std::vector<MeshAxis>& a, const std::vector<MeshAxis>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const MeshAxis& x, const MeshAxis& y) {
    return x.name() == y.name() && x.size() == y.size();
  });
}

// The manifest's mesh with the requested axes and sizes, or the first mesh with the same axis names if there is none.
absl::StatusOr<const Json*> SelectMesh(const std::string& path, const Json& meshes,
                                       const std::vector<MeshAxis>& requested) {
  const Json* by_name = nullptr;
  std::vector<std::string> known;
  for (const Json& mesh : meshes) {
    const std::vector<MeshAxis> axes = AxesOf(mesh);
    if (SameAxes(axes, requested)) return &mesh;
    if (by_name == nullptr && !requested.empty() && Names(axes) == Names(requested)) by_name = &mesh;
    known.push_back(MeshText(axes));
  }
  if (by_name != nullptr) return by_name;
  return ManifestError(path, absl::StrCat("found no program for mesh ", MeshText(requested), ", expected one of ",
                                          absl::StrJoin(known, "; "), " (or other sizes of the same axes)"));
}

absl::Status SetShape(const std::string& text, ArrayShape* out) {
  XLAD_ASSIGN_OR_RETURN(const tensor::Shape shape, tensor::ParseShape(text));
  tensor::ShapeToWire(shape, out);
  return absl::OkStatus();
}

absl::Status CheckIndex(const Json& json, int64_t index) {
  const int64_t found = json.at("index").get<int64_t>();
  if (found == index) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("found index ", found, ", expected ", index, " because entries are in order"));
}

absl::Status ReadParameter(const Json& json, int64_t index, JobSpec::Parameter* out) {
  XLAD_RETURN_IF_ERROR(CheckIndex(json, index));
  out->set_name(json.at("name").get<std::string>());
  const std::string kind = json.at("kind").get<std::string>();
  if (kind == "state" || kind == "rng") {
    out->set_kind(JobSpec::Parameter::STATE);
  } else if (kind == "data") {
    out->set_kind(JobSpec::Parameter::DATA);
  } else if (kind == "step") {
    out->set_kind(JobSpec::Parameter::STEP);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("found kind \"", kind, "\", expected \"state\", \"rng\", \"data\" or \"step\""));
  }
  return SetShape(json.at("shape").get<std::string>(), out->mutable_shape());
}

absl::Status ReadResult(const Json& json, int64_t index, int64_t parameters, JobSpec::Result* out) {
  XLAD_RETURN_IF_ERROR(CheckIndex(json, index));
  out->set_name(json.at("name").get<std::string>());
  const std::string kind = json.at("kind").get<std::string>();
  if (kind == "state" || kind == "rng") {
    out->set_kind(JobSpec::Result::STATE);
  } else if (kind == "loss") {
    out->set_kind(JobSpec::Result::LOSS);
  } else if (kind == "metric") {
    out->set_kind(JobSpec::Result::METRIC);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("found kind \"", kind, "\", expected \"state\", \"rng\", \"loss\" or \"metric\""));
  }
  out->set_feeds(json.contains("feeds") && !json.at("feeds").is_null() ? json.at("feeds").get<int64_t>() : -1);
  if (out->feeds() < -1 || out->feeds() >= parameters) {
    return absl::InvalidArgumentError(
        absl::StrCat("found feeds ", out->feeds(), ", expected a parameter index below ", parameters,
                     ", or -1 or null if it feeds no parameter"));
  }
  return SetShape(json.at("shape").get<std::string>(), out->mutable_shape());
}

// Reads everything except for meshes and blobs.
absl::Status ReadManifest(const std::string& path, const Json& json, JobSpec* spec) {
  spec->set_name(json.value("name", "job"));
  for (const Json& entry : json.at("parameters")) {
    const int index = spec->parameters_size();
    const absl::Status status = ReadParameter(entry, index, spec->add_parameters());
    if (!status.ok()) return Annotate(status, absl::StrCat(path, ": parameters[", index, "]"));
  }
  for (const Json& entry : json.at("results")) {
    const int index = spec->results_size();
    const absl::Status status = ReadResult(entry, index, spec->parameters_size(), spec->add_results());
    if (!status.ok()) return Annotate(status, absl::StrCat(path, ": results[", index, "]"));
  }
  spec->set_steps(json.at("steps").get<int64_t>());
  if (json.contains("batches") && !json.at("batches").is_null()) {
    spec->set_batch_size(json.at("batches").at("batch").get<int64_t>());
    spec->set_batch_count(json.at("batches").at("count").get<int64_t>());
    if (spec->batch_size() < 1 || spec->batch_count() < 1) {
      return ManifestError(path, absl::StrCat("batches: found batch ", spec->batch_size(), " and count ",
                                              spec->batch_count(), ", expected 1 or more of each"));
    }
  }
  return absl::OkStatus();
}

// Reads the program from the HLO text, because text has line numbers. If there is no text, or if the text elides values
// and there is a proto, reads the proto.
absl::Status ReadProgram(FileSystem& files, const std::string& directory, const Json& mesh, Job* job) {
  std::string text, proto;
  for (const Json& file : mesh.at("files")) {
    const std::string name = file.get<std::string>();
    std::string* kind = absl::EndsWith(name, ".hlo") ? &text : absl::EndsWith(name, ".pb") ? &proto : nullptr;
    if (kind != nullptr && kind->empty()) *kind = name;
  }
  if (text.empty() && proto.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("mesh ", mesh.value("name", "?"),
                                                   " lists no file that ends in .hlo or .pb"));
  }
  job->program_path = JoinPath(directory, text.empty() ? proto : text);
  XLAD_ASSIGN_OR_RETURN(job->program, files.Read(job->program_path));
  if (!text.empty() && !proto.empty() && absl::StrContains(job->program, "constant({...})")) {
    job->program_path = JoinPath(directory, proto);
    XLAD_ASSIGN_OR_RETURN(job->program, files.Read(job->program_path));
  }
  job->spec.set_program_blob(Sha256Hex(job->program));
  return absl::OkStatus();
}

bool HasData(const JobSpec& spec) {
  return std::any_of(spec.parameters().begin(), spec.parameters().end(),
                     [](const auto& parameter) { return parameter.kind() == JobSpec::Parameter::DATA; });
}

// SHA-256 of a file, which is read in parts.
absl::StatusOr<std::string> HashOf(FileSystem& files, const std::string& path) {
  XLAD_ASSIGN_OR_RETURN(const int64_t size, files.Size(path));
  Sha256 hash;
  for (int64_t offset = 0; offset < size; offset += kHashBytes) {
    XLAD_ASSIGN_OR_RETURN(const std::string part, files.ReadRange(path, offset, std::min(kHashBytes, size - offset)));
    hash.Add(part);
  }
  return hash.FinishHex();
}

// The URI of the field `name` of the manifest, unless a flag gives another one. Empty if neither has one.
absl::StatusOr<std::string> UriOf(const std::string& path, const Json& json, const char* name,
                                  const std::string& by_flag) {
  if (!by_flag.empty() || !json.contains(name)) return by_flag;
  const std::string uri = json.at(name).get<std::string>();
  const absl::Status valid = storage::ParseUri(uri).status();
  return valid.ok() ? absl::StatusOr<std::string>(uri) : ManifestError(path, absl::StrCat(name, ": ", valid.message()));
}

absl::StatusOr<std::shared_ptr<storage::TensorSource>> Open(FileSystem& files, const std::string& uri,
                                                            const std::string& path) {
  const std::string own = path.empty() ? "" : std::filesystem::absolute(path).lexically_normal().string();
  return storage::Store(files).OpenTensors(uri.empty() ? storage::FileUri(own) : uri);
}

// Sets the state and the data of the spec, by URI or by the hash of the file in the job directory.
absl::Status SetTensors(FileSystem& files, const std::string& directory, const TensorUris& uris, Job* job) {
  job->spec.set_state_uri(uris.state);
  if (uris.state.empty()) {
    job->state_path = JoinPath(directory, "state.safetensors");
    XLAD_ASSIGN_OR_RETURN(*job->spec.mutable_state_blob(), HashOf(files, job->state_path));
  }
  if (!HasData(job->spec)) {
    if (uris.data.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("found data at ", uris.data, ", expected none, because the program has no data parameters"));
  }
  job->spec.set_data_uri(uris.data);
  if (!uris.data.empty()) return absl::OkStatus();
  job->data_path = JoinPath(directory, "data.safetensors");
  XLAD_ASSIGN_OR_RETURN(*job->spec.mutable_data_blob(), HashOf(files, job->data_path));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<MeshAxis>> ParseMeshFlag(const std::string& text) {
  std::vector<MeshAxis> axes;
  if (text.empty() || text == "single") return axes;
  std::set<std::string> seen;
  int64_t devices = 1;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<std::string> sides = absl::StrSplit(absl::StripAsciiWhitespace(part), '=');
    int64_t size = 0;
    if (sides.size() != 2 || sides[0].empty() || !absl::SimpleAtoi(sides[1], &size) || size < 1) {
      return absl::InvalidArgumentError(absl::StrCat("found mesh \"", text, "\", expected AXIS=SIZE[,AXIS=SIZE...] "
                                                     "with sizes of 1 or more, as in dp=4,tp=2"));
    }
    if (!seen.insert(sides[0]).second) {
      return absl::InvalidArgumentError(absl::StrCat("found axis ", sides[0], " twice in mesh \"", text, "\""));
    }
    if (size > 65536 || (devices *= size) > 65536) {
      return absl::InvalidArgumentError(absl::StrCat("found mesh \"", text, "\", expected at most 65536 devices"));
    }
    MeshAxis axis;
    axis.set_name(sides[0]);
    axis.set_size(size);
    axes.push_back(axis);
  }
  return axes;
}

absl::StatusOr<Job> ReadJobDirectory(FileSystem& files, const std::string& directory, const std::string& mesh,
                                     int64_t steps, const TensorUris& uris) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<MeshAxis> axes, ParseMeshFlag(mesh));
  if (!files.IsDirectory(directory)) {
    return absl::NotFoundError(absl::StrCat(directory, " is not a folder, expected a job directory"));
  }
  const std::string path = JoinPath(directory, "manifest.json");
  if (!files.Exists(path)) {
    return absl::NotFoundError(absl::StrCat(directory, " has no manifest.json, expected a job directory"));
  }
  XLAD_ASSIGN_OR_RETURN(const std::string text, files.Read(path));
  Job job;
  TensorUris found;
  try {
    const Json json = Json::parse(text);
    if (!json.is_object()) {
      return ManifestError(path, absl::StrCat("found JSON of type ", json.type_name(),
                                              ", expected an object with parameters, results, steps and meshes"));
    }
    XLAD_RETURN_IF_ERROR(ReadManifest(path, json, &job.spec));
    XLAD_ASSIGN_OR_RETURN(found.state, UriOf(path, json, "state", uris.state));
    XLAD_ASSIGN_OR_RETURN(found.data, UriOf(path, json, "data", uris.data));
    XLAD_ASSIGN_OR_RETURN(const Json* selected, SelectMesh(path, json.at("meshes"), axes));
    const absl::Status status = ReadProgram(files, directory, *selected, &job);
    if (!status.ok()) return Annotate(status, path);
  } catch (const Json::exception& error) {
    return ManifestError(path, error.what());
  }
  for (const MeshAxis& axis : axes) *job.spec.add_mesh() = axis;
  if (steps >= 0) job.spec.set_steps(steps);
  if (job.spec.steps() < 0)
    return ManifestError(path, absl::StrCat("found ", job.spec.steps(), " steps, expected 0 or more"));
  if (HasData(job.spec) && job.spec.batch_size() == 0) {
    return ManifestError(
        path, "found data parameters without \"batches\", expected {\"batch\": SIZE, \"count\": COUNT}");
  }
  XLAD_RETURN_IF_ERROR(SetTensors(files, directory, found, &job));
  return job;
}

absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenState(FileSystem& files, const Job& job) {
  return Open(files, job.spec.state_uri(), job.state_path);
}

absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenData(FileSystem& files, const Job& job) {
  if (job.spec.data_uri().empty() && job.data_path.empty()) return nullptr;
  return Open(files, job.spec.data_uri(), job.data_path);
}

}  // namespace xlad::client
