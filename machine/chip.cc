// Reads chip files. Keys returns the table of the keys of a chip file.
#include "machine/chip.h"

#include <algorithm>
#include <map>
#include <set>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/suggest.h"
#include "machine/built_in_chips.h"
#include "machine/quantity.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// toml++ asserts in parse_key what the same function then checks, so that a file with "[=]" would end the process. The
// other assertions stay.
#if __has_include(<toml++/impl/preprocessor.h>)
#include <toml++/impl/preprocessor.h>  // Up to version 3.3.
#else
#include <toml++/impl/preprocessor.hpp>
#endif
#ifndef TOML_ASSERT_ASSUME
#error "found a toml++ without TOML_ASSERT_ASSUME, expected one of version 3.3 or later: see whether [=] is an error"
#endif
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT_ASSUME(condition) TOML_ASSERT((condition) || absl::string_view(__func__) == "parse_key")
#include <toml++/toml.h>

namespace xlad::machine {
namespace {

constexpr int kMaxCount = 1 << 16;

// The member that a key sets. Counts are integers of 1 to `max`.
using Target = std::variant<int Chip::*, double Chip::*, bool Chip::*>;

struct Key {
  absl::string_view table;
  absl::string_view name;
  Target target;
  Dimension dimension = Dimension::kBytes;  // Used only if `target` is a double.
  bool required = true;
  int max = kMaxCount;
};

const std::vector<Key>& Keys() {
  using enum Dimension;
  static const auto* const keys = new std::vector<Key>{
      {"compute", "cores", &Chip::cores},
      {"compute", "mxus_per_core", &Chip::mxus_per_core},
      {"compute", "mxu_size", &Chip::mxu_size},
      {"compute", "clock", &Chip::clock_hz, kHertz},
      {"compute", "vector_alus", &Chip::vector_alus},
      {"compute", "bf16", &Chip::bf16_flops, kOperationsPerSecond},
      {"compute", "int8", &Chip::int8_flops, kOperationsPerSecond, false},
      {"compute", "fp8", &Chip::fp8_flops, kOperationsPerSecond, false},
      {"hbm", "size", &Chip::hbm_bytes, kBytes},
      {"hbm", "rate", &Chip::hbm_bytes_per_s, kBytesPerSecond},
      {"vmem", "size", &Chip::vmem_bytes, kBytes},
      {"ici", "dimensions", &Chip::ici_dimensions, kBytes, true, 3},
      {"ici", "max_chips", &Chip::ici_max_chips, kBytes, false},
      {"ici", "rate", &Chip::ici_bytes_per_s, kBytesPerSecond},
      {"ici", "hop", &Chip::ici_hop_s, kSeconds},
      {"ici", "launch", &Chip::ici_launch_s, kSeconds},
      {"ici", "wraps_at", &Chip::ici_wraps_at},
      {"ici", "wraps_at_multiples", &Chip::ici_wraps_at_multiples, kBytes, false},
      {"dcn", "rate", &Chip::dcn_bytes_per_s, kBytesPerSecond, false},
      {"dcn", "latency", &Chip::dcn_latency_s, kSeconds, false},
  };
  return *keys;
}

std::string FullName(const Key& key) { return absl::StrCat(key.table, ".", key.name); }

// A value as an error message shows it.
std::string FoundText(const toml::node& node) {
  if (node.as_string() != nullptr) return absl::StrCat("\"", node.as_string()->get(), "\"");
  if (node.as_integer() != nullptr) return absl::StrCat(node.as_integer()->get());
  if (node.as_floating_point() != nullptr) return absl::StrCat(node.as_floating_point()->get());
  if (node.as_boolean() != nullptr) return node.as_boolean()->get() ? "true" : "false";
  return node.as_table() != nullptr ? "a table" : node.as_array() != nullptr ? "an array" : "a date or time";
}

class ChipReader {
 public:
  explicit ChipReader(absl::string_view path) : path_(path) {}

  absl::StatusOr<Chip> Read(absl::string_view text) {
    const toml::parse_result parsed = toml::parse(std::string_view(text.data(), text.size()));
    if (!parsed) {
      const toml::parse_error& error = parsed.error();
      return Error(error.source(), absl::StrCat("found text that is not TOML, expected keys and values: ",
                                                std::string(error.description())));
    }
    for (const auto& [key, value] : parsed.table()) {
      XLAD_RETURN_IF_ERROR(ReadTopLevel(std::string(key.str()), key.source(), value));
    }
    if (chip_.name.empty()) return Missing("name", 1, "a string such as \"v5e\"");
    const auto newlines = static_cast<uint32_t>(std::count(text.begin(), text.end(), '\n'));
    const uint32_t last_line = absl::EndsWith(text, "\n") ? newlines : newlines + 1;
    const bool has_dcn = seen_.contains("dcn.rate") || seen_.contains("dcn.latency");
    for (const Key& key : Keys()) {
      const bool required = key.required || (has_dcn && key.table == "dcn");
      if (!required || seen_.contains(FullName(key))) continue;
      const auto* table = parsed.table().get_as<toml::table>(std::string(key.table));
      return Missing(FullName(key), table == nullptr ? last_line : table->source().begin.line, ExpectedFor(key));
    }
    return chip_;
  }

