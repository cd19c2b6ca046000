// Ownership of OpenSSL's objects.
#pragma once

namespace xlad::security {

// Frees an object by one of OpenSSL's functions: std::unique_ptr<SSL, OpensslDeleter<SSL_free>>.
template <auto kFree>
struct OpensslDeleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

}  // namespace xlad::security
