// Reads a program in any supported format.
#include "hlo/read/read.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "hlo/text/lexer.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "hlo/wire/proto.h"

namespace xlad::hlo {
namespace {

absl::Status Refuse(absl::string_view found) {
  return absl::InvalidArgumentError(absl::StrCat(
      "found ", found,
      ", expected HLO text or an HloModuleProto; in JAX, "
      "jax.jit(f).lower(...).compiler_ir('hlo').as_serialized_hlo_module_proto() returns an HloModuleProto"));
}

// Text has no control characters except tabs and line breaks. A proto has others near its beginning: after the first
// field's tag 0x0A there is a small length, or the next field's tag.
bool LooksLikeText(absl::string_view bytes) {
  constexpr size_t kEnough = 1 << 16;  // The name of a module may be long, and has no control characters.
  for (const char c : bytes.substr(0, kEnough)) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r') return false;
  }
  return true;
}

// Whether the text begins like an alias of an attribute or a type in MLIR, such as "#loc1 = ". A comment of another
// language that begins with '#' rarely looks like this.
bool BeginsWithAlias(absl::string_view text) {
  Lexer lexer(text);
  if (!lexer.Accept('#') && !lexer.Accept('!')) return false;
  return lexer.Here() == text.data() + 1 && !lexer.Word().empty() && lexer.Accept('=');
}

bool LooksLikeMlir(absl::string_view text) {
  Lexer lexer(text.substr(0, 4096));
  lexer.Peek();  // Skips comments.
  if (BeginsWithAlias(lexer.rest())) return true;
  const absl::string_view word = lexer.PeekWord();
  return word == "module" || absl::StartsWith(word, "func.") || absl::StartsWith(word, "stablehlo.") ||
         absl::StartsWith(word, "builtin.") || lexer.Accept("\"builtin.module\"");
}

// Whether the text begins with a word, a name or a shape, apart from comments. Also true if it has only comments, or
// begins with a comment that does not end, because the parser reports these errors with their place.
bool BeginsLikeHlo(absl::string_view text) {
  Lexer lexer(text);
  const char first = lexer.Peek();
  return first == '\0' || lexer.failed() || absl::ascii_isalnum(static_cast<unsigned char>(first)) || first == '%' ||
         first == '_' || first == '(';
}

// The prefixes of the labels of rules on the header, and the words of the header that the rules check.
constexpr std::pair<absl::string_view, absl::string_view> kHeaderRules[] = {
    {"[alias-", "input_output_alias"},   {"[donor-", "buffer_donor"},
    {"[device-count]", "replica_count"}, {"[device-count]", "num_partitions"},
    {"[stack-frame]", "StackFrames"},    {"[entry-layout]", "entry_computation_layout"},
};

// Adds the place of a header attribute in the text to an error of the verifier, which only has the parsed module.
absl::Status PlaceOfHeader(const absl::Status& status, absl::string_view text) {
  const absl::string_view message(status.message().data(), status.message().size());
  const size_t label = message.rfind('[');
  if (!absl::StartsWith(message, "module ") || label == absl::string_view::npos) return status;
  for (const auto& [prefix, word] : kHeaderRules) {
    const size_t at = text.find(word, std::min(text.size(), text.find("HloModule")));
    if (!absl::StartsWith(message.substr(label), prefix) || at == absl::string_view::npos) continue;
    int line = 0, column = 0;
    Lexer(text).Place(text.data() + at, &line, &column);
    return Annotate(status, absl::StrCat(line, ":", column));
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Module>> ReadModule(absl::string_view bytes) {
  absl::ConsumePrefix(&bytes, "\xef\xbb\xbf");  // A byte order mark.
  if (bytes.empty()) return absl::InvalidArgumentError("found an empty file, expected HLO text or an HloModuleProto");
  if (absl::StartsWith(bytes, "ML\xefR")) return Refuse("MLIR bytecode (a StableHLO artifact)");
  if (absl::StartsWith(bytes, "\x1f\x8b")) return Refuse("a file that gzip has compressed");
  if (absl::StartsWith(bytes, "\x28\xb5\x2f\xfd")) return Refuse("a file that zstd has compressed");
  const bool text = LooksLikeText(bytes);
  if (text && LooksLikeMlir(bytes)) return Refuse("MLIR text");
  if (text && !BeginsLikeHlo(bytes)) return Refuse("text that is not a program");
  absl::StatusOr<std::unique_ptr<Module>> module = text ? ParseText(bytes) : ParseProto(bytes);
  if (!module.ok()) return module;
  const absl::Status status = Verify(**module);
  if (!status.ok()) return text ? PlaceOfHeader(status, bytes) : status;
  return module;
}

}  // namespace xlad::hlo
