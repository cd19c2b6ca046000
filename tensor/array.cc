#include "tensor/array.h"

namespace xlad::tensor {

Array::Array(Shape shape, std::vector<std::byte> bytes) : shape_(std::move(shape)), bytes_(std::move(bytes)) {
  XLAD_CHECK(bytes_.empty() || std::ssize(bytes_) == shape_.bytes())
      << shape_.ToString() << " has " << shape_.bytes() << " bytes, found " << bytes_.size();
}

}  // namespace xlad::tensor
