#include "security/certificates.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "security/openssl_deleter.h"
#include "security/openssl_error.h"
#include "security/private_files.h"

namespace xlad::security {
namespace {

constexpr int64_t kDay = 86'400;
constexpr int64_t kAuthorityDays = 3650;
constexpr int64_t kBackdateSeconds = 3600;  // The clock of a client may be slow.

using Key = std::unique_ptr<EVP_PKEY, OpensslDeleter<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, OpensslDeleter<X509_free>>;
using Buffer = std::unique_ptr<BIO, OpensslDeleter<BIO_free_all>>;

absl::Status LibraryError(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": ", TakeOpensslError(ERR_get_error())));
}

std::string Contents(BIO* buffer) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(buffer, &data);
  return {data, static_cast<size_t>(size)};
}

absl::StatusOr<KeyPair> ToPem(X509* certificate, EVP_PKEY* key) {
  const Buffer first(BIO_new(BIO_s_mem())), second(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(first.get(), certificate) != 1 ||
      PEM_write_bio_PrivateKey(second.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return LibraryError("cannot write a certificate");
  }
  return KeyPair{Contents(first.get()), Contents(second.get())};
}

absl::StatusOr<Certificate> ParseCertificate(const std::string& pem) {
  const Buffer buffer(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Certificate certificate(PEM_read_bio_X509(buffer.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) return absl::InvalidArgumentError("found no certificate in PEM form");
  return certificate;
}

absl::StatusOr<Key> ParseKey(const std::string& pem) {
  const Buffer buffer(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Key key(PEM_read_bio_PrivateKey(buffer.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (key == nullptr) return absl::InvalidArgumentError("found no private key in PEM form");
  return key;
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

// A certificate without extensions and signature. If `issuer` is null, the certificate is its own issuer.
absl::StatusOr<Certificate> Unsigned(EVP_PKEY* key, X509* issuer, const std::string& name, int64_t now, int64_t days) {
  Certificate certificate(X509_new());
  unsigned char serial[16];
  if (certificate == nullptr || RAND_bytes(serial, sizeof serial) != 1)
    return LibraryError("cannot make a certificate");
  serial[0] &= 0x7f;  // The serial number must be positive.
  BIGNUM* const number = BN_bin2bn(serial, sizeof serial, nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get()));
  BN_free(number);
  X509_set_version(certificate.get(), 2);  // Versions are counted from 0, so this is version 3.
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), now - kBackdateSeconds);
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), now + days * kDay);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.data()),
                             static_cast<int>(name.size()), -1, 0);
  X509_set_issuer_name(certificate.get(), issuer == nullptr ? subject : X509_get_subject_name(issuer));
  return certificate;
}

std::string AlternativeNames(const std::vector<std::string>& names) {
  return absl::StrJoin(names, ",", [](std::string* out, const std::string& name) {
    unsigned char bytes[sizeof(in6_addr)];
    const bool numeric = inet_pton(AF_INET, name.c_str(), bytes) == 1 || inet_pton(AF_INET6, name.c_str(), bytes) == 1;
    absl::StrAppend(out, numeric ? "IP:" : "DNS:", name);
  });
}

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 253 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:*") ==
             std::string::npos;
}

}  // namespace

absl::StatusOr<KeyPair> MakeAuthority(int64_t now_unix_s) {
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return LibraryError("cannot make a key");
  XLAD_ASSIGN_OR_RETURN(const Certificate certificate,
                        Unsigned(key.get(), nullptr, "xlad authority", now_unix_s, kAuthorityDays));
  X509* const c = certificate.get();
  if (!AddExtension(c, c, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(c, c, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(c, c, NID_subject_key_identifier, "hash") || X509_sign(c, key.get(), EVP_sha256()) == 0) {
    return LibraryError("cannot make the certificate of an authority");
  }
  return ToPem(c, key.get());
}

absl::StatusOr<KeyPair> IssueServer(const KeyPair& authority, const std::vector<std::string>& names,
                                    int64_t now_unix_s) {
  if (names.empty()) return absl::InvalidArgumentError("found no names for the certificate, expected at least 1");
  for (const std::string& name : names) {
    if (!IsName(name)) {
      return absl::InvalidArgumentError(absl::StrCat("found name \"", name, "\", expected a host name or an address"));
    }
  }
  XLAD_ASSIGN_OR_RETURN(const Certificate issuer, ParseCertificate(authority.certificate));
  XLAD_ASSIGN_OR_RETURN(const Key issuer_key, ParseKey(authority.key));
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return LibraryError("cannot make a key");
  XLAD_ASSIGN_OR_RETURN(const Certificate certificate,
                        Unsigned(key.get(), issuer.get(), "xlad coordinator", now_unix_s, kServerDays));
  X509* const c = certificate.get();
  X509* const i = issuer.get();
  if (!AddExtension(c, i, NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(c, i, NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(c, i, NID_ext_key_usage, "serverAuth") ||
      !AddExtension(c, i, NID_subject_alt_name, AlternativeNames(names)) ||
      !AddExtension(c, i, NID_authority_key_identifier, "keyid") || X509_sign(c, issuer_key.get(), EVP_sha256()) == 0) {
    return LibraryError("cannot issue the certificate of a server");
  }
  return ToPem(c, key.get());
}

absl::StatusOr<KeyPair> AuthorityIn(const std::string& folder, const Clock& clock) {
  XLAD_RETURN_IF_ERROR(MakePrivateFolder(folder));
  FileSystem& files = RealFileSystem();
  const std::string certificate = JoinPath(folder, "ca.pem"), key = JoinPath(folder, "ca-key.pem");
  KeyPair authority;
  if (files.Exists(certificate) && files.Exists(key)) {
    XLAD_ASSIGN_OR_RETURN(authority.certificate, files.Read(certificate));
    XLAD_ASSIGN_OR_RETURN(authority.key, files.Read(key));
    return authority;
  }
  XLAD_ASSIGN_OR_RETURN(authority, MakeAuthority(clock.WallNs() / 1'000'000'000));
  // The key is written first, because a certificate without its key is useless.
  XLAD_RETURN_IF_ERROR(WritePrivateFile(key, authority.key));
  XLAD_RETURN_IF_ERROR(WritePrivateFile(certificate, authority.certificate));
  return authority;
}

}  // namespace xlad::security