 private:
  absl::Status Error(const toml::source_region& at, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ":", at.begin.line, ": ", what));
  }
  // `line` is that of the key's table. If the file does not have the table, it is the last line of the file.
  absl::Status Missing(absl::string_view name, uint32_t line, absl::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ":", line, ": found no key ", name, ", expected ", expected, "; add it to the file"));
  }
  static std::string ExpectedFor(const Key& key) {
    if (std::holds_alternative<int Chip::*>(key.target)) return absl::StrCat("an integer of 1 to ", key.max);
    if (std::holds_alternative<bool Chip::*>(key.target)) return "true or false";
    return absl::StrCat("a quantity such as \"", ExampleOf(key.dimension), "\"");
  }

  absl::Status Unknown(const std::string& name, const toml::source_region& at,
                       const std::vector<std::string>& known) const {
    const std::string nearest = NearestName(name, known);
    return Error(at, absl::StrCat("found unknown key ", name, ", expected one of ", absl::StrJoin(known, ", "),
                                  nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
  }

  absl::Status ReadTopLevel(const std::string& name, const toml::source_region& at, const toml::node& value) {
    if (name == "name") {
      if (const auto* text = value.as_string(); text != nullptr && !text->get().empty()) {
        chip_.name = text->get();
        return absl::OkStatus();
      }
      return Error(at, absl::StrCat("found ", FoundText(value), " for name, expected a string such as \"v5e\""));
    }
    std::vector<std::string> known = {"name"};
    std::vector<std::string> names;
    for (const Key& key : Keys()) {
      if (known.back() != key.table) known.emplace_back(key.table);
      if (key.table == name) names.push_back(FullName(key));
    }
    if (names.empty()) return Unknown(name, at, known);
    const toml::table* table = value.as_table();
    if (table == nullptr) {
      return Error(at, absl::StrCat("found ", FoundText(value), " for ", name, ", expected a table [", name, "]"));
    }
    for (const auto& [key, node] : *table) {
      const std::string full = absl::StrCat(name, ".", std::string(key.str()));
      const Key* row = nullptr;
      for (const Key& candidate : Keys()) {
        if (FullName(candidate) == full) row = &candidate;
      }
      if (row == nullptr) return Unknown(full, key.source(), names);
      seen_.insert(full);
      XLAD_RETURN_IF_ERROR(ReadValue(*row, node));
    }
    return absl::OkStatus();
  }

  absl::Status ReadValue(const Key& key, const toml::node& node) {
    const absl::Status wrong = Error(node.source(), absl::StrCat("found ", FoundText(node), " for ", FullName(key),
                                                                 ", expected ", ExpectedFor(key)));
    if (const auto* member = std::get_if<int Chip::*>(&key.target)) {
      const auto* number = node.as_integer();
      if (number == nullptr || number->get() < 1 || number->get() > key.max) return wrong;
      chip_.** member = static_cast<int>(number->get());
    } else if (const auto* member = std::get_if<bool Chip::*>(&key.target)) {
      const auto* flag = node.as_boolean();
      if (flag == nullptr) return wrong;
      chip_.** member = flag->get();
    } else {
      const auto* text = node.as_string();
      if (text == nullptr) return wrong;
      const absl::StatusOr<double> value = ParseQuantity(text->get(), key.dimension);
      if (!value.ok()) return Error(node.source(), absl::StrCat(FullName(key), ": ", value.status().message()));
      chip_.*std::get<double Chip::*>(key.target) = *value;
    }
    return absl::OkStatus();
  }

  std::string path_;
  Chip chip_;
  std::set<std::string> seen_;
};

}  // namespace

absl::StatusOr<Chip> ParseChip(absl::string_view text, absl::string_view path) { return ChipReader(path).Read(text); }

std::vector<std::string> BuiltInChipNames() {
  std::vector<std::string> names;
  for (const ChipFile& file : ChipFiles()) names.push_back(file.name);
  return names;
}

absl::StatusOr<Chip> BuiltInChip(absl::string_view name) {
  for (const ChipFile& file : ChipFiles()) {
    if (file.name == name) return ParseChip(file.text, absl::StrCat("deploy/chips/", name, ".toml"));
  }
  return absl::NotFoundError(absl::StrCat("found chip \"", name, "\", expected one of ",
                                          absl::StrJoin(BuiltInChipNames(), ", "),
                                          "; --chip takes a file of your own"));
}

}  // namespace xlad::machine
