// Shardings that name mesh axes: parsing and printing.
#include "hlo/text/named_sharding.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "hlo/text/parse.h"
#include "hlo/text/print.h"

namespace xlad::hlo {
namespace {

using Mesh = std::vector<std::pair<std::string, int64_t>>;
using Axis = NamedSharding::Axis;

std::vector<Axis> AllAxes(const Mesh& mesh) {
  std::vector<Axis> axes;
  for (const auto& [name, size] : mesh) axes.push_back({name});
  return axes;
}

bool ParseAxis(Lexer& lexer, const Mesh& mesh, Axis* axis) {
  const char* const at = lexer.Here();
  if (!lexer.String(&axis->name)) return false;
  int64_t whole = 0;
  for (const auto& [name, size] : mesh) {
    if (name == axis->name) whole = size;
  }
  if (whole == 0) return lexer.Fail(at, absl::StrCat("found axis '", axis->name, "', expected an axis of the mesh"));
  if (!lexer.Accept(':')) return true;
  if (!lexer.Expect('(') || !lexer.Integer(&axis->pre_size) || !lexer.Expect(')') || !lexer.Integer(&axis->size)) {
    return false;
  }
  const bool fits = axis->pre_size >= 1 && axis->size >= 1 && whole % axis->pre_size == 0 &&
                    (whole / axis->pre_size) % axis->size == 0;
  return fits || lexer.Fail(at, absl::StrCat("found '", axis->name, "':(", axis->pre_size, ")", axis->size,
                                             ", expected a part that divides the axis's size ", whole));
}

// Parses one dimension: {'a', 'b':(1)2, ?}.
bool ParseDimension(Lexer& lexer, const Mesh& mesh, NamedSharding::Dimension* dimension) {
  return ParseBraced(lexer, [&] {
    if (lexer.Accept('?')) {
      dimension->open = true;
      return lexer.Peek() == '}' || lexer.FailExpected("} after ?");
    }
    return ParseAxis(lexer, mesh, &dimension->axes.emplace_back());
  });
}

bool ParseDimensions(Lexer& lexer, NamedSharding* named) {
  if (lexer.Accept(']')) return true;
  do {
    if (!ParseDimension(lexer, named->mesh, &named->dims.emplace_back())) return false;
  } while (lexer.Accept(','));
  return lexer.Expect(']');
}

// Parses the rest of "unreduced", "unreduced={'a'}" or "unreduced=max{'a'}" after the first word.
bool ParseUnreduced(Lexer& lexer, NamedSharding* named) {
  const bool given = lexer.Accept('=');
  if (given && lexer.Peek() != '{') {
    const char* const at = lexer.Here();
    const bool brackets = lexer.Accept('[');  // Some versions of XLA print brackets.
    const absl::string_view op = lexer.Word();
    if (op != "max" && op != "min" && op != "sum") return lexer.FailAt(at, "max, min, sum or axes in braces");
    if (brackets && !lexer.Expect(']')) return false;
    if (op != "sum") named->unreduced_op = std::string(op);
  }
  if (given && lexer.Peek() == '{') return ParseAxes(lexer, named->mesh, &named->unreduced);
  named->unreduced = AllAxes(named->mesh);
  return true;
}

bool ParsePart(Lexer& lexer, NamedSharding* named) {
  if (lexer.Accept('[')) return ParseDimensions(lexer, named);
  if (lexer.AcceptWord("device_ids")) return lexer.Expect('=') && ParseDeviceIds(lexer, named);
  if (lexer.AcceptWord("unreduced")) return ParseUnreduced(lexer, named);
  if (lexer.AcceptWord("metadata")) return lexer.Expect('=') && ParseMetadataList(lexer, &named->metadata);
  const bool manual = lexer.AcceptWord("manual");
  if (!manual && !lexer.AcceptWord("replicated")) {
    return lexer.FailExpected("[dimensions], device_ids, replicated, unreduced, manual or metadata");
  }
  std::vector<Axis>& axes = manual ? named->manual : named->replicated;
  if (lexer.Accept('=')) return ParseAxes(lexer, named->mesh, &axes);
  if (manual) axes = AllAxes(named->mesh);
  return true;
}

void AppendDimensions(const NamedSharding& named, std::string* out) {
  out->append(", [");
  for (size_t d = 0; d < named.dims.size(); ++d) {
    const NamedSharding::Dimension& dimension = named.dims[d];
    if (d > 0) out->append(", ");
    AppendAxes(dimension.axes, out);
    if (!dimension.open) continue;
    out->pop_back();
    out->append(dimension.axes.empty() ? "?}" : ", ?}");
  }
  out->push_back(']');
}

void AppendAxisField(absl::string_view name, const std::vector<Axis>& axes, std::string* out) {
  if (axes.empty()) return;
  absl::StrAppend(out, ", ", name, "=");
  AppendAxes(axes, out);
}

}  // namespace

bool ParseMeshAxes(Lexer& lexer, Mesh* mesh) {
  if (lexer.Accept(']')) return true;
  int64_t devices = 1;
  do {
    const char* const at = lexer.Here();
    std::string name;
    int64_t size = 0;
    if (!lexer.String(&name) || !lexer.Expect('=') || !lexer.Integer(&size)) return false;
    for (const auto& [other, _] : *mesh) {
      if (other == name) return lexer.Fail(at, absl::StrCat("found axis '", name, "' twice, expected it once"));
    }
    constexpr int64_t kMaxDevices = 1 << 20;
    if (size < 1 || size > kMaxDevices / devices) {
      return lexer.Fail(at, absl::StrCat("found axis '", name, "' of size ", size,
                                         ", expected sizes of 1 or more, and at most 2^20 devices together"));
    }
    devices *= size;
    mesh->emplace_back(std::move(name), size);
  } while (lexer.Accept(','));
  return lexer.Expect(']');
}

bool ParseAxes(Lexer& lexer, const Mesh& mesh, std::vector<Axis>* axes) {
  return ParseBraced(lexer, [&] { return ParseAxis(lexer, mesh, &axes->emplace_back()); });
}

bool ParseDeviceIds(Lexer& lexer, NamedSharding* named) {
  const char* const at = lexer.Here();
  if (!lexer.Expect('(')) return false;
  int64_t devices = 1;
  for (const auto& [name, size] : named->mesh) devices *= size;
  if (lexer.Accept('[')) {
    if (!ParseIntsUntil(lexer, ']', &named->iota_reshape)) return false;
    return ParseTranspose(lexer, named->iota_reshape.size(), &named->iota_transpose) &&
           CheckIota(lexer, at, devices, named->iota_reshape, named->iota_transpose) && lexer.Expect(')');
  }
  if (!ParseIntsUntil(lexer, ')', &named->device_ids)) return false;
  return std::ssize(named->device_ids) == devices ||
         lexer.Fail(at, absl::StrCat("found ", Counted(named->device_ids.size(), "device id"), ", expected the mesh's ",
                                     devices));
}

bool ParseNamedSharding(Lexer& lexer, NamedSharding* named) {
  if (lexer.AcceptWord("maximal_mesh") || lexer.AcceptWord("single_device")) {  // The old and the new spelling.
    named->device_ids.push_back(0);
    if (!lexer.Expect('[')) return false;
    if (!lexer.AcceptWord("device_id")) return lexer.FailExpected("device_id");
    return lexer.Expect('=') && lexer.Integer(&named->device_ids.back()) && lexer.Expect(']');
  }
  if (!lexer.AcceptWord("mesh") || !lexer.Expect('[')) return lexer.FailExpected("mesh[...]");
  if (!ParseMeshAxes(lexer, &named->mesh)) return false;
  while (lexer.Peek() != '}' && !lexer.AtEnd()) {
    lexer.Accept(',');
    if (!ParsePart(lexer, named)) return false;
  }
  return true;
}

void AppendMesh(const Mesh& mesh, std::string* out) {
  absl::StrAppend(out, "mesh[", absl::StrJoin(mesh, ",", [](std::string* o, const auto& axis) {
                    absl::StrAppend(o, "'", absl::CEscape(axis.first), "'=", axis.second);
                  }), "]");
}

void AppendAxes(const std::vector<Axis>& axes, std::string* out) {
  absl::StrAppend(out, "{", absl::StrJoin(axes, ", ", [](std::string* o, const Axis& axis) {
                    absl::StrAppend(o, "'", absl::CEscape(axis.name), "'");
                    if (axis.size != 0) absl::StrAppend(o, ":(", axis.pre_size, ")", axis.size);
                  }), "}");
}

void AppendDeviceIds(const NamedSharding& named, std::string* out) {
  if (!named.iota_reshape.empty()) {
    absl::StrAppend(out, ", device_ids=([", absl::StrJoin(named.iota_reshape, ","), "]");
    if (!named.iota_transpose.empty()) absl::StrAppend(out, "T(", absl::StrJoin(named.iota_transpose, ","), ")");
    out->push_back(')');
  } else if (!named.device_ids.empty()) {
    absl::StrAppend(out, ", device_ids=(", absl::StrJoin(named.device_ids, ","), ")");
  }
}

std::string PrintNamedSharding(const NamedSharding& named) {
  if (named.mesh.empty() && named.device_ids.size() == 1) {
    return absl::StrCat("maximal_mesh[device_id=", named.device_ids.front(), "]");
  }
  std::string out;
  AppendMesh(named.mesh, &out);
  AppendDeviceIds(named, &out);
  const std::vector<Axis> all = AllAxes(named.mesh);
  const bool no_dims = named.dims.empty();
  const std::string reduction = named.unreduced_op.empty() ? "" : absl::StrCat("=", named.unreduced_op);
  if (no_dims && named.replicated.empty() && named.unreduced.empty() && named.manual.empty()) {
    out.append(", replicated");
  } else if (no_dims && named.replicated.empty() && named.unreduced.empty() && named.manual == all) {
    out.append(", manual");
  } else if (no_dims && named.replicated.empty() && named.manual.empty() && named.unreduced == all) {
    absl::StrAppend(&out, ", unreduced", reduction);
  } else {
    AppendDimensions(named, &out);
    AppendAxisField("replicated", named.replicated, &out);
    if (!named.unreduced.empty()) {
      absl::StrAppend(&out, ", unreduced", reduction.empty() ? "=" : reduction);
      AppendAxes(named.unreduced, &out);
    }
    AppendAxisField("manual", named.manual, &out);
  }
  if (named.metadata.empty()) return out;
  out.append(", metadata={");
  for (size_t i = 0; i < named.metadata.size(); ++i) {
    if (i > 0) out.append(", ");
    AppendMetadata(named.metadata[i], &out);
  }
  out.push_back('}');
  return out;
}

}  // namespace xlad::hlo
