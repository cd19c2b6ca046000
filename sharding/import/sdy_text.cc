// A recursive-descent parser of Shardy's attribute text.
#include "sharding/import/sdy_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "sharding/model/axes.h"

namespace xlad::sharding {
namespace {

class Reader {
 public:
  explicit Reader(absl::string_view text) : text_(text) {}

  absl::Status Expected(absl::string_view what) const { return ExpectedAt(at_, what); }
  // The error for an item that begins at position `at`.
  absl::Status ExpectedAt(size_t at, absl::string_view what) const {
    const absl::string_view rest = text_.substr(std::min(at, text_.size()));
    return absl::InvalidArgumentError(absl::StrCat("sdy text, character ", at + 1, ": found ",
                                                   rest.empty() ? "the end" : absl::CEscape(rest.substr(0, 24)),
                                                   ", expected ", what));
  }
  bool AtEnd() { return Next() == text_.size(); }
  // The position at which the next item begins.
  size_t Next() {
    SkipSpace();
    return at_;
  }
  // Consumes `token` if the text continues with it.
  bool Take(absl::string_view token) {
    SkipSpace();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  absl::Status Need(absl::string_view token) {
    return Take(token) ? absl::OkStatus() : Expected(absl::StrCat("'", token, "'"));
  }
  bool Sees(absl::string_view token) {
    SkipSpace();
    return text_.substr(at_, token.size()) == token;
  }

  absl::StatusOr<int64_t> Integer() {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) ++at_;
    int64_t value = 0;
    if (!absl::SimpleAtoi(text_.substr(begin, at_ - begin), &value)) {
      at_ = begin;
      return Expected("a number");
    }
    return value;
  }
  absl::StatusOr<std::string> Identifier() {
    SkipSpace();
    if (Sees("\"") || Sees("\\\"")) return Quoted();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (absl::ascii_isalnum(text_[at_]) || absl::string_view("_.$-").find(text_[at_]) != absl::string_view::npos)) {
      ++at_;
    }
    if (at_ == begin) return Expected("a name");
    return std::string(text_.substr(begin, at_ - begin));
  }
  // "name", or \"name\" inside another string.
  absl::StatusOr<std::string> Quoted() {
    const absl::string_view quote = Sees("\\\"") ? "\\\"" : "\"";
    XLAD_RETURN_IF_ERROR(Need(quote));
    const size_t end = text_.find(quote, at_);
    if (end == absl::string_view::npos) return Expected("a closing quote");
    const std::string name(text_.substr(at_, end - at_));
    at_ = end + quote.size();
    return name;
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
  }

