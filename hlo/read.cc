// A program in any form that xlad reads.
#include "hlo/read.h"

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "hlo/lexer.h"
#include "hlo/proto.h"
#include "hlo/text.h"
#include "hlo/verifier.h"

namespace xlad::hlo {
namespace {

absl::Status Refuse(absl::string_view found) {
  return absl::InvalidArgumentError(absl::StrCat(
      "found ", found, ", expected HLO text or an HloModuleProto: xlad reads HLO; in JAX, "
      "jax.jit(f).lower(...).compiler_ir('hlo').as_serialized_hlo_module_proto() gives it"));
}

// Text has no control characters. A proto has: 0x0A begins its first field, and a small length or the next field's
// tag follows soon.
bool LooksLikeText(absl::string_view bytes) {
  constexpr size_t kEnough = size_t{1} << 16;  // Long names of modules have no control characters either.
  for (const char c : bytes.substr(0, kEnough)) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r') return false;
  }
  return true;
}

bool LooksLikeMlir(absl::string_view text) {
  Lexer lexer(text.substr(0, 4096));
  if (lexer.Peek() == '#' || lexer.Peek() == '!') return true;  // An alias of an attribute or a type.
  const absl::string_view word = lexer.PeekWord();
  return word == "module" || absl::StartsWith(word, "func.") || absl::StartsWith(word, "stablehlo.") ||
         absl::StartsWith(word, "builtin.") || lexer.Accept("\"builtin.module\"");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Module>> ReadModule(absl::string_view bytes) {
  absl::ConsumePrefix(&bytes, "\xef\xbb\xbf");  // The mark that some editors put before text.
  if (bytes.empty()) return absl::InvalidArgumentError("found an empty file, expected HLO text or an HloModuleProto");
  if (absl::StartsWith(bytes, "ML\xefR")) return Refuse("MLIR bytecode (a StableHLO artifact)");
  if (absl::StartsWith(bytes, "\x1f\x8b")) return Refuse("a file that gzip has compressed");
  if (absl::StartsWith(bytes, "\x28\xb5\x2f\xfd")) return Refuse("a file that zstd has compressed");
  const bool text = LooksLikeText(bytes);
  if (text && LooksLikeMlir(bytes)) return Refuse("MLIR text");
  absl::StatusOr<std::unique_ptr<Module>> module = text ? ParseText(bytes) : ParseProto(bytes);
  if (!module.ok()) return module;
  XLAD_RETURN_IF_ERROR(Verify(**module));
  return module;
}

}  // namespace xlad::hlo
