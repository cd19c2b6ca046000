// Canonical spellings of attributes, and checks of attribute text from protos.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "hlo/text/attribute_table.h"
#include "hlo/text/parse.h"

namespace xlad::hlo {
namespace {

constexpr absl::string_view kCarriedHeader[] = {"origin_recovery_table", "spmd_output_sharding",
                                                "spmd_parameters_shardings", "is_dynamic", "device_type",
                                                "debug_attributes"};

// Checks text of the form "a=b, c=d". `known` returns true for a permitted name.
template <typename Known>
absl::Status CheckNameValues(absl::string_view text, const Known& known) {
  if (text.empty()) return absl::OkStatus();
  Lexer lexer(text);
  do {
    absl::string_view name, value;
    if (!lexer.ExpectWord("a name", &name) || !lexer.Expect('=') || !lexer.Raw(&value)) break;
    if (!known(name)) lexer.Fail(name.data(), "found an unknown name");
  } while (lexer.Accept(','));
  if (!lexer.failed() && lexer.AtEnd()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found attributes \"", absl::CEscape(text.substr(0, 200)),
                                                 "\", expected name=value, name=value of known names"));
}

void CanonicalizeCompare(Instruction* instruction, absl::Span<Instruction* const> operands) {
  const ComparisonType type = instruction->attributes().comparison_type;
  if (type == ComparisonType::kDefault || operands.empty() || !operands[0]->shape().is_array()) return;
  if (type == DefaultComparisonType(operands[0]->shape().type())) {
    instruction->mutable_attributes().comparison_type = ComparisonType::kDefault;
  }
}

// The text omits an empty window. Opcodes that move a window always have one, even on scalars.
void CanonicalizeWindow(Instruction* instruction) {
  const Opcode opcode = instruction->opcode();
  const bool moves_window = opcode == Opcode::kConvolution || opcode == Opcode::kReduceWindow ||
                            opcode == Opcode::kSelectAndScatter;
  const std::optional<Window>& window = instruction->attributes().window;
  if (window.has_value() ? !window->empty() : !moves_window) return;
  instruction->mutable_attributes().window.reset();
  if (moves_window) instruction->mutable_attributes().window.emplace();
}

}  // namespace

void Canonicalize(Instruction* instruction, absl::Span<Instruction* const> operands) {
  const Opcode opcode = instruction->opcode();
  if (opcode == Opcode::kDot || opcode == Opcode::kRaggedDot || opcode == Opcode::kScaledDot) {
    if (!instruction->attributes().dot.has_value()) instruction->mutable_attributes().dot.emplace();
  }
  CanonicalizeWindow(instruction);
  if (opcode == Opcode::kCompare) CanonicalizeCompare(instruction, operands);
  if (opcode == Opcode::kOutfeed && !operands.empty()) {  // The default of outfeed_shape is the operand's shape.
    Shape& sent = instruction->mutable_attributes().outfeed_shape;
    if (sent.is_tuple() && sent.tuple().empty()) sent = operands[0]->shape();
  }
  if (instruction->attributes().async_execution_thread == "main") {
    instruction->mutable_attributes().async_execution_thread.clear();
  }
  const std::string& version = instruction->attributes().api_version;
  if (version == "API_VERSION_ORIGINAL" || version == "API_VERSION_UNSPECIFIED") {
    instruction->mutable_attributes().api_version.clear();
  }
  const std::vector<std::string>& precision = instruction->attributes().operand_precision;
  const bool all_default =
      std::all_of(precision.begin(), precision.end(), [](const std::string& p) { return p == "default"; });
  if (!precision.empty() && all_default) instruction->mutable_attributes().operand_precision.clear();
}

absl::Status CheckCarried(absl::string_view other) { return CheckNameValues(other, IsCarriedAttribute); }

bool IsCarriedHeader(absl::string_view name) { return Contains(kCarriedHeader, name); }

absl::Status CheckCarriedHeader(absl::string_view other) { return CheckNameValues(other, IsCarriedHeader); }

absl::Status CheckMetadata(const Metadata& metadata) {
  for (const auto& [name, value] : metadata.other) {
    Lexer lexer(value);
    absl::string_view whole;
    if (!IsWord(name)) {
      return absl::InvalidArgumentError(absl::StrCat("found metadata \"", absl::CEscape(name),
                                                     "\", expected a name of letters, digits and the characters _.-"));
    }
    if (!lexer.Raw(&whole, /*spaces=*/true) || whole.size() != value.size()) {
      return absl::InvalidArgumentError(absl::StrCat("found metadata ", name, "=", absl::CEscape(value.substr(0, 200)),
                                                     ", expected one value of HLO text"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLayoutSuffix(absl::string_view suffix) {
  if (suffix.empty()) return absl::OkStatus();
  const std::string text = absl::StrCat("{:", suffix, "}");
  Lexer lexer(text);
  Layout layout;
  if (ParseLayout(lexer, 0, &layout) && lexer.AtEnd() && layout.suffix == suffix) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found layout \"", absl::CEscape(suffix.substr(0, 200)),
                                                 "\", expected letters and numbers as in T(8,128)S(1)"));
}

std::vector<absl::string_view> OpcodeNames() {
  std::vector<absl::string_view> names;
  for (int o = 0; o < OpcodeCount(); ++o) names.push_back(ToString(static_cast<Opcode>(o)));
  return names;
}

}  // namespace xlad::hlo
