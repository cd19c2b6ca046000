// Bundles several objects into an `ar` archive without timestamps, so that equal objects produce equal bytes.
#include <llvm/Object/ArchiveWriter.h>
#include <llvm/Support/MemoryBuffer.h>

#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {

absl::StatusOr<std::string> BundleObjects(std::vector<std::string> objects) {
  if (objects.size() == 1) return std::move(objects[0]);
  std::vector<std::string> names;
  for (size_t i = 0; i < objects.size(); ++i) names.push_back(absl::StrCat("part", i, ".o"));
  std::vector<llvm::NewArchiveMember> members;
  for (size_t i = 0; i < objects.size(); ++i) {
    members.emplace_back(llvm::MemoryBufferRef(objects[i], names[i]));
  }
  auto archive = llvm::writeArchiveToBuffer(members, llvm::SymtabWritingMode::NoSymtab,
                                            llvm::object::Archive::K_GNU, true, false);
  if (!archive) {
    return absl::InternalError(absl::StrCat("object code: cannot make an archive of ", objects.size(),
                                            " objects: ", llvm::toString(archive.takeError())));
  }
  return std::string((*archive)->getBufferStart(), (*archive)->getBufferSize());
}

}  // namespace xlad::compiler
