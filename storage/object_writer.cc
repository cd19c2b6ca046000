#include "storage/object_writer.h"

#include <utility>

namespace xlad::storage {

absl::StatusOr<std::unique_ptr<ObjectWriter>> ObjectWriter::Create(FileSystem& files, std::string temporary) {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<File> file, files.Open(temporary, OpenMode::kCreate));
  return std::unique_ptr<ObjectWriter>(new ObjectWriter(files, std::move(temporary), std::move(file)));
}

ObjectWriter::~ObjectWriter() {
  file_.reset();
  if (!published_) files_.Remove(temporary_).IgnoreError();
}

absl::Status ObjectWriter::Append(absl::string_view bytes) {
  XLAD_RETURN_IF_ERROR(file_->Append(bytes));
  hasher_.Add(bytes);
  bytes_ += std::ssize(bytes);
  return absl::OkStatus();
}

absl::StatusOr<ObjectInfo> ObjectWriter::Finish(bool with_trailer) {
  ObjectInfo info = hasher_.Finish();
  if (with_trailer) XLAD_RETURN_IF_ERROR(file_->Append(SumsTrailer(info)));
  XLAD_RETURN_IF_ERROR(file_->Sync());
  file_.reset();
  return info;
}

absl::Status ObjectWriter::Publish(const std::string& path) {
  XLAD_RETURN_IF_ERROR(files_.Rename(temporary_, path));
  published_ = true;
  return files_.SyncDirectory(FolderOfPath(path));
}

}  // namespace xlad::storage
