#include "cli/save_state.h"

#include <cstdio>
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
  return absl::NotFoundError(absl::StrCat("job ", status.id(), " has no checkpoint"));
}

absl::Status SaveTensors(const storage::Store& store, const std::string& uri, const std::string& path) {
  XLAD_ASSIGN_OR_RETURN(const auto source, store.OpenTensors(uri));
  std::error_code error;
  const bool replaces = !std::filesystem::exists(path, error) || std::filesystem::is_regular_file(path, error);
  if (!path.empty() && path != "-" && replaces) return storage::ExportSafetensors(*source, RealFileSystem(), path);
  std::FILE* const out = path.empty() || path == "-" ? stdout : std::fopen(path.c_str(), "wb");  // A pipe or a device.
  if (out == nullptr) return absl::InternalError(absl::StrCat("cannot write to ", path));
  absl::Status status = storage::ExportSafetensors(*source, [&](absl::string_view bytes) {
    const bool written = std::fwrite(bytes.data(), 1, bytes.size(), out) == bytes.size();
    return written ? absl::OkStatus() : absl::InternalError(absl::StrCat("cannot write to ", path));
  });
  if (std::fflush(out) != 0 && status.ok()) status = absl::InternalError(absl::StrCat("cannot write to ", path));
  if (out != stdout) std::fclose(out);
  return status;
}

}  // namespace xlad::cli
