// HLO text: sharding={...} in its three generations, and replica groups in their three forms.
#include "absl/strings/str_cat.h"
#include "hlo/parse.h"

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

// Integers up to `close`, which is taken too.
bool ParseIntsUntil(Lexer& lexer, char close, Dims* values) {
  if (lexer.Accept(close)) return true;
  do {
    values->push_back(0);
    if (!lexer.Integer(&values->back())) return false;
  } while (lexer.Accept(','));
  return lexer.Expect(close);
}

// "<=[4,2]T(1,0)" behind the "<=".
bool ParseIotaSource(Lexer& lexer, Dims* reshape, Dims* transpose) {
  const char* const at = lexer.Here();
  if (!lexer.Expect('[') || !ParseIntsUntil(lexer, ']', reshape)) return false;
  if (lexer.PeekRaw() == 'T') {
    lexer.AcceptWord("T");
    if (!lexer.Expect('(') || !ParseIntsUntil(lexer, ')', transpose)) return false;
    std::vector<bool> seen(reshape->size(), false);
    bool good = transpose->size() == reshape->size();
    for (const int64_t d : *transpose) {
      good = good && d >= 0 && d < static_cast<int64_t>(seen.size()) && !seen[static_cast<size_t>(d)];
      if (good) seen[static_cast<size_t>(d)] = true;
    }
    if (!good) return lexer.Fail(at, "found a transposition that is no permutation of the reshape's dimensions");
  }
  return true;
}

// What fits in a list of device ids: more than any machine has, few enough to hold.
constexpr int64_t kMostDevices = int64_t{1} << 24;

bool CheckDeviceCount(Lexer& lexer, const char* at, const Dims& dims, int64_t* count) {
  *count = 1;
  for (const int64_t size : dims) {
    if (size < 1 || size > kMostDevices / *count) {
      return lexer.Fail(at, "found a tile assignment of no device or of more than 2^24, expected 1 to 2^24");
    }
    *count *= size;
  }
  return true;
}

// "devices=[2,4]..." behind the '='.
bool ParseTiles(Lexer& lexer, OpSharding* sharding) {
  sharding->kind = OpSharding::Kind::kTiled;
  const char* const at = lexer.Here();
  int64_t expected = 0, found = 0;
  if (!lexer.Expect('[') || !ParseIntsUntil(lexer, ']', &sharding->tile_dims) ||
      !CheckDeviceCount(lexer, at, sharding->tile_dims, &expected)) {
    return false;
  }
  if (lexer.Accept("<=")) {
    if (!ParseIotaSource(lexer, &sharding->iota_reshape_dims, &sharding->iota_transpose) ||
        !CheckDeviceCount(lexer, at, sharding->iota_reshape_dims, &found)) {
      return false;
    }
  } else {
    do {
      sharding->devices.push_back(0);
      if (!lexer.Integer(&sharding->devices.back())) return false;
    } while (lexer.Accept(','));
    found = static_cast<int64_t>(sharding->devices.size());
  }
  return found == expected || lexer.Fail(at, absl::StrCat("found ", found, " devices for a tile assignment of ",
                                                          expected, ", expected as many"));
}

bool ParseShardingMetadata(Lexer& lexer, OpSharding* sharding) {
  const char* const at = lexer.Here();
  if (!lexer.Expect('{')) return false;
  const bool list = lexer.Peek() == '{';
  lexer.Rewind(at);
  if (!list) return ParseMetadata(lexer, &sharding->metadata.emplace_back());
  return ParseBraced(lexer, [&] { return ParseMetadata(lexer, &sharding->metadata.emplace_back()); });
}

// One of the words and keys that a single sharding is made of, in any order.
bool ParseShardingPart(Lexer& lexer, OpSharding* sharding) {
  const char* const at = lexer.Here();
  if (lexer.AcceptWord("devices")) return lexer.Expect('=') && ParseTiles(lexer, sharding);
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
  if (lexer.AcceptWord("metadata")) return lexer.Expect('=') && ParseShardingMetadata(lexer, sharding);
  const bool as = lexer.AcceptWord("shard_as");
  if (as || lexer.AcceptWord("shard_like")) {
    sharding->group = as ? OpSharding::Group::kAs : OpSharding::Group::kLike;
    return lexer.Integer(&sharding->group_id);
  }
  lexer.Rewind(at);
  return ParseKind(lexer, &sharding->kind);
}

bool ParseSingle(Lexer& lexer, OpSharding* sharding) {
  const char* const at = lexer.Here();
  while (lexer.Peek() != '}') {
    if (!ParseShardingPart(lexer, sharding)) return false;
  }
  const bool maximal = sharding->kind == OpSharding::Kind::kMaximal;
  const bool tiled = sharding->kind == OpSharding::Kind::kTiled;
  if (maximal && sharding->devices.size() != 1) return lexer.FailAt(at, "one device of maximal, as in maximal device=3");
  if (!maximal && !tiled && !sharding->devices.empty()) return lexer.FailAt(at, "device= only behind maximal");
  const bool subgroups = sharding->replicate_on_last_tile_dim || !sharding->last_tile_dims.empty();
  if (subgroups && (!tiled || sharding->last_tile_dims.size() > sharding->tile_dims.size())) {
    return lexer.FailAt(at, "last_tile_dims only behind devices=[...] with at least as many dimensions");
  }
  return true;
}