  absl::string_view text_;
  size_t at_ = 0;
};

// Reads items separated by commas, up to and including `close`.
template <typename Item>
absl::Status List(Reader* in, absl::string_view close, Item item) {
  if (in->Take(close)) return absl::OkStatus();
  do {
    XLAD_RETURN_IF_ERROR(item());
  } while (in->Take(","));
  return in->Need(close);
}

absl::Status ReadMeshAxis(Reader* in, SdyMesh* mesh, int64_t* devices) {
  Axis axis;
  const size_t name_at = in->Next();
  XLAD_ASSIGN_OR_RETURN(axis.name, in->Quoted());
  for (const Axis& other : mesh->axes) {
    if (other.name == axis.name) return in->ExpectedAt(name_at, "a name that no other axis has");
  }
  XLAD_RETURN_IF_ERROR(in->Need("="));
  const size_t size_at = in->Next();
  XLAD_ASSIGN_OR_RETURN(axis.size, in->Integer());
  if (axis.size < 1 || axis.size > kMaxDevices / *devices) {
    return in->ExpectedAt(size_at, "an axis size of at least 1, and at most 2^24 devices in all");
  }
  *devices *= axis.size;
  mesh->axes.push_back(std::move(axis));
  return absl::OkStatus();
}

// <["a"=4, "b"=2], device_ids=[0, 2, 1, ...]>
absl::StatusOr<SdyMesh> ReadMesh(Reader* in) {
  SdyMesh mesh;
  int64_t devices = 1;
  XLAD_RETURN_IF_ERROR(in->Need("<"));
  XLAD_RETURN_IF_ERROR(in->Need("["));
  XLAD_RETURN_IF_ERROR(List(in, "]", [&] { return ReadMeshAxis(in, &mesh, &devices); }));
  if (in->Take(",")) {
    XLAD_RETURN_IF_ERROR(in->Need("device_ids"));
    XLAD_RETURN_IF_ERROR(in->Need("="));
    const size_t ids_at = in->Next();
    XLAD_RETURN_IF_ERROR(in->Need("["));
    XLAD_RETURN_IF_ERROR(List(in, "]", [&]() -> absl::Status {
      XLAD_ASSIGN_OR_RETURN(const int64_t id, in->Integer());
      mesh.device_ids.push_back(id);
      return absl::OkStatus();
    }));
    if (!HasValidDevices(mesh)) {
      return in->ExpectedAt(ids_at, absl::StrCat("each of the mesh's ", Counted(devices, "device"), " once"));
    }
  }
  XLAD_RETURN_IF_ERROR(in->Need(">"));
  return mesh;
}

absl::StatusOr<SdyAxis> ReadAxis(Reader* in) {
  SdyAxis axis;
  const size_t axis_at = in->Next();
  XLAD_ASSIGN_OR_RETURN(axis.name, in->Quoted());
  if (in->Take(":")) {
    XLAD_RETURN_IF_ERROR(in->Need("("));
    XLAD_ASSIGN_OR_RETURN(axis.pre, in->Integer());
    XLAD_RETURN_IF_ERROR(in->Need(")"));
    XLAD_ASSIGN_OR_RETURN(axis.size, in->Integer());
    if (axis.pre < 1 || axis.size < 1) {
      return in->ExpectedAt(axis_at, "a sub-axis \"x\":(pre)size of positive numbers");
    }
  }
  return axis;
}

absl::Status ReadAxes(Reader* in, absl::string_view open, absl::string_view close, std::vector<SdyAxis>* axes) {
  XLAD_RETURN_IF_ERROR(in->Need(open));
  return List(in, close, [&]() -> absl::Status {
    XLAD_ASSIGN_OR_RETURN(SdyAxis axis, ReadAxis(in));
    axes->push_back(std::move(axis));
    return absl::OkStatus();
  });
}

absl::StatusOr<SdyDimension> ReadDimension(Reader* in) {
  SdyDimension dim;
  XLAD_RETURN_IF_ERROR(in->Need("{"));
  XLAD_RETURN_IF_ERROR(List(in, "}", [&]() -> absl::Status {
    if (dim.open) return in->Expected("'}' after '?'");
    if (in->Take("?")) {
      dim.open = true;
      return absl::OkStatus();
    }
    XLAD_ASSIGN_OR_RETURN(SdyAxis axis, ReadAxis(in));
    dim.axes.push_back(std::move(axis));
    return absl::OkStatus();
  }));
  if (in->Take("p")) {
    const size_t priority_at = in->Next();
    XLAD_ASSIGN_OR_RETURN(const int64_t priority, in->Integer());
    if (priority > 1000) return in->ExpectedAt(priority_at, "a priority of at most 1000");
    dim.priority = priority;
  }
  return dim;
}

absl::Status ReadUnreduced(Reader* in, SdySharding* sharding) {
  XLAD_RETURN_IF_ERROR(in->Need("="));
  if (in->Take("max"))
    sharding->unreduced_reduction = hlo::Opcode::kMaximum;
  else if (in->Take("min"))
    sharding->unreduced_reduction = hlo::Opcode::kMinimum;
  else
    in->Take("sum");
  return ReadAxes(in, "{", "}", &sharding->unreduced);
}

// <@mesh, [...], replicated={..}, unreduced={..}>
absl::StatusOr<SdySharding> ReadSharding(Reader* in) {
  SdySharding sharding;
  XLAD_RETURN_IF_ERROR(in->Need("<"));
  if (in->Take("@")) {
    XLAD_ASSIGN_OR_RETURN(sharding.mesh_name, in->Identifier());
  } else if (in->Take("mesh")) {
    XLAD_ASSIGN_OR_RETURN(sharding.inline_mesh, ReadMesh(in));
  } else {
    return in->Expected("@mesh or mesh<...>");
  }
  XLAD_RETURN_IF_ERROR(in->Need(","));
  XLAD_RETURN_IF_ERROR(in->Need("["));
  XLAD_RETURN_IF_ERROR(List(in, "]", [&]() -> absl::Status {
    XLAD_ASSIGN_OR_RETURN(SdyDimension dim, ReadDimension(in));
    sharding.dims.push_back(std::move(dim));
    return absl::OkStatus();
  }));
  while (in->Take(",")) {
    if (in->Take("replicated")) {
      XLAD_RETURN_IF_ERROR(in->Need("="));
      XLAD_RETURN_IF_ERROR(ReadAxes(in, "{", "}", &sharding.replicated));
    } else if (in->Take("unreduced")) {
      XLAD_RETURN_IF_ERROR(ReadUnreduced(in, &sharding));
    } else {
      return in->Expected("replicated={..} or unreduced={..}");
    }
  }
  XLAD_RETURN_IF_ERROR(in->Need(">"));
  return sharding;
}

}  // namespace

bool HasValidDevices(const SdyMesh& mesh) {
  if (mesh.device_ids.empty()) return true;
  if (mesh.axes.empty()) return mesh.device_ids.size() == 1 && mesh.device_ids[0] >= 0;
  const int64_t devices = Mesh("", mesh.axes).devices();
  if (std::ssize(mesh.device_ids) != devices) return false;
  std::vector<bool> seen(mesh.device_ids.size());
  for (const int64_t id : mesh.device_ids) {
    if (id < 0 || id >= devices || seen[id]) return false;
    seen[id] = true;
  }
  return true;
}

