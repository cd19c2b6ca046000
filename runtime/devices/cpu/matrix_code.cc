#include "runtime/devices/cpu/matrix_code.h"

#include <sys/types.h>
#include <unistd.h>

#include "runtime/devices/cpu/dnnl_util.h"

namespace xlad::runtime {
namespace {

// A process that is started for a program loads it within this time.
constexpr std::chrono::milliseconds kWaitForProgram{1000};

}  // namespace

std::shared_ptr<MatrixCode> MatrixCodeOfProcess() {
  static std::mutex mutex;
  static std::weak_ptr<MatrixCode> shared;
  static pid_t process = 0;  // The one that made `shared`.
  const std::lock_guard lock(mutex);
  std::shared_ptr<MatrixCode> code = process == getpid() ? shared.lock() : nullptr;
  if (code == nullptr) {
    shared = code = std::make_shared<MatrixCode>([] { GenerateMatrixCode(); }, kWaitForProgram);
    process = getpid();
  }
  return code;
}

}  // namespace xlad::runtime