// The third generation, "mesh['a'=2] [{'a'}]", is kept as text with single spaces.
bool ParseNamed(Lexer& lexer, OpSharding* sharding) {
  sharding->kind = OpSharding::Kind::kNamed;
  const char* const at = lexer.Here();
  while (lexer.Peek() != '}') {
    absl::string_view part;
    if (lexer.Accept(',')) {
      sharding->named += ",";
      continue;
    }
    if (!lexer.Raw(&part)) return false;
    if (!sharding->named.empty() && part.front() != ',') sharding->named += " ";
    bool space = false;
    for (const char c : part) {
      const bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
      if (!blank || !space) sharding->named.push_back(blank ? ' ' : c);
      space = blank;
    }
  }
  return !sharding->named.empty() || lexer.FailAt(at, "a sharding");
}

// 'a'=2,'b'=4 up to ']'.
bool ParseMeshAxes(Lexer& lexer, ReplicaGroups::MeshAxes* mesh) {
  if (lexer.Accept(']')) return true;
  do {
    auto& [name, size] = mesh->mesh.emplace_back();
    if (!lexer.String(&name) || !lexer.Expect('=') || !lexer.Integer(&size)) return false;
  } while (lexer.Accept(','));
  return lexer.Expect(']');
}

bool ParseAxisReference(Lexer& lexer, const ReplicaGroups::MeshAxes& mesh, ReplicaGroups::MeshAxes::Axis* axis) {
  const char* const at = lexer.Here();
  if (!lexer.String(&axis->name)) return false;
  int64_t whole = 0;
  for (const auto& [name, size] : mesh.mesh) {
    if (name == axis->name) whole = size;
  }
  if (whole == 0) return lexer.Fail(at, absl::StrCat("found axis '", axis->name, "', expected one of the mesh"));
  if (!lexer.Accept(':')) return true;
  if (!lexer.Expect('(') || !lexer.Integer(&axis->pre_size) || !lexer.Expect(')') || !lexer.Integer(&axis->size)) {
    return false;
  }
  const bool fits = axis->pre_size >= 1 && axis->size >= 1 && whole % axis->pre_size == 0 &&
                    (whole / axis->pre_size) % axis->size == 0;
  return fits || lexer.Fail(at, absl::StrCat("found a part of axis '", axis->name, "' that does not divide its size ",
                                             whole));
}

// mesh['a'=2,'b'=2], device_ids=(1,0,3,2) {'b'} behind "mesh[".
bool ParseMeshGroups(Lexer& lexer, ReplicaGroups* groups) {
  const char* const at = lexer.Here();
  ReplicaGroups::MeshAxes& mesh = groups->mesh_axes.emplace();
  int64_t count = 0;
  if (!ParseMeshAxes(lexer, &mesh)) return false;
  Dims sizes;
  for (const auto& [name, size] : mesh.mesh) sizes.push_back(size);
  if (!CheckDeviceCount(lexer, at, sizes, &count)) return false;
  const bool comma = lexer.Accept(',');
  if (lexer.AcceptWord("device_ids")) {
    if (!lexer.Expect('=') || !lexer.Expect('(') || !ParseIntsUntil(lexer, ')', &mesh.device_ids)) return false;
    if (static_cast<int64_t>(mesh.device_ids.size()) != count) {
      return lexer.Fail(at, absl::StrCat("found ", mesh.device_ids.size(), " device ids, expected the mesh's ", count));
    }
  } else if (comma) {
    return lexer.FailExpected("device_ids");
  }
  return ParseBraced(lexer, [&] { return ParseAxisReference(lexer, mesh, &mesh.axes.emplace_back()); });
}

bool ParseIotaGroups(Lexer& lexer, ReplicaGroups* groups) {
  const char* const at = lexer.Here();
  ReplicaGroups::Iota& iota = groups->iota.emplace();
  int64_t expected = 0, found = 0;
  if (!lexer.Expect('[') || !ParseIntsUntil(lexer, ']', &iota.dims) || !lexer.Accept("<=")) {
    return lexer.FailExpected("<=[...]");
  }
  if (!ParseIotaSource(lexer, &iota.reshape_dims, &iota.transpose) ||
      !CheckDeviceCount(lexer, at, iota.dims, &expected) ||
      !CheckDeviceCount(lexer, at, iota.reshape_dims, &found)) {
    return false;
  }
  if (iota.dims.size() != 2) return lexer.FailAt(at, "[groups,size]<=[...]");
  return found == expected || lexer.Fail(at, absl::StrCat("found groups over ", expected, " devices of ", found,
                                                          ", expected the same number"));
}

}  // namespace

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
  } else if (word == "mesh" || word == "maximal_mesh") {
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
