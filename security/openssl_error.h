// The errors of OpenSSL as text.
#pragma once

#include <string>

namespace xlad::security {

// Returns the text of an error code of OpenSSL, or "unknown error" for 0. Clears the errors of this thread.
std::string TakeOpensslError(unsigned long code);

}  // namespace xlad::security
