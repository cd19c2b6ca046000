#include "security/session_keys.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace xlad::security {
namespace {

std::string Hmac(absl::string_view secret, absl::string_view text) {
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  XLAD_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), bytes, text.size(), code, &size) !=
             nullptr)
      << "OpenSSL has no HMAC-SHA256";
  return absl::BytesToHexString({reinterpret_cast<const char*>(code), size});
}

// Writes the length before the text, which makes a concatenation of texts unambiguous.
void AppendText(absl::string_view text, std::string* out) { absl::StrAppend(out, text.size(), ":", text); }

}  // namespace

std::string FollowerKey(absl::string_view secret, absl::string_view worker_id) {
  std::string text = "follower ";
  AppendText(worker_id, &text);
  return Hmac(secret, text);
}

std::string DataKey(absl::string_view secret) { return Hmac(secret, "data"); }

std::string ProgramSeal(absl::string_view secret, absl::string_view executable_digest, const CollectivePlans& plans) {
  std::string text = "program ";
  AppendText(executable_digest, &text);
  for (const CollectivePlanProto& plan : plans) {
    AppendText(plan.algorithm(), &text);
    absl::StrAppend(&text, plan.chunks(), " ", plan.channels(), " ", plan.schedule_hash(), ";");
  }
  return Hmac(secret, text);
}

}  // namespace xlad::security
