#include "cli/save_state.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/file_system.h"
#include "storage/export.h"
#include "storage/uri.h"

namespace xlad::cli {

storage::Store StoreOf(client::CoordinatorClient& client) {
  return storage::Store(RealFileSystem(), [&client](const std::string& digest) { return client.OpenBlob(digest); });
}

absl::StatusOr<std::string> StateUriOf(const JobStatus& status) {
  if (!status.final_state_blob().empty()) return storage::BlobUri(status.final_state_blob());
  if (status.has_checkpoint()) return status.checkpoint_uri();
  return absl::NotFoundError(absl::StrCat("job ", status.id(), " has no final state and no checkpoint"));
}

absl::Status SaveTensors(const storage::Store& store, const std::string& uri, const std::string& path) {
  XLAD_ASSIGN_OR_RETURN(const auto source, store.OpenTensors(uri));
  std::error_code ignored;
  const bool replaces = !std::filesystem::exists(path, ignored) || std::filesystem::is_regular_file(path, ignored);
  if (!path.empty() && path != "-" && replaces) return storage::ExportSafetensors(*source, RealFileSystem(), path);
  const bool to_standard = path.empty() || path == "-";
  const auto error = [&] {
    return absl::InternalError(
        absl::StrCat("cannot write to ", to_standard ? "standard output" : path, ": ", std::strerror(errno)));
  };
  // `path` is a device or a pipe here, which cannot be replaced atomically.
  std::FILE* const out = to_standard ? stdout : std::fopen(path.c_str(), "wb");
  if (out == nullptr) return error();
  absl::Status status = storage::ExportSafetensors(*source, [&](absl::string_view bytes) {
    return std::fwrite(bytes.data(), 1, bytes.size(), out) == bytes.size() ? absl::OkStatus() : error();
  });
  if (std::fflush(out) != 0 && status.ok()) status = error();
  if (out != stdout && std::fclose(out) != 0 && status.ok()) status = error();
  return status;
}

}  // namespace xlad::cli
