// Memory of a GPU that processes share (CUDA IPC).
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "collectives/exec/transports/shared_memory/shared_memory.h"
#include "runtime/devices/cuda/cuda_stream.h"

namespace xlad::runtime::cuda {

// The name does not contain the GPU, because a GPU can access the memory of most other GPUs of its machine. If it
// cannot, OpenShared returns an error.
std::string CudaStream::shared_memory_name() const {
  const std::string machine = collectives::MachineName();
  return machine.empty() ? "" : absl::StrCat("cuda ", machine);
}

absl::StatusOr<collectives::DeviceOps::SharedMemory> CudaStream::AllocateShared(int64_t bytes) {
  XLAD_RETURN_IF_ERROR(Begin());
  XLAD_ASSIGN_OR_RETURN(const Gpu::Shared shared, gpu_->AllocateShared(bytes));
  SharedMemory memory;
  memory.address = {reinterpret_cast<std::byte*>(shared.address),
                    [gpu = gpu_, shared](std::byte*) { gpu->FreeShared(shared); }};
  memory.handle = absl::BytesToHexString(absl::string_view(shared.handle.bytes, sizeof shared.handle.bytes));
  return memory;
}

absl::StatusOr<std::shared_ptr<std::byte>> CudaStream::OpenShared(const std::string& handle) {
  XLAD_RETURN_IF_ERROR(Begin());
  IpcHandle opened;
  const bool has_size = handle.size() == 2 * sizeof opened.bytes;
  const std::string bytes = has_size ? absl::HexStringToBytes(handle) : "";
  if (!has_size || absl::BytesToHexString(bytes) != handle) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda: found the handle \"", handle, "\", expected ", 2 * sizeof opened.bytes, " hex digits"));
  }
  std::memcpy(opened.bytes, bytes.data(), sizeof opened.bytes);
  XLAD_ASSIGN_OR_RETURN(const DevicePointer address, gpu_->OpenShared(opened));
  return std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(address),
                                    [gpu = gpu_, address](std::byte*) { gpu->CloseShared(address); });
}

}  // namespace xlad::runtime::cuda
