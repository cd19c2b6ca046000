#include "security/openssl_error.h"

#include <openssl/err.h>

namespace xlad::security {

std::string TakeOpensslError(unsigned long code) {
  char text[256] = "unknown error";
  if (code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

}  // namespace xlad::security
