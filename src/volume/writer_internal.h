// Writer::create with the devices given: for tests that lose power or fail writes.
#pragma once

#include "volume/device_io.h"
#include "volume/writer.h"

namespace dlfs::volume {

Result<std::unique_ptr<Writer>> create_writer(std::string_view url, const layout::Schema& schema,
                                              const WriterOptions& options, const OpenDevice& open_device);

}  // namespace dlfs::volume
