// Smart pointers to OpenSSL's objects.
#pragma once

namespace xlad::security {

// Frees an object with one of OpenSSL's functions: std::unique_ptr<SSL, OpensslDeleter<SSL_free>>.
template <auto kFree>
struct OpensslDeleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

}  // namespace xlad::security
