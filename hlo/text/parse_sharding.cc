// HLO text: sharding={...} and replica groups. Both have three forms: lists of devices, iotas and axes of a mesh.
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "hlo/replica_groups.h"
#include "hlo/text/named_sharding.h"
#include "hlo/text/parse.h"

namespace xlad::hlo {
namespace {

struct KindName {
  absl::string_view name;
  OpSharding::Kind kind;
};
constexpr KindName kKinds[] = {
    {"replicated", OpSharding::Kind::kReplicated}, {"maximal", OpSharding::Kind::kMaximal},
    {"manual", OpSharding::Kind::kManual},         {"unknown", OpSharding::Kind::kUnknown},
    {"unreduced", OpSharding::Kind::kUnreduced},
};

bool ParseKind(Lexer& lexer, OpSharding::Kind* kind) {
  const char* const at = lexer.Here();
  const absl::string_view word = lexer.Word();
  for (const KindName& row : kKinds) {
    if (row.name != word) continue;
    *kind = row.kind;
    return true;
  }
  return lexer.FailAt(at, "replicated, maximal, manual, unknown, unreduced, devices=[...] or mesh[...]");
}

// Parses "[4,2]T(1,0)" after "<=".
bool ParseIotaSource(Lexer& lexer, Dims* reshape, Dims* transpose) {
  return lexer.Expect('[') && ParseIntsUntil(lexer, ']', reshape) && ParseTranspose(lexer, reshape->size(), transpose);
}

bool CheckDeviceCount(Lexer& lexer, const char* at, const Dims& dims, int64_t* count) {
  // The limit is above the number of devices of any system, and small enough that the devices can be listed.
  constexpr int64_t kMaxDevices = 1 << 20;
  *count = 1;
  for (const int64_t size : dims) {
    if (size < 1) return lexer.Fail(at, absl::StrCat("found a dimension of size ", size, ", expected 1 or more"));
    if (size > kMaxDevices / *count) return lexer.Fail(at, "found more than 2^20 devices, expected at most 2^20");
    *count *= size;
  }
  return true;
}

// Parses "[2,4]..." after "devices=".
bool ParseTiles(Lexer& lexer, OpSharding* sharding) {
  sharding->kind = OpSharding::Kind::kTiled;
  const char* const at = lexer.Here();
  int64_t expected = 0;
  if (!lexer.Expect('[') || !ParseIntsUntil(lexer, ']', &sharding->tile_dims) ||
      !CheckDeviceCount(lexer, at, sharding->tile_dims, &expected)) {
    return false;
  }
  if (lexer.Accept("<=")) {
    return ParseIotaSource(lexer, &sharding->iota_reshape_dims, &sharding->iota_transpose) &&
           CheckIota(lexer, at, expected, sharding->iota_reshape_dims, sharding->iota_transpose);
  }
  do {
    sharding->devices.push_back(0);
    if (!lexer.Integer(&sharding->devices.back())) return false;
  } while (lexer.Accept(','));
  return std::ssize(sharding->devices) == expected ||
         lexer.Fail(at, absl::StrCat("found ", Counted(sharding->devices.size(), "device"),
                                     " for a tile assignment, expected ", expected));
}

// Parses one word or key of a sharding, and increments `kinds` if it is a kind. Words and keys may be in any order.
bool ParseShardingPart(Lexer& lexer, OpSharding* sharding, int* kinds) {
  const char* const at = lexer.Here();
  if (lexer.AcceptWord("devices")) {
    ++*kinds;
    return lexer.Expect('=') && ParseTiles(lexer, sharding);
  }
  if (lexer.AcceptWord("device")) {
    sharding->devices.push_back(0);
    return lexer.Expect('=') && lexer.Integer(&sharding->devices.back());
  }
  if (lexer.AcceptWord("last_tile_dim_replicate")) {
    sharding->replicate_on_last_tile_dim = true;
    return true;
  }
  if (lexer.AcceptWord("last_tile_dims")) {
    return lexer.Expect('=') &&
           ParseBraced(lexer, [&] { return ParseKind(lexer, &sharding->last_tile_dims.emplace_back()); });
  }
  if (lexer.AcceptWord("metadata")) return lexer.Expect('=') && ParseMetadataList(lexer, &sharding->metadata);
  const bool as = lexer.AcceptWord("shard_as");
  if (as || lexer.AcceptWord("shard_like")) {
    sharding->group = as ? OpSharding::Group::kAs : OpSharding::Group::kLike;
    return lexer.Integer(&sharding->group_id);
  }
  lexer.Rewind(at);
  ++*kinds;
  return ParseKind(lexer, &sharding->kind);
}

bool ParseSingle(Lexer& lexer, OpSharding* sharding) {
  const char* const at = lexer.Here();
  int kinds = 0;
  while (lexer.Peek() != '}') {
    if (!ParseShardingPart(lexer, sharding, &kinds)) return false;
  }
  if (kinds > 1) return lexer.FailAt(at, "one kind of sharding, such as replicated or devices=[...]");
  const bool maximal = sharding->kind == OpSharding::Kind::kMaximal;
  const bool tiled = sharding->kind == OpSharding::Kind::kTiled;
  if (maximal && sharding->devices.size() != 1) {
    return lexer.FailAt(at, "one device of maximal, as in maximal device=3");
  }
  if (!maximal && !tiled && !sharding->devices.empty()) return lexer.FailAt(at, "device= only with maximal");
  const bool subgroups = sharding->replicate_on_last_tile_dim || !sharding->last_tile_dims.empty();
  if (subgroups && (!tiled || sharding->last_tile_dims.size() > sharding->tile_dims.size())) {
    return lexer.FailAt(at,
                        "last_tile_dim_replicate or last_tile_dims only with devices=[...], and not more "
                        "last_tile_dims than dimensions");
  }
  return true;
}

// Parses the form that names axes, "mesh['a'=2], [{'a'}]", and stores it as canonical text.
bool ParseNamed(Lexer& lexer, OpSharding* sharding) {
  sharding->kind = OpSharding::Kind::kNamed;
  NamedSharding named;
  if (!ParseNamedSharding(lexer, &named)) return false;
  sharding->named = PrintNamedSharding(named);
  return true;
}

// Parses mesh['a'=2,'b'=2], device_ids=(1,0,3,2) {'b'} after "mesh[".
bool ParseMeshGroups(Lexer& lexer, ReplicaGroups* groups) {
  ReplicaGroups::MeshAxes& mesh = groups->mesh_axes.emplace();
  NamedSharding named;
  if (!ParseMeshAxes(lexer, &named.mesh)) return false;
  const bool comma = lexer.Accept(',');
  if (lexer.AcceptWord("device_ids")) {
    if (!lexer.Expect('=') || !ParseDeviceIds(lexer, &named)) return false;
  } else if (comma) {
    return lexer.FailExpected("device_ids");
  }
  mesh.mesh = named.mesh;
  mesh.device_ids = named.device_ids;
  if (!named.iota_reshape.empty()) mesh.device_ids = TransposedIota(named.iota_reshape, named.iota_transpose);
  return ParseAxes(lexer, mesh.mesh, &mesh.axes);
}

bool ParseIotaGroups(Lexer& lexer, ReplicaGroups* groups) {
  const char* const at = lexer.Here();
  ReplicaGroups::Iota& iota = groups->iota.emplace();
  int64_t count = 0;
  if (!lexer.Expect('[') || !ParseIntsUntil(lexer, ']', &iota.dims)) return false;
  if (!lexer.Accept("<=")) return lexer.FailExpected("<=[...]");
  if (iota.dims.size() != 2) return lexer.FailAt(at, "[groups,size]<=[...]");
  return ParseIotaSource(lexer, &iota.reshape_dims, &iota.transpose) &&
         CheckDeviceCount(lexer, at, iota.dims, &count) &&
         CheckIota(lexer, at, count, iota.reshape_dims, iota.transpose);
}

}  // namespace

bool ParseIntsUntil(Lexer& lexer, char close, Dims* values) {
  if (lexer.Accept(close)) return true;
  do {
    values->push_back(0);
    if (!lexer.Integer(&values->back())) return false;
  } while (lexer.Accept(','));
  return lexer.Expect(close);
}

bool ParseTranspose(Lexer& lexer, size_t ndim, Dims* transpose) {
  if (lexer.PeekRaw() == 'T') {
    lexer.AcceptWord("T");
    const char* const at = lexer.Here();
    if (!lexer.Expect('(') || !ParseIntsUntil(lexer, ')', transpose)) return false;
    if (ndim <= 1 && *transpose != Dims(ndim, 0)) return lexer.FailAt(at, ndim == 1 ? "(0)" : "()");
  }
  // In the canonical form, an iota of one dimension has no transposition, and an iota of several dimensions always has
  // one.
  if (ndim <= 1) transpose->clear();
  if (ndim > 1 && transpose->empty()) {
    for (size_t d = 0; d < ndim; ++d) transpose->push_back(d);
  }
  return true;
}

bool CheckIota(Lexer& lexer, const char* at, int64_t devices, const Dims& reshape, const Dims& transpose) {
  int64_t count = 0;
  if (!CheckDeviceCount(lexer, at, reshape, &count)) return false;
  if (count != devices) {
    return lexer.Fail(at, absl::StrCat("found an iota of ", Counted(count, "device"), ", expected ", devices));
  }
  const std::string expected =
      absl::StrCat(" in a transposition, expected a permutation of the iota's ", reshape.size(), " dimensions");
  if (!transpose.empty() && transpose.size() != reshape.size()) {
    return lexer.Fail(at, absl::StrCat("found ", Counted(transpose.size(), "dimension"), expected));
  }
  std::vector<bool> seen(reshape.size(), false);
  for (const int64_t d : transpose) {
    const bool exists = d >= 0 && d < std::ssize(seen);
    if (!exists || seen[d]) {
      return lexer.Fail(at, absl::StrCat("found dimension ", d, exists ? " twice" : "", expected));
    }
    seen[d] = true;
  }
  return true;
}

bool ParseSharding(Lexer& lexer, OpSharding* sharding) {
  Lexer::Depth depth(lexer);
  if (!depth.Check() || !lexer.Expect('{')) return false;
  const absl::string_view word = lexer.PeekWord();
  if (lexer.Peek() == '{' || lexer.Peek() == '}') {
    sharding->kind = OpSharding::Kind::kTuple;
    if (lexer.Accept('}')) return true;
    do {
      if (!ParseSharding(lexer, &sharding->tuple.emplace_back())) return false;
    } while (lexer.Accept(','));
  } else if (word == "mesh" || word == "maximal_mesh" || word == "single_device") {
    if (!ParseNamed(lexer, sharding)) return false;
  } else if (!ParseSingle(lexer, sharding)) {
    return false;
  }
  return lexer.Expect('}');
}

bool ParseReplicaGroups(Lexer& lexer, ReplicaGroups* groups) {
  if (lexer.AcceptWord("mesh")) return lexer.Expect('[') && ParseMeshGroups(lexer, groups);
  if (lexer.Peek() == '[') return ParseIotaGroups(lexer, groups);
  return ParseBraced(lexer, [&] { return ParseInts(lexer, &groups->groups.emplace_back()); });
}

}  // namespace xlad::hlo