absl::StatusOr<std::vector<std::pair<std::string, SdyMesh>>> ParseSdyMeshes(absl::string_view text) {
  Reader in(text);
  std::vector<std::pair<std::string, SdyMesh>> meshes;
  const bool braces = in.Take("{");
  while (!in.AtEnd() && !in.Sees("}")) {
    XLAD_ASSIGN_OR_RETURN(std::string name, in.Identifier());
    XLAD_RETURN_IF_ERROR(in.Need("="));
    // The complete attribute may be quoted.
    const bool quoted = in.Take("\"");
    XLAD_RETURN_IF_ERROR(in.Need("#sdy.mesh"));
    XLAD_ASSIGN_OR_RETURN(SdyMesh mesh, ReadMesh(&in));
    if (quoted) XLAD_RETURN_IF_ERROR(in.Need("\""));
    meshes.emplace_back(std::move(name), std::move(mesh));
    if (!in.Take(",")) break;
  }
  if (braces) XLAD_RETURN_IF_ERROR(in.Need("}"));
  if (!in.AtEnd()) return in.Expected("the end");
  return meshes;
}

absl::StatusOr<std::vector<SdySharding>> ParseSdyShardings(absl::string_view text) {
  Reader in(text);
  std::vector<SdySharding> shardings;
  if (in.Take("#sdy.sharding_per_value")) {
    XLAD_RETURN_IF_ERROR(in.Need("<"));
    XLAD_RETURN_IF_ERROR(in.Need("["));
    XLAD_RETURN_IF_ERROR(List(&in, "]", [&]() -> absl::Status {
      XLAD_ASSIGN_OR_RETURN(SdySharding sharding, ReadSharding(&in));
      shardings.push_back(std::move(sharding));
      return absl::OkStatus();
    }));
    XLAD_RETURN_IF_ERROR(in.Need(">"));
  } else {
    XLAD_RETURN_IF_ERROR(in.Need("#sdy.sharding"));
    XLAD_ASSIGN_OR_RETURN(SdySharding sharding, ReadSharding(&in));
    shardings.push_back(std::move(sharding));
  }
  if (!in.AtEnd()) return in.Expected("the end");
  return shardings;
}

absl::StatusOr<std::vector<SdyAxis>> ParseSdyAxes(absl::string_view text) {
  Reader in(text);
  std::vector<SdyAxis> axes;
  in.Take("#sdy<manual_axes");
  in.Take("#sdy.manual_axes<");
  const bool brackets = in.Sees("[");
  XLAD_RETURN_IF_ERROR(ReadAxes(&in, brackets ? "[" : "{", brackets ? "]" : "}", &axes));
  in.Take(">");
  if (!in.AtEnd()) return in.Expected("the end");
  return axes;
}

namespace {

// Appends the named axes to `axes`. `used` contains all axes of the sharding that were read before.
absl::Status ResolveInto(const Mesh& mesh, const std::vector<SdyAxis>& named, AxisList* axes, AxisList* used) {
  for (const SdyAxis& axis : named) {
    const std::optional<int> found = mesh.Find(axis.name);
    if (!found.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("found axis \"", axis.name, "\", expected one of the mesh ", mesh.ToString()));
    }
    AxisRef ref = mesh.Whole(*found);
    if (axis.size != 0) {
      // Two divisions, because the product of pre and size may exceed 64 bits.
      if (ref.size % axis.size != 0 || ref.size / axis.size % axis.pre != 0) {
        return absl::InvalidArgumentError(absl::StrCat("found sub-axis \"", axis.name, "\":(", axis.pre, ")", axis.size,
                                                       ", expected a part of an axis of ", ref.size));
      }
      ref.pre = axis.pre;
      ref.size = axis.size;
    }
    if (ref.size == 1) continue;
    if (OverlapsAny(ref, *used)) {
      return absl::InvalidArgumentError(absl::StrCat("axis \"", axis.name, "\" is used twice"));
    }
    used->push_back(ref);
    AppendAxis(ref, axes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AxisList> ResolveAxes(const Mesh& mesh, const std::vector<SdyAxis>& axes) {
  AxisList list, used;
  XLAD_RETURN_IF_ERROR(ResolveInto(mesh, axes, &list, &used));
  return list;
}

absl::StatusOr<TensorSharding> Resolve(const Mesh& mesh, const SdySharding& sharding, int64_t ndim) {
  if (std::ssize(sharding.dims) != ndim) {
    return absl::InvalidArgumentError(
        absl::StrCat("found a sharding of ", Counted(sharding.dims.size(), "dimension"), ", expected ", ndim));
  }
  TensorSharding result = TensorSharding::Open(ndim);
  AxisList used;
  for (size_t d = 0; d < sharding.dims.size(); ++d) {
    const SdyDimension& dim = sharding.dims[d];
    XLAD_RETURN_IF_ERROR(ResolveInto(mesh, dim.axes, &result.dims[d].axes, &used));
    result.dims[d].closed = !dim.open;
    result.dims[d].priority = dim.priority;
  }
  XLAD_RETURN_IF_ERROR(ResolveInto(mesh, sharding.replicated, &result.replicated, &used));
  XLAD_RETURN_IF_ERROR(ResolveInto(mesh, sharding.unreduced, &result.unreduced, &used));
  result.unreduced_reduction = sharding.unreduced_reduction;
  return result;
}

}  // namespace xlad::sharding
